"""What exports of language models use of onnxruntime's own domain, beside attention's common forms.

As onnxruntime's ContribOperators.md defines them. A fused operator costs what those it fuses cost.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Final, TypeAlias

from otel_quant.cost.operation import Operation, known
from otel_quant.cost.rules import microsoft, pointwise
from otel_quant.cost.rules.contractions import attention_products, gemm_products
from otel_quant.cost.rules.formula import (
    ADD,
    CMP,
    DIV,
    EXP,
    FREE,
    GELU_ERF,
    LOG,
    MUL,
    ROW,
    SIN,
    SOFTMAX,
    SQRT,
    CostRule,
    Formula,
    added,
    not_costed,
    per_input,
    per_output,
    zero,
)
from otel_quant.cost.rules.microsoft import REQUANTIZE, heads_prepared, present, score_macs
from otel_quant.cost.rules.operator import Operator, Precision
from otel_quant.cost.shapes import attention, control
from otel_quant.cost.shapes import microsoft_language as shapes
from otel_quant.cost.shapes.attention import AttentionSizes
from otel_quant.cost.shapes.contraction import gemm
from otel_quant.cost.shapes.microsoft import embedding
from otel_quant.cost.shapes.rule import (
    BOOL,
    FLOAT,
    INT32,
    SAME,
    T0,
    T1,
    ShapeRule,
    like,
    named,
    same_shape,
)

Widths: TypeAlias = Callable[[Operation], tuple[int | None, int, int]]

_GATES: Final = {"silu": EXP + MUL, "swish": EXP + MUL, "sigmoid": EXP, "gelu": GELU_ERF, "relu": 1}
_FP8_ACTIVATIONS: Final = {"NONE": 0, "RELU": CMP, "GELU": GELU_ERF}


def _tokens(op: Operation, found: tuple[int | None, int, int]) -> int:
    return known(found[:1], "operand 0", op.input(0).unknown)[0]


def _packed(widths: Widths, ends: int, past: int | None = None) -> Formula:
    """Scores and weighted values of sequences packed one behind the other."""

    def macs(op: Operation) -> int:
        _, hidden, value_hidden = widths(op)
        return shapes.packed_pairs(op, ends, past) * (hidden + value_hidden)

    return macs


def _packed_scores(ends: int, past: int | None = None, mask: int | None = None) -> Formula:
    def macs(op: Operation) -> int:
        per_score = score_macs(op) + (1 if mask is not None and op.has(mask) else 0)
        return shapes.packed_pairs(op, ends, past) * op.attr("num_heads", 0) * per_score

    return macs


def _projection(op: Operation) -> int:
    return _tokens(op, shapes.packed_attention(op)) * op.size(1)


def _packed_bias(widths: Widths, i: int) -> Formula:
    return lambda op: _tokens(op, widths(op)) * op.size(i) if op.has(i) else 0


def _sparse_products(op: Operation) -> int:
    size = attention.grouped(7)(op).size
    return shapes.sparse_pairs(op) * 2 * known((size,), "a head", op.input(0).unknown)[0]


def _fused_normalization(op: Operation) -> int:
    """What is fused before the products: a residual, a normalization by root mean square."""
    rows = prod(op.dims(0, 1)[:-1])
    norm = 3 * op.size(0) + ROW * rows if op.has(2) else 0
    return norm + (op.size(0) if op.has(1) else 0)


def _gated(op: Operation) -> int:
    """Biases, activation of the gate, and its product with the other side."""
    biases = sum(1 for i in (5, 8) if op.has(i))
    return (op.attr_choice("activation", "silu", _GATES) + MUL + biases) * op.out_size()


def _sides(*columns: str) -> Formula:
    """Products of a row with weights whose numbers of columns are attributes."""
    return lambda op: op.size(0) * sum(op.attr(name, 0) for name in columns)


def _weight(columns: str) -> Formula:
    return lambda op: op.attr(columns, 0) * op.attr("K", 0)


def _bits(op: Operation) -> str:
    return f"int{op.attr('bits', 4)} weight-only"


def _last_axis(op: Operation) -> int:
    return op.out_size() * op.dims(0, 1)[-1]


def _ordered_sizes(op: Operation) -> AttentionSizes:
    batch, length, _ = op.shape(0, exactly=3)
    heads = op.attr("num_heads", 0)
    size, value_size = op.dims(5, exactly=2)[1] // heads, op.dims(7, exactly=2)[1] // heads
    return AttentionSizes(batch, heads, heads, length, length, size, value_size, length)


def _ordered_projection(op: Operation) -> int:
    return prod(op.dims(0)[:2]) * sum(op.size(i) for i in (5, 6, 7))


def _ordered_rest(op: Operation) -> int:
    length = op.dims(0)[1]
    scores = op.dims(0)[0] * op.attr("num_heads", 0) * length**2
    columns = sum(op.dims(i)[1] for i in (5, 6, 7))
    return (SOFTMAX + 1) * scores + (ADD + REQUANTIZE) * prod(op.dims(0)[:2]) * columns


def _quantized_embedding(op: Operation) -> int:
    """Each embedding dequantized, their sum, and a LayerNormalization."""
    count = 3 if op.has(1) else 2
    return (7 + 3 * count - 1) * op.out_size() + ROW * prod(op.out()[:-1])


def _gated_norm(op: Operation) -> int:
    gate = op.attr_choice("activation", "silu", _GATES)
    return (3 + gate + MUL) * op.size(0) + ROW * (op.size(0) // op.size(1))


def _branch_norm(op: Operation) -> int:
    rows = prod(op.dims(0, 1)[:-1]) * max(1, op.attr("num_branches", 0))
    return 3 * op.size(0) + ROW * rows


def _mixed_streams(op: Operation) -> int:
    """The branch that is injected, and the streams mixed where there is a matrix for it."""
    return 2 * op.out_size() + (op.out_size() * op.dims(3, 1)[-1] if op.has(3) else 0)


def _engram_gate(op: Operation) -> int:
    """Two normalizations and a product of both for a gate per row, and the value by the gate."""
    size, rows = op.size(0), prod(op.dims(0, 1)[:-1])
    again = 3 * size + ROW * rows if op.has(5) else 0
    return 8 * size + (2 * ROW + SQRT + EXP + 3) * rows + again


def _position_gates(op: Operation) -> int:
    """The bias of the query, two gates per query and head, and the bias by the gate."""
    queries = op.size(0) // op.dims(3, exactly=2)[0]
    return op.size(0) + queries * (2 * op.dims(3)[1] + 2 * EXP + 4) + op.out_size()


_PAGED: Final = ShapeRule(shapes.paged_attention, (T0, like(3), like(4)))
_READ: Final = not_costed("how many entries each token reads is data")
_GLOBAL: Final = not_costed("which tokens attend to all others is data")
_ORDERED: Final = Precision(executes_in=lambda op: "int8")

TABLE: Final[dict[str, Operator]] = {
    "DecoderMaskedSelfAttention": microsoft.TABLE["Attention"],
    "PackedAttention": Operator(
        ShapeRule(lambda op: [shapes.packed_attention(op)[::2]], (T0,)),
        CostRule(
            "projection, scores and weighted values of each sequence",
            added(_projection, _packed(shapes.packed_attention, 4)),
            added(_packed_bias(shapes.packed_attention, 2), _packed_scores(4, mask=5)),
        ),
    ),
    "PackedMultiHeadAttention": Operator(
        ShapeRule(lambda op: [shapes.packed_multi_head(op)[::2]], (T0,)),
        CostRule(
            "scores and weighted values of each sequence",
            _packed(shapes.packed_multi_head, 5),
            added(_packed_bias(shapes.packed_multi_head, 3), _packed_scores(5, mask=6)),
        ),
    ),
    "PagedAttention": Operator(
        _PAGED,
        CostRule(
            "scores and weighted values of each sequence and its past; norm, rotation",
            _packed(shapes.paged, 5, 6),
            added(_packed_scores(5, 6), heads_prepared(12)),
        ),
    ),
    "SparseAttention": Operator(
        ShapeRule(attention.separate_caches(attention.grouped(7)), (T0,)),
        CostRule(
            "scores and weighted values of the blocks; rotation",
            _sparse_products,
            added(lambda op: score_macs(op) * shapes.sparse_pairs(op), heads_prepared()),
        ),
    ),
    "DynamicSparseAttention": Operator(
        ShapeRule(attention.separate_caches(attention.grouped(10)), (T0,)), _READ
    ),
    "SparsePagedAttention": Operator(_PAGED, _READ),
    "LongformerAttention": Operator(SAME, _GLOBAL),
    "QOrderedLongformerAttention": Operator(SAME, _GLOBAL),
    "DecoderAttention": Operator(
        ShapeRule(shapes.same_as(0), (T0,)),
        not_costed("whether keys are computed or read is data"),
    ),
    "MatMulNBitsMlp": Operator(
        ShapeRule(shapes.gated_mlp, (T0,)),
        CostRule(
            "two products |y|*K; normalization, biases, activation",
            _sides("N", "N"),
            added(_fused_normalization, _gated),
        ),
        precision=Precision(executes_in=_bits),
        packed=dict.fromkeys((3, 6), _weight("N")),
    ),
    "MatMulNBitsQkv": Operator(
        ShapeRule(shapes.query_key_value, (T0,)),
        CostRule(
            "three products |y|*K; normalization, biases",
            _sides("Nq", "Nkv", "Nkv"),
            added(
                _fused_normalization,
                lambda op: sum(op.out_size(i) for i in range(3) if op.has(5 + 3 * i)),
            ),
        ),
        precision=Precision(executes_in=_bits),
        packed={3: _weight("Nq"), 6: _weight("Nkv"), 9: _weight("Nkv")},
    ),
    "MatMulBlockQuantizedFp4Weight": Operator(
        ShapeRule(shapes.rows_of_weight, (T0,)),
        CostRule("|y|*K, bias", _last_axis, present(5)),
        precision=Precision(executes_in=lambda op: "float4 weight-only"),
        packed={1: lambda op: 2 * op.size(1)},
    ),
    "MatMulBlockQuantizedFp8Weight": Operator(
        ShapeRule(shapes.rows_of_weight, (T0,)),
        CostRule(
            "|y|*K, quantization of the input, bias",
            _last_axis,
            added(present(4), lambda op: REQUANTIZE * op.size(0) if op.has(3) else 0),
        ),
        precision=Precision(executes_in=lambda op: "float8" if op.has(3) else "float8 weight-only"),
    ),
    "GemmFloat8": Operator(
        ShapeRule(gemm(0, 1), (named("dtype", FLOAT),)),
        CostRule(
            "Gemm, activation",
            gemm_products(0),
            added(
                present(2),
                lambda op: op.attr_choice("activation", "NONE", _FP8_ACTIVATIONS) * op.out_size(),
            ),
        ),
    ),
    "QOrderedMatMul": Operator(
        ShapeRule(shapes.ordered_matmul, (T0,)),
        CostRule(
            "|y|*K, bias, residual, rescaled",
            _last_axis,
            added(per_output(REQUANTIZE), present(5), present(6)),
        ),
        precision=_ORDERED,
    ),
    "QOrderedAttention": Operator(
        ShapeRule(shapes.ordered_attention, (T0,)),
        CostRule(
            "projection, scores, weighted values",
            added(_ordered_projection, attention_products(_ordered_sizes)),
            _ordered_rest,
        ),
        precision=_ORDERED,
    ),
    "QOrderedGelu": Operator(
        SAME, CostRule("Gelu, rescaled", rest=per_output(GELU_ERF + REQUANTIZE))
    ),
    "QOrderedLayerNormalization": Operator(
        SAME,
        CostRule(
            "7 per element, 29 per row, rescaled",
            rest=lambda op: (7 + REQUANTIZE) * op.size(0) + ROW * prod(op.dims(0, 1)[:-1]),
        ),
    ),
    "QEmbedLayerNormalization": Operator(
        ShapeRule(embedding, (like(8), INT32)),
        CostRule("sums of dequantized rows and LayerNormalization", rest=_quantized_embedding),
    ),
    "MRotaryEmbedding": pointwise.TABLE["RotaryEmbedding"],
    "GemmaRotaryEmbedding": Operator(
        ShapeRule(shapes.same_as(1, 3), (T1,)),
        CostRule(
            "sine and cosine, and a rotation: 3 per element",
            rest=added(per_input(2 * SIN), lambda op: 3 * (op.size(1) + op.size(3))),
        ),
    ),
    "GatedRMSNorm": Operator(
        SAME, CostRule("3 per element, 29 per row; gate and its activation", rest=_gated_norm)
    ),
    "BranchwiseRMSNorm": Operator(
        SAME, CostRule("3 per element, 29 per row of a branch", rest=_branch_norm)
    ),
    "GatedAdd": Operator(SAME, CostRule("2 per result", rest=per_output(MUL + ADD))),
    "LinearAttentionGate": Operator(
        ShapeRule(same_shape, (T0,)),
        CostRule(
            "softplus, scaled; sigmoid",
            rest=added(
                per_output(EXP + LOG + 2 * ADD + MUL),
                lambda op: EXP * op.size(3) if op.has(3) else 0,
            ),
        ),
    ),
    "HyperConnectionPreMix": Operator(
        ShapeRule(shapes.reduced_branches, (T0,)),
        CostRule("|x| + |y|", rest=added(per_input(MUL), per_output(MUL))),
    ),
    "HyperConnectionPostMix": Operator(
        SAME, CostRule("2 per result; streams mixed", rest=_mixed_streams)
    ),
    "EngramGate": Operator(
        ShapeRule(same_shape, (T0,)),
        CostRule("normalizations, a gate per row", rest=_engram_gate),
    ),
    "RelativePositionBias": Operator(
        ShapeRule(shapes.position_bias, (T0,)),
        CostRule(
            "a logarithm for the bucket of each query and key",
            rest=lambda op: (LOG + DIV + MUL + 3 * CMP) * prod(op.out()[2:]),
        ),
    ),
    "GatedRelativePositionBias": Operator(
        ShapeRule(shapes.gated_position_bias, (T0,)),
        CostRule(
            "gates by a product of each head's query; bias by the gate",
            lambda op: op.size(0) * op.dims(3, exactly=2)[1],
            _position_gates,
        ),
        precision=Precision(operands=(0, 3)),
    ),
    "RemovePadding": Operator(ShapeRule(shapes.without_padding, (T0, INT32)), FREE),
    "RestorePadding": Operator(
        ShapeRule(lambda op: [(*op.shape(1, exactly=2), op.shape(0, exactly=2)[1])], (T0,)), FREE
    ),
    **dict.fromkeys(
        ("BeamSearch", "GreedySearch", "Sampling", "WhisperBeamSearch"),
        Operator(
            None,
            CostRule("nothing itself; how often it runs its graphs is data", rest=zero),
            bodies=control.generation,
        ),
    ),
    "BiasDropout": Operator(
        ShapeRule(same_shape, (T0, BOOL)),
        CostRule("bias and residual", rest=added(per_output(ADD), present(2))),
        random=True,
    ),
}
