"""What happens once a run happens once, however many threads call at the same moment."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider

from otel_quant.base.threads import start_thread
from otel_quant.export.otel import delivery
from otel_quant.export.otel.automatic_providers import AUTOMATIC_PROVIDERS
from otel_quant.export.otel.delivery import Delivery

THREADS = 4


def call_line_by_line(code: CodeType, calls: list[Callable[[], object]]) -> None:
    """Makes calls at the same moment, each in a thread that pauses before each line of a function.

    Args:
        code: The function's code.
        calls: What the threads call.
    """
    together = threading.Barrier(len(calls))

    def trace(frame: FrameType, event: str, _: object) -> Any:
        if frame.f_code is not code:
            return None
        if event == "line":
            time.sleep(0.01)
        return trace

    def run(call: Callable[[], object]) -> None:
        together.wait()
        sys.settrace(trace)
        try:
            call()
        finally:
            sys.settrace(None)

    threads = [threading.Thread(target=run, args=[call]) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_threads_that_send_first_begin_one_thread_for_delivery(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun: list[str] = []

    def start(target: Callable[[], None], name: str) -> threading.Thread | None:
        begun.append(name)
        return start_thread(target, name)

    monkeypatch.setitem(AUTOMATIC_PROVIDERS, "traces", TracerProvider())
    monkeypatch.setattr(delivery, "start_thread", start)
    sent = Delivery()
    call_line_by_line(Delivery.soon.__code__, [sent.soon] * THREADS)
    assert begun == ["otel-quant-delivery", "otel-quant-flush-traces"]
