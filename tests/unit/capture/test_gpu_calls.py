"""Which call a thread is in at a line of code: seen from another thread, in the Python that runs the tests."""

from __future__ import annotations

import sys
import threading
import time
from types import SimpleNamespace

import pytest

from otel_quant.capture.gpu_calls import kind_at
from otel_quant.diagnosis.gpus import COPY, EITHER, WAIT

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
    "x.run()": "",
    "x.relu(bool(x.item))": "",
    "x.sum(x.to).relu(x.sum().cpu is None or True)": "",
}


@pytest.mark.parametrize("source", KINDS)
def test_the_call_that_runs_is_known_by_its_name(source: str) -> None:
    assert _kind(source, "program.py") == KINDS[source]


def test_a_session_of_onnxruntime_waits_in_run() -> None:
    path = "/site-packages/onnxruntime/capi/onnxruntime_inference_collection.py"
    assert _kind("x.run()", path) == WAIT


def _kind(source: str, path: str) -> str:
    """Returns what is seen of a thread that runs a text, in a method that is C code as torch's are."""
    lock = threading.Lock()
    names = ("item", "tolist", "nonzero", "synchronize", "to", "copy_", "cpu", "run", "relu")
    x = SimpleNamespace(**dict.fromkeys(names, lock.acquire))
    x.sum = lambda *_: x
    scope = {"x": x, "torch": SimpleNamespace(cuda=x), "to": lock.acquire}
    code = compile(source, path, "exec")
    lock.acquire()
    thread = threading.Thread(target=exec, args=(code, scope), daemon=True)
    thread.start()
    seen = ()
    for _ in range(1000):
        frame = sys._current_frames().get(thread.ident or 0)
        before, seen = seen, (frame and frame.f_code, frame and frame.f_lasti)
        if frame is not None and frame.f_code.co_filename == path and seen == before:
            break
        time.sleep(0.005)
    assert frame is not None
    found = kind_at(frame)
    lock.release()
    thread.join(10)
    return found
