"""What a program is started with: the folder of its recording, its environment, notes of its Pythons."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from otel_quant.capture.launched import exporter_settings
from otel_quant.launcher.start import (
    LAUNCHER_PID,
    ON_PYTHONPATH,
    RECORD,
    make_folder,
    program_environment,
    script_name,
    take_notes,
    why_no_step,
    why_nothing_sent,
)
from otel_quant.schema.settings import OTEL_QUANT_LAUNCHER_PID, OTEL_QUANT_RECORD

INTERVAL = {"OTEL_METRIC_EXPORT_INTERVAL": "10000"}
ENDPOINT = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4317"}
NOTES = (
    "absent /a/python",
    "old /o/python",
    "failed /f/python",
    "unsent /u/python",
    "instrumented /i/python",
)
NOT_CALLED = "no quantization library that otel-quant knows was called"


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("python quantize.py --out x.py", "quantize.py"),
        ("python -u -X dev scripts/quantize.py", "scripts/quantize.py"),
        ("python -m package.quantize", "package-quantize"),
        ("python -c pass x.py", "python"),
        ("torchrun --nproc-per-node 2 train.py", "train.py"),
        ("accelerate launch --config c.yaml train.py", "train.py"),
        ("optimum-cli onnxruntime quantize", "optimum-cli"),
        ("bash -x job.sh", "job.sh"),
        ("./job.sh", "./job.sh"),
        ("python -m", "python"),
        ("ls", "ls"),
    ],
)
def test_a_recording_is_named_after_the_script(command: str, name: str) -> None:
    assert script_name(command.split()) == name


def test_two_recordings_of_the_same_second_have_separate_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("time.time", lambda: 1_800_000_000.0)
    made = [make_folder(None, ["python", "a.py"]) for _ in range(3)]
    assert made == [made[0], f"{made[0]}-2", f"{made[0]}-3"]
    assert Path(made[0]).parent == tmp_path


def test_a_chosen_folder_must_be_new_or_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("empty").mkdir()
    assert make_folder("empty", ["ls"]) == str(tmp_path / "empty")
    assert make_folder("new/below", ["ls"]) == str(tmp_path / "new" / "below")
    with pytest.raises(FileExistsError, match="holds files"):
        make_folder("empty", ["ls"])


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
def test_a_program_sends_only_the_configured_signals(
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
def test_pythonpath_gets_one_folder_and_keeps_its_entries(
    monkeypatch: pytest.MonkeyPatch, before: str | None, after: str
) -> None:
    started_with = {"HOME": "/home/me"} | ({} if before is None else {"PYTHONPATH": before})
    module = "otel_quant.launcher.start.environment_at_start"
    monkeypatch.setattr(module, lambda: dict(started_with))
    assert program_environment("/recording", ["sh"], {"OTEL_QUANT_ARGUMENTS": "false"}) == {
        "HOME": "/home/me",
        "PYTHONPATH": after,
        "OTEL_QUANT_RECORD": "/recording",
        "OTEL_QUANT_LAUNCHER_PID": str(os.getpid()),
        "OTEL_QUANT_ARGUMENTS": "false",
    }


def test_environment_variables_are_named_after_the_settings() -> None:
    assert (RECORD, LAUNCHER_PID) == (OTEL_QUANT_RECORD, OTEL_QUANT_LAUNCHER_PID)


@pytest.mark.parametrize(
    ("count", "reason"),
    [
        (0, "no Python was started, or one with -S, -E or -I, which keep otel-quant out of it"),
        (1, "/a/python has no otel-quant: install it in that environment"),
        (2, "/o/python is older than Python 3.11"),
        (3, "automatic instrumentation failed, as the program's output shows"),
        (4, NOT_CALLED),
        (5, NOT_CALLED),
    ],
)
def test_the_reason_for_a_missing_step_comes_from_the_python_that_came_furthest(
    count: int, reason: str
) -> None:
    assert why_no_step(NOTES[:count]) == reason


def test_notes_are_removed_from_the_recording(tmp_path: Path) -> None:
    folder = make_folder(str(tmp_path / "recording"), ["ls"])
    (file,) = Path(folder).iterdir()
    file.write_text("old /o/python\n")
    assert (take_notes(folder), list(Path(folder).iterdir())) == (["old /o/python"], [])
    assert take_notes(folder) == ()


def test_a_python_without_an_sdk_is_named_with_what_it_needs() -> None:
    assert why_nothing_sent(["instrumented /usr/bin/python3"]) == ""
    assert why_nothing_sent(["instrumented /usr/bin/python3", "unsent /v/bin/python"]) == (
        "no telemetry was sent: /v/bin/python has no OpenTelemetry SDK; expected pip install "
        "'otel-quant[otlp]' there (otel-quant send sends this recording later)"
    )
