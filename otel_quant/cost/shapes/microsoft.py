"""Operators of onnxruntime's own domain, and of AMD Quark's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from otel_quant.cost import dtypes
from otel_quant.cost.operation import Operation, UnknownError
from otel_quant.cost.shapes import contraction, layout, pointwise
from otel_quant.cost.shapes.contraction import gemm, matmul, product
from otel_quant.cost.shapes.rule import (
    FLOAT,
    INT32,
    SAME,
    T0,
    T1,
    ShapeRule,
    agree,
    axis_of,
    broadcast,
    like,
    same_shape,
    with_dim,
)
from otel_quant.cost.shapes.windowed import (
    conv,
    conv_nhwc,
    global_pool,
    pool,
    pool_nhwc,
)
from otel_quant.cost.values import Shape, Value

_SAME: Final = (
    "BiasAdd BiasGelu BiasSoftmax FastGelu Gelu GroupNorm QLinearLeakyRelu QLinearSigmoid "
    "QLinearSoftmax QMoE MoE QuickGelu RotaryEmbedding ScaledSiLU SkipGroupNorm Trilu "
    "QOrderedGelu QOrderedLayerNormalization Inverse"
)
"""One result, or several, of the first operand's shape and type."""

QUARK_DOMAINS: Final = ("com.amd.quark", "com.vai.quantize")


def _skip_layer_normalization(op: Operation) -> Sequence[Shape]:
    shape = op.shape(0)
    row = (*shape[:-1], 1)
    return [shape, row, row, shape]


def _embedding(op: Operation) -> Sequence[Shape]:
    batch, length = op.shape(0)
    result = (batch, length, op.shape(2)[1])
    return [result, (batch,), result]


def _transposed(shape: Shape, rows: bool, batch: bool) -> Shape:
    """The operand as FusedMatMul reads it; ``batch`` moves the first axis before the last."""
    if len(shape) < 2:
        return shape
    if batch:
        shape = (*shape[1:-1], shape[0], shape[-1])
    return (*shape[:-2], shape[-1], shape[-2]) if rows else shape


def fused_operands(op: Operation) -> tuple[Shape, Shape]:
    """Returns the shapes that a FusedMatMul multiplies."""
    left = _transposed(op.shape(0), op.attr("transA", 0) != 0, op.attr("transBatchA", 0) != 0)
    right = _transposed(op.shape(1), op.attr("transB", 0) != 0, op.attr("transBatchB", 0) != 0)
    return left, right


def _fused_matmul(op: Operation) -> Sequence[Shape]:
    return [product(*fused_operands(op))]


def _block_quantized(op: Operation) -> Sequence[Shape]:
    """Weights packed in blocks: only the attributes say how long their rows are."""
    columns = op.attr("N", 0)
    if not columns:
        raise UnknownError
    *rows, summed = op.shape(0)
    agree(summed, op.attr("K", 0) or None)
    return [(*rows, columns)]


def _float_q4(op: Operation) -> Sequence[Shape]:
    return [product(op.shape(0), op.ints(2))]


def _q_binary(op: Operation) -> Sequence[Shape]:
    return [broadcast((op.shape(0), op.shape(3)))]


def _q_where(op: Operation) -> Sequence[Shape]:
    return [broadcast((op.shape(0), op.shape(1), op.shape(4)))]


def _q_concat(op: Operation) -> Sequence[Shape]:
    shapes = [op.shape(i) for i in range(2, len(op.inputs), 3)]
    axis = axis_of(op.attr("axis", 0), len(shapes[0]))
    lengths = [shape[axis] for shape in shapes]
    known = [length for length in lengths if length is not None]
    return [with_dim(shapes[0], axis, sum(known) if len(known) == len(lengths) else None)]


def _q_global_pool(op: Operation) -> Sequence[Shape]:
    shape = op.shape(0)
    if op.attr("channels_last", 0):
        return [(shape[0], *(1,) * (len(shape) - 2), shape[-1])]
    return global_pool(op)


def _q_pool(op: Operation) -> Sequence[Shape]:
    return pool_nhwc(op) if op.attr("channels_last", 0) else pool(op)


def _q_conv(op: Operation) -> Sequence[Shape]:
    if not op.attr("channels_last", 0):
        return conv(0, 3)(op)
    shape = op.shape(0)
    first = op.input(0)
    channels_first = Value(first.dtype, (shape[0], shape[-1], *shape[1:-1]))
    moved = replace(op, inputs=[channels_first, *op.inputs[1:]])
    (result,) = conv(0, 3)(moved)
    return [(result[0], *result[2:], result[1])]


def _q_gemm_type(op: Operation) -> int:
    return op.dtype(8) if op.has(8) else dtypes.FLOAT


def _q_reduce(op: Operation) -> Sequence[Shape]:
    shape = op.shape(0)
    axes = op.attr_ints("axes") or range(len(shape))
    gone = {axis_of(axis, len(shape)) for axis in axes}
    if op.attr("keepdims", 1):
        return [tuple(1 if i in gone else dim for i, dim in enumerate(shape))]
    return [tuple(dim for i, dim in enumerate(shape) if i not in gone)]


def _dynamic_lstm(op: Operation) -> Sequence[Shape]:
    length, batch = op.shape(0)[:2]
    directions, hidden = op.shape(1)[0], op.attr("hidden_size", 0)
    state = (directions, batch, hidden)
    return [(length, directions, batch, hidden), state, state]


def _gather_block_quantized(op: Operation) -> Sequence[Shape]:
    """Rows of a block-quantized table; in uint8 several elements share a byte of its last axis."""
    shape = op.shape(0)
    if op.dtype(0) == dtypes.UINT8:
        last = shape[-1]
        bits = op.attr("bits", 4)
        shape = (*shape[:-1], None if last is None else last * 8 // bits)
    axis = axis_of(op.attr("gather_axis", 0), len(shape))
    return [(*shape[:axis], *op.shape(1), *shape[axis + 1 :])]


def _half_last(op: Operation) -> Sequence[Shape]:
    shape = op.shape(0)
    last = shape[-1]
    return [(*shape[:-1], None if last is None else last // 2)]


def _distances(op: Operation) -> Sequence[Shape]:
    return [(op.shape(0)[0], op.shape(1)[0])]


def _expand_dims(op: Operation) -> Sequence[Shape]:
    shape = op.shape(0)
    at = axis_of(op.int_(1), len(shape) + 1)
    return [(*shape[:at], 1, *shape[at:])]


_onnxruntime: Final[dict[str, ShapeRule]] = {
    **dict.fromkeys(_SAME.split(), SAME),
    "QuantizeLinear": pointwise.TABLE["QuantizeLinear"],
    "DequantizeLinear": ShapeRule(same_shape(), (T1,)),
    "SkipLayerNormalization": ShapeRule(_skip_layer_normalization, (T0, FLOAT, FLOAT, T0)),
    "SkipSimplifiedLayerNormalization": ShapeRule(
        _skip_layer_normalization, (T0, FLOAT, FLOAT, T0)
    ),
    "EmbedLayerNormalization": ShapeRule(_embedding, (like(2), INT32, like(2))),
    "BiasSplitGelu": ShapeRule(_half_last, (T0,)),
    "FusedConv": ShapeRule(conv(0, 1), (T0,)),
    "NhwcConv": ShapeRule(conv_nhwc, (T0,)),
    "NhwcFusedConv": ShapeRule(conv_nhwc, (T0,)),
    "NhwcMaxPool": ShapeRule(pool_nhwc, (T0,)),
    "FusedGemm": ShapeRule(gemm(0, 1), (T0,)),
    "FusedMatMul": ShapeRule(_fused_matmul, (T0,)),
    "FusedMatMulActivation": ShapeRule(_fused_matmul, (T0,)),
    "TransposeMatMul": ShapeRule(_fused_matmul, (T0,)),
    "GemmFastGelu": ShapeRule(matmul(0, 1), (T0,)),
    "MatMulNBits": ShapeRule(_block_quantized, (T0,)),
    "MatMulBnb4": ShapeRule(_block_quantized, (T0,)),
    "MatMulFpQ4": ShapeRule(_float_q4, (T0,)),
    "MatMulInteger16": ShapeRule(matmul(0, 1), (INT32,)),
    "MatMulIntegerToFloat": ShapeRule(matmul(0, 1), (like(2),)),
    "DynamicQuantizeMatMul": ShapeRule(matmul(0, 1), (T0,)),
    "QGemm": ShapeRule(gemm(0, 3), (_q_gemm_type,)),
    "QLinearAdd": ShapeRule(_q_binary, (T0,)),
    "QLinearMul": ShapeRule(_q_binary, (T0,)),
    "QLinearWhere": ShapeRule(_q_where, (T1,)),
    "QLinearConcat": ShapeRule(_q_concat, (T1,)),
    "QLinearGlobalAveragePool": ShapeRule(_q_global_pool, (T0,)),
    "QLinearAveragePool": ShapeRule(_q_pool, (T0,)),
    "QLinearReduceMean": ShapeRule(_q_reduce, (T0,)),
    "QLinearConv": ShapeRule(_q_conv, (like(7),)),
    "DynamicQuantizeLSTM": ShapeRule(_dynamic_lstm, (T0,)),
    "GatherBlockQuantized": ShapeRule(_gather_block_quantized, (like(2),)),
    "CDist": ShapeRule(_distances, (T0,)),
    "ExpandDims": ShapeRule(_expand_dims, (T0,)),
    **{name: layout.TABLE[name] for name in ("GatherND", "GridSample", "Pad", "Range", "Unique")},
}

_quark: Final[dict[str, ShapeRule]] = {
    "ExtendedQuantizeLinear": ShapeRule(same_shape(), (like(2),)),
    "ExtendedDequantizeLinear": ShapeRule(same_shape(), (T1,)),
    "BFPQuantizeDequantize": SAME,
    "MXQuantizeDequantize": SAME,
    "BFPFixNeuron": SAME,
    "ExtendedInstanceNormalization": SAME,
    "ExtendedLSTM": contraction.TABLE["LSTM"],
}

TABLE: Final[dict[str, ShapeRule]] = {
    **{f"com.microsoft:{name}": rule for name, rule in _onnxruntime.items()},
    **{f"{domain}:{name}": rule for domain in QUARK_DOMAINS for name, rule in _quark.items()},
}
