"""Which call a thread is in at a line of code, and which lock it waits for: seen from another thread, in the Python that runs the tests."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from types import CodeType, FrameType, SimpleNamespace
from typing import Any

import pytest

from otel_quant.capture.instructions import holder_in, kind_at, lock_at
from otel_quant.diagnosis.gpus import COPY, EITHER, WAIT
from otel_quant.diagnosis.spots import SLEEP

KINDS = {
    "x.sum().item()": WAIT,
    "x.sum(x.relu).tolist(*[True])": WAIT,
    "x.nonzero(timeout=30)": WAIT,
    "torch.cuda.synchronize()": WAIT,
    "(x\n    .sum()\n    .item())": WAIT,
    "x.sum().to(True, timeout=30)": COPY,
    "x.copy_(x.sum() is x)": COPY,
    "to()": COPY,
    "[each.cpu() for each in [x]]": EITHER,
    "x.sleep()": SLEEP,
    "x.run()": "",
    "x.relu(bool(x.sleep))": "",
    "x.relu(bool(x.item))": "",
    "x.sum(x.to).relu(x.sum().cpu is None or True)": "",
}


@pytest.mark.parametrize("source", KINDS)
def test_the_call_that_runs_is_known_by_its_name(source: str) -> None:
    assert _kind(source, "program.py") == KINDS[source]


def test_a_session_of_onnxruntime_waits_in_run() -> None:
    path = "/site-packages/onnxruntime/capi/onnxruntime_inference_collection.py"
    assert _kind("x.run()", path) == WAIT


class Cache:
    def __init__(self, lock: threading.Lock) -> None:
        self._lock = lock

    def inside(self, over: threading.Event) -> None:
        with self._lock:
            try:
                over.wait()
            except ValueError:
                pass

    def outside(self, over: threading.Event) -> None:
        with self._lock:
            pass
        over.wait()


WAITS = {
    "with lock: pass": "lock",
    "with x._lock: pass": "_lock",
    "x._lock.acquire()": "_lock",
    "lock.acquire(timeout=9)": "lock",
    "with held: pass": "held",
    "x.wait()": "",
}


@pytest.mark.parametrize("source", WAITS)
def test_the_lock_that_is_waited_for_has_the_name_of_the_code(source: str) -> None:
    lock = threading.Lock()
    x = SimpleNamespace(_lock=lock, wait=lock.acquire)
    scope = {"lock": lock, "x": x, "held": threading.Condition(lock)}
    assert _seen(source, "program.py", lock, scope, lock_at) == WAITS[source]


def test_what_threading_is_made_of_is_no_lock_of_the_programs() -> None:
    lock = threading.Lock()
    assert _seen("lock.acquire()", "/lib/threading.py", lock, {"lock": lock}, lock_at) == ""


def test_a_thread_has_a_lock_only_within_the_block() -> None:
    for function, has in ((Cache.inside, True), (Cache.outside, False)):
        over, lock = threading.Event(), threading.Lock()
        thread = threading.Thread(target=function, args=(Cache(lock), over))
        thread.start()
        while not (
            (frame := sys._current_frames().get(thread.ident or 0)) and "wait" in str(frame)
        ):
            time.sleep(0.005)
        held, other = holder_in(frame, "_lock"), holder_in(frame, "lock")
        assert ((held is not None and held.f_code is function.__code__), other) == (has, None)
        over.set()
        thread.join(10)


def _kind(source: str, path: str) -> str:
    """Returns what is seen of a thread that runs a text, in a method that is C code as torch's are."""
    lock = threading.Lock()
    names = (
        "item",
        "tolist",
        "nonzero",
        "synchronize",
        "to",
        "copy_",
        "cpu",
        "run",
        "relu",
        "sleep",
    )
    x = SimpleNamespace(**dict.fromkeys(names, lock.acquire))
    x.sum = lambda *_: x
    scope = {"x": x, "torch": SimpleNamespace(cuda=x), "to": lock.acquire}
    return _seen(source, path, lock, scope, kind_at)


def _is_of_thread(code: CodeType) -> bool:
    return code.co_filename == threading.__file__ and code.co_qualname != "Condition.__enter__"


def _seen(
    source: str,
    path: str,
    lock: threading.Lock,
    scope: dict[str, Any],
    of: Callable[[FrameType], str],
) -> str:
    code = compile(source, path, "exec")
    lock.acquire()
    thread = threading.Thread(target=exec, args=(code, scope), daemon=True)
    thread.start()
    seen = ()
    for _ in range(1000):
        frame = sys._current_frames().get(thread.ident or 0)
        before, seen = seen, (frame and frame.f_code, frame and frame.f_lasti)
        if frame is not None and seen == before and not _is_of_thread(frame.f_code):
            break
        time.sleep(0.005)
    assert frame is not None
    found = of(frame)
    lock.release()
    thread.join(10)
    return found
