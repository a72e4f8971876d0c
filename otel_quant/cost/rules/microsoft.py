"""Costs of the operators of onnxruntime's own domain, and of AMD Quark's.

A fused operator costs what the operators that it fuses cost.
"""

from __future__ import annotations

from math import prod
from typing import Final

from otel_quant.cost import dtypes
from otel_quant.cost.operation import Operation, UnknownError, known
from otel_quant.cost.rules.contractions import SOFTMAX, attention_products, attention_scores
from otel_quant.cost.rules.contractions import TABLE as CONTRACTIONS
from otel_quant.cost.rules.formula import (
    ADD,
    CMP,
    DIV,
    EXP,
    MUL,
    CostRule,
    Formula,
    added,
    per_input,
    per_output,
    zero,
)
from otel_quant.cost.rules.simple import GELU_ERF, GELU_TANH, ROW
from otel_quant.cost.rules.simple import TABLE as SIMPLE
from otel_quant.cost.shapes.attention import attention_sizes
from otel_quant.cost.shapes.microsoft import QUARK_DOMAINS, fused_operands

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
    return _ACTIVATIONS[op.attr_str("activation", "")] * op.out_size()


def _present(i: int, macs: int = 1) -> Formula:
    """So many MACs per result if operand ``i`` is there: a bias, a residual."""
    return lambda op: macs * op.out_size() if op.has(i) else 0


def _fused_matmul(op: Operation) -> int:
    left, _ = fused_operands(op)
    return op.out_size() * known(left)[-1]


def _by_attribute(op: Operation) -> int:
    """Weights packed in blocks: K products per result."""
    return op.out_size() * op.attr("K", 0)


def _last_axis(op: Operation) -> int:
    return op.out_size() * op.dims(0)[-1]


def _conv_nhwc(op: Operation) -> int:
    return op.out_size() * prod(op.dims(1)[1:])


def _projected(op: Operation) -> int:
    """Attention that also projects its input: batch * length * |W|."""
    found = attention_sizes(op)
    batch, queries = known((found.batch, found.queries))
    return batch * queries * op.size(1) + attention_products(op)


def _projected_rest(mask: int) -> Formula:
    def macs(op: Operation) -> int:
        found = attention_sizes(op)
        batch, queries = known((found.batch, found.queries))
        bias = batch * queries * op.dims(1)[1] if op.has(2) else 0
        per_score = SOFTMAX + 1 + (1 if op.has(mask) else 0)
        return bias + per_score * attention_scores(op)

    return macs


def _scored(masks: tuple[int, ...]) -> Formula:
    def macs(op: Operation) -> int:
        per_score = SOFTMAX + 1 + sum(1 for mask in masks if op.has(mask))
        rotary = 3 * op.size(0) if op.attr("do_rotary", 0) else 0
        return per_score * attention_scores(op) + rotary

    return macs


def _experts(weights: tuple[int, ...], bits: str) -> Formula:
    """Each token through k experts: tokens * k * weights of one expert."""

    def macs(op: Operation) -> int:
        tokens = prod(op.dims(0)[:-1])
        total = 0
        for i in weights:
            if op.has(i):
                packed = 8 // op.attr(bits, 4) if bits and op.dtype(i) == dtypes.UINT8 else 1
                total += op.size(i) * packed // op.dims(i)[0]
        if not total:
            raise UnknownError
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
    return 7 * op.size(0) + ROW * op.dims(0)[0] * op.attr("groups", 1) + swish


def _embedding(op: Operation) -> int:
    """Two or three embeddings added, then a LayerNormalization."""
    rows = prod(op.out()[:-1])
    return (7 + (2 if op.has(1) else 1)) * op.out_size() + ROW * rows


def _dynamic_lstm(op: Operation) -> int:
    length, batch, _ = op.dims(0)
    return (op.size(1) + op.size(2)) * length * batch


def _dynamic_lstm_rest(op: Operation) -> int:
    length, batch, _ = op.dims(0)
    directions, hidden = op.dims(1)[0], op.attr("hidden_size", 0)
    bias = op.size(3) if op.has(3) else 0
    return length * batch * (bias + 180 * directions * hidden)


def _q_pool(op: Operation) -> int:
    return op.out_size() * prod(op.attr_ints("kernel_shape") or ())


def _distances(op: Operation) -> int:
    return op.out_size() * op.dims(0)[1]


REQUANTIZE: Final = 4
"""Per element of an integer operator that dequantizes two operands and quantizes the result."""

_conv_rest = added(_present(2), _present(3), _activation)

_onnxruntime: Final[dict[str, CostRule]] = {
    "Gelu": CostRule(
        "erf 50 per result (onnx_tool: 34)",
        rest=per_output(GELU_ERF),
        as_onnx_tool=SIMPLE["Gelu"].as_onnx_tool,
    ),
    "BiasGelu": CostRule("an addition and a Gelu", rest=per_output(ADD + GELU_ERF)),
    "FastGelu": CostRule(
        "tanh and the polynomial around it", rest=added(per_output(GELU_TANH), _present(1))
    ),
    "QuickGelu": CostRule("x * sigmoid(ax)", rest=per_output(EXP + 2 * MUL)),
    "ScaledSiLU": CostRule("x * sigmoid(x), scaled", rest=per_output(EXP + 2 * MUL)),
    "BiasSplitGelu": CostRule("bias, Gelu, product", rest=per_output(2 * ADD + GELU_ERF + MUL)),
    "BiasAdd": CostRule("bias and residual", rest=per_output(2 * ADD)),
    "BiasSoftmax": CostRule("bias and softmax", rest=per_output(ADD + SOFTMAX)),
    "SkipLayerNormalization": CostRule(
        "residual, bias, 7 per element, 29 per row", rest=_skip_normalization(7, 4)
    ),
    "SkipSimplifiedLayerNormalization": CostRule(
        "residual, bias, 3 per element, 29 per row", rest=_skip_normalization(3, 3)
    ),
    "EmbedLayerNormalization": CostRule("sums and LayerNormalization", rest=_embedding),
    "GroupNorm": CostRule("7 per element, 29 per group", rest=_group_norm),
    "SkipGroupNorm": CostRule(
        "residual, bias, GroupNorm", rest=added(_group_norm, per_input(ADD), _present(4))
    ),
    "RotaryEmbedding": SIMPLE["RotaryEmbedding"],
    "FusedConv": CostRule(
        "Conv, bias, residual, activation", CONTRACTIONS["Conv"].contraction, _conv_rest
    ),
    "NhwcConv": CostRule("|y|*|W[1:]|, bias", _conv_nhwc, _present(2)),
    "NhwcFusedConv": CostRule("|y|*|W[1:]|, bias, residual, activation", _conv_nhwc, _conv_rest),
    "NhwcMaxPool": CostRule("window size per result", rest=_q_pool),
    "FusedGemm": CostRule(
        "Gemm, activation", CONTRACTIONS["Gemm"].contraction, added(_present(2), _activation)
    ),
    "FusedMatMul": CostRule("|y|*K", _fused_matmul),
    "FusedMatMulActivation": CostRule("|y|*K, activation", _fused_matmul, _activation),
    "TransposeMatMul": CostRule("|y|*K", _fused_matmul),
    "GemmFastGelu": CostRule(
        "|y|*K, bias, Gelu", _last_axis, added(_present(2), per_output(GELU_TANH))
    ),
    "MatMulNBits": CostRule("|y|*K, bias", _by_attribute, _present(5)),
    "MatMulBnb4": CostRule("|y|*K", _by_attribute),
    "MatMulFpQ4": CostRule("|y|*K", _last_axis),
    "MatMulInteger16": CostRule("|y|*K", _last_axis),
    "MatMulIntegerToFloat": CostRule(
        "|y|*K, scale, bias", _last_axis, added(per_output(MUL), _present(6))
    ),
    "DynamicQuantizeMatMul": CostRule(
        "|y|*K, quantization of the input, scale, bias",
        _last_axis,
        added(per_input(4), per_output(MUL), _present(4)),
    ),
    "QGemm": CostRule("Gemm, bias", CONTRACTIONS["Gemm"].contraction, _present(6)),
    "QLinearConv": CONTRACTIONS["QLinearConv"],
    "QLinearAdd": CostRule("operands rescaled", rest=per_output(ADD + REQUANTIZE)),
    "QLinearMul": CostRule("operands rescaled", rest=per_output(MUL + REQUANTIZE)),
    "QLinearSigmoid": CostRule("by table or sigmoid", rest=per_output(EXP + REQUANTIZE)),
    "QLinearLeakyRelu": CostRule("by table or rescaled", rest=per_output(2 + REQUANTIZE)),
    "QLinearSoftmax": CostRule("softmax, rescaled", rest=per_output(SOFTMAX + REQUANTIZE)),
    "QLinearConcat": CostRule("operands rescaled", rest=per_output(REQUANTIZE)),
    "QLinearWhere": CostRule("operands rescaled", rest=per_output(REQUANTIZE)),
    "QLinearGlobalAveragePool": CostRule(
        "|x| + 4|y|, rescaled", rest=added(per_input(ADD), per_output(DIV + REQUANTIZE))
    ),
    "QLinearAveragePool": CostRule(
        "window size per result, rescaled", rest=added(_q_pool, per_output(REQUANTIZE))
    ),
    "QLinearReduceMean": CostRule(
        "|x| + 4|y|, rescaled", rest=added(per_input(ADD), per_output(DIV + REQUANTIZE))
    ),
    "QuantizeLinear": SIMPLE["QuantizeLinear"],
    "DequantizeLinear": SIMPLE["DequantizeLinear"],
    "DynamicQuantizeLSTM": CostRule(
        "(|W|+|R|)*b*s; biases; 180 per state", _dynamic_lstm, _dynamic_lstm_rest
    ),
    "Attention": CostRule("projection, scores, weighted values", _projected, _projected_rest(3)),
    "QAttention": CostRule("projection, scores, weighted values", _projected, _projected_rest(5)),
    "MultiHeadAttention": CostRule(
        "scores and weighted values", attention_products, _scored((4, 5))
    ),
    "GroupQueryAttention": CostRule(
        "scores and weighted values", attention_products, _scored((10,))
    ),
    "MoE": CostRule("k experts per token", _experts((2, 4, 6), "")),
    "QMoE": CostRule("k experts per token", _experts((2, 5, 8), "expert_weight_bits")),
    "GatherBlockQuantized": CostRule("a multiplication per result", rest=per_output(MUL + ADD)),
    "CDist": CostRule("|y|*K", _distances, per_output(MUL)),
    "GridSample": SIMPLE["GridSample"],
    **{
        name: CostRule("moves or makes elements", rest=zero)
        for name in ("ExpandDims", "GatherND", "Pad", "Range", "Trilu")
    },
}

_quark: Final[dict[str, CostRule]] = {
    "ExtendedQuantizeLinear": SIMPLE["QuantizeLinear"],
    "ExtendedDequantizeLinear": SIMPLE["DequantizeLinear"],
    "BFPQuantizeDequantize": CostRule(
        "maximum, scale, round, scale", rest=per_output(CMP + 2 * MUL + ADD)
    ),
    "MXQuantizeDequantize": CostRule(
        "maximum, scale, round, scale", rest=per_output(CMP + 2 * MUL + ADD)
    ),
    "BFPFixNeuron": CostRule("maximum, scale, round, scale", rest=per_output(CMP + 2 * MUL + ADD)),
    "ExtendedInstanceNormalization": SIMPLE["InstanceNormalization"],
    "ExtendedLSTM": CONTRACTIONS["LSTM"],
}

TABLE: Final[dict[str, CostRule]] = {
    **{f"com.microsoft:{name}": rule for name, rule in _onnxruntime.items()},
    **{f"{domain}:{name}": rule for domain in QUARK_DOMAINS for name, rule in _quark.items()},
}
