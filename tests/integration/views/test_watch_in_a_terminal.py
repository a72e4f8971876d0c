"""`otel-quant watch` in a real terminal, of a recording that is being made."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pexpect
import pytest

from tests.fixtures.recorded import RecordedFolder, RecordedProcess


@pytest.fixture
def process(tmp_path: Path) -> RecordedProcess:
    """The process of a recording, which this test holds open."""
    folder = RecordedFolder(tmp_path / "r", {"process.command_line": "python quantize.py"})
    return folder.process().begin(0)


@pytest.fixture
def terminal(process: RecordedProcess, tmp_path: Path) -> Iterator[pexpect.spawn]:
    environ = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "", "LINES": ""}
    child = pexpect.spawn(
        sys.executable, ["-m", "otel_quant", "watch", str(tmp_path / "r")], env=environ,
        dimensions=(24, 100), encoding="utf-8", timeout=60,
    )  # fmt: skip
    yield child
    child.close(force=True)


def test_steps_appear_and_the_last_state_stays_when_it_is_over(
    process: RecordedProcess, terminal: pexpect.spawn
) -> None:
    terminal.expect_exact("no step has begun")
    step = process.step("Calibration", 5)
    process.expect(step, 512, 5)
    process.consume(step, 37, 6)
    terminal.expect_exact("sample 37 of 512")
    process.close(step, 9)
    process.end(10)
    terminal.expect_exact("\x1b[?1049l")  # the screen is as it was before
    terminal.expect_exact("ended")
    terminal.expect_exact("Calibration")
    terminal.expect(pexpect.EOF)
    assert terminal.wait() == 0


def test_ctrl_c_detaches_and_the_recording_goes_on(
    process: RecordedProcess, terminal: pexpect.spawn
) -> None:
    terminal.expect_exact("no step has begun")
    terminal.sendintr()
    terminal.expect_exact("\x1b[?1049l")
    terminal.expect_exact("running")
    terminal.expect(pexpect.EOF)
    assert terminal.wait() == 0
    process.end(10)


def test_a_resized_window_is_filled(process: RecordedProcess, terminal: pexpect.spawn) -> None:
    process.step("A step whose name is longer than a third of a hundred characters", 1)
    terminal.expect("A step whose name is .*…")
    terminal.setwinsize(24, 200)
    terminal.expect_exact("longer than a third of a hundred characters")
