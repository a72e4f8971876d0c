"""The memory probe, above all the memory mark of descendants that have exited."""

from __future__ import annotations

import ctypes
import gc
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from otel_quant.capture.probes import memory
from otel_quant.capture.probes.memory import MemoryProbe
from otel_quant.capture.probes.process_tree import descendants_now

MIB = 1 << 20


@contextmanager
def child_that_runs(code: str) -> Iterator[int]:
    """Starts a child; gives its process id when it has run some code, and ends it then."""
    with subprocess.Popen(
        [sys.executable, "-c", f"{code}; print(flush=True); input()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdout.readline()
        yield child.pid
        child.stdin.close()


class Kernel:
    """Replaces the kernel's figures; in MiB."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rss = self.mark = 100
        self.reaped: int | None = None
        self.children: list[tuple[int, int, int | None]] = []
        monkeypatch.setattr(memory, "_own", lambda pid: (self.rss * MIB, self.mark * MIB))
        monkeypatch.setattr(memory, "_of_children", lambda pids, known: self.children)
        monkeypatch.setattr(
            memory, "_of_reaped", lambda: (self.reaped * MIB if self.reaped else None, 0)
        )


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    return Kernel(monkeypatch)


@pytest.mark.parametrize(
    ("before", "now", "cores", "reported"),
    [
        pytest.param({}, {"reaped": 500}, 4, 500, id="above all others"),
        pytest.param({}, {}, 4, None, id="no child was waited for"),
        pytest.param({}, {"reaped": 102}, 4, None, id="it may be our own: marks differ by as much"),
        pytest.param(
            {"mark": 900}, {"mark": 100, "reaped": 900}, 4, None, id="our own, which was reset"
        ),
        pytest.param(
            {"children": [(7, 50 * MIB, 600 * MIB)]}, {"children": [], "reaped": 600}, 4, None,
            id="read before it exited",
        ),
        pytest.param(
            {"children": [(7, 500 * MIB, 500 * MIB)]}, {"children": [], "reaped": 512}, 4, 512,
            id="read shortly before its peak",
        ),
        pytest.param(
            {"children": [(7, 500 * MIB, 500 * MIB)]}, {"children": [], "reaped": 512}, 256, None,
            id="with many cores marks differ by more",
        ),
    ],
)  # fmt: skip
def test_the_peak_of_an_exited_child_is_reported_if_it_is_certainly_its_own(
    kernel: Kernel,
    monkeypatch: pytest.MonkeyPatch,
    before: dict[str, Any],
    now: dict[str, Any],
    cores: int,
    reported: int | None,
) -> None:
    monkeypatch.setattr(memory, "_DRIFT", cores * MIB // 4)
    probe = MemoryProbe()
    for figures in (before, now) if before else (now,):
        vars(kernel).update(figures)
        found = probe([pid for pid, _, _ in kernel.children])
    assert found.reaped_high_water == (None if reported is None else reported * MIB)


def test_exact_mode_lowers_the_marks_of_this_process_and_of_a_child() -> None:
    with child_that_runs("bytearray(b'x') * (200 << 20)") as child:
        spike = bytearray(b"x") * (200 << 20)
        del spike
        gc.collect()
        probe = MemoryProbe()
        before = probe([child])
        lowered = memory.reset_high_water([child, 1 << 22])
        after = probe([child])
    assert lowered == {child}
    assert before.high_water is not None
    assert after.high_water is not None
    assert before.high_water - before.rss > 150 * MIB
    assert after.high_water - after.rss < 50 * MIB
    ((_, rss_before, mark_before),) = before.children
    ((_, rss_after, mark_after),) = after.children
    assert mark_before is not None
    assert mark_after is not None
    assert mark_before - rss_before > 150 * MIB
    assert mark_after - rss_after < 50 * MIB


VFORK = """
#include <unistd.h>

int vfork_and_wait(int descriptor) {
    pid_t pid = vfork();
    if (pid == 0) {
        char byte;
        _exit(read(descriptor, &byte, 1) != 1);
    }
    return pid;
}
"""


@pytest.mark.parametrize("reset", [False, True], ids=["below the mark", "at the mark"])
def test_a_child_between_vfork_and_exec_has_no_own_memory(tmp_path: Path, reset: bool) -> None:
    source, library = tmp_path / "vfork.c", tmp_path / "vfork.so"
    source.write_text(VFORK)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True, timeout=120)
    vfork = ctypes.CDLL(str(library)).vfork_and_wait
    block = bytearray(b"x") * (200 * MIB)  # a mark that could be mistaken for the child's
    del block
    if reset:
        memory.reset_high_water()
    earlier = set(descendants_now())
    reading, writing = os.pipe()
    started: list[int] = []
    thread = threading.Thread(target=lambda: started.append(vfork(reading)))
    thread.start()
    try:
        until = time.monotonic() + 60
        while not (born := set(descendants_now()) - earlier):
            assert time.monotonic() < until
        found = MemoryProbe()(tuple(born))
    finally:
        os.write(writing, b"x")
        thread.join()
    (pid,) = born
    assert (started, os.waitpid(pid, 0)) == ([pid], (pid, 0))
    assert (found.children, found.tree_rss) == ((), found.rss)


@pytest.mark.parametrize("reset", [False, True], ids=["below the mark", "at the mark"])
def test_a_forked_child_has_its_own_memory_at_once(reset: bool) -> None:
    if reset:
        memory.reset_high_water()
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.read(reading, 1)
        os._exit(0)
    found = MemoryProbe()((pid,))
    os.write(writing, b"x")
    os.waitpid(pid, 0)
    assert [child for child, _, _ in found.children] == [pid]
    assert found.tree_rss > found.rss


def test_readings_show_whether_a_descendant_lived_between_them() -> None:
    probe = MemoryProbe()
    reading, writing = os.pipe()
    before = probe().reaped_faults
    assert before is not None
    assert probe().reaped_faults == before
    pid = os.fork()
    if pid == 0:
        os.read(reading, 1)
        os._exit(0)
    assert probe((pid,)).reaped_faults is None
    os.write(writing, b"x")
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert probe((pid,)).reaped_faults is None, "a zombie has lived until now"
    os.waitpid(pid, 0)
    after = probe().reaped_faults
    assert after is not None
    assert after > before


def test_a_sample_has_the_memory_in_use_and_sometimes_the_peaks_of_children() -> None:
    with child_that_runs("block = bytearray(b'x') * (50 << 20)") as child:
        probe = MemoryProbe()
        assert not probe.sample((child,)).is_brief, "the child is new"
        brief, whole = probe.sample((child,)), probe((child,))
        time.sleep(memory._MARKS_LAST)
        later = probe.sample((child,))
    assert brief.is_brief
    ((pid, rss, mark),) = brief.children
    ((_, whole_rss, whole_mark),) = whole.children
    assert (pid, mark) == (child, None)
    assert rss == pytest.approx(whole_rss, abs=4 * MIB)
    assert brief.tree_rss == brief.rss + rss
    assert brief.rss == pytest.approx(whole.rss, abs=4 * MIB)
    ((later_pid, _, later_mark),) = later.children
    assert later_pid == child
    assert later_mark == pytest.approx(whole_mark, abs=4 * MIB)  # it may still have grown by a page
    assert (probe.sample().is_brief, probe.sample().is_brief) == (False, True)
