"""``otel-quant estimate``: what memory a quantization will need, before it is started."""

from __future__ import annotations

import argparse
import re
from dataclasses import replace
from functools import partial
from typing import Final

from otel_quant.cli import command as cmd

FAILED: Final = 1  # The model could not be read, or a probe failed
_SAMPLES: Final = 128
_MOST_SAMPLES: Final = 10**12  # as in cost.estimate, which is imported later

_LIMIT: Final = re.compile(r"(\d{1,15}(?:\.\d{1,6})?)\s*([KMGTP]?)(i?)B?", re.IGNORECASE)


def _limit(text: str) -> tuple[int, bool]:
    """Returns the bytes, and whether they were given in a binary unit."""
    found = _LIMIT.fullmatch(text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size such as 16GiB, 500MB or 1.5T")
    given, unit, binary = found.groups()
    base = 1024 if binary else 1000
    power = " KMGTP".index(unit.upper() or " ")
    return int(float(given) * float(base) ** power), bool(binary)


def _run(options: argparse.Namespace) -> int:
    from otel_quant.capture.probes.memory import read_limits
    from otel_quant.cost import CostError, estimate
    from otel_quant.cost.estimate.probe import SAMPLES, ProbeError, probe
    from otel_quant.recordings import summary
    from otel_quant.recordings.calibrated import calibrated
    from otel_quant.schema.units import binary_sizes
    from otel_quant.views.estimate import document

    like = cmd.read_recording(options.like, "--like: ", FAILED) if options.like else None
    inputs, dims = cmd.model_shapes(options)
    with cmd.user_errors(estimate.UnknownMethodError, "--method: "):
        wanted = estimate.methods(options.methods)
    with cmd.user_errors(CostError, exit_code=FAILED):
        model = estimate.read(options.model, inputs, dims)
    if model.cost.unused_dims:
        raise cmd.UserError(
            f"--dim: {options.model} has no dimension {model.cost.unused_dims[0]!r}; expected a name that otel-quant cost lists",
            cmd.MISUSED,
        )
    (limit, is_binary), whose = options.limit or (None, False), ""
    if options.fit and limit is None:
        known = summary.limit(like) if like is not None else None
        limit = read_limits().memory if known is None else round(known.value)
        whose = ", the limit here" if known is None else ", the limit of that run"
    with cmd.user_errors(ValueError, f"--like: {options.like}: ", FAILED):
        real = None if like is None else calibrated(like, model)
    estimates = []
    with binary_sizes(is_binary):
        for method in wanted:
            if options.probe:
                with cmd.user_errors(ProbeError, "--probe: ", FAILED):
                    real = probe(model, method, min(SAMPLES, options.samples))
            estimated = partial(estimate.extrapolated, model, method, real)
            most = estimate.most_samples(limit, estimated) if options.fit and limit else None
            estimates.append(replace(estimated(options.samples), most=most))
        shown = document(model, estimates, limit, explained=bool(options.methods), whose=whose)
        cmd.print_document(shown, options.format)
    return 0


COMMAND: Final = cmd.Command(
    brief="print what memory and time a quantization will need, before it is started",
    description=f"Prints how much memory and disk space the calibration methods of onnxruntime and AMD Quark need to quantize a model, and what each figure is computed from. The model is not run and its weights are not read; --probe runs it. Exit codes: 0 estimated, whatever the answer to --limit, {FAILED} the model cannot be read or a probe failed, {cmd.MISUSED} the command line makes no sense.",
    examples=("float.onnx --samples 128 --limit 8GB", "float.onnx --fit"),
    arguments=(
        cmd.option("model", metavar="MODEL", help="an ONNX file"),
        cmd.option("--samples", type=cmd.number("samples", _MOST_SAMPLES), default=_SAMPLES, metavar="N", help="calibration samples, each of the shapes of the inputs (default: %(default)s)"),
        cmd.option("--method", action="append", default=[], metavar="[LIBRARY:]METHOD", dest="methods", help="a calibration method (MinMax), one of a library (quark:MinMax), or all of a library (quark), with what its figures are computed from; may be repeated (default: a line for each method)"),
        *cmd.shapes_of_models(of_inputs=" with dynamic dimensions, as for otel-quant cost", of_dims=""),
        cmd.option("--limit", type=_limit, metavar="SIZE", help="answer whether it fits into so much memory, as in 16GiB: yes, no or perhaps"),
        cmd.option("--fit", action="store_true", help="answer what would fit: which methods, and up to how many samples of each; without --limit into the limit of memory of the recording, or else of this machine or container"),
        cmd.either(
            cmd.option("--like", metavar="RECORDING", help="estimate what a recorded run would take with other samples, or another method of its library, from what it really took"),
            cmd.option("--probe", action="store_true", help="quantize the model with three samples of random values, for each method in a process of its own, and extrapolate from the memory and the time that they took"),
        ),
        cmd.add_format,
    ),
    run=_run,
)  # fmt: skip
