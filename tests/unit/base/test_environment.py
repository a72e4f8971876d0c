"""The meaning of each environment variable, and the warning for one that is malformed or misspelt."""

from __future__ import annotations

import logging

import opentelemetry.instrumentation.environment_variables
import opentelemetry.sdk.environment_variables
import pytest

from otel_quant.base.environment import settings_from
from otel_quant.base.log import warn_once
from otel_quant.schema import instrument_command_options as launcher_options
from otel_quant.schema.settings import SETTINGS, Settings

VARIABLES = [setting.variable for setting in SETTINGS]


@pytest.fixture(autouse=True)
def _no_warning_logged_yet() -> None:
    warn_once.cache_clear()


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, Settings()),
        (dict.fromkeys(VARIABLES, "  "), Settings()),
        ({"OTEL_SDK_DISABLED": " TRUE "}, Settings(sdk_disabled=True)),
        ({"OTEL_SDK_DISABLED": "1"}, Settings()),
        ({"OTEL_QUANT_PROFILE": "out/p.yaml"}, Settings(profile_path="out/p.yaml")),
        ({"QUARK_PROFILING": "1"}, Settings(quark_profiling=True)),
        ({"QUARK_PROFILING": "off"}, Settings()),
        ({"OTEL_TRACES_EXPORTER": "otlp, quark_yaml"}, Settings(yaml_exporter=True)),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, Settings()),
        ({"OTEL_QUANT_LIBRARIES": " quark ,,torch"}, Settings(libraries=frozenset({"quark", "torch"}))),
        ({"OTEL_QUANT_RUN_NAME": " resnet on Friday "}, Settings(run_name="resnet on Friday")),
        ({"OTEL_QUANT_RECORD": " out ", "OTEL_QUANT_LAUNCHER_PID": "17"}, Settings(record="out", launched=True)),
    ],
)  # fmt: skip
def test_each_variable_is_parsed_as_documented(
    environ: dict[str, str], expected: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    assert settings_from(environ) == expected
    wants = expected.profile_path, expected.quark_profiling, expected.yaml_exporter
    assert expected.profile_wanted is any(wants)
    assert caplog.messages == []


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("flag", "true", True), ("flag", "TRUE", True), ("flag", "1", True), ("flag", " on ", True),
        ("flag", "false", False), ("flag", "0", False),
        ("milliseconds", "0", 0.0), ("milliseconds", "250", 0.25), ("milliseconds", "1.5", 0.0015),
        ("milliseconds", "1e300", 1e6), ("nodes", '["/c1/Conv", "a, b"]', ("/c1/Conv", "a, b")), ("nodes", "[]", ()),
    ],
)  # fmt: skip
def test_each_kind_of_variable_parses_a_text_in_the_same_way(
    kind: str, text: str, value: object
) -> None:
    for each in SETTINGS:
        if each.kind == kind:
            assert getattr(settings_from({each.variable: text}), each.field) == value


def warned(environ: dict[str, str], caplog: pytest.LogCaptureFixture) -> list[str]:
    """Reads the settings twice; returns what is logged."""
    for _ in range(2):
        assert settings_from(environ) == Settings()
    assert {record.levelno for record in caplog.records} <= {logging.WARNING}
    return caplog.messages


@pytest.mark.parametrize(
    ("kind", "texts", "expected"),
    [
        ("flag", ["maybe", "2", "tru", "ja"], "true or false"),
        ("milliseconds", ["-1", "soon", "1s", "nan", "inf", "1e999", "0x10", "1,5"], "a number of milliseconds, 0 or more"),
        ("nodes", ["c1", '"c1"', "[1]", "{}"], "a list of names in JSON"),
        ("quark's switch", ["yes", "true", "on", "2", "profile.yaml"],
         "1 (Quark's own profiler accepts no other value) or 0"),
    ],
)  # fmt: skip
def test_a_malformed_value_is_logged_once_and_the_default_is_used(
    kind: str, texts: list[str], expected: str, caplog: pytest.LogCaptureFixture
) -> None:
    for name in (each.variable for each in SETTINGS if each.kind == kind):
        for text in texts:
            caplog.clear()
            assert warned({name: text}, caplog) == [
                f"environment variable {name} is {text!r}; expected {expected}; using the default"
            ]


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("OTEL_QUANT_PROFIL", "OTEL_QUANT_PROFILE"),
        ("OTEL_QUANT_PROFILING", "OTEL_QUANT_PROFILE"),
        ("OTEL_QUANTPATHS", "OTEL_QUANT_PATHS"),
        ("OTEL_QAUNT_GPU", "OTEL_QUANT_GPU"),
        ("OTEL_QUARK_PROFILE", "OTEL_QUANT_PROFILE"),
        ("otel_quant_libraries", "OTEL_QUANT_LIBRARIES"),
    ],
)
def test_a_misspelt_variable_is_logged_once_with_the_name_that_is_meant(
    name: str, meant: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert warned({name: "1"}, caplog) == [
        f"environment variable {name} is unknown and has no effect; did you mean {meant}?"
    ]


@pytest.mark.parametrize("name", ["OTEL_QUANT_NOTEBOOK", "OTEL_Q"])
def test_an_unknown_variable_is_logged_with_the_list_of_all_variables(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    names = ", ".join(variable for variable in VARIABLES if "QUANT" in variable)
    assert warned({name: "1"}, caplog) == [
        f"environment variable {name} is unknown and has no effect; expected one of {names}"
    ]


def test_variables_and_exporters_of_opentelemetry_are_not_taken_for_misspelt_ones(
    caplog: pytest.LogCaptureFixture,
) -> None:
    names = [
        name
        for module in (
            opentelemetry.sdk.environment_variables,
            opentelemetry.instrumentation.environment_variables,
        )
        for name in vars(module)
        if name.startswith("OTEL_")
    ]
    assert len(names) > 50
    exporters = "otlp,otlp_proto_grpc,otlp_proto_http,console,none,zipkin,jaeger,prometheus"
    assert warned({**dict.fromkeys(names, "1"), "OTEL_TRACES_EXPORTER": exporters}, caplog) == []


def test_the_launcher_has_an_option_for_each_variable_of_otel_quant() -> None:
    options = {name for name in dir(launcher_options) if name.startswith("OTEL_")}
    assert options == {variable for variable in VARIABLES if "QUANT" in variable} - {
        "OTEL_QUANT_LAUNCHER_PID"  # that of another launcher, for the program alone
    }
