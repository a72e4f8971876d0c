"""Kernel files: they stay open between readings, out of the way of the program's own files."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from otel_quant.base.kernel_files import SELF, bytes_read, read_process
from otel_quant.capture.probes.readers import Probes
from otel_quant.capture.stacks import StackSampler


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
import os
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
    os.execvp("cat", ["cat"])
read_process(child, "status")  # gets the number that one of our files had
closed = probes.sample(totals=True)
again = probes.read()
os.kill(child, 9)
print(len(ours) > 0, kept == ours, closed.memory.tree_rss > closed.memory.rss, os.open("/dev/null", os.O_RDONLY) < 256)
for each in (before, one_closed, closed, again):
    assert each.memory.rss > 0 and each.resources["disk"].read_chars > 0
"""


def test_a_program_that_closes_our_files_is_still_read() -> None:
    done = subprocess.run(
        [sys.executable, "-c", CLOSED_BY_PROGRAM], capture_output=True, text=True, timeout=60
    )
    assert (done.stdout, done.stderr) == ("True True True True\n", "")


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
            sampler.take((), probes.sample())
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
