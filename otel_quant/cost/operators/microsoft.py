"""Operators of onnxruntime's own domain, as its ContribOperators.md defines them, but attention.

Here are those that exporters, quantizers and optimizers write into files: without them the models
that people quantize would have no figures. What exists only in a running session is left out. A
fused operator costs what the operators that it fuses cost.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Final

from otel_quant.cost import dtypes
from otel_quant.cost.operation import Operation, Shape, UnknownError, axis_of, known
from otel_quant.cost.operators import control, elementwise, layout, windows
from otel_quant.cost.operators.contraction import (
    gemm,
    gemm_products,
    last_axis,
    matmul,
    product,
    steps,
)
from otel_quant.cost.operators.elementwise import normalized
from otel_quant.cost.operators.record import (
    ADD,
    CMP,
    DIV,
    EXP,
    FLOAT,
    GELU_ERF,
    GELU_TANH,
    INT32,
    LOG,
    MUL,
    ROW,
    SOFTMAX,
    T0,
    T1,
    Formula,
    Operator,
    Precision,
    ShapesOf,
    Types,
    added,
    agree,
    broadcast_of,
    first_of,
    free,
    like,
    per_input,
    per_operand,
    per_output,
    present,
    same,
    same_shape,
    scaled,
    total,
    with_dim,
    zero,
)
from otel_quant.cost.operators.windows import (
    conv,
    conv_products,
    global_pool,
    pool,
    pool_macs,
    pool_nhwc,
)

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

_GATES: Final = {"silu": EXP + MUL, "swish": EXP + MUL, "sigmoid": EXP, "gelu": GELU_ERF, "relu": 1}

_REQUANTIZE: Final = 4
"""Per element of an integer operator that dequantizes two operands and quantizes the result."""


def _gated_norm(op: Operation) -> int:
    gate = op.attr_choice("activation", "silu", _GATES)
    return (3 + gate + MUL) * op.size(0) + ROW * (op.size(0) // op.size(1))


def _activation(op: Operation) -> int:
    """The activation fused behind a contraction."""
    return op.attr_choice("activation", "", _ACTIVATIONS) * op.out_size()


# Embeddings and normalizations.


def _skipped(per_element: int, bias: int) -> Operator:
    """A residual, perhaps a bias, and the normalization of the last axis."""
    norm = normalized(per_element + ADD, lambda op: prod(op.dims(0)[:-1]))
    return Operator(
        f"residual, bias, {per_element} per element, 29 per row",
        # The result, mean and deviation per row, and the sum with the residual.
        lambda op: [(shape := op.shape(0)), (*shape[:-1], 1), (*shape[:-1], 1), shape],
        T0 + FLOAT + FLOAT + T0,
        rest=added(norm, per_operand(bias, ADD, of=0)),
    )


def _embedded(words: str, types: Types, per_embedding: int) -> Operator:
    """Two embeddings or three, their sum, then a LayerNormalization; also a mask index and the sum."""

    def shapes(op: Operation) -> Sequence[Shape]:
        batch, length = op.shape(0, exactly=2)
        result = (batch, length, op.shape(2)[1])
        return [result, (batch,), result]

    def rest(op: Operation) -> int:
        per_element = 7 + per_embedding * (3 if op.has(1) else 2) - 1
        return per_element * op.out_size() + ROW * prod(op.out()[:-1])

    return Operator(words, shapes, types, rest=rest)


def _group_norm(op: Operation) -> int:
    swish = (EXP + MUL) * op.size(0) if op.attr("activation", 0) else 0
    return 7 * op.size(0) + ROW * op.dims(0, 1)[0] * op.attr("groups", 1) + swish


# Products.


def _fused_operand(op: Operation, i: int) -> Shape:
    """The operand as FusedMatMul reads it; ``transBatch`` moves the first axis before the last."""
    shape, letter = op.shape(i), "AB"[i]
    if len(shape) > 1 and op.attr(f"transBatch{letter}", 0):
        shape = (*shape[1:-1], shape[0], shape[-1])
    if len(shape) > 1 and op.attr(f"trans{letter}", 0):
        shape = (*shape[:-2], shape[-1], shape[-2])
    return shape


def _block_quantized(op: Operation) -> Sequence[Shape]:
    """Weights packed in blocks: only the attributes say how long their rows are."""
    columns = op.attr("N", 0)
    if not columns:
        raise UnknownError("the attribute 'N' is missing")
    *rows, summed = op.shape(0, 1)
    agree("the input's last axis and the attribute 'K'", summed, op.attr("K", 0) or None)
    return [(*rows, columns)]


def _elements(op: Operation) -> int:
    """Elements of a weight whose lengths are attributes."""
    return op.attr("N", 0) * op.attr("K", 0)


def _summed(op: Operation) -> int:
    return op.out_size() * op.attr("K", 0)


def _zero_points(op: Operation) -> int:
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


def _executes_in(name: str) -> Precision:
    return Precision(executes_in=lambda op: name)


def _weight_only(bits: str) -> Precision:
    return Precision(executes_in=lambda op: f"int{op.attr(bits, 4)} weight-only")


def _experts(weights: tuple[int, ...], bits: str) -> Formula:
    """Each token through k experts: tokens * k * weights of one expert."""

    def macs(op: Operation) -> int:
        elements = 0
        for layer, i in enumerate(weights, 1):
            if op.has(i):
                size = _in_bytes(i, bits, f"fc{layer}_{bits}")(op) if bits else op.size(i)
                elements += size // op.dims(i)[0]
        if not elements:
            given = " and ".join(str(i) for i in weights)
            raise UnknownError(f"no weight of the experts is given; operands {given} are expected")
        return prod(op.dims(0)[:-1]) * op.attr("k", 1) * elements

    return macs


def _dynamic_lstm(op: Operation) -> Sequence[Shape]:
    """All states, then the last ones."""
    length, batch = op.shape(0, 2)[:2]
    state = (op.shape(1, 1)[0], batch, op.attr("hidden_size", 0))
    return [(length, *state), state, state]


# Operators on integers.


def _q_concat(op: Operation) -> Sequence[Shape]:
    """Every third operand from the third on, along ``axis``."""
    shapes = [op.shape(i) for i in range(2, len(op.inputs), 3)]
    if not shapes:
        raise UnknownError("there are no operands to join; one or more are expected")
    axis = axis_of(op.attr("axis", 0), len(shapes[0]))
    return [with_dim(shapes[0], axis, total([shape[axis] for shape in shapes]))]


def _q_global_pool(op: Operation) -> Sequence[Shape]:
    shape = op.shape(0)
    if op.attr("channels_last", 0):
        return [(shape[0], *(1,) * (len(shape) - 2), shape[-1])]
    return global_pool(op)


def _rescaled(
    words: str, shapes: ShapesOf, macs: int = 0, extra: Formula = zero, types: Types = T0
) -> Operator:
    """An operator on integers that dequantizes its operands and quantizes its result."""
    rest = added(per_output(macs + _REQUANTIZE), extra)
    return Operator(words, shapes, types, rest=rest)


# What else models have.


def _gather_block_quantized(op: Operation) -> Sequence[Shape]:
    """Rows of a block-quantized table; in uint8 several elements share a byte of its last axis."""
    shape = op.shape(0)
    if op.dtype(0) == dtypes.UINT8:
        shape = (*shape[:-1], scaled(shape[-1], 8, op.attr("bits", 4)))
    axis = axis_of(op.attr("gather_axis", 0), len(shape))
    return [layout.gathered(shape, op.shape(1), axis)]


def _without_padding(op: Operation) -> Sequence[Shape]:
    """Tokens of all sequences, where they were, where sequences end, the longest."""
    batch, length, hidden = op.shape(0, exactly=3)
    tokens = None if op.input(1).data is None else sum(op.ints(1))
    return [(tokens, hidden), (batch, length), (None if batch is None else batch + 1,), (1,)]


_CONV_REST: Final = added(present(2), present(3), _activation)
_FOUR_BIT: Final = _executes_in("4-bit float weight-only")
_MATMUL: Final = Operator("|y|*K", matmul(0, 1), T0, last_axis)
_MEAN: Final = added(per_input(ADD), per_output(DIV))

TABLE: Final[dict[str, Operator]] = {
    "Gelu": same(
        "erf 50 per result (onnx_tool: 34)", per_output(GELU_ERF), elementwise.TABLE["Gelu"].tool
    ),
    "BiasGelu": same("an addition and a Gelu", per_output(ADD + GELU_ERF)),
    "FastGelu": same("tanh and the polynomial around it", added(per_output(GELU_TANH), present(1))),
    "QuickGelu": same("x * sigmoid(ax)", per_output(EXP + 2 * MUL)),
    "BiasSplitGelu": Operator(
        "bias, Gelu, product",
        lambda op: [(*op.shape(0, 1)[:-1], scaled(op.shape(0)[-1], 1, 2))],
        T0,
        rest=per_output(2 * ADD + GELU_ERF + MUL),
    ),
    "BiasAdd": same("bias and residual", per_output(2 * ADD)),
    "BiasSoftmax": same("bias and softmax", per_output(ADD + SOFTMAX)),
    "SkipLayerNormalization": _skipped(7, 4),
    "SkipSimplifiedLayerNormalization": _skipped(3, 3),
    "EmbedLayerNormalization": _embedded(
        "sums and LayerNormalization", like(2) + INT32 + like(2), 1
    ),
    "QEmbedLayerNormalization": _embedded(
        "sums of dequantized rows and LayerNormalization", like(8) + INT32, 3
    ),
    "GroupNorm": same("7 per element, 29 per group", _group_norm),
    "SkipGroupNorm": same(
        "residual, bias, GroupNorm", added(_group_norm, per_input(ADD), present(4))
    ),
    "GatedRMSNorm": same("3 per element, 29 per row; gate and its activation", _gated_norm),
    "GatedAdd": same("2 per result", per_output(MUL + ADD)),
    "LinearAttentionGate": Operator(
        "softplus, scaled; sigmoid",
        same_shape,
        T0,
        rest=added(per_output(EXP + LOG + 2 * ADD + MUL), per_operand(3, EXP)),
    ),
    **dict.fromkeys(("RotaryEmbedding", "MRotaryEmbedding"), elementwise.TABLE["RotaryEmbedding"]),
    "RelativePositionBias": Operator(
        "a logarithm for the bucket of each query and key",
        lambda op: [(1, op.shape(0, exactly=2)[1], first_of(op, 1), first_of(op, 2))],
        T0,
        rest=lambda op: (LOG + DIV + MUL + 3 * CMP) * prod(op.out()[2:]),
    ),
    "FusedConv": Operator(
        "Conv, bias, residual, activation", conv(0, 1), T0, conv_products(1), _CONV_REST
    ),
    "NhwcConv": Operator(
        "|y|*|W[1:]|, bias", conv(0, 1, "always"), T0, conv_products(1), present(2)
    ),
    "NhwcFusedConv": Operator(
        "|y|*|W[1:]|, bias, residual, activation",
        conv(0, 1, "always"),
        T0,
        conv_products(1),
        _CONV_REST,
    ),
    "NhwcMaxPool": Operator("window size per result", pool_nhwc, T0, rest=pool_macs),
    "FusedGemm": Operator(
        "Gemm, activation", gemm(0, 1), T0, gemm_products, added(present(2), _activation)
    ),
    "FusedMatMul": Operator(
        "|y|*K",
        lambda op: [product(_fused_operand(op, 0), _fused_operand(op, 1))],
        T0,
        lambda op: (
            op.out_size() * known(_fused_operand(op, 0), "operand 0", op.input(0).unknown)[-1]
        ),
    ),
    "GemmFastGelu": _MATMUL._replace(
        words="|y|*K, bias, Gelu", rest=added(present(2), per_output(GELU_TANH))
    ),
    "MatMulNBits": Operator(
        "|y|*K, bias",
        _block_quantized,
        T0,
        _summed,
        present(5),
        precision=_weight_only("bits"),
        packed={1: _elements, 3: _zero_points},
    ),
    "MatMulBnb4": Operator(
        "|y|*K",
        _block_quantized,
        T0,
        _summed,
        precision=_FOUR_BIT,
        packed={1: _elements},
    ),
    "MatMulBlockQuantizedFp4Weight": Operator(
        "|y|*K, bias",
        lambda op: [(*op.shape(0, 1)[:-1], op.shape(1, exactly=2)[0])],
        T0,
        last_axis,
        present(5),
        precision=_executes_in("float4 weight-only"),
        packed={1: lambda op: 2 * op.size(1)},
    ),
    "MatMulBlockQuantizedFp8Weight": Operator(
        "|y|*K, quantization of the input, bias",
        lambda op: [(*op.shape(0, 1)[:-1], op.shape(1, exactly=2)[0])],
        T0,
        last_axis,
        added(present(4), per_operand(3, _REQUANTIZE, of=0)),
        precision=Precision(executes_in=lambda op: "float8" if op.has(3) else "float8 weight-only"),
    ),
    "MatMulIntegerToFloat": _MATMUL._replace(
        words="|y|*K, scale, bias",
        types=like(2),
        rest=added(per_output(MUL), present(6)),
        precision=Precision(zero_point=(1, 5)),
    ),
    "DynamicQuantizeMatMul": _MATMUL._replace(
        words="|y|*K, quantization of the input, scale, bias",
        rest=added(per_input(4), per_output(MUL), present(4)),
        precision=Precision(executes_in=lambda op: "int8", zero_point=(1, 3)),
    ),
    "DynamicQuantizeLSTM": Operator(
        "(|W|+|R|)*b*s; biases; 180 per state",
        _dynamic_lstm,
        T0,
        lambda op: (op.size(1) + op.size(2)) * steps(op),
        lambda op: (
            steps(op) * (per_operand(3, 1)(op) + 180 * op.dims(1)[0] * op.attr("hidden_size", 0))
        ),
        precision=_executes_in("int8"),
    ),
    "QGemm": Operator(
        "Gemm, bias",
        gemm(0, 3),
        (lambda op: op.dtype(8) if op.has(8) else dtypes.FLOAT,),
        gemm_products,
        present(6),
        precision=Precision(operands=(0, 3), zero_point=(3, 5)),
    ),
    "QLinearConv": windows.TABLE["QLinearConv"]._replace(shapes=conv(0, 3, "channels_last")),
    "QLinearAdd": _rescaled("operands rescaled", broadcast_of(0, 3), ADD),
    "QLinearMul": _rescaled("operands rescaled", broadcast_of(0, 3), MUL),
    "QLinearSigmoid": _rescaled("by table or sigmoid", same_shape, EXP),
    "QLinearLeakyRelu": _rescaled("by table or rescaled", same_shape, 2),
    "QLinearSoftmax": _rescaled("softmax, rescaled", same_shape, SOFTMAX),
    "QLinearConcat": _rescaled("operands rescaled", _q_concat, types=T1),
    "QLinearWhere": _rescaled("operands rescaled", broadcast_of(0, 1, 4), types=T1),
    "QLinearGlobalAveragePool": _rescaled("|x| + 4|y|, rescaled", _q_global_pool, extra=_MEAN),
    "QLinearAveragePool": _rescaled(
        "window size per result, rescaled",
        lambda op: pool_nhwc(op) if op.attr("channels_last", 0) else pool(op),
        extra=pool_macs,
    ),
    "QuantizeLinear": elementwise.TABLE["QuantizeLinear"],
    "DequantizeLinear": elementwise.TABLE["DequantizeLinear"]._replace(types=T1),
    "MoE": same("k experts per token", zero)._replace(contraction=_experts((2, 4, 6), "")),
    "QMoE": Operator(
        "k experts per token",
        same_shape,
        T0,
        _experts((2, 5, 8), "expert_weight_bits"),
        precision=_weight_only("expert_weight_bits"),
        packed={
            i: _in_bytes(i, "expert_weight_bits", f"fc{layer}_expert_weight_bits")
            for layer, operands in ((1, (2, 11)), (2, (5, 12)), (3, (8, 13)))
            for i in operands
        },
    ),
    "GatherBlockQuantized": Operator(
        "a multiplication per result",
        _gather_block_quantized,
        like(2),
        rest=per_output(MUL + ADD),
        packed={0: _in_bytes(0, "bits"), 3: _in_bytes(3, "bits")},
    ),
    "Inverse": same("Gauss-Jordan elimination, n^3", lambda op: op.size(0) * op.dims(0, 2)[-1]),
    "GridSample": windows.TABLE["GridSample"],
    **{name: layout.TABLE[name] for name in ("GatherND", "Pad", "Unique")},
    "Range": layout.TABLE["Range"]._replace(fold=None),
    "Trilu": elementwise.TABLE["Trilu"],
    "RemovePadding": free(_without_padding, T0 + INT32),
    "RestorePadding": free(lambda op: [(*op.shape(1, exactly=2), op.shape(0, exactly=2)[1])]),
    **dict.fromkeys(
        ("BeamSearch", "GreedySearch", "Sampling", "WhisperBeamSearch"),
        Operator(
            "nothing itself; how often it runs its graphs is data",
            None,
            rest=zero,
            bodies=control.generation,
        ),
    ),
}
