"""Runs with steps, one after the other and each a trace of its own: `steps_run.py good failed slow critical killed`.

Prints the trace of each. A step in real memory, a real hour long, takes too much of both: a span of the
program has the time or the share by which the Collector chooses.
"""

import os
import signal
import sys
import time

from opentelemetry import _logs, metrics, trace

import otel_quant
from otel_quant.schema import semconv

STEPS = ("Pre-process", "Calibration", "Post-process")
WITHIN = "of the program"
"""A span within the first step."""


def run(end: str) -> None:
    with otel_quant.step(STEPS[0]):
        print(f"{trace.get_current_span().get_span_context().trace_id:032x}", flush=True)
        hours = 2 if end == "slow" else 0
        trace.get_tracer("program").start_span(
            WITHIN,
            attributes={semconv.MEMORY_PEAK_RATIO: 0.9 if end == "critical" else 0.5},
            start_time=time.time_ns() - hours * 3600 * 10**9,
        ).end()
    with otel_quant.step(STEPS[1]):
        if end == "failed":
            raise MemoryError("no memory for it")
        if end == "killed":
            for provider in (
                trace.get_tracer_provider(), metrics.get_meter_provider(), _logs.get_logger_provider()
            ):  # fmt: skip
                provider.force_flush()
            os.kill(os.getpid(), signal.SIGKILL)
    with otel_quant.step(STEPS[2]):
        pass


if __name__ == "__main__":
    for end in sys.argv[1:]:
        try:
            with otel_quant.run():
                run(end)
        except MemoryError:
            pass
