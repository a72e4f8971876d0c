"""Attention of onnxruntime's own domain, as its ContribOperators.md defines it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import prod
from typing import Final

from otel_quant.cost.operation import Operation, Shape, UnknownError, known
from otel_quant.cost.operators import contraction
from otel_quant.cost.operators.contraction import (
    AttentionSizes,
    SizesOf,
    attention,
    per_head,
    tokens_of,
)
from otel_quant.cost.operators.record import (
    ROW,
    T0,
    Formula,
    Operator,
    ShapesOf,
    first_of,
    like,
    per_operand,
    total,
)


def _self_attention(past: int, length: int = -1) -> SizesOf:
    """Attention that projects its input itself: weights [input, 3 * hidden]."""

    def sizes(op: Operation) -> AttentionSizes:
        batch, queries, _ = op.shape(0, exactly=3)
        heads = op.attr("num_heads", 0)
        split = op.attr_ints("qkv_hidden_sizes")
        third = per_head(op.shape(1)[1], 3) if not split else None
        hidden, value_hidden = (split[0], split[2]) if split else (third, third)
        keys = present = queries
        if op.has(past):
            keys = present = total((queries, op.shape(past)[3]))
            if op.attr("past_present_share_buffer", 0):
                present = op.shape(past)[3]
                keys = total((first_of(op, length) if length > 0 else None, queries))
        size, value_size = per_head(hidden, heads), per_head(value_hidden, heads)
        return AttentionSizes(batch, heads, heads, queries, keys, size, value_size, present)

    return sizes


def _multi_head(op: Operation) -> AttentionSizes:
    """Query, key and value apart, packed two and one, or packed all three."""
    q = op.shape(0)
    heads = op.attr("num_heads", 0)
    past = op.shape(6)[2] if op.has(6) else 0
    if len(q) == 5:  # [batch, length, heads, 3, size]
        return AttentionSizes(q[0], heads, heads, q[1], total((q[1], past)), q[4], q[4], q[1])
    batch, queries, hidden = op.shape(0, exactly=3)
    size = per_head(hidden, heads)
    k = op.shape(1)
    if len(k) == 5:  # [batch, length, heads, 2, size]
        keys, value_size = k[1], size
    elif len(k) == 4:  # cross attention on [batch, heads, length, size]
        keys, value_size = k[2], op.shape(2)[3]
    else:
        keys, value_size = k[1], per_head(op.shape(2)[2], heads)
    keys = total((keys, past))
    return AttentionSizes(batch, heads, heads, queries, keys, size, value_size, keys)


def _grouped(op: Operation, length: int = 6) -> AttentionSizes:
    """Few key heads for many query heads; the cache may be longer than what is in it.

    Operand ``length`` has the number of keys.
    """
    batch, queries, hidden = op.shape(0, exactly=3)
    heads, kv_heads = op.attr("num_heads", 0), op.attr("kv_num_heads", 0)
    size = per_head(hidden, heads if op.has(1) else heads + 2 * kv_heads)
    keys = first_of(op, length)
    room = op.shape(3)[2] if op.has(3) else 0
    present = None if keys is None or room is None else max(keys, room)
    return AttentionSizes(batch, heads, kv_heads, queries, keys, size, size, present)


def _sparse(op: Operation) -> AttentionSizes:
    return _grouped(op, 7)


def _sparse_pairs(op: Operation) -> int:
    """The pairs of query and key over all heads, blocks counted whole.

    Operand 5 has for each layout of blocks where the blocks of each row of them begin.
    """
    layouts, width = op.dims(5, exactly=2)
    begins, keys, block = op.ints(5), op.int_(7), op.attr("sparse_block_size", 0)
    batch, queries, _ = op.dims(0, exactly=3)
    if block < 1 or keys > (width - 1) * block:
        raise UnknownError(f"{keys} keys do not fit into {width - 1} blocks of {block}")
    pairs = 0
    for row in range(width - 1):
        asking = min((row + 1) * block, keys) - max(row * block, keys - queries)
        if asking > 0:
            starts = range(row, layouts * width, width)
            pairs += asking * block * sum(begins[at + 1] - begins[at] for at in starts)
    return batch * pairs * op.attr("num_heads", 0) // layouts


def _crosses(op: Operation) -> bool:
    """Whether it attends to what another sequence left: no past, nothing is added."""
    return op.has(1) and len(op.shape(1)) == 4


def _decoder_sizes(op: Operation) -> AttentionSizes:
    """One query against a cache: its own past and itself, or what another sequence left."""
    batch, queries, hidden = op.shape(0, exactly=3)
    heads = op.attr("num_heads", 0)
    size = per_head(hidden, heads)
    if _crosses(op):
        keys, value_size = op.shape(1)[2], op.shape(2, 4)[3]
        return AttentionSizes(batch, heads, heads, queries, keys, size, value_size, None)
    cached = op.shape(5, 4)[2] if op.has(5) else 0
    if op.has(1):
        value_size = per_head(op.shape(2, 3)[2], heads)
    elif op.has(5):  # packed: [batch, 1, query, key, value]
        size, value_size = op.shape(5, 4)[3], op.shape(6, 4)[3]
    else:
        size = value_size = per_head(hidden, 3 * heads)
    keys = present = total((cached, queries))
    if op.attr("past_present_share_buffer", 0):  # the cache has room for more than is in it
        keys, present = total((first_of(op, 7), queries)), cached
    return AttentionSizes(batch, heads, heads, queries, keys, size, value_size, present)


def _decoder(op: Operation) -> Sequence[Shape | None]:
    """Result, caches of keys and values, scores."""
    found = _decoder_sizes(op)
    caches = (None, None) if found.present is None and _crosses(op) else found.caches
    return [found.joined, *caches, (found.batch, found.heads, found.queries, found.keys)]


def _separate_caches(sizes: SizesOf) -> ShapesOf:
    """The result, and caches of keys and values apart."""

    def shapes(op: Operation) -> Sequence[Shape | None]:
        found = sizes(op)
        return [found.joined, *found.caches, None]

    return shapes


def _projecting(sizes: SizesOf, mask: int, scale: int = 0) -> Operator:
    """Attention that also projects its input: batch * length * |W|."""
    words = "projection, scores, weighted values"

    def shapes(op: Operation) -> Sequence[Shape]:
        found = sizes(op)  # keys and values of the present are in one tensor
        return [found.joined, (2, found.batch, found.heads, found.present, found.size)]

    return attention(words, sizes, shapes, mask, projects=True, types=like(scale))


def _heads_prepared(norm: int | None = None) -> Formula:
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
    found = _decoder_sizes(op)
    if not op.has(1) or len(op.shape(1)) == 3:
        return tokens_of(op, found) * op.size(10)
    lengths = (found.heads, found.size)
    return tokens_of(op, found) * prod(known(lengths, "the heads", op.input(0).unknown))


# Sequences packed one behind the other: their tokens are the queries of one sequence.


def _packed_projecting(op: Operation) -> AttentionSizes:
    heads, split = op.attr("num_heads", 0), op.attr_ints("qkv_hidden_sizes")
    third = op.shape(1, exactly=2)[1]
    size, value_size = (
        (per_head(split[0], heads), per_head(split[2], heads))
        if split
        else (per_head(third, 3 * heads),) * 2
    )
    tokens = op.shape(0, exactly=2)[0]
    return AttentionSizes(1, heads, heads, tokens, None, size, value_size, None)


def _packed_heads(op: Operation) -> AttentionSizes:
    """Operands apart, or as [tokens, heads, 3, size]."""
    shape = op.shape(0, 2)
    heads: int | None = op.attr("num_heads", 0)
    if len(shape) == 4:
        heads, size = shape[1], shape[3]
        value_size = size
    else:
        size, value_size = per_head(shape[1], heads), per_head(op.shape(2, exactly=2)[1], heads)
    return AttentionSizes(1, heads, heads, shape[0], None, size, value_size, None)


def _paged_sizes(op: Operation) -> AttentionSizes:
    """The query apart, or with key and value behind it."""
    tokens, width = op.shape(0, exactly=2)
    heads, kv_heads = op.attr("num_heads", 0), op.attr("kv_num_heads", 0)
    size = per_head(width, heads if op.has(1) else heads + 2 * kv_heads)
    value_size = op.attr("v_head_size", 0) or size
    return AttentionSizes(1, heads, kv_heads, tokens, None, size, value_size, None)


def _packed_pairs(ends: int, past: int | None = None) -> Formula:
    """Queries and keys of packed sequences; operand ``ends`` has where they end."""

    def pairs(op: Operation) -> int:
        lengths = [end - start for start, end in pairwise(op.ints(ends))]
        before = op.ints(past) if past is not None else (0,) * len(lengths)
        met = sum(length * (length + kept) for length, kept in zip(lengths, before, strict=True))
        return met * op.attr("num_heads", 0)

    return pairs


_SELF: Final = _projecting(_self_attention(4, 6), 3)

TABLE: Final[dict[str, Operator]] = {
    "Attention": _SELF,
    "DecoderMaskedSelfAttention": _SELF,
    "QAttention": _projecting(_self_attention(8), 5, 3),
    "MultiHeadAttention": attention(
        "scores and weighted values", _multi_head, _separate_caches(_multi_head), 4, 5
    ),
    "GroupQueryAttention": attention(
        "scores and weighted values",
        _grouped,
        _separate_caches(_grouped),
        10,
        rest=_heads_prepared(14),
    ),
    "SparseAttention": attention(
        "scores and weighted values of the blocks; rotation",
        _sparse,
        _separate_caches(_sparse),
        pairs=_sparse_pairs,
        rest=_heads_prepared(),
    ),
    "DecoderMaskedMultiHeadAttention": attention(
        "scores of one query and weighted values; bias",
        _decoder_sizes,
        _decoder,
        3,
        4,
        rest=_decoder_bias,
    ),
    "PackedAttention": attention(
        "projection, scores and weighted values of each sequence",
        _packed_projecting,
        lambda op: [_packed_projecting(op).joined[1:]],
        5,
        pairs=_packed_pairs(4),
        projects=True,
    ),
    "PackedMultiHeadAttention": attention(
        "scores and weighted values of each sequence",
        _packed_heads,
        lambda op: [_packed_heads(op).joined[1:]],
        6,
        pairs=_packed_pairs(5),
        rest=lambda op: tokens_of(op, _packed_heads(op)) * per_operand(3, 1)(op),
    ),
    "PagedAttention": attention(
        "scores and weighted values of each sequence and its past; norm, rotation",
        _paged_sizes,
        # The result, and the caches that change.
        lambda op: [_paged_sizes(op).joined[1:], op.shape(3), op.shape(4) if op.has(4) else None],
        pairs=_packed_pairs(5, 6),
        rest=_heads_prepared(12),
        types=T0 + like(3) + like(4),
    ),
    "LinearAttention": contraction.TABLE["LinearAttention"],
    "CausalConvWithState": contraction.TABLE["CausalConvWithState"],
}
