"""``otel-quant show`` of a run that was killed in a step, with the reading that is beside its file."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from otel_quant.cli import main

KILLED = """\
# Quark Profiling Results

memory_usage:
- step: "Start"
  timestamp: 1700000000.5
  relative_time_secs: 0.0
  cpu_memory_mb: 100.0
- step: "Model Quantization Start"
  timestamp: 1700000001.5
  relative_time_secs: 1.0
  cpu_memory_mb: 101.5
- step: "Calibration Start"
  timestamp: 1700000002.5
  relative_time_secs: 2.0
  cpu_memory_mb: 153.0
"""
READING = {
    "schema": 1,
    "run_id": "0123456789abcdef",
    "pid": 4711,
    "run_started": 1700000000.5,
    "timestamp": 1700000062.5,
    "relative_time_secs": 62.0,
    "cpu_memory_mb": 403.25,
    "gpu_memory_mb": 35.0,
    "peak_memory_mb": 410.5,
    "peak_gpu_memory_mb": 40.0,
    "memory_limit_mb": 8000.0,
    "open_steps": [
        {"step": "Model Quantization"},
        {"step": "Calibration", "samples": 37, "expected_samples": 512},
    ],
}


@pytest.fixture
def killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(time, "time", lambda: 1700000062.5 + 300)
    path = tmp_path / "profile.1.yaml"
    path.write_text(KILLED)
    (tmp_path / "profile.0123456789abcdef.last_reading.json").write_text(json.dumps(READING))
    return path


def show(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["show", *arguments]) == 0
    return capsys.readouterr().out


def end_of(text: str) -> str:
    return text[text.index("truncated:") :]


def test_the_last_reading_is_printed_with_its_age_and_the_samples(
    killed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert end_of(show(capsys, str(killed))) == (
        "truncated: the run has no End: it is still running, or was killed\n"
        "  open steps:      Model Quantization > Calibration (37 of 512 samples)\n"
        "  last checkpoint: Calibration Start (2.00 s, 160 MB)\n"
        "  last reading:    5 min 00 s ago (62.00 s, 423 MB, 36.7 MB on GPUs, peak 430 MB, "
        "peak on GPUs 41.9 MB, limit 8.39 GB)\n"
    )


def test_a_step_that_was_open_is_as_large_as_the_last_reading_saw_it(
    killed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    limit = 'run:\n  id: "0123456789abcdef"\n  memory_limit_mb: 8000.0\n\nmemory_usage:'
    killed.write_text(KILLED.replace("memory_usage:", limit))

    table, _, _ = show(capsys, str(killed)).partition("memory peak")
    assert table == (
        "STEP                START  MEM START  MEM SEEN  OF LIMIT  GPU SEEN  STATUS\n"
        "                        s         MB        MB         %        MB\n"
        "------------------  -----  ---------  --------  --------  --------  ------\n"
        "Model Quantization   1.00      106.4     422.8       5.0      36.7  open\n"
        "  Calibration        2.00      160.4     422.8       5.0      36.7  open\n"
        "(SEEN is the highest at the checkpoints and in the last reading)\n"
        "\n"
    )


def test_json_has_the_whole_reading_and_its_age(
    killed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (document,) = json.loads(show(capsys, str(killed), "--format", "json"))
    assert document["last_reading"] == {**READING, "age_secs": 300.0}


@pytest.mark.parametrize("content", ["{", "[]", '{"run_started": 1.5}', '{"open_steps": {}}', ""])
def test_a_file_that_is_no_reading_of_this_run_is_not_printed(
    killed: Path, capsys: pytest.CaptureFixture[str], content: str
) -> None:
    (killed.parent / "profile.0123456789abcdef.last_reading.json").write_text(content)
    assert end_of(show(capsys, str(killed))) == (
        "truncated: the run has no End: it is still running, or was killed\n"
        "  open steps:      Model Quantization > Calibration\n"
        "  last checkpoint: Calibration Start (2.00 s, 160 MB)\n"
    )


def test_values_of_another_type_are_left_out(
    killed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    odd = {**READING, "cpu_memory_mb": "\x1b[31m", "open_steps": ["x", {"step": "\x1b[31m"}]}
    (killed.parent / "profile.0123456789abcdef.last_reading.json").write_text(json.dumps(odd))
    text = end_of(show(capsys, str(killed)))
    assert "\x1b" not in text
    assert "(62.00 s, 36.7 MB on GPUs, peak 430 MB" in text
