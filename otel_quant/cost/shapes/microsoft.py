"""Operators of onnxruntime's own domain."""

from __future__ import annotations

from collections.abc import Sequence

from otel_quant.cost import dtypes
from otel_quant.cost.operation import Operation, UnknownError
from otel_quant.cost.shapes.contraction import product
from otel_quant.cost.shapes.rule import (
    agree,
    axis_of,
    broadcast,
    with_dim,
)
from otel_quant.cost.shapes.windowed import (
    conv,
    global_pool,
    pool,
    pool_nhwc,
)
from otel_quant.cost.values import Shape, Value


def skip_layer_normalization(op: Operation) -> Sequence[Shape]:
    """The result, mean and deviation per row, and the sum with the residual."""
    shape = op.shape(0)
    row = (*shape[:-1], 1)
    return [shape, row, row, shape]


def embedding(op: Operation) -> Sequence[Shape]:
    """EmbedLayerNormalization: embeddings, mask index, their sum."""
    batch, length = op.shape(0, exactly=2)
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


def fused_matmul(op: Operation) -> Sequence[Shape]:
    """FusedMatMul: the product of operands transposed as attributes say."""
    return [product(*fused_operands(op))]


def block_quantized(op: Operation) -> Sequence[Shape]:
    """Weights packed in blocks: only the attributes say how long their rows are."""
    columns = op.attr("N", 0)
    if not columns:
        raise UnknownError("the attribute 'N' is missing")
    *rows, summed = op.shape(0, 1)
    agree("the input's last axis and the attribute 'K'", summed, op.attr("K", 0) or None)
    return [(*rows, columns)]


def float_q4(op: Operation) -> Sequence[Shape]:
    """MatMulFpQ4: the packed weight's shape is an operand."""
    return [product(op.shape(0), op.ints(2))]


def q_binary(op: Operation) -> Sequence[Shape]:
    """QLinearAdd and QLinearMul: operands 0 and 3 broadcast."""
    return [broadcast((op.shape(0), op.shape(3)))]


def q_where(op: Operation) -> Sequence[Shape]:
    """QLinearWhere: condition and both sides broadcast."""
    return [broadcast((op.shape(0), op.shape(1), op.shape(4)))]


def q_concat(op: Operation) -> Sequence[Shape]:
    """QLinearConcat: every third operand from the third on, along ``axis``."""
    shapes = [op.shape(i) for i in range(2, len(op.inputs), 3)]
    if not shapes:
        raise UnknownError("there are no operands to join; one or more are expected")
    axis = axis_of(op.attr("axis", 0), len(shapes[0]))
    lengths = [shape[axis] for shape in shapes]
    known = [length for length in lengths if length is not None]
    return [with_dim(shapes[0], axis, sum(known) if len(known) == len(lengths) else None)]


def q_global_pool(op: Operation) -> Sequence[Shape]:
    """QLinearGlobalAveragePool, channels first or last."""
    shape = op.shape(0)
    if op.attr("channels_last", 0):
        return [(shape[0], *(1,) * (len(shape) - 2), shape[-1])]
    return global_pool(op)


def q_pool(op: Operation) -> Sequence[Shape]:
    """QLinearAveragePool, channels first or last."""
    return pool_nhwc(op) if op.attr("channels_last", 0) else pool(op)


def q_conv(op: Operation) -> Sequence[Shape]:
    """QLinearConv, channels first or last."""
    if not op.attr("channels_last", 0):
        return conv(0, 3)(op)
    shape = op.shape(0)
    first = op.input(0)
    channels_first = Value(first.dtype, (shape[0], shape[-1], *shape[1:-1]))
    moved = Operation(
        op.name,
        op.kind,
        op.node,
        (channels_first, *op.inputs[1:]),
        op.outputs,
        op.attributes,
        op.opset,
    )
    (result,) = conv(0, 3)(moved)
    return [(result[0], *result[2:], result[1])]


def q_gemm_type(op: Operation) -> int:
    """QGemm: the output zero point's type, float32 if there is none."""
    return op.dtype(8) if op.has(8) else dtypes.FLOAT


def q_reduce(op: Operation) -> Sequence[Shape]:
    """QLinearReduceMean: axes by attribute."""
    shape = op.shape(0)
    axes = op.attr_ints("axes") or range(len(shape))
    gone = {axis_of(axis, len(shape)) for axis in axes}
    if op.attr("keepdims", 1):
        return [tuple(1 if i in gone else dim for i, dim in enumerate(shape))]
    return [tuple(dim for i, dim in enumerate(shape) if i not in gone)]


def dynamic_lstm(op: Operation) -> Sequence[Shape]:
    """DynamicQuantizeLSTM: all states, then the last ones."""
    length, batch = op.shape(0, 2)[:2]
    directions, hidden = op.shape(1, 1)[0], op.attr("hidden_size", 0)
    state = (directions, batch, hidden)
    return [(length, directions, batch, hidden), state, state]


def gather_block_quantized(op: Operation) -> Sequence[Shape]:
    """Rows of a block-quantized table; in uint8 several elements share a byte of its last axis."""
    shape = op.shape(0)
    if op.dtype(0) == dtypes.UINT8:
        last = shape[-1]
        bits = op.attr("bits", 4)
        shape = (*shape[:-1], None if last is None else last * 8 // bits)
    axis = axis_of(op.attr("gather_axis", 0), len(shape))
    return [(*shape[:axis], *op.shape(1), *shape[axis + 1 :])]


def half_last(op: Operation) -> Sequence[Shape]:
    """BiasSplitGelu: the last axis halved."""
    shape = op.shape(0, 1)
    last = shape[-1]
    return [(*shape[:-1], None if last is None else last // 2)]


def distances(op: Operation) -> Sequence[Shape]:
    """CDist: rows of one operand by rows of the other."""
    return [(op.shape(0, 1)[0], op.shape(1, 1)[0])]


def expand_dims(op: Operation) -> Sequence[Shape]:
    """ExpandDims: an axis of length 1 put in."""
    shape = op.shape(0)
    at = axis_of(op.int_(1), len(shape) + 1)
    return [(*shape[:at], 1, *shape[at:])]
