"""In a real terminal, under a shell with job control, as without `otel-quant run`."""

from __future__ import annotations

import shlex
import signal
import subprocess
from collections.abc import Iterator

import pexpect
import psutil
import pytest

from tests.fixtures.programs import PYTHON, Launched, launcher
from tests.fixtures.terminal import PROMPT, shell_of

PROGRAM = """
import os, signal, sys, time
signal.signal(signal.SIGWINCH, lambda *_: os.write(1, b"resized to %r\\n" % (os.get_terminal_size(),)))
signal.signal(signal.SIGCONT, lambda *_: os.write(1, b"continued\\n"))
print("in the foreground:", os.tcgetpgrp(0) == os.getpgrp(), flush=True)
for line in sys.stdin:
    print("read", line.strip(), flush=True)
print("end of input", flush=True)
"""

WAITS = """
import os, signal
print("in the foreground:", os.tcgetpgrp(0) == os.getpgrp(), flush=True)
while True:
    signal.pause()
"""


@pytest.fixture
def shell(launched: Launched) -> Iterator[pexpect.spawn]:
    """A shell in a terminal of 80 columns."""
    (launched.folder / "program.py").write_text(PROGRAM)
    with shell_of(launched, "dumb", 24, 80) as child:
        yield child


def start(shell: pexpect.spawn, after: str = "") -> None:
    command = [*launcher("--quiet"), *PYTHON, "program.py"]
    shell.sendline(f"{shlex.join(command)}; echo code $? {after}")
    shell.expect_exact("in the foreground: True")


def test_a_program_reads_the_terminal(shell: pexpect.spawn) -> None:
    start(shell)
    shell.sendline("hello")
    shell.expect_exact("read hello")
    shell.sendeof()
    shell.expect_exact("end of input")
    shell.expect_exact("code 0")


def test_ctrl_c_ends_program_and_launcher(shell: pexpect.spawn) -> None:
    start(shell)
    shell.sendintr()
    shell.expect_exact("KeyboardInterrupt")
    # The rest of the line does not run either: the shell sees what died of SIGINT.
    shell.expect_exact(PROMPT)
    assert "code" not in shell.before
    shell.sendline("echo code $?")
    shell.expect_exact("code 130")


def test_ctrl_backslash_ends_program_and_launcher(shell: pexpect.spawn) -> None:
    start(shell)
    shell.send("\x1c")
    shell.expect_exact("code 131")


def test_ctrl_z_stops_the_job_and_fg_continues_it(shell: pexpect.spawn) -> None:
    start(shell)
    for _ in range(3):
        shell.send("\x1a")
        shell.expect(r"\[1\]\+ +Stopped.*" + PROMPT)
        shell.sendline("fg")
        shell.expect_exact("continued")
        shell.sendline("again")
        shell.expect(r"\A\s*read again")  # and was not continued twice
    shell.sendeof()
    shell.expect_exact("end of input")


def test_a_job_in_the_background_is_ended_by_the_shells_kill(
    shell: pexpect.spawn, launched: Launched
) -> None:
    # Not one that reads: the terminal stops that again, and a shell that does not know it yet sends
    # no SIGCONT after the SIGTERM.
    (launched.folder / "program.py").write_text(WAITS)
    start(shell)
    shell.send("\x1a")
    shell.expect_exact(f"code {128 + signal.SIGTSTP}")
    shell.expect_exact(PROMPT)
    shell.sendline("bg; kill %1; wait %1; echo code $?")
    shell.expect_exact("code 143")


def test_a_program_is_notified_of_a_resized_window(shell: pexpect.spawn) -> None:
    start(shell)
    for columns in (100, 132):
        shell.setwinsize(40, columns)
        shell.expect_exact(f"resized to os.terminal_size(columns={columns}, lines=40)")
    shell.sendline("once")
    shell.expect(r"\A\s*read once")
    shell.sendeof()
    shell.expect_exact("end of input")


@pytest.mark.parametrize("under_a_shell", [True, False])
def test_a_closed_terminal_ends_program_and_launcher(
    launched: Launched, under_a_shell: bool
) -> None:
    code = "import os, time; print('pid', os.getpid(), os.getppid(), flush=True); time.sleep(600)"
    command = [*launcher("--quiet"), *PYTHON, "-c", code]
    if under_a_shell:
        command = ["bash", "--norc", "-ic", shlex.join(command) + "; true"]
    child = pexpect.spawn(
        command[0], command[1:], env=launched.environment(), cwd=str(launched.folder),
        encoding="utf-8", timeout=30,
    )  # fmt: skip
    child.expect(r"pid (\d+) (\d+)")
    processes = [psutil.Process(int(pid)) for pid in child.match.groups()]
    # By the object that owns the descriptor: it would close that number again later.
    child.ptyproc.fileobj.close()
    child.ptyproc.closed = child.closed = True
    assert psutil.wait_procs(processes, timeout=30)[1] == []


def test_a_reader_of_the_programs_output_sees_its_end_when_the_program_closes_it(
    launched: Launched,
) -> None:
    code = "import os, sys; os.close(1); sys.stdin.read()"
    process = subprocess.Popen(
        [*launcher("--quiet"), *PYTHON, "-c", code],
        env=launched.environment(), cwd=launched.folder,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdin is not None
    assert process.stdout.read() == b""
    process.stdin.close()
    assert process.wait() == 0
