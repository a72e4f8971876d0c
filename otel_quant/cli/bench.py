"""``otel-quant bench``: variants of a model side by side."""

from __future__ import annotations

import argparse
import shlex
import signal
import sys
from typing import Final

from otel_quant.cli import measured_models as models
from otel_quant.cli.command import MISUSED, Command, number, option
from otel_quant.views.text import printable

_MOST_PROCESSES: Final = 1000


def _run(options: argparse.Namespace) -> int:
    from otel_quant.cli import INTERRUPTED
    from otel_quant.format.event_file import BENCH
    from otel_quant.inference.measure import STOPPED, bench

    files = [each for each in options.variants if each.endswith(".onnx")]
    models.require("numpy", *["onnxruntime"] * bool(files))
    for script in set(options.variants) - set(files):
        models.refuse_with_script(options, script, ("input", "data"))
    asked = models.measure_options(options)
    # As Ctrl-C does it: what a time limit of a batch system ends shows what was finished.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    command = shlex.join(("otel-quant", *sys.argv[1:]))
    result = models.measured(options, lambda: bench(options.variants, asked, command, _tell), BENCH)
    if STOPPED in result.settings:
        return INTERRUPTED
    return models.FAILED if any(each.problem for each in result.models) else 0


def _tell(line: str) -> None:
    print(printable(line), file=sys.stderr, flush=True)


COMMAND: Final = Command(
    brief="measure variants of a model side by side: time, memory, size, error",
    description=f"Runs variants of a model, each in a process of its own, and shows side by side how fast they are, in how much memory, how large, how long they took to quantize and to compile, and how far off their outputs are from the baseline's. Exit codes: 0 all were measured, {models.FAILED} one could not be or there are none, {MISUSED} the command line makes no sense, 130 it was stopped.",
    examples=("script.py:variants", "float.onnx int8.onnx --seconds 5"),
    arguments=(
        option("variants", nargs="+", metavar="VARIANTS", help="script.py:function that returns models and inputs, and ONNX files"),
        option("--baseline", metavar="NAME", help="compare the others with this one (default: the first)"),
        option("--seconds", type=models.SECONDS, default=20.0, metavar="S", help="time for the timed calls of each variant, at most; five rounds run in any case (default: %(default).0f)"),
        option("--timeout", type=models.SECONDS, metavar="S", help="give a variant up whose making, a call or anything else takes longer (default: never)"),
        option("--processes", type=number("processes", _MOST_PROCESSES), metavar="N", help="measure each variant in N processes, one after the other, and take the mean of those in the middle (default: 5, or 1 where a variant takes more than a minute to make)"),
        option("--one-by-one", action="store_true", help="end a variant's process before the next one begins, where memory does not suffice for all of them; a busy machine then hits some more than others"),
        *models.MODEL_ARGUMENTS,
    ),
    run=_run,
)  # fmt: skip
