"""Costs of the operators that sum products: the number that papers quote.

``contraction`` counts one MAC per product that the definition of the operator has, padding
included. A bias is an addition per result and counts under ``rest``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod
from typing import Final

from otel_quant.cost.operation import Operation, known
from otel_quant.cost.rules.formula import ADD, EXP, SOFTMAX, TANH, CostRule, Formula, volume0, zero
from otel_quant.cost.rules.operator import Operator, Precision
from otel_quant.cost.shapes import attention, contraction, control, windowed
from otel_quant.cost.shapes.attention import AttentionSizes, SizesOf
from otel_quant.cost.shapes.contraction import einsum_lengths, einsum_terms
from otel_quant.cost.shapes.rule import INT32, T0, ShapeRule, like


def _bias(i: int) -> Formula:
    """One addition per result if operand ``i`` is there."""
    return lambda op: op.out_size() if op.has(i) else 0


def conv_products(w: int) -> Formula:
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


def _matmul(a: int) -> Formula:
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


def gemm_products(a: int) -> Formula:
    """Every result sums as many products as the axis that the operands share is long."""

    def macs(op: Operation) -> int:
        rows, columns = op.dims(a, exactly=2)
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
        total += prod(_labelled(op, lengths, joint))
        later = {label for rest in operands[i:] for label in rest} | set(result)
        held = [label for label in joint if label in later]
    return total


def _labelled(
    op: Operation, lengths: Mapping[str, int | None], labels: Iterable[str]
) -> tuple[int, ...]:
    cause = next((value.unknown for value in op.inputs if value and value.unknown), None)
    return known([lengths[label] for label in labels], "an operand", cause)


def _einsum_alone(op: Operation) -> int:
    """An Einsum of one operand sums or moves: one addition per element if it sums."""
    operands, result = einsum_terms(op)
    if len(operands) > 1 or set(operands[0]) == set(result):
        return 0
    return prod(_labelled(op, einsum_lengths(op), set(operands[0])))


def _steps(op: Operation) -> int:
    """Batch times sequence length."""
    data = op.dims(0, 2)
    return data[0] * data[1]


def _recurrent(op: Operation) -> int:
    """Both matrices once per step and batch element."""
    return (op.size(1) + op.size(2)) * _steps(op)


def _recurrent_rest(gates: int, per_state: int) -> Formula:
    """Biases, and per state the activations and the blend."""

    def macs(op: Operation) -> int:
        directions, _, hidden = op.dims(2, exactly=3)
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


def attention_products(sizes: SizesOf) -> Formula:
    """Scores and their application to the values; a causal mask is not skipped."""

    def macs(op: Operation) -> int:
        found = sizes(op)
        heads = (found.size, found.value_size)
        size, value_size = known(heads, "an attention head", op.input(0).unknown)
        return attention_scores(op, found) * (size + value_size)

    return macs


def attention_scores(op: Operation, found: AttentionSizes) -> int:
    """Returns the number of query and key pairs over all heads."""
    lengths = {
        "batch": found.batch,
        "heads": found.heads,
        "queries": found.queries,
        "keys": found.keys,
    }
    missing = [name for name, length in lengths.items() if length is None]
    what = f"an attention ({', '.join(missing)})"
    return prod(known(tuple(lengths.values()), what, op.input(0).unknown))


def _attention_rest(op: Operation) -> int:
    """Scale, mask, cap and softmax of every score."""
    per_score = SOFTMAX + 1 + (1 if op.has(3) else 0)
    if op.attr_float("softcap", 0.0):
        per_score += TANH + 2
    return attention_scores(op, attention.onnx_sizes(op)) * per_score


def _det(op: Operation) -> int:
    """Gaussian elimination: n^3 / 3 per matrix."""
    shape = op.dims(0, 1)
    return prod(shape[:-2]) * shape[-1] ** 3 // 3


def _recurrent_operator(source: str, rest: Formula, tool: Formula | None = None) -> Operator:
    return Operator(
        ShapeRule(contraction.recurrent, (T0,)), CostRule(source, _recurrent, rest, tool)
    )


TABLE: Final[dict[str, Operator]] = {
    "Conv": Operator(
        ShapeRule(windowed.conv(0, 1), (T0,)),
        CostRule("|y|*|W[1:]|, +|y| with bias", conv_products(1), _bias(2), _conv_tool),
    ),
    "ConvTranspose": Operator(
        ShapeRule(windowed.conv_transpose, (T0,)),
        CostRule(
            "|x|*|W[1:]|, +|y| with bias (onnx_tool: |y|*|W[1:]|)",
            _conv_transpose,
            _bias(2),
            _conv_transpose_tool,
        ),
    ),
    "DeformConv": Operator(
        ShapeRule(windowed.conv(0, 1), (T0,)),
        CostRule(
            "|y|*|W[1:]| and bilinear sampling of each tap",
            conv_products(1),
            lambda op: 4 * op.out_size() // op.dims(1)[0] * prod(op.dims(1)[1:]),
        ),
    ),
    "ConvInteger": Operator(
        ShapeRule(windowed.conv(0, 1), (INT32,)),
        CostRule("|y|*|W[1:]|", conv_products(1), zero),
        precision=Precision(zero_point=(1, 3)),
    ),
    "QLinearConv": Operator(
        ShapeRule(windowed.conv(0, 3), (like(7),)),
        CostRule("|y|*|W[1:]|, +|y| with bias", conv_products(3), _bias(8)),
        precision=Precision(operands=(0, 3), zero_point=(3, 5)),
    ),
    "MatMul": Operator(
        ShapeRule(contraction.matmul(0, 1), (T0,)),
        CostRule("|y|*K", _matmul(0), None, _matmul_tool),
    ),
    "MatMulInteger": Operator(
        ShapeRule(contraction.matmul(0, 1), (INT32,)),
        CostRule(
            "|y|*K; zero points are free (onnx_tool: one is a bias)", _matmul(0), None, _matmul_tool
        ),
        precision=Precision(zero_point=(1, 3)),
    ),
    "QLinearMatMul": Operator(
        ShapeRule(contraction.matmul(0, 3), (like(7),)),
        CostRule("|y|*K", _matmul(0), None, _qlinear_matmul_tool),
        precision=Precision(operands=(0, 3), zero_point=(3, 5)),
    ),
    "Gemm": Operator(
        ShapeRule(contraction.gemm(0, 1), (T0,)),
        CostRule("|y|*K, +|y| with C", gemm_products(0), _bias(2)),
    ),
    "Einsum": Operator(
        ShapeRule(contraction.einsum, (T0,)),
        CostRule("product over the letters, operands pairwise", _einsum, _einsum_alone),
    ),
    "LSTM": _recurrent_operator(
        "(|W|+|R|)*b*s; biases; 180 per state (onnx_tool: states of one direction)",
        _recurrent_rest(4, _LSTM_STATE),
        _recurrent_tool(4, _LSTM_STATE),
    ),
    "GRU": _recurrent_operator(
        "(|W|+|R|)*b*s; biases; 110 per state (onnx_tool: states of one direction)",
        _recurrent_rest(3, _GRU_STATE),
        _recurrent_tool(3, _GRU_STATE),
    ),
    "RNN": _recurrent_operator(
        "(|W|+|R|)*b*s; biases; tanh per state", _recurrent_rest(1, _RNN_STATE)
    ),
    "Attention": Operator(
        ShapeRule(attention.onnx_attention, (T0,)),
        CostRule(
            "scores and weighted values; softmax",
            attention_products(attention.onnx_sizes),
            _attention_rest,
        ),
    ),
    "ai.onnx.preview:FlexAttention": Operator(
        None,
        CostRule(
            "scores and weighted values; softmax; what it runs on them is costed",
            attention_products(attention.onnx_sizes),
            _attention_rest,
        ),
        bodies=control.flex_attention,
    ),
    "Det": Operator(
        ShapeRule(lambda op: [op.shape(0)[:-2]], (T0,)),
        CostRule("Gaussian elimination, n^3/3", None, _det),
    ),
}
