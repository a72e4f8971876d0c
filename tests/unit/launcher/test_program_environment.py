"""The environment of a recorded program, and the settings with which it sends."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from otel_quant.capture.launched import exporter_settings
from otel_quant.launcher.program_environment import ON_PYTHONPATH, program_environment

INTERVAL = {"OTEL_METRIC_EXPORT_INTERVAL": "10000"}
ENDPOINT = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4317"}


def exporters(traces: str, metrics: str, logs: str) -> dict[str, str]:
    return {
        "OTEL_TRACES_EXPORTER": traces,
        "OTEL_METRICS_EXPORTER": metrics,
        "OTEL_LOGS_EXPORTER": logs,
    }


@pytest.mark.parametrize(
    ("environ", "settings"),
    [
        ({}, {}),
        ({"OTEL_EXPORTER_OTLP_HEADERS": "a=b", "OTEL_SERVICE_NAME": "s"}, {}),
        (exporters("none", "none", "none"), {}),
        ({"OTEL_TRACES_EXPORTER": "quark_yaml"}, {}),
        (ENDPOINT, exporters("otlp", "otlp", "otlp") | INTERVAL),
        (ENDPOINT | {"OTEL_METRIC_EXPORT_INTERVAL": "500"},
         exporters("otlp", "otlp", "otlp") | {"OTEL_METRIC_EXPORT_INTERVAL": "500"}),
        (ENDPOINT | exporters("console", "none", ""), exporters("console", "none", "otlp") | INTERVAL),
        ({"OTEL_EXPORTER_OTLP_LOGS_ENDPOINT": "http://c:4318/v1/logs"},
         exporters("none", "none", "otlp") | INTERVAL),
        ({"OTEL_TRACES_EXPORTER": "otlp, quark_yaml"},
         exporters("otlp,quark_yaml", "none", "none") | INTERVAL),
        ({"OTEL_CONFIG_FILE": "otel.yaml"}, INTERVAL),
        ({"OTEL_PYTHON_DISTRO": "other"}, INTERVAL),
        ({"OTEL_QUANT_OTLP_FILES": "true"},
         exporters("otel_quant_files", "otel_quant_files", "otel_quant_files") | INTERVAL),
        (ENDPOINT | {"OTEL_QUANT_OTLP_FILES": "true", "OTEL_METRICS_EXPORTER": "none"},
         exporters("otel_quant_files,otlp", "otel_quant_files", "otel_quant_files,otlp") | INTERVAL),
    ],
)  # fmt: skip
def test_a_program_sends_what_is_configured_and_nothing_else(
    environ: dict[str, str], settings: dict[str, str]
) -> None:
    assert exporter_settings(environ) == settings


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, ON_PYTHONPATH),
        ("", ON_PYTHONPATH),
        ("a:b", f"{ON_PYTHONPATH}:a:b"),
        ("a:", f"{ON_PYTHONPATH}:a:"),
        (f"{ON_PYTHONPATH}:a", f"{ON_PYTHONPATH}:a"),
    ],
)
def test_the_path_of_python_gets_one_folder_and_keeps_its_own(
    monkeypatch: pytest.MonkeyPatch, before: str | None, after: str
) -> None:
    started_with = {"HOME": "/home/me"} | ({} if before is None else {"PYTHONPATH": before})
    module = "otel_quant.launcher.program_environment.environment_at_start"
    monkeypatch.setattr(module, lambda environ: started_with)
    assert program_environment(Path("/recording"), {"OTEL_QUANT_ARGUMENTS": "false"}) == {
        "HOME": "/home/me",
        "PYTHONPATH": after,
        "OTEL_QUANT_RECORD": "/recording",
        "OTEL_QUANT_LAUNCHER_PID": str(os.getpid()),
        "OTEL_QUANT_ARGUMENTS": "false",
    }
