"""The list of descendants is never older than the newest process of this machine."""

from __future__ import annotations

import os
import subprocess
import sys
import time

from otel_quant.probes import tree
from otel_quant.probes.tree import descendants, descendants_now

WAIT = "import sys; sys.stdin.read()"
WITH_CHILD = (
    "import subprocess, sys; "
    f"child = subprocess.Popen([sys.executable, '-c', {WAIT!r}]); "
    "print(child.pid, flush=True); child.wait()"
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


def test_a_child_that_was_waited_for_is_gone_from_a_new_walk_at_once() -> None:
    others = set(descendants())
    first, second = _start(WAIT), _start(WAIT)
    assert set(descendants()) == others | {first.pid, second.pid}
    _end(first)
    assert set(descendants_now()) == others | {second.pid}
    assert set(descendants()) == others | {second.pid}
    _end(second)


def test_nothing_is_walked_again_while_no_process_was_born() -> None:
    child = _start(WAIT)
    # Other programs of this machine start processes too: only a look that none was born
    # before, after and during says what is done while none is.
    for _ in range(1000):
        descendants_now()
        # A walk that never was: only a process or thread that is born meanwhile outdates it.
        own_pid, newest, when, _ = tree._last_walk
        tree._last_walk = (own_pid, newest, when, (-1,))
        remembered = descendants()
        if tree._newest_pid() == newest and time.monotonic() - when < tree._FRESH:
            break
        assert remembered == (-1,) or child.pid in remembered
    assert tree._newest_pid() != b""
    assert remembered == (-1,)
    second = _start(WAIT)
    assert {child.pid, second.pid} <= set(descendants())
    _end(child)
    _end(second)


def test_a_forked_child_does_not_take_its_parents_list_for_its_own() -> None:
    child = _start(WAIT)
    assert child.pid in descendants()
    forked = os.fork()
    if forked == 0:
        os._exit(len(descendants()))
    assert os.waitstatus_to_exitcode(os.waitpid(forked, 0)[1]) == 0
    _end(child)
