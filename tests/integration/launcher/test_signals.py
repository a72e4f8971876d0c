"""Signals reach a program as if `otel-quant run` were not there, and it ends as the program does."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from tests.fixtures.programs import PYTHON, Launched, launcher

TELLING = """
import os, signal, sys
for number in {numbers}:
    signal.signal(number, lambda number, frame: os.write(1, b"%d\\n" % number))
print(os.getpid(), flush=True)
sys.stdin.read()
"""

ON_PURPOSE = sorted(
    int(number)
    for number in signal.valid_signals()
    if number
    not in (signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ)
)
"""Every signal that a program can take, but for those that Python ignores."""


WAITS = "import os, sys; print(os.getpid(), flush=True); sys.stdin.read()"


def start(launched: Launched, code: str = WAITS, *before: str) -> tuple[subprocess.Popen[str], int]:
    """Starts a program in a process group of its own; returns the launcher, and its pid."""
    process = subprocess.Popen(
        [*before, *launcher("--quiet"), *PYTHON, "-c", code],
        env=launched.environment(), cwd=launched.folder, text=True, process_group=0,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    return process, int(process.stdout.readline())


def told_of(
    process: subprocess.Popen[str], numbers: list[int], send: Callable[[int], None]
) -> list[int]:
    """Sends signals one after the other; returns which of them the program has printed."""
    assert process.stdout is not None
    taken = []
    for number in numbers:
        send(number)
        taken.append(int(process.stdout.readline()))
    time.sleep(0.2)  # for any that come twice
    output, _ = process.communicate("")
    assert process.returncode == 0
    return taken + [int(line) for line in output.split()]


def test_a_signal_to_the_launcher_reaches_the_program_once(launched: Launched) -> None:
    process, _ = start(launched, TELLING.format(numbers=ON_PURPOSE))
    assert told_of(process, ON_PURPOSE, process.send_signal) == ON_PURPOSE


def to_group(process: subprocess.Popen[str], pid: int, number: int) -> None:
    os.killpg(process.pid, number)


def to_each_process(process: subprocess.Popen[str], pid: int, number: int) -> None:
    members = in_group(process.pid)
    assert {process.pid, pid} < set(members)
    for member in members:
        os.kill(member, number)


def in_group(group: int) -> list[int]:
    return [process.pid for process in psutil.process_iter() if group_of(process.pid) == group]


def group_of(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return None


@pytest.mark.parametrize("send", [to_group, to_each_process])
def test_a_signal_to_all_processes_reaches_the_program_once(
    launched: Launched, send: Callable[[subprocess.Popen[str], int, int], None]
) -> None:
    numbers = [int(signal.SIGTERM), int(signal.SIGINT), int(signal.SIGUSR1), int(signal.SIGCONT)]
    process, pid = start(launched, TELLING.format(numbers=numbers))
    assert told_of(process, numbers, lambda number: send(process, pid, number)) == numbers


def test_a_signal_that_the_program_sent_to_its_group_hides_no_later_one(launched: Launched) -> None:
    numbers = [int(signal.SIGUSR1), int(signal.SIGUSR2)]
    code = TELLING.format(numbers=numbers).replace(
        "sys.stdin.read()", "[os.killpg(0, signal.SIGUSR1) for line in sys.stdin]"
    )
    process, _ = start(launched, code)
    assert process.stdin is not None
    assert process.stdout is not None
    process.send_signal(signal.SIGUSR2)  # passed on: the launcher waits for signals by now
    assert int(process.stdout.readline()) == signal.SIGUSR2
    process.stdin.write("one\n")
    process.stdin.flush()
    assert int(process.stdout.readline()) == signal.SIGUSR1
    time.sleep(0.5)  # two of a kind that wait for the launcher at once are one
    process.send_signal(signal.SIGUSR1)
    time.sleep(0.5)
    assert told_of(process, [], process.send_signal) == [signal.SIGUSR1]


DEADLY = [signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT,
          signal.SIGABRT, signal.SIGSEGV, signal.SIGPIPE, signal.SIGRTMIN + 1]  # fmt: skip


@pytest.mark.parametrize("number", DEADLY)
def test_the_launcher_is_ended_by_the_signal_that_ended_the_program(
    launched: Launched, number: int
) -> None:
    code = f"import os, signal; signal.signal({number}, signal.SIG_DFL)\n"
    if number == signal.SIGKILL:
        code = "import os\n"
    ended = launched.run([*PYTHON, "-c", code + f"os.kill(os.getpid(), {number})"], "--quiet")
    assert (ended.returncode, ended.stdout, ended.stderr) == (-number, "", "")


@pytest.mark.parametrize("code", [0, 1, 3, 125, 126, 127, 137, 255])
def test_the_exit_code_is_the_exit_code_of_the_program(launched: Launched, code: int) -> None:
    assert launched.run(["sh", "-c", f"exit {code}"], "--quiet").returncode == code


def test_the_exit_code_is_kept_if_sigchld_is_ignored(launched: Launched) -> None:
    ignoring = ["bash", "-c", "trap '' CHLD; exec \"$@\"", "-"]
    ended = launched.run_bare([*ignoring, *launcher("--quiet"), "sh", "-c", "exit 7"])
    assert ended.returncode == 7


def test_only_the_program_leaves_a_core_file(launched: Launched) -> None:
    pattern = Path("/proc/sys/kernel/core_pattern").read_text()
    if pattern.startswith("|") or "/" in pattern:
        pytest.skip("core files do not go to the current folder here")
    unlimited = ["bash", "-c", 'ulimit -c unlimited; "$@"', "-"]
    launched.run_bare([*unlimited, *launcher("--quiet"), "sh", "-c", "kill -ABRT $$"])
    assert len(list(launched.folder.glob("core*"))) == 1


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def wait_for(state: str, *pids: int) -> None:
    until = time.monotonic() + 20
    while (found := [state_of(pid) for pid in pids]) != [state] * len(pids):
        assert time.monotonic() < until, found
        time.sleep(0.01)


def test_a_program_that_the_terminal_stops_stops_the_launcher_until_it_is_continued(
    launched: Launched,
) -> None:
    process, pid = start(launched)
    os.kill(pid, signal.SIGTSTP)
    wait_for("T", pid, process.pid)
    process.send_signal(signal.SIGCONT)
    wait_for("S", pid, process.pid)
    process.communicate("")
    assert process.returncode == 0


@pytest.mark.parametrize("number", [signal.SIGCONT, signal.SIGKILL])
def test_a_program_that_is_stopped_alone_goes_on_and_ends_alone(
    launched: Launched, number: int
) -> None:
    process, pid = start(launched)
    os.kill(pid, signal.SIGSTOP)
    wait_for("T", pid)
    os.kill(pid, number)
    process.communicate("")
    assert process.returncode == (0 if number == signal.SIGCONT else -number)


def test_only_the_program_goes_on_when_the_launcher_is_killed(launched: Launched) -> None:
    process, pid = start(launched, f"{WAITS}; open('done', 'w')")
    ours = psutil.Process(process.pid).children()
    assert len(ours) == 2  # the program and the witness
    process.kill()
    assert process.wait() == -signal.SIGKILL
    _, alive = psutil.wait_procs([each for each in ours if each.pid != pid], 20)
    assert alive == []
    assert process.stdin is not None
    process.stdin.close()
    psutil.wait_procs(ours, 20)
    assert (launched.folder / "done").exists()


def test_a_signal_that_is_ignored_from_outside_stays_ignored(launched: Launched) -> None:
    code = "import os, time; print(os.getpid(), flush=True); time.sleep(0.5); print('alive')"
    process, _ = start(launched, code, "nohup")
    os.killpg(process.pid, signal.SIGHUP)
    assert process.communicate()[0] == "alive\n"
    assert process.returncode == 0


def test_a_signal_that_was_ignored_reaches_a_program_that_handles_it(launched: Launched) -> None:
    numbers = [int(signal.SIGINT), int(signal.SIGQUIT)]
    before = [
        signal.signal(number, signal.SIG_IGN) for number in numbers
    ]  # as a shell's `&` has it
    try:
        process, _ = start(launched, TELLING.format(numbers=numbers))
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
    assert told_of(process, numbers, process.send_signal) == numbers
