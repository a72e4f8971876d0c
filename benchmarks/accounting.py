"""Runs a program and adds up the CPU time that otel-quant takes in it.

``opentelemetry-instrument python accounting.py REPORT PROGRAM ARGUMENTS...`` runs the
program as it is and writes a JSON object to REPORT when the program has ended. CPU
time is counted on the thread that spends it, and once where one entry calls another:

- ``imports``: loading the measuring code when the first library is hooked;
- ``hooks``: setting hooks, and reading the arguments of hooked calls;
- ``checkpoints``: opening and closing the run and its steps, readings and sinks included;
- ``model cost``: the static cost of the models;
- ``sampler``, ``delivery``: our threads;
- ``exit``: the end of the process, flushes included;
- ``SDK threads``: the batch processors' and the metric reader's, idle without us.
"""

from __future__ import annotations

import argparse
import functools
import json
import runpy
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

_spent: defaultdict[str, float] = defaultdict(float)
_elapsed: defaultdict[str, float] = defaultdict(float)
_within = threading.local()


def count(owner: Any, name: str, part: str) -> None:
    """Has the time spent in a function counted."""
    function: Callable[..., Any] = getattr(owner, name)

    @functools.wraps(function)
    def counted(*args: Any, **kwargs: Any) -> Any:
        if getattr(_within, "counted", False):
            return function(*args, **kwargs)
        _within.counted = True
        began, began_wall = time.thread_time(), time.perf_counter()
        try:
            return function(*args, **kwargs)
        finally:
            _spent[part] += time.thread_time() - began
            if threading.current_thread() is threading.main_thread():
                _elapsed[part] += time.perf_counter() - began_wall
            _within.counted = False

    setattr(owner, name, counted)


def count_everything(report: Path) -> None:
    """Has everything of ours counted, and the sums written when the run is over."""
    began, began_wall = time.thread_time(), time.perf_counter()
    from otel_quant.capture import sampler
    from otel_quant.capture.instruments import hooks, samples, steps
    from otel_quant.capture.recorder.ongoing import OpenStep
    from otel_quant.capture.recorder.recorder import Recorder
    from otel_quant.capture.runtime import Runtime
    from otel_quant.export.otel import delivery

    _spent["imports"] = time.thread_time() - began
    _elapsed["imports"] = time.perf_counter() - began_wall
    for name in ("start", "open", "close", "end", "point", "count_sample"):
        count(Recorder, name, "checkpoints")
    for name in ("enter", "leave"):
        count(OpenStep, name, "checkpoints")
    count(hooks.Hooks, "_fire", "hooks")
    count(hooks.Arguments, "bound", "hooks")
    count(steps, "attributes_of", "hooks")
    count(samples, "count_sample", "checkpoints")
    count(steps, "_report_models", "model cost")
    count(Runtime, "at_process_end", "exit")
    count(sampler.Sampler, "_run", "sampler")
    count(delivery.Delivery, "_force_flush", "delivery")
    leave = Runtime.at_process_end

    @functools.wraps(leave)
    def leave_and_report(self: Runtime, error: BaseException | None = None) -> None:
        leave(self, error)
        for thread in threading.enumerate():
            if thread.name.startswith("Otel") and thread.ident is not None:
                clock = time.pthread_getcpuclockid(thread.ident)
                _spent["SDK threads"] += time.clock_gettime(clock)
        sums = {"cpu": dict(_spent), "wall": dict(_elapsed), "process": time.process_time()}
        report.write_text(json.dumps(sums))

    Runtime.at_process_end = leave_and_report  # type: ignore[method-assign]  # to measure it


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description="Runs a program and adds up the CPU time that otel-quant takes in it."
    )
    parser.add_argument("report", type=Path, help="JSON file to write")
    parser.add_argument("program", help="Python program to run")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="the program's arguments")
    given = parser.parse_args()
    count_everything(given.report)
    sys.argv = [given.program, *given.arguments]
    runpy.run_path(given.program, run_name="__main__")
