"""What ``otel-quant run --on-warning`` tells the user's command: each warning once, then how it ended."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from otel_quant.cli.on_warning import WarningCommand
from otel_quant.recordings.model import Ending
from otel_quant.recordings.reader import read
from otel_quant.schema import semconv
from tests.fixtures.recorded import RecordedFolder

GB = 10**9
EXCEEDED = {semconv.FORECAST_MEMORY: 103 * GB, semconv.FORECAST_MEMORY_LIMIT: 8 * GB}


def told(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "told").read_text().splitlines()]


def test_each_warning_is_told_once_a_stall_again_where_it_comes_back_and_the_end_last(
    tmp_path: Path,
) -> None:
    folder = RecordedFolder(tmp_path / "r", {"process.command_line": "q.py"}, by_launcher=True)
    process = folder.process().begin(0)
    step = process.step("Calibration", 1)
    command = WarningCommand(tmp_path / "r", f"(cat; echo) >> {tmp_path / 'told'}")
    for at, more in (
        (10, {}), (20, EXCEEDED), (30, EXCEEDED), (60, EXCEEDED | {semconv.FORECAST_STALLED: 25.0}),
        (70, EXCEEDED | {semconv.FORECAST_STALLED: 35.0}), (80, EXCEEDED),
        (120, EXCEEDED | {semconv.FORECAST_STALLED: 30.0}),
    ):  # fmt: skip
        line = ["/a/q.py", "Reader.get_next", 9, ""]
        of_step = {"index": step, "samples": 7, "expected": 20, "line": line}
        process.state(at, [of_step], **more)
        command.look(read(tmp_path / "r"))
    assert [(each["kind"], each["text"]) for each in told(tmp_path)] == [
        ("memory", "Calibration: memory would be 103 GB after the last sample (estimated); the limit is 8.00 GB"),
        ("stall", "Calibration: no progress for 25.0 s, at Reader.get_next (q.py:9)"),
        ("stall", "Calibration: no progress for 30.0 s, at Reader.get_next (q.py:9)"),
    ]  # fmt: skip
    process.close(step, 130)
    process.end(131)
    process.gone()
    folder.ended(Ending(time=131.0, exit_code=0))
    command.end(read(tmp_path / "r"))
    last = told(tmp_path)[-1]
    assert last.pop("time")[-1] == "Z"
    assert last.pop("text").startswith("q.py finished in 2 min 11 s. Calibration took ")
    assert last == {
        "kind": "end", "state": "ended", "exit_code": 0, "signal": None, "recording": str(tmp_path / "r"),
    }  # fmt: skip


def test_a_command_that_fails_is_named_with_its_last_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    process = RecordedFolder(tmp_path / "r").process().begin(0)
    process.end(1)
    with caplog.at_level(logging.WARNING, "otel_quant"):
        WarningCommand(tmp_path / "r", "echo no route >&2; exit 3").end(read(tmp_path / "r"))
    assert caplog.messages == ["--on-warning: exit code 3: no route"]
