"""The pieces that cost formulas are made of, and the constants they share.

The constants are onnx_tool's: what an instruction sequence for a special function takes.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Final, NamedTuple, TypeAlias

from otel_quant.cost.operation import Operation

MUL: Final = 1
ADD: Final = 1
CMP: Final = 1
DIV: Final = 4
EXP: Final = 32
LOG: Final = 43
SIN: Final = 39
SQRT: Final = 24
TANH: Final = EXP + 2 * ADD + DIV
ATAN: Final = SQRT + 4 * MUL + DIV
ERF: Final = EXP + DIV + 10
"""Abramowitz and Stegun 7.1.26: |x|, 1+px, a reciprocal, five Horner steps, x^2, exp, 1-, sign."""

Formula: TypeAlias = Callable[[Operation], int]
"""MACs of one execution of a node; raises one of ``RULE_ERRORS`` where they are not known."""


class CostRule(NamedTuple):
    """What one operator costs; a rule with neither formula is that of an operator not costed."""

    source: str  # The formula in words, or why there is none; for the documentation and reasons
    # Multiply-adds of its contractions (Conv, MatMul ...), None if it has none
    contraction: Formula | None = None
    rest: Formula | None = None  # Everything else, in MACs
    # onnx_tool's own figure; None where it is ``contraction + rest``, or where it has none and
    # aborts
    as_onnx_tool: Formula | None = None


def volume0(shape: tuple[int, ...]) -> int:
    """Returns onnx_tool's number of elements: a rank-0 tensor has none."""
    return prod(shape) if shape else 0


def not_costed(why: str, as_onnx_tool: Formula | None = None) -> CostRule:
    """A rule without a formula, and the reason."""
    return CostRule(f"not costed: {why}", as_onnx_tool=as_onnx_tool)


def zero(op: Operation) -> int:
    """Nothing is computed."""
    return 0


def per_output(macs: int) -> Formula:
    """A number of MACs for each element of the first result."""
    return lambda op: macs * op.out_size()


def per_output0(macs: int) -> Formula:
    """As :func:`per_output`, rank 0 counted as onnx_tool does."""
    return lambda op: macs * volume0(op.out())


def per_input(macs: int) -> Formula:
    """A number of MACs for each element of the first operand."""
    return lambda op: macs * op.size(0)


def per_input0(macs: int) -> Formula:
    """As :func:`per_input`, rank 0 counted as onnx_tool does."""
    return lambda op: macs * volume0(op.dims(0))


def added(*formulas: Formula) -> Formula:
    """The sum of formulas."""
    return lambda op: sum(formula(op) for formula in formulas)


def elementwise(source: str, macs: int, tool: int | None = None) -> CostRule:
    """A rule of a number of MACs per element, and onnx_tool's number where it differs."""
    return CostRule(
        source, rest=per_output(macs), as_onnx_tool=per_output0(macs if tool is None else tool)
    )


FREE: Final = CostRule("moves or makes elements", rest=zero)

GELU_ERF: Final = ERF + 4
GELU_TANH: Final = TANH + 8

SOFTMAX: Final = EXP + 4
"""Per element: exp and division."""

ROW: Final = ADD + SQRT + DIV
"""Per normalized row: epsilon, square root, reciprocal."""
