"""The meaning of each environment variable, and the warning for one that is malformed or misspelt."""

from __future__ import annotations

import logging

import opentelemetry.instrumentation.environment_variables
import opentelemetry.sdk.environment_variables
import pytest

from otel_quant.base import environment
from otel_quant.base.environment import settings_from
from otel_quant.schema import instrument_command_options as launcher_options
from otel_quant.schema.settings import SETTINGS, Settings

VARIABLES = [setting.variable for setting in SETTINGS]
FLAGS = {each.variable: each.field for each in SETTINGS if each.kind == "flag"}
MILLISECONDS = {each.variable: each.field for each in SETTINGS if each.kind == "milliseconds"}


@pytest.fixture(autouse=True)
def _no_warning_logged_yet() -> None:
    environment._warn_once.cache_clear()


def test_an_empty_environment_gives_the_defaults() -> None:
    assert settings_from({}) == Settings()
    assert settings_from(dict.fromkeys(VARIABLES, "  ")) == Settings()


@pytest.mark.parametrize(("name", "field"), FLAGS.items())
@pytest.mark.parametrize(
    ("text", "value"),
    [("true", True), ("TRUE", True), ("1", True), (" on ", True), ("false", False), ("0", False)],
)
def test_flags(name: str, field: str, text: str, value: bool) -> None:
    assert getattr(settings_from({name: text}), field) is value


@pytest.mark.parametrize(
    ("text", "disabled"), [("true", True), (" TRUE ", True), ("1", False), ("false", False)]
)
def test_the_sdk_is_disabled_by_the_word_that_it_knows(text: str, disabled: bool) -> None:
    assert settings_from({"OTEL_SDK_DISABLED": text}) == Settings(sdk_disabled=disabled)


@pytest.mark.parametrize(("name", "field"), MILLISECONDS.items())
@pytest.mark.parametrize(
    ("text", "value"), [("0", 0.0), ("250", 0.25), ("1.5", 0.0015), ("1e300", 1e6)]
)
def test_times(name: str, field: str, text: str, value: float) -> None:
    assert getattr(settings_from({name: text}), field) == value


@pytest.mark.parametrize(
    ("environ", "wanted", "path"),
    [
        ({"OTEL_QUANT_PROFILE": "out/p.yaml"}, True, "out/p.yaml"),
        ({"QUARK_PROFILING": "1"}, True, None),
        ({"QUARK_PROFILING": "true"}, False, None),
        ({"OTEL_TRACES_EXPORTER": "otlp, quark_yaml"}, True, None),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, False, None),
    ],
)
def test_variables_that_request_the_local_file(
    environ: dict[str, str], wanted: bool, path: str | None
) -> None:
    settings = settings_from(environ)
    assert (settings.profile_wanted, settings.profile_path) == (wanted, path)


def test_libraries_are_separated_by_commas() -> None:
    assert settings_from({"OTEL_QUANT_LIBRARIES": " quark ,,onnxruntime"}).libraries == {
        "quark",
        "onnxruntime",
    }


@pytest.mark.parametrize("name", FLAGS)
@pytest.mark.parametrize("text", ["maybe", "2", "tru", "ja"])
def test_a_malformed_flag_is_logged_once_and_the_default_is_used(
    name: str, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        assert settings_from({name: text}) == Settings()
    assert caplog.record_tuples == [
        (
            "otel_quant",
            logging.WARNING,
            f"environment variable {name} is {text!r}; expected true or false; using the default",
        )
    ]


@pytest.mark.parametrize("name", MILLISECONDS)
@pytest.mark.parametrize("text", ["-1", "soon", "1s", "nan", "inf", "1e999", "0x10", "1,5"])
def test_a_malformed_time_is_logged_once_and_the_default_is_used(
    name: str, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        assert settings_from({name: text}) == Settings()
    assert caplog.record_tuples == [
        (
            "otel_quant",
            logging.WARNING,
            f"environment variable {name} is {text!r}; expected a number of milliseconds, "
            "0 or more; using the default",
        )
    ]


def warned(environ: dict[str, str], caplog: pytest.LogCaptureFixture) -> list[str]:
    """Reads the settings twice; returns what is logged."""
    for _ in range(2):
        assert settings_from(environ) == Settings()
    assert {record.levelno for record in caplog.records} <= {logging.WARNING}
    return caplog.messages


@pytest.mark.parametrize("text", ["yes", "true", "on", "2", "profile.yaml"])
def test_a_request_for_the_file_that_quark_does_not_accept_is_logged(
    text: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert warned({"QUARK_PROFILING": text}, caplog) == [
        f"environment variable QUARK_PROFILING is {text!r}; expected 1 (Quark's own profiler "
        "accepts no other value) or 0; using the default"
    ]


@pytest.mark.parametrize("text", ["0", "false", "off"])
def test_a_file_that_is_not_wanted_is_not_logged(
    text: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert warned({"QUARK_PROFILING": text}, caplog) == []


def test_a_name_of_the_run_is_taken_without_the_spaces_around_it() -> None:
    assert settings_from({"OTEL_QUANT_RUN_NAME": " resnet on Friday "}).run_name == (
        "resnet on Friday"
    )


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
def test_an_unknown_variable_that_resembles_none_is_logged_with_all_that_there_are(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    names = ", ".join(variable for variable in VARIABLES if "QUANT" in variable)
    assert warned({name: "1"}, caplog) == [
        f"environment variable {name} is unknown and has no effect; expected one of {names}"
    ]


@pytest.mark.parametrize("name", ["quark_yml", "quark-yaml", "QUARK_YAML", "quark", "quarkyaml"])
def test_a_misspelt_exporter_is_logged_once_with_the_name_that_is_meant(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert warned({"OTEL_TRACES_EXPORTER": f"otlp, {name}"}, caplog) == [
        f"environment variable OTEL_TRACES_EXPORTER names {name!r}, which is no exporter; "
        "did you mean 'quark_yaml'?"
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


def test_the_launcher_has_an_option_for_each_variable_that_is_ours_alone() -> None:
    options = {name for name in dir(launcher_options) if name.startswith("OTEL_")}
    assert options == {variable for variable in VARIABLES if "QUANT" in variable} - {
        "OTEL_QUANT_LAUNCHER_PID"  # that of another launcher, for the program alone
    }


def test_a_recording_is_asked_for_by_its_folder_and_the_launcher_by_its_process_id() -> None:
    found = settings_from({"OTEL_QUANT_RECORD": " out ", "OTEL_QUANT_LAUNCHER_PID": "17"})
    assert (found.record, found.launched) == ("out", True)
