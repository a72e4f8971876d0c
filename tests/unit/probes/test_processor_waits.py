"""Waits for a processor, by this kernel."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from otel_quant.probes import processor_waits
from otel_quant.probes.kernel_files import SELF
from otel_quant.probes.processor_waits import ThreadWaits, main_thread_wait

pytestmark = pytest.mark.skipif(
    main_thread_wait(SELF) is None, reason="this kernel does not count waits"
)

SPIN = """\
import os, threading
os.sched_setaffinity(0, {cpu})
def spin():
    while True: pass
threading.Thread(target=spin, daemon=True).start()
spin()
"""


@pytest.fixture
def rivals() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Two programs of two threads each that share one processor."""
    cpu = {min(os.sched_getaffinity(0))}
    found = [subprocess.Popen([sys.executable, "-c", SPIN.format(cpu=cpu)]) for _ in range(2)]
    yield found
    for each in found:
        each.kill()
        each.wait()


def test_programs_that_share_a_processor_wait_for_it_and_the_sum_of_their_threads_never_falls(
    rivals: list[subprocess.Popen[bytes]],
) -> None:
    waits, pids = ThreadWaits(), [each.pid for each in rivals]
    while not all((main_thread_wait(pid) or 0) > 0.05 for pid in pids):
        time.sleep(0.05)
    mains = [main_thread_wait(pid) or 0 for pid in pids]
    before = waits.read(pids)
    assert before is not None
    assert before >= sum(mains)
    rivals[0].kill()
    rivals[0].wait()
    after = waits.read(pids)
    assert after is not None
    assert after >= before
    assert main_thread_wait(pids[0]) is None


def test_the_wait_is_that_of_the_main_thread_whichever_thread_asks() -> None:
    found: list[float | None] = []
    asking = threading.Thread(target=lambda: found.append(main_thread_wait(SELF)))
    before = main_thread_wait(os.getpid())
    asking.start()
    asking.join()
    after = main_thread_wait(os.getpid())
    assert before is not None
    assert after is not None
    assert found[0] is not None
    assert before <= found[0] <= after


def test_a_kernel_that_does_not_count_leaves_the_wait_unknown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(processor_waits, "read_proc", lambda _: b"0 0 0\n")
    assert (main_thread_wait(SELF), ThreadWaits().read([os.getpid()])) == (None, None)


def test_many_threads_are_read_once_a_second() -> None:
    waits, done = ThreadWaits(), threading.Event()
    threads = [threading.Thread(target=done.wait) for _ in range(40)]
    for thread in threads:
        thread.start()
    found = [waits.read([os.getpid()]) for _ in range(3)]
    done.set()
    for thread in threads:
        thread.join()
    assert found[0] is not None
    assert found[1:].count(None) >= 1  # a busy machine may take a second for the two
