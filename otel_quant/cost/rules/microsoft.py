"""Operators of onnxruntime's own domain.

A fused operator costs what the operators that it fuses cost.
"""

from __future__ import annotations

from math import prod
from typing import Final

from otel_quant.cost import dtypes
from otel_quant.cost.operation import Operation, UnknownError, known
from otel_quant.cost.rules import contractions, layout, pointwise, windows
from otel_quant.cost.rules.contractions import (
    attention_products,
    attention_scores,
    conv_products,
    gemm_products,
)
from otel_quant.cost.rules.formula import (
    ADD,
    DIV,
    EXP,
    FREE,
    GELU_ERF,
    GELU_TANH,
    MUL,
    ROW,
    SOFTMAX,
    TANH,
    CostRule,
    Formula,
    added,
    per_input,
    per_output,
)
from otel_quant.cost.rules.operator import Operator, Precision
from otel_quant.cost.shapes import attention, microsoft
from otel_quant.cost.shapes.attention import AttentionSizes, SizesOf
from otel_quant.cost.shapes.contraction import gemm, matmul
from otel_quant.cost.shapes.microsoft import fused_operands
from otel_quant.cost.shapes.rule import FLOAT, INT32, SAME, T0, T1, ShapeRule, like, same_shape
from otel_quant.cost.shapes.windowed import conv, conv_nhwc, pool_nhwc

_ACTIVATIONS: Final = {
    "": 0,
    "Relu": 1,
    "LeakyRelu": 2,
    "Clip": 2,
    "HardSigmoid": 4,
    "Sigmoid": EXP,
    "Tanh": EXP + 6,
    "Gelu": GELU_ERF,
    "FastGelu": GELU_TANH,
}


def _activation(op: Operation) -> int:
    """The activation fused behind a contraction."""
    return op.attr_choice("activation", "", _ACTIVATIONS) * op.out_size()


def present(i: int) -> Formula:
    """A MAC per result if operand ``i`` is there: a bias, a residual."""
    return lambda op: op.out_size() if op.has(i) else 0


def _fused_matmul(op: Operation) -> int:
    left, _ = fused_operands(op)
    return op.out_size() * known(left, "operand 0", op.input(0).unknown)[-1]


def _by_attribute(op: Operation) -> int:
    """Weights packed in blocks: K products per result."""
    return op.out_size() * op.attr("K", 0)


def _products(op: Operation) -> int:
    """Elements of a weight whose lengths are attributes."""
    return op.attr("N", 0) * op.attr("K", 0)


def _blocks(op: Operation) -> int:
    """Zero points of MatMulNBits, one for each block of a row; floats are stored one by one."""
    if op.dtype(3) != dtypes.UINT8:
        return op.size(3)
    return op.attr("N", 0) * -(-op.attr("K", 0) // op.attr("block_size", 1))


def _in_bytes(i: int, bits: str, own: str = "") -> Formula:
    """Elements of operand ``i``, of which a byte holds several; attribute ``own`` goes first."""

    def elements(op: Operation) -> int:
        if op.dtype(i) != dtypes.UINT8:
            return op.size(i)
        return op.size(i) * 8 // op.attr(own, op.attr(bits, 4))

    return elements


def _last_axis(op: Operation) -> int:
    return op.out_size() * op.dims(0)[-1]


def _tokens(op: Operation, found: AttentionSizes) -> int:
    return prod(known((found.batch, found.queries), "batch or queries", op.input(0).unknown))


def _projected(sizes: SizesOf) -> Formula:
    """Attention that also projects its input: batch * length * |W|."""
    products = attention_products(sizes)
    return lambda op: _tokens(op, sizes(op)) * op.size(1) + products(op)


def _projected_rest(sizes: SizesOf, mask: int) -> Formula:
    def macs(op: Operation) -> int:
        found = sizes(op)
        bias = _tokens(op, found) * op.dims(1)[1] if op.has(2) else 0
        per_score = SOFTMAX + 1 + (1 if op.has(mask) else 0)
        return bias + per_score * attention_scores(op, found)

    return macs


def _scored(sizes: SizesOf, masks: tuple[int, ...]) -> Formula:
    def macs(op: Operation) -> int:
        per_score = score_macs(op) + sum(1 for mask in masks if op.has(mask))
        return per_score * attention_scores(op, sizes(op))

    return macs


def score_macs(op: Operation) -> int:
    """Returns what one score takes: scale, softmax, and a cap if there is one."""
    return SOFTMAX + 1 + (TANH + 2 if op.attr_float("softcap", 0.0) else 0)


def heads_prepared(norm: int | None = None) -> Formula:
    """Query and key rotated if asked, and normalized if there is an operand ``norm`` for it.

    They are operands 0 and 1, or both in front of the value in the first.
    """

    def macs(op: Operation) -> int:
        turns = 3 if op.attr("do_rotary", 0) else 0
        weight = op.size(norm) if norm is not None and op.has(norm) else 0
        if not turns and not weight:
            return 0
        heads, kv_heads = op.attr("num_heads", 0), op.attr("kv_num_heads", 0)
        elements = op.size(0) * (heads + kv_heads) // (heads + 2 * kv_heads)
        if op.has(1):
            elements = op.size(0) + op.size(1)
        return turns * elements + (3 * elements + ROW * (elements // weight) if weight else 0)

    return macs


def _decoder_bias(op: Operation) -> int:
    """One addition per element of what the bias is added to, the query alone across attention."""
    if not op.has(10):
        return 0
    found = attention.decoder_sizes(op)
    if not op.has(1) or len(op.shape(1)) == 3:
        return _tokens(op, found) * op.size(10)
    lengths = (found.heads, found.size)
    return _tokens(op, found) * prod(known(lengths, "the heads", op.input(0).unknown))


def _experts(weights: tuple[int, ...], bits: str) -> Formula:
    """Each token through k experts: tokens * k * weights of one expert."""

    def macs(op: Operation) -> int:
        tokens = prod(op.dims(0)[:-1])
        total = 0
        for layer, i in enumerate(weights, 1):
            if op.has(i):
                own = f"fc{layer}_{bits}"
                elements = _in_bytes(i, bits, own)(op) if bits else op.size(i)
                total += elements // op.dims(i)[0]
        if not total:
            given = " and ".join(str(i) for i in weights)
            raise UnknownError(f"no weight of the experts is given; operands {given} are expected")
        return tokens * op.attr("k", 1) * total

    return macs


def _skip_normalization(per_element: int, bias: int) -> Formula:
    """A residual, perhaps a bias, and the normalization of the last axis."""

    def macs(op: Operation) -> int:
        shape = op.dims(0)
        rows = prod(shape[:-1])
        return (per_element + 1 + (1 if op.has(bias) else 0)) * prod(shape) + ROW * rows

    return macs


def _group_norm(op: Operation) -> int:
    swish = (EXP + MUL) * op.size(0) if op.attr("activation", 0) else 0
    return 7 * op.size(0) + ROW * op.dims(0, 1)[0] * op.attr("groups", 1) + swish


def _embedding(op: Operation) -> int:
    """Two or three embeddings added, then a LayerNormalization."""
    rows = prod(op.out()[:-1])
    return (7 + (2 if op.has(1) else 1)) * op.out_size() + ROW * rows


def _dynamic_lstm(op: Operation) -> int:
    length, batch, _ = op.dims(0, exactly=3)
    return (op.size(1) + op.size(2)) * length * batch


def _dynamic_lstm_rest(op: Operation) -> int:
    length, batch, _ = op.dims(0, exactly=3)
    directions, hidden = op.dims(1)[0], op.attr("hidden_size", 0)
    bias = op.size(3) if op.has(3) else 0
    return length * batch * (bias + 180 * directions * hidden)


def _q_pool(op: Operation) -> int:
    return op.out_size() * prod(op.attr_ints("kernel_shape") or ())


def _distances(op: Operation) -> int:
    return op.out_size() * op.dims(0, 2)[1]


REQUANTIZE: Final = 4
"""Per element of an integer operator that dequantizes two operands and quantizes the result."""

_conv_rest = added(present(2), present(3), _activation)


def _same(source: str, rest: Formula) -> Operator:
    """An operator whose results have the first operand's shape and type."""
    return Operator(SAME, CostRule(source, rest=rest))


_SELF: Final = attention.self_attention(4, 6)
_Q_SELF: Final = attention.self_attention(8)
_FOUR_BIT: Final = Precision(executes_in=lambda op: "4-bit float weight-only")
_EXPERTS: Final = "k experts per token"
_SKIPPED: Final = ShapeRule(microsoft.skip_layer_normalization, (T0, FLOAT, FLOAT, T0))
_FUSED: Final = ShapeRule(microsoft.fused_matmul, (T0,))
_Q_BINARY: Final = ShapeRule(microsoft.q_binary, (T0,))

TABLE: Final[dict[str, Operator]] = {
    "Gelu": Operator(
        SAME,
        CostRule(
            "erf 50 per result (onnx_tool: 34)",
            rest=per_output(GELU_ERF),
            as_onnx_tool=pointwise.TABLE["Gelu"].cost.as_onnx_tool,
        ),
    ),
    "BiasGelu": _same("an addition and a Gelu", per_output(ADD + GELU_ERF)),
    "FastGelu": _same(
        "tanh and the polynomial around it", added(per_output(GELU_TANH), present(1))
    ),
    "QuickGelu": _same("x * sigmoid(ax)", per_output(EXP + 2 * MUL)),
    "ScaledSiLU": _same("x * sigmoid(x), scaled", per_output(EXP + 2 * MUL)),
    "BiasSplitGelu": Operator(
        ShapeRule(microsoft.half_last, (T0,)),
        CostRule("bias, Gelu, product", rest=per_output(2 * ADD + GELU_ERF + MUL)),
    ),
    "BiasAdd": _same("bias and residual", per_output(2 * ADD)),
    "BiasSoftmax": _same("bias and softmax", per_output(ADD + SOFTMAX)),
    "SkipLayerNormalization": Operator(
        _SKIPPED,
        CostRule("residual, bias, 7 per element, 29 per row", rest=_skip_normalization(7, 4)),
    ),
    "SkipSimplifiedLayerNormalization": Operator(
        _SKIPPED,
        CostRule("residual, bias, 3 per element, 29 per row", rest=_skip_normalization(3, 3)),
    ),
    "EmbedLayerNormalization": Operator(
        ShapeRule(microsoft.embedding, (like(2), INT32, like(2))),
        CostRule("sums and LayerNormalization", rest=_embedding),
    ),
    "GroupNorm": _same("7 per element, 29 per group", _group_norm),
    "SkipGroupNorm": _same(
        "residual, bias, GroupNorm", added(_group_norm, per_input(ADD), present(4))
    ),
    "RotaryEmbedding": pointwise.TABLE["RotaryEmbedding"],
    "FusedConv": Operator(
        ShapeRule(conv(0, 1), (T0,)),
        CostRule("Conv, bias, residual, activation", conv_products(1), _conv_rest),
    ),
    "NhwcConv": Operator(
        ShapeRule(conv_nhwc, (T0,)), CostRule("|y|*|W[1:]|, bias", conv_products(1), present(2))
    ),
    "NhwcFusedConv": Operator(
        ShapeRule(conv_nhwc, (T0,)),
        CostRule("|y|*|W[1:]|, bias, residual, activation", conv_products(1), _conv_rest),
    ),
    "NhwcMaxPool": Operator(
        ShapeRule(pool_nhwc, (T0,)), CostRule("window size per result", rest=_q_pool)
    ),
    "FusedGemm": Operator(
        ShapeRule(gemm(0, 1), (T0,)),
        CostRule("Gemm, activation", gemm_products(0), added(present(2), _activation)),
    ),
    "FusedMatMul": Operator(_FUSED, CostRule("|y|*K", _fused_matmul)),
    "FusedMatMulActivation": Operator(
        _FUSED, CostRule("|y|*K, activation", _fused_matmul, _activation)
    ),
    "TransposeMatMul": Operator(_FUSED, CostRule("|y|*K", _fused_matmul)),
    "GemmFastGelu": Operator(
        ShapeRule(matmul(0, 1), (T0,)),
        CostRule("|y|*K, bias, Gelu", _last_axis, added(present(2), per_output(GELU_TANH))),
    ),
    "MatMulNBits": Operator(
        ShapeRule(microsoft.block_quantized, (T0,)),
        CostRule("|y|*K, bias", _by_attribute, present(5)),
        precision=Precision(executes_in=lambda op: f"int{op.attr('bits', 4)} weight-only"),
        packed={1: _products, 3: _blocks},
    ),
    "MatMulBnb4": Operator(
        ShapeRule(microsoft.block_quantized, (T0,)),
        CostRule("|y|*K", _by_attribute),
        precision=_FOUR_BIT,
        packed={1: _products},
    ),
    "MatMulFpQ4": Operator(
        ShapeRule(microsoft.float_q4, (T0,)),
        CostRule("|y|*K", _last_axis),
        precision=_FOUR_BIT,
        packed={1: lambda op: prod(op.ints(2))},
    ),
    "MatMulInteger16": Operator(
        ShapeRule(matmul(0, 1), (INT32,)),
        CostRule("|y|*K", _last_axis),
        precision=Precision(executes_in=lambda op: "int16"),
    ),
    "MatMulIntegerToFloat": Operator(
        ShapeRule(matmul(0, 1), (like(2),)),
        CostRule("|y|*K, scale, bias", _last_axis, added(per_output(MUL), present(6))),
        precision=Precision(zero_point=(1, 5)),
    ),
    "DynamicQuantizeMatMul": Operator(
        ShapeRule(matmul(0, 1), (T0,)),
        CostRule(
            "|y|*K, quantization of the input, scale, bias",
            _last_axis,
            added(per_input(4), per_output(MUL), present(4)),
        ),
        precision=Precision(executes_in=lambda op: "int8", zero_point=(1, 3)),
    ),
    "QGemm": Operator(
        ShapeRule(gemm(0, 3), (microsoft.q_gemm_type,)),
        CostRule("Gemm, bias", gemm_products(0), present(6)),
        precision=Precision(operands=(0, 3), zero_point=(3, 5)),
    ),
    "QLinearConv": contractions.TABLE["QLinearConv"]._replace(
        shape=ShapeRule(microsoft.q_conv, (like(7),))
    ),
    "QLinearAdd": Operator(
        _Q_BINARY, CostRule("operands rescaled", rest=per_output(ADD + REQUANTIZE))
    ),
    "QLinearMul": Operator(
        _Q_BINARY, CostRule("operands rescaled", rest=per_output(MUL + REQUANTIZE))
    ),
    "QLinearSigmoid": _same("by table or sigmoid", per_output(EXP + REQUANTIZE)),
    "QLinearLeakyRelu": _same("by table or rescaled", per_output(2 + REQUANTIZE)),
    "QLinearSoftmax": _same("softmax, rescaled", per_output(SOFTMAX + REQUANTIZE)),
    "QLinearConcat": Operator(
        ShapeRule(microsoft.q_concat, (T1,)),
        CostRule("operands rescaled", rest=per_output(REQUANTIZE)),
    ),
    "QLinearWhere": Operator(
        ShapeRule(microsoft.q_where, (T1,)),
        CostRule("operands rescaled", rest=per_output(REQUANTIZE)),
    ),
    "QLinearGlobalAveragePool": Operator(
        ShapeRule(microsoft.q_global_pool, (T0,)),
        CostRule("|x| + 4|y|, rescaled", rest=added(per_input(ADD), per_output(DIV + REQUANTIZE))),
    ),
    "QLinearAveragePool": Operator(
        ShapeRule(microsoft.q_pool, (T0,)),
        CostRule("window size per result, rescaled", rest=added(_q_pool, per_output(REQUANTIZE))),
    ),
    "QLinearReduceMean": Operator(
        ShapeRule(microsoft.q_reduce, (T0,)),
        CostRule("|x| + 4|y|, rescaled", rest=added(per_input(ADD), per_output(DIV + REQUANTIZE))),
    ),
    "QuantizeLinear": pointwise.TABLE["QuantizeLinear"],
    "DequantizeLinear": pointwise.TABLE["DequantizeLinear"]._replace(
        shape=ShapeRule(same_shape, (T1,))
    ),
    "DynamicQuantizeLSTM": Operator(
        ShapeRule(microsoft.dynamic_lstm, (T0,)),
        CostRule("(|W|+|R|)*b*s; biases; 180 per state", _dynamic_lstm, _dynamic_lstm_rest),
        precision=Precision(executes_in=lambda op: "int8"),
    ),
    "Attention": Operator(
        ShapeRule(attention.packed_cache(_SELF), (T0,)),
        CostRule(
            "projection, scores, weighted values", _projected(_SELF), _projected_rest(_SELF, 3)
        ),
    ),
    "QAttention": Operator(
        ShapeRule(attention.packed_cache(_Q_SELF), (like(3),)),
        CostRule(
            "projection, scores, weighted values", _projected(_Q_SELF), _projected_rest(_Q_SELF, 5)
        ),
    ),
    "MultiHeadAttention": Operator(
        ShapeRule(attention.separate_caches(attention.multi_head), (T0,)),
        CostRule(
            "scores and weighted values",
            attention_products(attention.multi_head),
            _scored(attention.multi_head, (4, 5)),
        ),
    ),
    "GroupQueryAttention": Operator(
        ShapeRule(attention.separate_caches(attention.group_query), (T0,)),
        CostRule(
            "scores and weighted values",
            attention_products(attention.group_query),
            added(_scored(attention.group_query, (10,)), heads_prepared(14)),
        ),
    ),
    "DecoderMaskedMultiHeadAttention": Operator(
        ShapeRule(attention.decoder, (T0,)),
        CostRule(
            "scores of one query and weighted values; bias",
            attention_products(attention.decoder_sizes),
            added(_scored(attention.decoder_sizes, (3, 4)), _decoder_bias),
        ),
    ),
    "MoE": Operator(SAME, CostRule(_EXPERTS, _experts((2, 4, 6), ""))),
    "QMoE": Operator(
        SAME,
        CostRule(_EXPERTS, _experts((2, 5, 8), "expert_weight_bits")),
        precision=Precision(
            executes_in=lambda op: f"int{op.attr('expert_weight_bits', 4)} weight-only"
        ),
        packed={
            i: _in_bytes(i, "expert_weight_bits", f"fc{layer}_expert_weight_bits")
            for layer, operands in ((1, (2, 11)), (2, (5, 12)), (3, (8, 13)))
            for i in operands
        },
    ),
    "GatherBlockQuantized": Operator(
        ShapeRule(microsoft.gather_block_quantized, (like(2),)),
        CostRule("a multiplication per result", rest=per_output(MUL + ADD)),
        packed={0: _in_bytes(0, "bits"), 3: _in_bytes(3, "bits")},
    ),
    "CDist": Operator(
        ShapeRule(microsoft.distances, (T0,)), CostRule("|y|*K", _distances, per_output(MUL))
    ),
    "ExpandDims": Operator(ShapeRule(microsoft.expand_dims, (T0,)), FREE),
    "GridSample": windows.TABLE["GridSample"],
    **{name: layout.TABLE[name] for name in ("GatherND", "Pad", "Unique")},
    "Range": layout.TABLE["Range"]._replace(fold=None),
    "Trilu": pointwise.TABLE["Trilu"],
    "Inverse": _same("Gauss-Jordan elimination, n^3", lambda op: op.size(0) * op.dims(0, 2)[-1]),
}
