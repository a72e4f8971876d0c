"""`otel-quant run --watch` and `otel-quant watch` in a real terminal, and without one."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pexpect
import pytest

from tests.fixtures.programs import Launched, launcher
from tests.fixtures.recorded import RecordedFolder, RecordedProcess
from tests.fixtures.terminal import PROMPT, shell_of

PROGRAM = """
import os, sys, time
from otel_quant import step
with step("Calibration"):
    print("from the program", os.isatty(0), os.isatty(1))
    print("an error", file=sys.stderr, flush=True)
    while not os.path.exists("go-on"):
        time.sleep(0.05)
sys.exit(7)
"""


@pytest.fixture
def shell(launched: Launched) -> Iterator[pexpect.spawn]:
    """A shell in a terminal, which has started the program."""
    (launched.folder / "program.py").write_text(PROGRAM)
    command = shlex.join([*launcher("--watch", "--out", "r"), "python", "program.py"])
    with shell_of(launched, "xterm-256color", 30, 100) as child:
        child.sendline(f"{command}; echo code $?")
        child.expect_exact("\x1b[?1049h")
        child.expect("Calibration")
        yield child


def test_the_view_is_shown_and_the_output_is_a_file_of_the_recording(
    shell: pexpect.spawn, launched: Launched
) -> None:
    shell.expect_exact("an error")  # among the last lines of the output
    (launched.folder / "go-on").touch()
    shell.expect_exact("\x1b[?1049l")
    shell.expect_exact("failed with exit code 7")
    shell.expect_exact("recording: r")
    shell.expect_exact("code 7")
    output = (launched.folder / "r" / "output.log").read_text().splitlines()
    assert sorted(output) == ["an error", "from the program True False"]


def test_ctrl_z_gives_the_screen_back_and_fg_takes_it_again(
    shell: pexpect.spawn, launched: Launched
) -> None:
    shell.sendcontrol("z")
    shell.expect_exact("\x1b[?1049l")
    shell.expect_exact(PROMPT)
    shell.sendline("fg")
    shell.expect_exact("\x1b[?1049h")
    shell.expect("Calibration")
    (launched.folder / "go-on").touch()
    shell.expect_exact("failed with exit code 7")


def test_ctrl_c_goes_to_the_program(shell: pexpect.spawn) -> None:
    shell.sendintr()
    shell.expect_exact("\x1b[?1049l")
    shell.expect_exact("killed by SIGINT")
    shell.expect_exact(PROMPT)


def test_each_step_is_a_line_on_standard_error_without_a_terminal(launched: Launched) -> None:
    (launched.folder / "program.py").write_text(PROGRAM)
    (launched.folder / "go-on").touch()
    ended = launched.run(["python", "program.py"], "--watch", "--out", "r")
    assert (ended.returncode, ended.stdout) == (7, "")
    assert "Calibration began" in ended.stderr
    assert "failed with exit code 7 after" in ended.stderr


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


def test_steps_appear_and_the_last_state_stays_after_the_end(
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


def test_the_view_fills_a_resized_window(process: RecordedProcess, terminal: pexpect.spawn) -> None:
    process.step(
        "A step whose name is longer than a hundred columns have room for " + 6 * "beside ", 1
    )
    terminal.expect("A step whose name is .*…")
    terminal.setwinsize(24, 200)
    terminal.expect_exact(6 * "beside ")
