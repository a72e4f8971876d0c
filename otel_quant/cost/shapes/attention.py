"""Attention, in ONNX's form and in those of onnxruntime.

They differ in how they are given heads, keys and a past; once these are told apart they
are one operation, so both its shapes and its cost start from :class:`AttentionSizes`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from otel_quant.cost.operation import Operation, UnknownError
from otel_quant.cost.shapes.rule import T0, ShapeRule, like
from otel_quant.cost.values import Shape

Length: TypeAlias = int | None


@dataclass(frozen=True, slots=True)
class AttentionSizes:
    """Lengths of one attention; None for one that is not known.

    Attributes:
        batch: Sequences.
        heads: Query heads.
        kv_heads: Key and value heads.
        queries: Positions that ask.
        keys: Positions that are asked, those of the past among them.
        size: Length of a query's or key's head.
        value_size: Length of a value's head.
        present: Positions of the key and value cache after it.
    """

    batch: Length
    heads: Length
    kv_heads: Length
    queries: Length
    keys: Length
    size: Length
    value_size: Length
    present: Length


def _per(length: Length, heads: Length) -> Length:
    return None if length is None or not heads else length // heads


def _plus(a: Length, b: Length) -> Length:
    return None if a is None or b is None else a + b


def _onnx(op: Operation) -> AttentionSizes:
    """Operands [batch, length, hidden] with heads by attribute, or [batch, heads, length, size]."""
    q, k, v = op.shape(0), op.shape(1), op.shape(2)
    heads: Length
    kv_heads: Length
    if len(q) == 4:
        batch, heads, queries, size = q
        kv_heads, keys, value_size = k[1], k[2], v[3]
    else:
        batch, queries = q[0], q[1]
        heads, kv_heads = op.attr("q_num_heads", 0), op.attr("kv_num_heads", 0)
        if not heads or not kv_heads:
            raise UnknownError
        keys = k[1]
        size, value_size = _per(q[2], heads), _per(v[2], kv_heads)
    if op.has(4):
        keys = _plus(keys, op.shape(4)[2])
    return AttentionSizes(batch, heads, kv_heads, queries, keys, size, value_size, keys)


def _self_attention(past: int) -> Callable[[Operation], AttentionSizes]:
    """Attention that projects its input itself: weights [input, 3 * hidden]."""

    def sizes(op: Operation) -> AttentionSizes:
        batch, queries, _ = op.shape(0)
        heads = op.attr("num_heads", 0)
        split = op.attr_ints("qkv_hidden_sizes")
        if split:
            query_hidden: Length = split[0]
            value_hidden: Length = split[2]
        else:
            query_hidden = value_hidden = _per(op.shape(1)[1], 3)
        keys = queries
        present = queries
        if op.has(past):
            keys = _plus(queries, op.shape(past)[3])
            present = keys
            if op.attr("past_present_share_buffer", 0):
                present, keys = op.shape(past)[3], None
        return AttentionSizes(
            batch,
            heads,
            heads,
            queries,
            keys,
            _per(query_hidden, heads),
            _per(value_hidden, heads),
            present,
        )

    return sizes


def _multi_head(op: Operation) -> AttentionSizes:
    """Query, key and value apart, packed two and one, or packed all three."""
    q = op.shape(0)
    heads = op.attr("num_heads", 0)
    past = op.shape(6)[2] if op.has(6) else 0
    if len(q) == 5:  # [batch, length, heads, 3, size]
        return AttentionSizes(q[0], heads, heads, q[1], _plus(q[1], past), q[4], q[4], q[1])
    batch, queries, hidden = q
    size = _per(hidden, heads)
    if not op.has(1):
        raise UnknownError
    k = op.shape(1)
    if len(k) == 5:  # [batch, length, heads, 2, size]
        keys, value_size = k[1], size
    elif len(k) == 4:  # cross attention on [batch, heads, length, size]
        keys, value_size = k[2], op.shape(2)[3]
    else:
        keys, value_size = k[1], _per(op.shape(2)[2], heads)
    keys = _plus(keys, past)
    return AttentionSizes(batch, heads, heads, queries, keys, size, value_size, keys)


def _group_query(op: Operation) -> AttentionSizes:
    """Few key heads for many query heads; the cache may be longer than what is in it."""
    batch, queries, hidden = op.shape(0)
    heads, kv_heads = op.attr("num_heads", 0), op.attr("kv_num_heads", 0)
    size = _per(hidden, heads) if op.has(1) else _per(hidden, heads + 2 * kv_heads)
    total = op.input(6).data if op.has(6) else None
    keys = None if not total or total[0] is None else int(total[0])
    room = op.shape(3)[2] if op.has(3) else 0
    present = None if keys is None or room is None else max(keys, room)
    return AttentionSizes(batch, heads, kv_heads, queries, keys, size, size, present)


ATTENTION_SIZES: Final[dict[str, Callable[[Operation], AttentionSizes]]] = {
    "Attention": _onnx,
    "com.microsoft:Attention": _self_attention(4),
    "com.microsoft:QAttention": _self_attention(8),
    "com.microsoft:MultiHeadAttention": _multi_head,
    "com.microsoft:GroupQueryAttention": _group_query,
}


def attention_sizes(op: Operation) -> AttentionSizes:
    """Returns an attention's lengths, or raises UnknownError."""
    return ATTENTION_SIZES[op.kind](op)


def _joined(sizes: AttentionSizes) -> Shape:
    hidden = None
    if sizes.heads is not None and sizes.value_size is not None:
        hidden = sizes.heads * sizes.value_size
    return (sizes.batch, sizes.queries, hidden)


def _onnx_shapes(op: Operation) -> Sequence[Shape]:
    found = attention_sizes(op)
    result = _joined(found)
    if len(op.shape(0)) == 4:
        result = (found.batch, found.heads, found.queries, found.value_size)
    return [result, *_caches(found), (found.batch, found.heads, found.queries, found.keys)]


def _caches(sizes: AttentionSizes) -> tuple[Shape, Shape]:
    return (
        (sizes.batch, sizes.kv_heads, sizes.present, sizes.size),
        (sizes.batch, sizes.kv_heads, sizes.present, sizes.value_size),
    )


def _packed_cache(op: Operation) -> Sequence[Shape]:
    """The present of :func:`_self_attention`: keys and values in one tensor."""
    found = attention_sizes(op)
    return [_joined(found), (2, found.batch, found.heads, found.present, found.size)]


def _separate_caches(op: Operation) -> Sequence[Shape | None]:
    found = attention_sizes(op)
    return [_joined(found), *_caches(found), None]


TABLE: Final[dict[str, ShapeRule]] = {
    "Attention": ShapeRule(_onnx_shapes, (T0,)),
    "com.microsoft:Attention": ShapeRule(_packed_cache, (T0,)),
    "com.microsoft:QAttention": ShapeRule(_packed_cache, (like(3),)),
    "com.microsoft:MultiHeadAttention": ShapeRule(_separate_caches, (T0,)),
    "com.microsoft:GroupQueryAttention": ShapeRule(_separate_caches, (T0,)),
    "com.microsoft:DecoderMaskedMultiHeadAttention": ShapeRule(
        lambda op: [op.shape(0), op.shape(5), op.shape(6)], (T0,)
    ),
}
