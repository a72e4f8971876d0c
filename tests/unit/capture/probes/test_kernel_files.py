"""Kernel files stay open between readings, out of the way of the program's own; descendants are listed again as soon as one has started."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from otel_quant.base.kernel_files import SELF, bytes_read, read_process
from otel_quant.capture.probes import process_tree as tree
from otel_quant.capture.probes.process_tree import descendants, descendants_now
from otel_quant.capture.probes.readers import Probes
from otel_quant.capture.stack_sampler import StackSampler
from tests.fixtures.programs import run_script


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"?")
        process.stdin.flush()
        # Until it has called exec, its files describe Python; it replies after that.
        assert process.stdout.read(1) == b"?"
        yield process


def open_files() -> dict[str, int]:
    """Returns the descriptors of files about processes, by their path."""
    found = {}
    for number in os.listdir("/proc/self/fd"):
        try:
            path = os.readlink(f"/proc/self/fd/{number}")
        except FileNotFoundError:
            continue  # the descriptor that os.listdir used
        if path.startswith("/proc/") and path.endswith(("/status", "/io", "/stat")):
            found[path] = int(number)
    return found


def written(pid: int = SELF) -> int:
    words = read_process(pid, "io").split()
    return int(words[words.index(b"wchar:") + 1])


def test_each_read_returns_current_figures(tmp_path: Path) -> None:
    before = written()
    (tmp_path / "file").write_bytes(b"x" * 5000)
    assert written() == before + 5000


def test_bytes_read_are_counted() -> None:
    for name in ("status", "status", "io"):
        before = bytes_read()
        length = len(read_process(SELF, name))
        assert bytes_read() == before + length > before


def test_reading_an_exited_process_raises(child: subprocess.Popen[bytes]) -> None:
    for name in ("status", "io", "stat"):
        assert read_process(child.pid, name)
    child.communicate()
    for name in ("status", "io", "stat"):
        with pytest.raises((FileNotFoundError, ProcessLookupError)):
            read_process(child.pid, name)


CLOSED_BY_PROGRAM = """
import os, time
from otel_quant.base.kernel_files import read_process
from otel_quant.capture.probes.readers import Probes
probes = Probes()
before = probes.read()
ours = sorted(int(number) for number in os.listdir("/proc/self/fd") if int(number) >= 256)
os.close(ours[0])
one_closed = probes.read()
kept = sorted(int(number) for number in os.listdir("/proc/self/fd") if int(number) >= 256)
os.closerange(3, 1024)
child = os.fork()
if child == 0:
    os.execvp("sleep", ["sleep", "60"])
read_process(child, "status")  # gets the number that one of our files had
time.sleep(0.3)  # until a sample looks for it
closed = probes.sample(totals=True)
again = probes.read()
os.kill(child, 9)
print(len(ours) > 0, kept == ours, closed.memory.tree_rss > closed.memory.rss, os.open("/dev/null", os.O_RDONLY) < 256)
for each in (before, one_closed, closed, again):
    assert each.memory.rss > 0 and each.resources["disk"].read_chars > 0
"""


def test_a_program_that_closes_our_files_is_still_read(tmp_path: Path) -> None:
    assert run_script(tmp_path, CLOSED_BY_PROGRAM) == ("True True True True\n", "")


def test_files_of_an_ended_process_are_closed(child: subprocess.Popen[bytes]) -> None:
    probes = Probes()
    probes.read()
    assert f"/proc/{child.pid}/status" in open_files()
    child.communicate()
    child.wait()
    probes.read()
    assert f"/proc/{child.pid}/status" not in open_files()


def test_files_of_an_ended_thread_are_closed() -> None:
    sampler, probes = StackSampler(names_paths=True, of_every_thread=True), Probes()
    ended: set[int | None] = set()
    for count in (9, 1):
        done = threading.Event()
        threads = [threading.Thread(target=done.wait, daemon=True) for _ in range(count)]
        for thread in threads:
            thread.start()
        for _ in range(3):
            sampler.take({}, probes.sample())
        links = (os.path.realpath(f"/proc/self/fd/{each}") for each in os.listdir("/proc/self/fd"))
        read = {int(link.split("/")[-2]) for link in links if link.endswith("/schedstat")}
        natives = {thread.native_id for thread in threads}
        assert natives <= read
        assert not ended & read
        ended |= natives
        done.set()
        for thread in threads:
            thread.join()


def test_a_forked_child_closes_the_files_of_its_parent() -> None:
    own = f"/proc/{os.getpid()}/status"
    Probes().read()
    assert own in open_files()
    forked = os.fork()
    if forked == 0:
        os._exit(own in open_files())
    assert os.waitstatus_to_exitcode(os.waitpid(forked, 0)[1]) == 0


WAIT = "import sys; sys.stdin.read()"
THREADS_AND_CHILD = (
    "import subprocess, sys, threading; "
    "[threading.Thread(target=threading.Event().wait, daemon=True).start() for _ in range(3)]; "
    f"child = subprocess.Popen([sys.executable, '-c', {WAIT!r}]); "
    "print(child.pid, flush=True); sys.stdin.read(); child.kill(); child.wait()"
)


def _start(code: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )


def _end(process: subprocess.Popen[bytes]) -> None:
    process.communicate(timeout=30)


def test_samples_find_a_child_within_300_ms() -> None:
    probes = Probes()
    probes.read()
    child = _start(WAIT)
    time.sleep(0.3)
    memory = probes.sample().memory
    assert memory is not None
    assert child.pid in [pid for pid, _, _ in memory.children]
    _end(child)


def test_processes_started_since_the_last_walk_are_found_and_threads_are_not() -> None:
    first = _start(WAIT)
    walked = set(descendants_now())
    second = _start(THREADS_AND_CHILD)
    assert second.stdout is not None
    grandchild = int(second.stdout.readline())
    apart = subprocess.Popen(["cat"], stdin=subprocess.PIPE, start_new_session=True)
    started = {second.pid, grandchild, apart.pid}
    assert set(descendants()) == walked | started
    assert set(descendants_now()) == walked | started
    for each in (first, second, apart):
        _end(each)


def test_a_new_walk_does_not_contain_a_child_that_was_waited_for() -> None:
    others = set(descendants())
    first, second = _start(WAIT), _start(WAIT)
    assert set(descendants()) == others | {first.pid, second.pid}
    _end(first)
    assert set(descendants_now()) == others | {second.pid}
    assert set(descendants()) == others | {second.pid}
    _end(second)


def test_the_last_walk_is_reused_if_no_process_was_started() -> None:
    child = _start(WAIT)
    # Other programs of this machine start processes too. Repeat until none was started between
    # the walk and the end of the check.
    for _ in range(1000):
        descendants_now()
        # A result that no walk returns; it is used unless a process or thread is started now.
        _, newest, when, *_ = tree._last_walk
        tree._last_walk = tree._last_walk._replace(found=(-1,))
        remembered = descendants()
        if tree._newest_pid() == newest and time.monotonic() - when < tree._WALK_LASTS:
            break
        assert remembered == (-1,) or child.pid in remembered
    assert tree._newest_pid() != 0
    assert remembered == (-1,)
    second = _start(WAIT)
    assert second.pid in descendants()
    _end(child)
    _end(second)


def test_a_forked_child_does_not_use_its_parents_list() -> None:
    child = _start(WAIT)
    assert child.pid in descendants()
    forked = os.fork()
    if forked == 0:
        os._exit(len(descendants()))
    assert os.waitstatus_to_exitcode(os.waitpid(forked, 0)[1]) == 0
    _end(child)


def test_a_child_that_is_started_during_a_walk_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as child:
        newest = iter((child.pid - 1, child.pid))  # as the walk began, and at the next reading
        monkeypatch.setattr(tree, "_last_walk", tree._KnownTree())
        monkeypatch.setattr(tree, "_newest_pid", lambda: next(newest))
        assert [list(descendants()).count(child.pid) for _ in range(2)] == [1, 1]
