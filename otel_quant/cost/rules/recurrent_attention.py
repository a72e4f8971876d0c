"""Attention that keeps a state in place of all keys, of ONNX and of onnxruntime."""

from __future__ import annotations

from math import prod
from typing import Final

from otel_quant.cost import dtypes
from otel_quant.cost.operation import Operation, known
from otel_quant.cost.rules.contractions import conv_products
from otel_quant.cost.rules.formula import EXP, LOG, MUL, CostRule, Formula
from otel_quant.cost.rules.operator import Operator
from otel_quant.cost.shapes import recurrent_attention as shapes
from otel_quant.cost.shapes.recurrent_attention import StateSizes, StateSizesOf
from otel_quant.cost.shapes.rule import T0, ShapeRule, ShapesOf, TypeOf, always

_READS_STATE: Final = {"linear": 0, "gated": 0, "delta": 1, "gated_delta": 1}
"""Update rule -> it takes what the state has for a key away from the value first."""

_DECAYS: Final = {"linear": 0, "gated": 1, "delta": 0, "gated_delta": 1}
"""Update rule -> the state is scaled before each token."""

_ACTIVATIONS: Final = {"none": 0, "silu": EXP + MUL, "swish": EXP + MUL}
_GATES: Final = {"none": 0, "qwen": EXP + LOG + 4}
_BETAS: Final = {"none": 0, "sigmoid": EXP}


def _rule(op: Operation, choices: dict[str, int]) -> int:
    return op.attr_choice("update_rule", "gated_delta", choices)


def _lengths(op: Operation, *lengths: int | None) -> int:
    return prod(known(lengths, "the heads", op.input(0).unknown))


def _tokens(op: Operation, found: StateSizes) -> int:
    return _lengths(op, *found.rows)


def _products(sizes: StateSizesOf) -> Formula:
    """Per token and head: key times value, state times query, and state times key of a delta."""

    def macs(op: Operation) -> int:
        found = sizes(op)
        state = _lengths(op, found.size, found.value_size)
        uses = _lengths(op, found.state_heads) * (1 + _rule(op, _READS_STATE))
        return _tokens(op, found) * state * (uses + _lengths(op, found.results))

    return macs


def _rest(sizes: StateSizesOf) -> Formula:
    """Decay of the state, the delta of the value, the scale of the result, fused activations."""

    def macs(op: Operation) -> int:
        found = sizes(op)
        values = _tokens(op, found) * _lengths(op, found.state_heads, found.value_size)
        total = op.out_size() + 2 * _rule(op, _READS_STATE) * values
        if _rule(op, _DECAYS):
            gate = op.attr_choice("gate_activation", "none", _GATES)
            total += values * _lengths(op, found.size) + (EXP + gate) * op.size(4)
        if op.has(5):
            total += op.attr_choice("beta_activation", "none", _BETAS) * op.size(5)
        if op.attr("qk_l2_norm", 0):
            total += 2 * 2 * _tokens(op, found) * _lengths(op, found.heads, found.size)
        return total

    return macs


def _attention(shape: ShapesOf, state: TypeOf, sizes: StateSizesOf) -> Operator:
    return Operator(
        ShapeRule(shape, (T0, state)),
        CostRule(
            "per token: key times value, state times query, of a delta also times key; decay",
            _products(sizes),
            _rest(sizes),
        ),
    )


def _convolution(shape: ShapesOf, bias: int) -> Operator:
    def rest(op: Operation) -> int:
        activation = op.attr_choice("activation", "none", _ACTIVATIONS)
        return ((1 if op.has(bias) else 0) + activation) * op.out_size()

    return Operator(
        ShapeRule(shape, (T0,)),
        CostRule("|y|*|W[1:]|, bias, activation", conv_products(1), rest),
    )


TABLE: Final[dict[str, Operator]] = {
    "LinearAttention": _attention(shapes.linear_attention, shapes.state_type, shapes.linear),
    "CausalConvWithState": _convolution(shapes.causal_conv, 2),
}

MICROSOFT: Final[dict[str, Operator]] = {
    **TABLE,
    "VarlenCausalConvWithState": _convolution(shapes.packed_causal_conv, 3),
    "GatedDeltaNet": _attention(shapes.gated_delta_net, always(dtypes.FLOAT), shapes.gated_delta),
}
