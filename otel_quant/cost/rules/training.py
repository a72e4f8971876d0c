"""Operators of ONNX's domain for training, ``ai.onnx.preview.training``."""

from __future__ import annotations

from typing import Final

from otel_quant.cost.operation import Operation
from otel_quant.cost.rules.formula import ADD, DIV, MUL, SQRT, CostRule, Formula, not_costed
from otel_quant.cost.rules.operator import Operator
from otel_quant.cost.shapes.rule import ShapeRule, like


def _kept(op: Operation, blocks: int) -> list[int]:
    """Operands behind rate and count, in blocks of as many as there are tensors: all but gradients."""
    count = (len(op.inputs) - 2) // blocks
    return [*range(2, 2 + count), *range(2 + 2 * count, len(op.inputs))]


def _updated(blocks: int) -> ShapeRule:
    return ShapeRule(lambda op: [op.shape(i) for i in _kept(op, blocks)], (like(2),))


def _per_element(macs: int, blocks: int, nesterov: int = 0) -> Formula:
    def formula(op: Operation) -> int:
        count = (len(op.inputs) - 2) // blocks
        each = macs + (nesterov if op.attr_str("mode", "") == "nesterov" else 0)
        return each * sum(op.size(2 + i) for i in range(count))

    return formula


_REGULARIZED: Final = MUL + ADD
_MOVING: Final = 2 * MUL + ADD
_ADAGRAD: Final = _REGULARIZED + MUL + ADD + SQRT + ADD + MUL + DIV + ADD
_ADAM: Final = _REGULARIZED + 2 * _MOVING + MUL + SQRT + ADD + MUL + DIV + ADD + MUL
_MOMENTUM: Final = _REGULARIZED + _MOVING + MUL + ADD

TABLE: Final[dict[str, Operator]] = {
    "Adagrad": Operator(
        _updated(3), CostRule(f"{_ADAGRAD} per element", rest=_per_element(_ADAGRAD, 3))
    ),
    "Adam": Operator(_updated(4), CostRule(f"{_ADAM} per element", rest=_per_element(_ADAM, 4))),
    "Momentum": Operator(
        _updated(3),
        CostRule(
            f"{_MOMENTUM} per element, {_MOMENTUM + MUL + ADD} of Nesterov's",
            rest=_per_element(_MOMENTUM, 3, MUL + ADD),
        ),
    ),
    "Gradient": Operator(
        ShapeRule(lambda op: [op.shape(i) for i in range(len(op.node.outputs))]),
        not_costed("what it differentiates is the graph around it"),
    ),
}
