"""Attention, in ONNX's form and in those of onnxruntime.

They differ in how they are given heads, keys and a past. What they compute is the same, so
both shapes and cost start from :class:`AttentionSizes`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, TypeAlias

from otel_quant.cost.operation import Operation, UnknownError
from otel_quant.cost.shapes.rule import ShapesOf
from otel_quant.cost.values import Shape

Length: TypeAlias = int | None


class AttentionSizes(NamedTuple):
    """Lengths of one attention; None for one that is not known."""

    batch: Length  # Sequences
    heads: Length  # Query heads
    kv_heads: Length  # Key and value heads
    queries: Length  # Positions that ask
    keys: Length  # Positions that are asked, those of the past among them
    size: Length  # Length of a query's or key's head
    value_size: Length  # Length of a value's head
    present: Length  # Positions of the key and value cache after it


SizesOf: TypeAlias = Callable[[Operation], AttentionSizes]


def _per(length: Length, heads: Length) -> Length:
    return None if length is None or not heads else length // heads


def _plus(a: Length, b: Length) -> Length:
    return None if a is None or b is None else a + b


def onnx_sizes(op: Operation) -> AttentionSizes:
    """Operands [batch, length, hidden] with heads by attribute, or [batch, heads, length, size]."""
    q = op.shape(0, 3)
    apart = len(q) == 4
    k, v = op.shape(1, 3 if apart else 2), op.shape(2, 4 if apart else 3)
    heads: Length
    kv_heads: Length
    if apart:
        batch, heads, queries, size = q
        kv_heads, keys, value_size = k[1], k[2], v[3]
    else:
        batch, queries = q[0], q[1]
        heads, kv_heads = op.attr("q_num_heads", 0), op.attr("kv_num_heads", 0)
        if not heads or not kv_heads:
            raise UnknownError("the attributes 'q_num_heads' and 'kv_num_heads' are missing")
        keys = k[1]
        size, value_size = _per(q[2], heads), _per(v[2], kv_heads)
    if op.has(4):
        keys = _plus(keys, op.shape(4)[2])
    return AttentionSizes(batch, heads, kv_heads, queries, keys, size, value_size, keys)


def _known(op: Operation, i: int) -> Length:
    """The first element of an operand; None if it is left out or not known."""
    data = op.input(i).data if op.has(i) else None
    return None if not data or data[0] is None else int(data[0])


def self_attention(past: int, length: int = -1) -> SizesOf:
    """Attention that projects its input itself: weights [input, 3 * hidden]."""

    def sizes(op: Operation) -> AttentionSizes:
        batch, queries, _ = op.shape(0, exactly=3)
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
                present = op.shape(past)[3]
                keys = _plus(_known(op, length) if length > 0 else None, queries)
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


def multi_head(op: Operation) -> AttentionSizes:
    """Query, key and value apart, packed two and one, or packed all three."""
    q = op.shape(0)
    heads = op.attr("num_heads", 0)
    past = op.shape(6)[2] if op.has(6) else 0
    if len(q) == 5:  # [batch, length, heads, 3, size]
        return AttentionSizes(q[0], heads, heads, q[1], _plus(q[1], past), q[4], q[4], q[1])
    batch, queries, hidden = op.shape(0, exactly=3)
    size = _per(hidden, heads)
    k = op.shape(1)
    if len(k) == 5:  # [batch, length, heads, 2, size]
        keys, value_size = k[1], size
    elif len(k) == 4:  # cross attention on [batch, heads, length, size]
        keys, value_size = k[2], op.shape(2)[3]
    else:
        keys, value_size = k[1], _per(op.shape(2)[2], heads)
    keys = _plus(keys, past)
    return AttentionSizes(batch, heads, heads, queries, keys, size, value_size, keys)


def grouped(total: int) -> SizesOf:
    """Few key heads for many query heads; the cache may be longer than what is in it."""

    def sizes(op: Operation) -> AttentionSizes:
        batch, queries, hidden = op.shape(0, exactly=3)
        heads, kv_heads = op.attr("num_heads", 0), op.attr("kv_num_heads", 0)
        size = _per(hidden, heads) if op.has(1) else _per(hidden, heads + 2 * kv_heads)
        keys = _known(op, total)
        room = op.shape(3)[2] if op.has(3) else 0
        present = None if keys is None or room is None else max(keys, room)
        return AttentionSizes(batch, heads, kv_heads, queries, keys, size, size, present)

    return sizes


group_query: Final = grouped(6)


def decoder_sizes(op: Operation) -> AttentionSizes:
    """One query against a cache: its own past and itself, or what another sequence left.

    As onnxruntime's ContribOperators.md defines DecoderMaskedMultiHeadAttention.
    """
    batch, queries, hidden = op.shape(0, exactly=3)
    heads = op.attr("num_heads", 0)
    if op.has(1) and len(op.shape(1)) == 4:  # cross attention: no past, nothing is added
        keys, value_size = op.shape(1)[2], op.shape(2, 4)[3]
        size = _per(hidden, heads)
        return AttentionSizes(batch, heads, heads, queries, keys, size, value_size, None)
    cached = op.shape(5, 4)[2] if op.has(5) else 0
    if op.has(1):
        size, value_size = _per(hidden, heads), _per(op.shape(2, 3)[2], heads)
    elif op.has(5):  # packed: [batch, 1, query, key, value]
        size, value_size = op.shape(5, 4)[3], op.shape(6, 4)[3]
    else:
        size = value_size = _per(hidden, 3 * heads)
    keys = present = _plus(cached, queries)
    if op.attr("past_present_share_buffer", 0):  # the cache has room for more than is in it
        keys = _plus(_known(op, 7), queries)
        present = cached
    return AttentionSizes(batch, heads, heads, queries, keys, size, value_size, present)


def _joined(sizes: AttentionSizes) -> Shape:
    hidden = None
    if sizes.heads is not None and sizes.value_size is not None:
        hidden = sizes.heads * sizes.value_size
    return (sizes.batch, sizes.queries, hidden)


def decoder(op: Operation) -> Sequence[Shape | None]:
    """DecoderMaskedMultiHeadAttention: result, caches of keys and values, scores."""
    found = decoder_sizes(op)
    scores = (found.batch, found.heads, found.queries, found.keys)
    if found.present is None and op.has(1) and len(op.shape(1)) == 4:
        return [_joined(found), None, None, scores]
    return [_joined(found), *_caches(found), scores]


def onnx_attention(op: Operation) -> Sequence[Shape]:
    """ONNX's Attention: result, caches of keys and values, scores."""
    found = onnx_sizes(op)
    result = _joined(found)
    if len(op.shape(0)) == 4:
        result = (found.batch, found.heads, found.queries, found.value_size)
    return [result, *_caches(found), (found.batch, found.heads, found.queries, found.keys)]


def _caches(sizes: AttentionSizes) -> tuple[Shape, Shape]:
    return (
        (sizes.batch, sizes.kv_heads, sizes.present, sizes.size),
        (sizes.batch, sizes.kv_heads, sizes.present, sizes.value_size),
    )


def packed_cache(sizes: SizesOf) -> ShapesOf:
    """The result, and the present of :func:`self_attention`: keys and values in one tensor."""

    def shapes(op: Operation) -> Sequence[Shape]:
        found = sizes(op)
        return [_joined(found), (2, found.batch, found.heads, found.present, found.size)]

    return shapes


def separate_caches(sizes: SizesOf) -> ShapesOf:
    """The result, and caches of keys and values apart."""

    def shapes(op: Operation) -> Sequence[Shape | None]:
        found = sizes(op)
        return [_joined(found), *_caches(found), None]

    return shapes
