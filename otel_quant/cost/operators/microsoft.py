"""Operators of onnxruntime's own domain, as its ContribOperators.md defines them.

Here are those that exporters, quantizers and optimizers write into files: without them the models
that people quantize would have no figures. What exists only in a running session or for one kind of
GPU is left out. A fused operator costs what the operators that it fuses cost.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Final, TypeVar

from otel_quant.cost import dtypes
from otel_quant.cost.operation import Shape, TypedNode, UnknownError, axis_of, known
from otel_quant.cost.operators import contraction, elementwise, layout, rule, windows
from otel_quant.cost.operators.contraction import AttentionSizes, SizesOf, attention, per_head
from otel_quant.cost.operators.elementwise import normalized
from otel_quant.cost.operators.rule import ADD, DIV, EXP, GELU_ERF, GELU_TANH, MUL, ROW, T0, Rule
from otel_quant.cost.operators.windows import conv, conv_products, global_pool, pool, pool_macs

_ACTIVATIONS: Final = {
    "": 0, "Relu": 1, "LeakyRelu": 2, "Clip": 2, "HardSigmoid": 4, "Sigmoid": EXP, "Tanh": EXP + 6,
    "Gelu": GELU_ERF, "FastGelu": GELU_TANH,
}  # fmt: skip

_Found = TypeVar("_Found")

_REQUANTIZE: Final = 4
"""Per element of an integer operator that dequantizes two operands and quantizes the result."""


def _activation(op: TypedNode) -> int:
    """The activation fused behind a contraction."""
    return op.attr_choice("activation", "", _ACTIVATIONS) * op.out_size()


# Embeddings and normalizations.


def _skipped(per_element: int, bias: int) -> Rule:
    """A residual, perhaps a bias, and the normalization of the last axis."""
    norm = normalized(per_element + ADD, lambda op: prod(op.dims(0)[:-1]))
    return Rule(
        f"residual, bias, {per_element} per element, 29 per row",
        # The result, mean and deviation per row, and the sum with the residual.
        lambda op: [(shape := op.shape(0)), (*shape[:-1], 1), (*shape[:-1], 1), shape],
        T0 + rule.FLOAT + rule.FLOAT + T0,
        rest=rule.added(norm, rule.given(bias, rule.per_input(ADD))),
    )


def _embedded(words: str, types: rule.Types, per_embedding: int) -> Rule:
    """Two embeddings or three, their sum, then a LayerNormalization; also a mask index and the sum."""

    def shapes(op: TypedNode) -> Sequence[Shape]:
        batch, length = op.shape(0)
        result = (batch, length, op.shape(2)[1])
        return [result, (batch,), result]

    def rest(op: TypedNode) -> int:
        per_element = 7 + per_embedding * (3 if op.has(1) else 2) - 1
        return per_element * op.out_size() + ROW * prod(op.out()[:-1])

    return Rule(words, shapes, types, rest=rest)


# Products.


def _fused_operand(op: TypedNode, i: int) -> Shape:
    """The operand as FusedMatMul reads it; ``transBatch`` moves the first axis before the last."""
    shape, letter = op.shape(i), "AB"[i]
    if len(shape) < 2:
        return shape
    if op.attr(f"transBatch{letter}", 0):
        shape = (*shape[1:-1], shape[0], shape[-1])
    if op.attr(f"trans{letter}", 0):
        shape = (*shape[:-2], shape[-1], shape[-2])
    return shape


def _block_quantized(op: TypedNode) -> Sequence[Shape]:
    """Weights packed in blocks: only the attributes have the length of their rows."""
    columns = op.attr("N", 0)
    if not columns:
        raise UnknownError("the attribute 'N' is missing")
    *rows, summed = op.shape(0)
    rule.agree("the input's last axis and the attribute 'K'", summed, op.attr("K", 0) or None)
    return [(*rows, columns)]


def _elements(op: TypedNode) -> int:
    """Elements of a weight whose lengths are attributes."""
    return op.attr("N", 0) * op.attr("K", 0)


def _summed(op: TypedNode) -> int:
    return op.out_size() * op.attr("K", 0)


def _zero_points(op: TypedNode) -> int:
    """Zero points of MatMulNBits, one for each block of a row; floats are stored one by one."""
    if op.dtype(3) != dtypes.UINT8:
        return op.size(3)
    return op.attr("N", 0) * -(-op.attr("K", 0) // op.attr("block_size", 1))


def _in_bytes(i: int, bits: str, own: str = "") -> rule.Formula:
    """Elements of operand ``i``, of which a byte holds several; attribute ``own`` goes first."""

    def elements(op: TypedNode) -> int:
        bytes_each = op.dtype(i) == dtypes.UINT8
        return op.size(i) * 8 // op.attr(own, op.attr(bits, 4)) if bytes_each else op.size(i)

    return elements


def _executes_in(name: str) -> rule.Precision:
    return rule.Precision(executes_in=lambda op: name)


def _weight_only(bits: str) -> rule.Precision:
    return rule.Precision(executes_in=lambda op: f"int{op.attr(bits, 4)} weight-only")


def _experts(weights: Mapping[int, rule.Formula]) -> rule.Formula:
    """Each token through k experts: tokens * k * weights of one expert, by operand."""

    def macs(op: TypedNode) -> int:
        there = filter(op.has, weights)
        elements = sum(weights[i](op) // op.dims(i)[0] for i in there)
        if not elements:
            raise UnknownError("no weight of the experts is given")
        return prod(op.dims(0)[:-1]) * op.attr("k", 1) * elements

    return macs


def _expert_elements(*operands: int) -> dict[int, rule.Formula]:
    """Elements of operands of QMoE, one for each layer."""
    bits = "expert_weight_bits"
    return {i: _in_bytes(i, bits, f"fc{layer}_{bits}") for layer, i in enumerate(operands, 1)}


def _dynamic_lstm(op: TypedNode) -> Sequence[Shape]:
    """All states, then the last ones."""
    length, batch = op.shape(0)[:2]
    state = (op.shape(1)[0], batch, op.attr("hidden_size", 0))
    return [(length, *state), state, state]


def _plain(wanted: Callable[[TypedNode], _Found], attribute: str) -> Callable[[TypedNode], _Found]:
    """A rule of shapes that does not hold with an attribute, which only running sessions set."""

    def found(op: TypedNode) -> _Found:
        if op.attr(attribute, 0):
            raise UnknownError(f"attribute '{attribute}' is {op.attr(attribute, 0)}; expected 0")
        return wanted(op)

    return found


# Attention.


def _self_attention(past: int) -> SizesOf:
    """Attention that projects its input itself: weights [input, 3 * hidden]."""

    def sizes(op: TypedNode) -> AttentionSizes:
        batch, queries, _ = op.shape(0)
        heads = op.attr("num_heads", 0)
        split: Shape = op.attr_ints("qkv_hidden_sizes") or (per_head(op.shape(1)[1], 3),) * 3
        keys = rule.total((queries, op.shape(past)[3])) if op.has(past) else queries
        size, value_size = per_head(split[0], heads), per_head(split[2], heads)
        return AttentionSizes(batch, heads, heads, queries, keys, size, value_size, keys)

    return _plain(sizes, "past_present_share_buffer")


def _multi_head(op: TypedNode) -> AttentionSizes:
    """Query, key and value apart, packed two and one, or packed all three."""
    q = op.shape(0)
    heads = op.attr("num_heads", 0)
    past = op.shape(6)[2] if op.has(6) else 0
    if len(q) == 5:  # [batch, length, heads, 3, size]
        return AttentionSizes(q[0], heads, heads, q[1], rule.total((q[1], past)), q[4], q[4], q[1])
    batch, queries, hidden = op.shape(0)
    size = per_head(hidden, heads)
    k = op.shape(1)
    if len(k) == 5:  # [batch, length, heads, 2, size]
        keys, value_size = k[1], size
    elif len(k) == 4:  # cross attention on [batch, heads, length, size]
        keys, value_size = k[2], op.shape(2)[3]
    else:
        keys, value_size = k[1], per_head(op.shape(2)[2], heads)
    keys = rule.total((keys, past))
    return AttentionSizes(batch, heads, heads, queries, keys, size, value_size, keys)


def _grouped(op: TypedNode) -> AttentionSizes:
    """Few key heads for many query heads; the cache may be longer than what is in it, and is full where that is data."""
    batch, queries, hidden = op.shape(0)
    heads, kv_heads = op.attr("num_heads", 0), op.attr("kv_num_heads", 0)
    size = per_head(hidden, heads if op.has(1) else heads + 2 * kv_heads)
    room = op.shape(3)[2] if op.has(3) else 0
    keys = rule.first_of(op, 6) if rule.has_known_keys(op) else rule.total((queries, room))
    present = None if keys is None or room is None else max(keys, room)
    return AttentionSizes(batch, heads, kv_heads, queries, keys, size, size, present)


def _separate_caches(sizes: SizesOf) -> rule.ShapesOf:
    """The result, and caches of keys and values apart."""

    def shapes(op: TypedNode) -> Sequence[Shape | None]:
        found = sizes(op)
        return [found.joined, *found.caches, None]

    return shapes


def _projecting(sizes: SizesOf, mask: int, scale: int = 0) -> Rule:
    """Attention that also projects its input: batch * length * |W|."""
    words = "projection, scores, weighted values"

    def shapes(op: TypedNode) -> Sequence[Shape]:
        found = sizes(op)  # keys and values of the present are in one tensor
        return [found.joined, (2, found.batch, found.heads, found.present, found.size)]

    def projected(i: int) -> rule.Formula:
        return lambda op: contraction.tokens_of(op, sizes(op)) * op.size(i)

    weight, bias = projected(1), rule.given(2, projected(2))
    types = rule.like(scale)
    return attention(words, sizes, shapes, mask, projection=weight, rest=bias, types=types)


def _rotated(op: TypedNode) -> int:
    """Query and key rotated if asked: operands 0 and 1, or both in front of the value in the first."""
    if not op.attr("do_rotary", 0):
        return 0
    heads, kv_heads = op.attr("num_heads", 0), op.attr("kv_num_heads", 0)
    packed = op.size(0) * (heads + kv_heads) // (heads + 2 * kv_heads)
    return 3 * (op.size(0) + op.size(1) if op.has(1) else packed)


# Operators on integers.


def _q_concat(op: TypedNode) -> Sequence[Shape]:
    """Every third operand from the third on, along ``axis``."""
    shapes = [op.shape(i) for i in range(2, len(op.inputs), 3)]
    axis = axis_of(op.attr("axis", 0), len(shapes[0]))
    return [rule.with_dim(shapes[0], axis, rule.total([shape[axis] for shape in shapes]))]


def _rescaled(
    words: str, shapes: rule.ShapesOf, macs: int = 0, extra: rule.Formula = rule.zero,
    types: rule.Types = T0,
) -> Rule:  # fmt: skip
    """An operator on integers that dequantizes its operands and quantizes its result."""
    rest = rule.added(rule.per_output(macs + _REQUANTIZE), extra)
    return Rule(words, shapes, types, rest=rest)


# What else models have.


def _gather_block_quantized(op: TypedNode) -> Sequence[Shape]:
    """Rows of a block-quantized table; in uint8 several elements share a byte of its last axis."""
    shape = op.shape(0)
    if op.dtype(0) == dtypes.UINT8:
        shape = (*shape[:-1], rule.scaled(shape[-1], 8, op.attr("bits", 4)))
    axis = axis_of(op.attr("gather_axis", 0), len(shape))
    return [layout.gathered(shape, op.shape(1), axis)]


_CONV_REST: Final = rule.added(rule.present(2), rule.present(3), _activation)
_FOUR_BIT: Final = _executes_in("4-bit float weight-only")
_MATMUL: Final = Rule("|y|*K", contraction.matmul(1), T0, contraction.last_axis)
_MEAN: Final = rule.added(rule.per_input(ADD), rule.per_output(DIV))

_LAST: Final = "channels_last"

TABLE: Final[dict[str, Rule]] = {
    "Gelu": rule.same("erf 50 per result (onnx_tool: 34)", rule.per_output(GELU_ERF), elementwise.TABLE["Gelu"].tool),
    "BiasGelu": rule.same("an addition and a Gelu", rule.per_output(ADD + GELU_ERF)),
    "FastGelu": rule.same("tanh and the polynomial around it", rule.added(rule.per_output(GELU_TANH), rule.present(1))),
    "QuickGelu": rule.same("x * sigmoid(ax)", rule.per_output(EXP + 2 * MUL)),
    "SkipLayerNormalization": _skipped(7, 4),
    "SkipSimplifiedLayerNormalization": _skipped(3, 3),
    "EmbedLayerNormalization": _embedded("sums and LayerNormalization", rule.like(2) + rule.INT32 + rule.like(2), 1),
    "QEmbedLayerNormalization": _embedded("sums of dequantized rows and LayerNormalization", rule.like(8) + rule.INT32, 3),
    "RotaryEmbedding": elementwise.TABLE["RotaryEmbedding"],
    "FusedConv": Rule("Conv, bias, residual, activation", conv(1), T0, conv_products(1), _CONV_REST),
    "FusedGemm": Rule("Gemm, activation", contraction.gemm(1), T0, contraction.gemm_products,
        rule.added(rule.present(2), _activation)),
    "FusedMatMul": Rule("|y|*K", lambda op: [contraction.product(_fused_operand(op, 0), _fused_operand(op, 1))], T0,
        lambda op: op.out_size() * known(_fused_operand(op, 0), "operand 0", op.input(0).unknown)[-1]),
    "MatMulNBits": Rule("|y|*K, bias", _block_quantized, T0, _summed, rule.present(5), precision=_weight_only("bits"),
        packed={1: _elements, 3: _zero_points}),
    "MatMulBnb4": Rule("|y|*K", _block_quantized, T0, _summed, precision=_FOUR_BIT, packed={1: _elements}),
    "MatMulIntegerToFloat": _MATMUL._replace(words="|y|*K, scale, bias", types=rule.like(2),
        rest=rule.added(rule.per_output(MUL), rule.present(6)), precision=rule.Precision(zero_point=(1, 5))),
    "DynamicQuantizeMatMul": _MATMUL._replace(words="|y|*K, quantization of the input, scale, bias",
        rest=rule.added(rule.per_input(4), rule.per_output(MUL), rule.present(4)),
        precision=rule.Precision(executes_in=lambda op: "int8", zero_point=(1, 3))),
    "DynamicQuantizeLSTM": Rule("(|W|+|R|)*b*s; biases; 180 per state", _dynamic_lstm, T0, contraction.recurrent_products,
        lambda op: contraction.steps(op) * (op.size_if_given(3) + 180 * op.dims(1)[0] * op.attr("hidden_size", 0)),
        precision=_executes_in("int8")),
    "QGemm": Rule("Gemm, bias", contraction.gemm(3), (lambda op: op.dtype(8) if op.has(8) else dtypes.FLOAT,),
        contraction.gemm_products, rule.present(6), precision=rule.Precision(operands=(0, 3), zero_point=(3, 5))),
    "QLinearConv": windows.TABLE["QLinearConv"]._replace(shapes=_plain(conv(3), _LAST)),
    "QLinearAdd": _rescaled("operands rescaled", rule.broadcast_of(0, 3), ADD),
    "QLinearMul": _rescaled("operands rescaled", rule.broadcast_of(0, 3), MUL),
    "QLinearSigmoid": _rescaled("by table or sigmoid", rule.same_shape, EXP),
    "QLinearLeakyRelu": _rescaled("by table or rescaled", rule.same_shape, 2),
    "QLinearSoftmax": _rescaled("softmax, rescaled", rule.same_shape, rule.SOFTMAX),
    "QLinearConcat": _rescaled("operands rescaled", _q_concat, types=rule.T1),
    "QLinearWhere": _rescaled("operands rescaled", rule.broadcast_of(0, 1, 4), types=rule.T1),
    "QLinearGlobalAveragePool": _rescaled("|x| + 4|y|, rescaled", _plain(global_pool, _LAST), extra=_MEAN),
    "QLinearAveragePool": _rescaled("window size per result, rescaled", _plain(pool, _LAST), extra=pool_macs),
    "QuantizeLinear": elementwise.TABLE["QuantizeLinear"],
    "DequantizeLinear": elementwise.TABLE["DequantizeLinear"]._replace(types=rule.T1),
    "MoE": rule.same("k experts per token", rule.zero)._replace(
        contraction=_experts({i: rule.elements_of(i) for i in (2, 4, 6)})),
    "QMoE": Rule("k experts per token", rule.same_shape, T0, _experts(_expert_elements(2, 5, 8)),
        precision=_weight_only("expert_weight_bits"), packed=_expert_elements(2, 5, 8) | _expert_elements(11, 12, 13)),
    "GatherBlockQuantized": Rule("a multiplication per result", _gather_block_quantized, rule.like(2),
        rest=rule.per_output(MUL + ADD), packed={0: _in_bytes(0, "bits"), 3: _in_bytes(3, "bits")}),
    "Attention": _projecting(_self_attention(4), 3),
    "QAttention": _projecting(_self_attention(8), 5, 3),
    "MultiHeadAttention": attention("scores and weighted values", _multi_head, _separate_caches(_multi_head), 4, 5),
    "GroupQueryAttention": attention("scores and weighted values; rotation", _grouped, _separate_caches(_grouped), 10,
        rest=_rotated),
}  # fmt: skip
