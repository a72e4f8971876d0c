"""``--input`` and ``--dim``: the lengths that the inputs of ONNX models have, for several commands."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from otel_quant.cli.command import MISUSED, UserError
from otel_quant.views.text import printable

if TYPE_CHECKING:
    from otel_quant.cost import CostError, InputSpec


def add_model_shapes(
    parser: argparse.ArgumentParser,
    *,
    of_inputs: str,
    of_dims: str,
    metavar: str = "NAME=SHAPE",
) -> None:
    """Adds the two arguments."""
    parser.add_argument(
        "--input",
        action="append",
        default=[],
        metavar=metavar,
        dest="inputs",
        help=f"shape of an input{of_inputs}; may be repeated",
    )
    parser.add_argument(
        "--dim",
        action="append",
        default=[],
        metavar="NAME=LENGTH",
        dest="dims",
        help=f"length of a dimension that has a name{of_dims}; may be repeated",
    )


def model_shapes(options: argparse.Namespace) -> tuple[dict[str, InputSpec], dict[str, int]]:
    """Returns the shapes of inputs and the lengths of dimensions that the arguments give, by name."""
    from otel_quant.cost import CostError, parse_dims, parse_inputs

    option = "--input"
    try:
        inputs = parse_inputs(options.inputs, option=option)
        option = "--dim"
        return inputs, parse_dims(options.dims)
    except CostError as error:
        raise misused(option, error) from error


def misused(option: str, error: CostError) -> UserError:
    """Returns the error for an argument that makes no sense."""
    return UserError(f"{option}: {printable(error.reason)}", MISUSED)
