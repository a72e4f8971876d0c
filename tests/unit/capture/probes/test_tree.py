"""The list of descendants is read again as soon as a process has been started."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from otel_quant.capture.probes import process_tree as tree
from otel_quant.capture.probes.process_tree import descendants, descendants_now

WAIT = "import sys; sys.stdin.read()"
WITH_CHILD = (
    "import subprocess, sys; "
    f"child = subprocess.Popen([sys.executable, '-c', {WAIT!r}]); "
    "print(child.pid, flush=True); child.wait()"
)


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


def test_a_child_and_a_grandchild_are_found_as_soon_as_they_exist() -> None:
    others = set(descendants())
    first = _start(WAIT)
    assert set(descendants()) == others | {first.pid}
    second = _start(WITH_CHILD)
    assert second.stdout is not None
    grandchild = int(second.stdout.readline())
    assert set(descendants()) == others | {first.pid, second.pid, grandchild}
    _end(first)
    _end(second)
    assert set(descendants_now()) == others


def test_samples_find_the_first_child_at_once_and_others_within_200_ms() -> None:
    descendants()
    first = _start(WAIT)
    assert first.pid in descendants(sampled=True)
    second = _start(WAIT)
    time.sleep(tree._LOOK_LASTS)
    assert {first.pid, second.pid} <= set(descendants(sampled=True))
    _end(first)
    _end(second)


def test_processes_started_since_the_last_walk_are_found_and_threads_are_not() -> None:
    first = _start(WAIT)
    walked = set(descendants_now())
    second = _start(THREADS_AND_CHILD)
    assert second.stdout is not None
    grandchild = int(second.stdout.readline())
    assert set(descendants()) == walked | {second.pid, grandchild}
    assert set(descendants_now()) == walked | {second.pid, grandchild}
    _end(first)
    _end(second)


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
        own_pid, newest, when, _ = tree._last_walk
        tree._last_walk = (own_pid, newest, when, (-1,))
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
        monkeypatch.setattr(tree, "_last_walk", (0, 0, 0.0, ()))
        monkeypatch.setattr(tree, "_newest_pid", lambda: next(newest))
        assert [list(descendants()).count(child.pid) for _ in range(2)] == [1, 1]
