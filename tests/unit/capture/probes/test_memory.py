"""The memory probe, above all the memory mark of descendants that have exited; the memory limit of the process."""

from __future__ import annotations

import ctypes
import gc
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from otel_quant.capture.probes import memory
from otel_quant.capture.probes.memory import MemoryProbe, read_limits
from otel_quant.capture.probes.process_tree import descendants_now
from otel_quant.schema.readings import Limits

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
        monkeypatch.setattr(memory, "_rss_and_mark", lambda pid: (self.rss * MIB, self.mark * MIB))
        monkeypatch.setattr(memory, "_of_children", lambda pids, known: self.children)
        monkeypatch.setattr(
            memory, "_of_reaped", lambda: (self.reaped * MIB if self.reaped else None, 0)
        )


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    return Kernel(monkeypatch)


EXITED = {
    "above all others": ({}, {"reaped": 500}, 4, 500),
    "no child was waited for": ({}, {}, 4, None),
    "it may be our own: marks differ by as much": ({}, {"reaped": 102}, 4, None),
    "our own, which was reset": ({"mark": 900}, {"mark": 100, "reaped": 900}, 4, None),
    "read before it exited": ({"children": [(7, 50 * MIB, 600 * MIB)]}, {"children": [], "reaped": 600}, 4, None),
    "read shortly before its peak": ({"children": [(7, 500 * MIB, 500 * MIB)]}, {"children": [], "reaped": 512}, 4, 512),
    "with many cores marks differ by more": ({"children": [(7, 500 * MIB, 500 * MIB)]}, {"children": [], "reaped": 512}, 256, None),
}  # fmt: skip


@pytest.mark.parametrize(("before", "now", "cores", "reported"), EXITED.values(), ids=EXITED)
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


def test_of_many_children_a_few_are_read_for_a_sample_and_no_sum_is_one_that_was_never_held() -> (
    None
):
    resize = "for size in (0, 60, 0): block = b'x' * (size << 20); print(flush=True); input()"
    with ExitStack() as stack:
        held = [subprocess.Popen(["cat"], stdin=subprocess.PIPE) for _ in range(15)]
        child = subprocess.Popen(
            [sys.executable, "-c", resize], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        for each in (*held, child):
            stack.enter_context(each)
            stack.callback(each.kill)
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdout.readline()
        pids, probe = (*(each.pid for each in held), child.pid), MemoryProbe()
        least = probe(pids).tree_rss
        child.stdin.write(b"\n")
        child.stdin.flush()
        child.stdout.readline()
        samples = [probe.sample(pids).tree_rss for _ in range(4)]
        assert samples[-1] - least == pytest.approx(60 * MIB, abs=4 * MIB)
        child.stdin.write(b"\n")
        child.stdin.flush()
        child.stdout.readline()
        block = b"x" * (60 * MIB)
        assert probe.sample(pids).tree_rss - least == pytest.approx(len(block), abs=4 * MIB)


GIB = 1 << 30
NONE, NONE_64K_PAGES = "9223372036854771712", "9223372036854710272"  # of version 1
PHYSICAL = Limits(64 * GIB, "physical")

V2_MOUNT = "31 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n"
V1_MOUNT = "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory\n"
BOTH_MOUNTS = V1_MOUNT + V2_MOUNT.replace("cgroup rw", "cgroup/unified rw")
STAT = f"cache 1\nhierarchical_memory_limit {3 * GIB}\nhierarchical_memsw_limit {GIB}\n"


def in_docker(mount: str) -> str:
    """Returns the line of a mount of the container's own group."""
    return mount.replace(" / /sys", " /docker/abc /sys")


def cgroup(gigabytes: int) -> Limits:
    return Limits(gigabytes * GIB, "cgroup")


LIMITS = {
    "no control groups": (None, None, {}, PHYSICAL),
    "v2, limit of the process's own group": (
        "0::/user.slice/job.scope", V2_MOUNT,
        {"user.slice/job.scope/memory.max": 8 * GIB, "user.slice/memory.max": "max"}, cgroup(8),
    ),
    "v2, a group above limits more": (
        "0::/user.slice/job.scope", V2_MOUNT,
        {"user.slice/job.scope/memory.max": 8 * GIB, "user.slice/memory.max": 4 * GIB}, cgroup(4),
    ),
    "v2, container with a namespace: memory.high does not kill": (
        "0::/", V2_MOUNT, {"memory.max": 2 * GIB, "memory.high": GIB}, cgroup(2),
    ),
    "v2, container without a namespace: path as the host sees it": (
        "0::/docker/abc/child", in_docker(V2_MOUNT),
        {"memory.max": 6 * GIB, "child/memory.max": 3 * GIB}, cgroup(3),
    ),
    "v2, group outside the namespace: not the one of that name inside": (
        "0::/../../other/job", V2_MOUNT, {"memory.max": 5 * GIB, "other/job/memory.max": GIB},
        cgroup(5),
    ),
    "v2, group not visible from here": ("0::/gone/away", V2_MOUNT, {"memory.max": 5 * GIB}, cgroup(5)),
    "v2, mounts not readable": ("0::/job", None, {"job/memory.max": 7 * GIB}, cgroup(7)),
    "v2, no limit": ("0::/job", V2_MOUNT, {"job/memory.max": "max"}, PHYSICAL),
    "v2, more than the machine has": ("0::/job", V2_MOUNT, {"job/memory.max": 128 * GIB}, PHYSICAL),
    "v1": (
        "9:name=systemd:/\n4:memory:/docker/abc\n1:cpu:/", V1_MOUNT,
        {"memory/docker/abc/memory.limit_in_bytes": 4 * GIB, "memory/memory.limit_in_bytes": NONE},
        cgroup(4),
    ),
    "v1, a group above, outside the container, limits": (
        "4:cpu,memory:/docker/abc", in_docker(V1_MOUNT),
        {"memory/memory.limit_in_bytes": NONE, "memory/memory.stat": STAT}, cgroup(3),
    ),
    "both versions mounted, v1 has the memory controller": (
        "4:memory:/job\n0::/job", BOTH_MOUNTS,
        {
            "memory/job/memory.limit_in_bytes": 2 * GIB,
            "memory/memory.stat": f"hierarchical_memory_limit {NONE}",
        },
        cgroup(2),
    ),
    "v1, no limit and nothing known of physical memory": (
        "4:memory:/", V1_MOUNT,
        {"memory/memory.limit_in_bytes": NONE_64K_PAGES, "../../../proc/meminfo": "MemFree: 1 kB"},
        Limits(),
    ),
    "files that make no sense": (
        "nonsense\n::\n0::", "nonsense\n1 2 - cgroup2\n", {"memory.max": -1}, PHYSICAL,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("groups", "mounts", "files", "limits"), LIMITS.values(), ids=LIMITS)
def test_the_smallest_hard_limit_is_used(
    tmp_path: Path, groups: str | None, mounts: str | None, files: dict[str, object], limits: Limits
) -> None:
    found = {
        "proc/meminfo": "MemTotal:       67108864 kB\nMemFree:        1024 kB",  # 64 GiB
        "proc/self/cgroup": groups,
        "proc/self/mountinfo": mounts,
        **{f"sys/fs/cgroup/{name}": text for name, text in files.items()},
    }
    for name, text in found.items():
        if text is not None:
            path = tmp_path / os.path.normpath(name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{text}\n")
    assert read_limits(tmp_path) == limits


def test_on_this_machine_the_limit_is_at_most_its_memory() -> None:
    limits = read_limits()
    assert limits.memory is not None
    assert 0 < limits.memory <= psutil.virtual_memory().total
    assert (limits.memory_source == "physical") == (limits.memory == psutil.virtual_memory().total)
