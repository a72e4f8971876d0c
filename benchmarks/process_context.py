"""What a step costs that is in the process context, beside one that is not.

Run ``python benchmarks/process_context.py``; Linux only.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from statistics import median

from measuring import take_turns

import otel_quant
from otel_quant.export.otel.process_context import ProcessContextSink
from otel_quant.schema.events import Event
from otel_quant.schema.readings import RunInfo, StepInfo

CHANGES = 2000


def main() -> None:
    """Measures in turns; prints microseconds of CPU time."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    rounds = parser.parse_args().rounds
    os.environ["OTEL_QUANT_RECORD"] = tempfile.mkdtemp()
    sink, run = ProcessContextSink(lambda item: None), RunInfo("0" * 16, os.getpid())
    sink.run_started(Event(kind="run.started", time_ns=0, clock_ns=0, run=run))
    step = StepInfo(0, "Calibration", "Calibration")
    event = Event(kind="step.started", time_ns=0, clock_ns=0, run=run, step=step)

    def publish() -> None:
        sink.step_started(event)
        sink.step_ended(event)

    def record() -> None:
        with otel_quant.step("Calibration"):
            pass

    found = take_turns(rounds, {"context": timed(publish), "step": timed(record)})
    context, whole = (median(found[name]) for name in ("context", "step"))
    print(
        f"a change of the process context: {context / 2:.1f} us; a step without it: {whole:.0f} us"
    )
    print(f"ratio: {(whole + context) / whole:.2f} of a step that is recorded")


def timed(work: Callable[[], None]) -> Callable[[], float]:
    """Returns what measures a call, in microseconds."""

    def measure() -> float:
        before = time.process_time()
        for _ in range(CHANGES):
            work()
        return (time.process_time() - before) / CHANGES * 1e6

    return measure


if __name__ == "__main__":
    main()
