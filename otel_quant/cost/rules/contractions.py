"""Costs of the operators that sum products: the number that papers quote.

``contraction`` counts one MAC per product that the definition of the operator has, padding
included. A bias is an addition per result and counts under ``rest``.
"""

from __future__ import annotations

from math import prod
from typing import Final

from otel_quant.cost.operation import Operation, known
from otel_quant.cost.rules.formula import (
    ADD,
    EXP,
    TANH,
    CostRule,
    Formula,
    volume0,
    zero,
)
from otel_quant.cost.shapes.attention import attention_sizes
from otel_quant.cost.shapes.contraction import einsum_lengths, einsum_terms

SOFTMAX: Final = EXP + 4
"""Per element: exp and division."""


def _bias(i: int) -> Formula:
    """One addition per result if operand ``i`` is there."""
    return lambda op: op.out_size() if op.has(i) else 0


def _conv(w: int) -> Formula:
    """Every result sums the products of one filter: |y| * |W[1:]|."""
    return lambda op: op.out_size() * prod(op.dims(w)[1:])


def _conv_transpose(op: Operation) -> int:
    """Every input element is spread by its filters: |x| * |W[1:]|."""
    return op.size(0) * prod(op.dims(1)[1:])


def _conv_transpose_tool(op: Operation) -> int:
    return op.out_size() * prod(op.dims(1)[1:]) + (op.out_size() if len(op.inputs) > 2 else 0)


def _conv_tool(op: Operation) -> int:
    if len(op.inputs) not in (2, 3) or len(op.outputs) != 1:
        return 0
    return op.out_size() * (prod(op.dims(1)[1:]) + (1 if len(op.inputs) > 2 else 0))


def _deform_conv(op: Operation) -> int:
    return op.out_size() * prod(op.dims(1)[1:])


def _matmul(a: int, b: int) -> Formula:
    """Every result sums as many products as the shared dimension is long."""

    def macs(op: Operation) -> int:
        left = op.dims(a)
        return op.out_size() * left[-1]

    return macs


def _matmul_tool(op: Operation) -> int:
    weight = op.dims(1)
    macs = volume0(op.out())
    if len(weight) > 1:
        macs *= weight[-2]
    return macs + (volume0(op.out()) if len(op.inputs) == 3 else 0)


def _qlinear_matmul_tool(op: Operation) -> int:
    return volume0(op.dims(0)) * op.dims(3)[-1]


def _gemm(a: int) -> Formula:
    def macs(op: Operation) -> int:
        rows, columns = op.dims(a)
        return op.out_size() * (rows if op.attr("transA", 0) else columns)

    return macs


def _einsum(op: Operation) -> int:
    """A product of the lengths of all labels: one multiply-add per combination.

    More than two operands are multiplied pairwise from the left, each time summing out the
    labels that no later operand and not the result has.
    """
    operands, result = einsum_terms(op)
    lengths = einsum_lengths(op)
    total = 0
    held = operands[0]
    for i, labels in enumerate(operands[1:], 2):
        joint = list(dict.fromkeys((*held, *labels)))
        total += prod(known([lengths[label] for label in joint]))
        later = {label for rest in operands[i:] for label in rest} | set(result)
        held = [label for label in joint if label in later]
    return total


def _einsum_alone(op: Operation) -> int:
    """An Einsum of one operand sums or moves: one addition per element if it sums."""
    operands, result = einsum_terms(op)
    if len(operands) > 1 or set(operands[0]) == set(result):
        return 0
    return prod(known([einsum_lengths(op)[label] for label in set(operands[0])]))


def _steps(op: Operation) -> int:
    """Batch times sequence length."""
    data = op.dims(0)
    return data[0] * data[1]


def _recurrent(op: Operation) -> int:
    """Both matrices once per step and batch element."""
    return (op.size(1) + op.size(2)) * _steps(op)


def _recurrent_rest(gates: int, per_state: int) -> Formula:
    """Biases, and per state the activations and the blend."""

    def macs(op: Operation) -> int:
        directions, _, hidden = op.dims(2)
        states = _steps(op) * directions * hidden
        bias = op.size(3) * _steps(op) if op.has(3) else 0
        return bias + states * (per_state + gates * ADD)

    return macs


_LSTM_STATE: Final = 3 * EXP + 2 * TANH + 4
_GRU_STATE: Final = 2 * EXP + TANH + 5
_RNN_STATE: Final = TANH


def _recurrent_tool(gates: int, per_state: int) -> Formula:
    def macs(op: Operation) -> int:
        steps = _steps(op)
        hidden = op.dims(1)[1] // gates
        matrices = op.size(1) + op.size(2) + (op.size(3) if op.has(3) else 0)
        return matrices * steps + steps * hidden * (per_state + gates * ADD)

    return macs


def attention_products(op: Operation) -> int:
    """Scores and their application to the values; a causal mask is not skipped."""
    found = attention_sizes(op)
    size, value_size = known((found.size, found.value_size))
    return attention_scores(op) * (size + value_size)


def attention_scores(op: Operation) -> int:
    """Number of query and key pairs over all heads."""
    found = attention_sizes(op)
    return prod(known((found.batch, found.heads, found.queries, found.keys)))


def _attention_rest(op: Operation) -> int:
    """Scale, mask, cap and softmax of every score."""
    per_score = SOFTMAX + 1 + (1 if op.has(3) else 0)
    if op.attr_float("softcap", 0.0):
        per_score += TANH + 2
    return attention_scores(op) * per_score


def _det(op: Operation) -> int:
    """Gaussian elimination: n^3 / 3 per matrix."""
    shape = op.dims(0)
    return prod(shape[:-2]) * shape[-1] ** 3 // 3


TABLE: Final[dict[str, CostRule]] = {
    "Conv": CostRule("|y|*|W[1:]|, +|y| with bias", _conv(1), _bias(2), _conv_tool),
    "ConvTranspose": CostRule(
        "|x|*|W[1:]|, +|y| with bias (onnx_tool: |y|*|W[1:]|)",
        _conv_transpose,
        _bias(2),
        _conv_transpose_tool,
    ),
    "DeformConv": CostRule(
        "|y|*|W[1:]| and bilinear sampling of each tap",
        _deform_conv,
        lambda op: 4 * op.out_size() // op.dims(1)[0] * prod(op.dims(1)[1:]),
    ),
    "ConvInteger": CostRule("|y|*|W[1:]|", _conv(1), zero),
    "QLinearConv": CostRule("|y|*|W[1:]|, +|y| with bias", _conv(3), _bias(8)),
    "MatMul": CostRule("|y|*K", _matmul(0, 1), None, _matmul_tool),
    "MatMulInteger": CostRule(
        "|y|*K; zero points are free (onnx_tool: one is a bias)", _matmul(0, 1), None, _matmul_tool
    ),
    "QLinearMatMul": CostRule("|y|*K", _matmul(0, 3), None, _qlinear_matmul_tool),
    "Gemm": CostRule("|y|*K, +|y| with C", _gemm(0), _bias(2)),
    "Einsum": CostRule("product over the letters, operands pairwise", _einsum, _einsum_alone),
    "LSTM": CostRule(
        "(|W|+|R|)*b*s; biases; 180 per state (onnx_tool: states of one direction)",
        _recurrent,
        _recurrent_rest(4, _LSTM_STATE),
        _recurrent_tool(4, _LSTM_STATE),
    ),
    "GRU": CostRule(
        "(|W|+|R|)*b*s; biases; 110 per state (onnx_tool: states of one direction)",
        _recurrent,
        _recurrent_rest(3, _GRU_STATE),
        _recurrent_tool(3, _GRU_STATE),
    ),
    "RNN": CostRule(
        "(|W|+|R|)*b*s; biases; tanh per state", _recurrent, _recurrent_rest(1, _RNN_STATE)
    ),
    "Attention": CostRule(
        "scores and weighted values; softmax", attention_products, _attention_rest
    ),
    "Det": CostRule("Gaussian elimination, n^3/3", None, _det),
}
