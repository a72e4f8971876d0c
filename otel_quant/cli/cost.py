"""``otel-quant cost``: what ONNX models cost, without running them."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Final

from otel_quant.cli.command import Command, UserError
from otel_quant.rendering.table import printable

if TYPE_CHECKING:
    from otel_quant.cost import ModelCost

FAILED: Final = 1
"""A model could not be read or costed."""

MISUSED: Final = 2
"""The command line makes no sense; argparse exits with the same."""

INCOMPLETE: Final = 3
"""With ``--strict``: costs of some node are not known, so that the totals are too low."""

_MAX_SECONDS: Final = 86_400.0


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "models",
        nargs="+",
        metavar="MODEL",
        help="an ONNX file; further ones, right behind it, are compared with the first",
    )
    parser.add_argument(
        "--format",
        choices=("table", "json", "csv", "markdown"),
        default="table",
        help="default: %(default)s",
    )
    parser.add_argument(
        "--rules",
        choices=("corrected", "onnx_tool"),
        default="corrected",
        help="corrected, or onnx_tool for the figures of that program (default: %(default)s)",
    )
    parser.add_argument(
        "--input",
        action="append",
        default=[],
        metavar="NAME=SHAPE",
        dest="inputs",
        help="shape of an input with dynamic dimensions, as in image=1x3x224x224, or as onnx_tool "
        "writes it, image:f32:1x3x224x224, with values behind a further colon; what is not given "
        "is taken as 1; a length that the model fixes may be overridden, and the report says so; "
        "may be repeated",
    )
    parser.add_argument(
        "--view",
        choices=("fused", "file"),
        help="memory of quantized operators as runtimes run them, without the floats between "
        "DequantizeLinear and QuantizeLinear, or of every node of the file by itself (default: "
        "fused; with --rules onnx_tool file)",
    )
    parser.add_argument(
        "--by",
        choices=("node", "op", "total", "comparison"),
        help="one line per node, per operator or per model, or only what differs between models "
        "(default: all of these in turn; for csv node)",
    )
    parser.add_argument(
        "--sort",
        choices=("macs", "memory", "params", "order"),
        help="largest first, or order of execution (default: macs; for json order)",
    )
    parser.add_argument(
        "--top", type=_count, metavar="N", help="only the first N nodes or operators"
    )
    parser.add_argument(
        "--sparsity", action="store_true", help="read the weights and look for zeros"
    )
    parser.add_argument(
        "--time-limit",
        type=_seconds,
        default=300.0,
        metavar="SECONDS",
        help="give up on a model after this time (default: %(default).0f)",
    )
    parser.add_argument(
        "--strict",
        action="store_true",
        help=f"exit with {INCOMPLETE} if the costs of some node are not known",
    )


def _count(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and 0 < len(text) < 19 and int(text)):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of lines from 1")
    return int(text)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= _MAX_SECONDS:  # not a number fails as well
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a number of seconds above 0, at most {_MAX_SECONDS:.0f}"
        )
    return seconds


def _run(options: argparse.Namespace) -> int:
    # Only now: the other commands are not to wait for these.
    from otel_quant.cost import CostError, cost_of, parse_inputs
    from otel_quant.rendering.cost_report import Choices, report

    try:
        inputs = parse_inputs(options.inputs, option="--input")
    except CostError as error:
        wanted = f"; expected {error.expected}" if error.expected else ""
        raise UserError(f"--input: {printable(error.problem + wanted)}", MISUSED) from error
    if options.by == "comparison" and len(options.models) < 2:
        raise UserError("--by comparison: one model is given; expected two or more", MISUSED)
    costs: list[ModelCost] = []
    problems: list[str] = []
    for path in options.models:
        try:
            costs.append(
                cost_of(
                    path,
                    rules=options.rules,
                    inputs=inputs,
                    view=options.view,
                    sparsity=options.sparsity,
                    time_limit=options.time_limit,
                )
            )
        except CostError as error:
            problems.append(printable(str(error)))
    if costs and not (problems and options.by == "comparison"):
        choices = Choices(options.by, options.sort, options.top, compared=not problems)
        sys.stdout.write(report(costs, options.format, choices))
        sys.stdout.flush()
    if problems:
        raise UserError("\notel-quant: ".join(problems), FAILED)
    if options.strict:
        _refuse_unknown(costs)
    return 0


def _refuse_unknown(costs: list[ModelCost]) -> None:
    problems = [
        f"{printable(cost.path)}: nodes without known MACs: {nodes}, results of unknown size: "
        f"{cost.unsized_tensors}; the totals leave them out"
        for cost in costs
        if (nodes := sum(cost.uncosted_ops.values())) or cost.unsized_tensors
    ]
    if problems:
        raise UserError("\notel-quant: ".join(problems), INCOMPLETE)


COMMAND: Final = Command(
    name="cost",
    brief="print the MACs, parameters and memory of ONNX models",
    description=(
        "Prints what ONNX models cost: MACs, parameters, memory, precision. The models are not "
        "run and their weights are not read; --sparsity reads them. Exit codes: 0 all were "
        f"costed, {FAILED} one could not be, {MISUSED} the command line makes no sense, "
        f"{INCOMPLETE} --strict was given and something is not known."
    ),
    add_arguments=_add_arguments,
    run=_run,
)
