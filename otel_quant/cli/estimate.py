"""``otel-quant estimate``: what memory a quantization will need, before it is started."""

from __future__ import annotations

import argparse
import re
import sys
from typing import Final

from otel_quant.cli.command import (
    MISUSED,
    Command,
    UserError,
    add_format,
    add_model_shapes,
    model_shapes,
    whole_number,
)
from otel_quant.views.text import printable

FAILED: Final = 1
"""The model could not be read, or a probe failed."""

_SAMPLES: Final = 128

_LIMIT: Final = re.compile(r"(\d{1,15}(?:\.\d{1,6})?)\s*([KMGTP]?)(i?)B?", re.IGNORECASE)


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="an ONNX file")
    parser.add_argument(
        "--samples",
        type=whole_number("samples"),
        default=_SAMPLES,
        metavar="N",
        help="calibration samples, each of the shapes of the inputs (default: %(default)s)",
    )
    parser.add_argument(
        "--method",
        action="append",
        default=[],
        metavar="[LIBRARY:]METHOD",
        dest="methods",
        help="a calibration method (MinMax), one of a library (quark:MinMax), or all of a "
        "library (quark), with what its figures are computed from; may be repeated (default: a line "
        "for each method)",
    )
    add_model_shapes(
        parser, of_inputs=" with dynamic dimensions, as for otel-quant cost", of_dims=""
    )
    parser.add_argument(
        "--limit",
        type=_limit,
        metavar="SIZE",
        help="answer whether it fits into so much memory, as in 16GiB: yes, no or perhaps",
    )
    parser.add_argument(
        "--probe",
        action="store_true",
        help="quantize the model with two samples of random values, for each method in a process "
        "of its own, and extrapolate from what that took",
    )
    add_format(parser)


def _limit(text: str) -> tuple[int, bool]:
    """Returns the bytes, and whether they were given in a binary unit."""
    found = _LIMIT.fullmatch(text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size such as 16GiB, 500MB or 1.5T")
    number, unit, binary = found.groups()
    base = 1024 if binary else 1000
    power = " KMGTP".index(unit.upper() or " ")
    return int(float(number) * float(base) ** power), bool(binary)


def _run(options: argparse.Namespace) -> int:
    # Only now: the other commands are not to wait for these.
    from otel_quant.cost import CostError
    from otel_quant.cost.estimate import UnknownMethodError, estimate, extrapolated, methods, read
    from otel_quant.cost.estimate.probe import SAMPLES, ProbeError, probe
    from otel_quant.schema.units import binary_sizes
    from otel_quant.views.estimate import document
    from otel_quant.views.text import terminal_width
    from otel_quant.views.writers import written

    inputs, dims = model_shapes(options)
    try:
        wanted = methods(options.methods)
    except UnknownMethodError as error:
        raise UserError(f"--method: {printable(str(error))}", MISUSED) from error
    try:
        model = read(options.model, inputs, dims)
    except CostError as error:
        raise UserError(printable(str(error)), FAILED) from error
    if model.cost.unused_dims:
        raise UserError(
            f"--dim: {printable(options.model)} has no dimension "
            f"{printable(repr(model.cost.unused_dims[0]))}; expected a name that otel-quant cost "
            "lists",
            MISUSED,
        )
    limit, is_binary = options.limit or (None, False)
    with binary_sizes(is_binary):
        estimates = [estimate(model, method, options.samples) for method in wanted]
        if options.probe:
            few = min(SAMPLES, options.samples)
            try:
                estimates = [
                    extrapolated(found, estimate(model, method, few), *probe(model, method, few))
                    for found, method in zip(estimates, wanted, strict=True)
                ]
            except ProbeError as error:
                raise UserError(f"--probe: {printable(str(error))}", FAILED) from error
        shown = document(model, estimates, limit, explained=bool(options.methods))
        sys.stdout.writelines(written(shown, options.format, terminal_width(sys.stdout)))
    return 0


COMMAND: Final = Command(
    name="estimate",
    brief="print what memory a quantization will need, before it is started",
    description=(
        "Prints how much memory and disk space the calibration methods of onnxruntime and AMD "
        "Quark need to quantize a model, and what each figure is computed from. The model is not "
        "run and its weights are not read; --probe runs it. Exit codes: 0 estimated, whatever the "
        f"answer to --limit, {FAILED} the model cannot be read or a probe failed, {MISUSED} the "
        "command line makes no sense."
    ),
    examples=("float.onnx --samples 128", "float.onnx --samples 128 --limit 8GB"),
    add_arguments=_add_arguments,
    run=_run,
)
