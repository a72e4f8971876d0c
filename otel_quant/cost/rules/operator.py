"""What is known of one operator: everything, in one record.

Shape inference, folding, cost, precision, sparsity and liveness all read this record, so that
an operator cannot be known to one of them and forgotten by another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from otel_quant.cost.operation import Operation
from otel_quant.cost.rules.formula import CostRule
from otel_quant.cost.shapes.control import BodyRule
from otel_quant.cost.shapes.folding import Fold
from otel_quant.cost.shapes.rule import ShapeRule


class Precision(NamedTuple):
    """What an operator has to do with the types that contractions execute in."""

    moves: bool = False  # Its result has the elements of its first operand, and so their type
    quantizes: bool = False  # It only converts floats to a quantized type
    dequantizes: bool = False  # It only converts a quantized type to floats
    rounds_to: str = ""  # What it quantizes to and dequantizes from at once; empty if it does not
    operands: tuple[int, int] = (0, 1)  # Of a contraction: where the two that are multiplied are
    # Of a contraction: what it executes in where the operator alone decides
    executes_in: Callable[[Operation], str] | None = None
    # Where a quantized weight and its zero point are, if it has them
    zero_point: tuple[int, int] | None = None


NO_PRECISION: Final = Precision()
MOVES: Final = Precision(moves=True)


class Operator(NamedTuple):
    """One operator."""

    # Types and shapes of its results; None where ``bodies`` gives them, and of Constant, whose
    # result is its tensor
    shape: ShapeRule | None
    # What one execution costs, the graphs that it runs left out, or why it is not costed
    cost: CostRule
    # Elements of its results where they are few; None if they are not followed
    fold: Fold | None = None
    bodies: BodyRule | None = None  # Of control flow: walks the graphs that it runs
    precision: Precision = NO_PRECISION  # Its part in what contractions execute in
    # Its first result is its first operand under another shape: no bytes of its own
    view: bool = False
    random: bool = False  # Its result changes from run to run, whatever its operands
    # Operand -> elements of the constant there, where one stored element holds several
    packed: Mapping[int, Callable[[Operation], int]] = MappingProxyType({})
    # Its results are those of a graph that it runs, which counts them
    results_in_bodies: bool = False
