"""Attention of onnxruntime's own domain, as its ContribOperators.md defines it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from math import prod
from typing import Final, TypeAlias

from otel_quant.cost.operation import Operation, Shape, UnknownError, known
from otel_quant.cost.operators import contraction
from otel_quant.cost.operators.contraction import (
    AttentionSizes,
    Length,
    SizesOf,
    attention_products,
    attention_scores,
    per_head,
    score_macs,
)
from otel_quant.cost.operators.record import (
    ROW,
    SOFTMAX,
    T0,
    Formula,
    Operator,
    ShapesOf,
    added,
    first_of,
    like,
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


def _sparse_products(op: Operation) -> int:
    return _sparse_pairs(op) * 2 * known((_sparse(op).size,), "a head", op.input(0).unknown)[0]


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
    return [found.joined, *caches, found.scores]


def _packed_cache(sizes: SizesOf) -> ShapesOf:
    """The result, and a present with keys and values in one tensor."""

    def shapes(op: Operation) -> Sequence[Shape]:
        found = sizes(op)
        return [found.joined, (2, found.batch, found.heads, found.present, found.size)]

    return shapes


def _separate_caches(sizes: SizesOf) -> ShapesOf:
    """The result, and caches of keys and values apart."""

    def shapes(op: Operation) -> Sequence[Shape | None]:
        found = sizes(op)
        return [found.joined, *found.caches, None]

    return shapes


def _tokens(op: Operation, found: AttentionSizes) -> int:
    return prod(known((found.batch, found.queries), "batch or queries", op.input(0).unknown))


def _projecting(sizes: SizesOf, mask: int, scale: int = 0) -> Operator:
    """Attention that also projects its input: batch * length * |W|."""
    products = attention_products(sizes)

    def rest(op: Operation) -> int:
        found = sizes(op)
        bias = _tokens(op, found) * op.dims(1)[1] if op.has(2) else 0
        per_score = SOFTMAX + 1 + (1 if op.has(mask) else 0)
        return bias + per_score * attention_scores(op, found)

    return Operator(
        "projection, scores, weighted values",
        _packed_cache(sizes),
        like(scale),
        lambda op: _tokens(op, sizes(op)) * op.size(1) + products(op),
        rest,
    )


def _scored(sizes: SizesOf, *masks: int) -> Formula:
    return lambda op: score_macs(op, *masks) * attention_scores(op, sizes(op))


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
        return _tokens(op, found) * op.size(10)
    lengths = (found.heads, found.size)
    return _tokens(op, found) * prod(known(lengths, "the heads", op.input(0).unknown))


Widths: TypeAlias = Callable[[Operation], tuple[Length, int, int]]
"""Tokens of sequences packed one behind the other, width of all queries, width of all values."""


def _packed_widths(op: Operation) -> tuple[Length, int, int]:
    """PackedAttention, which projects."""
    split = op.attr_ints("qkv_hidden_sizes")
    if split:
        return op.shape(0, exactly=2)[0], split[0], split[2]
    third = op.dims(1, exactly=2)[1] // 3
    return op.shape(0, exactly=2)[0], third, third


def _packed_heads(op: Operation) -> tuple[Length, int, int]:
    """PackedMultiHeadAttention: operands apart, or as [tokens, heads, 3, size]."""
    shape = op.shape(0, 2)
    if len(shape) == 4:
        width = prod(known((shape[1], shape[3]), "the heads", op.input(0).unknown))
        return shape[0], width, width
    return shape[0], op.dims(0)[1], op.dims(2, exactly=2)[1]


def _paged_widths(op: Operation) -> tuple[Length, int, int]:
    """PagedAttention: the query apart, or with key and value behind it."""
    tokens, width = op.shape(0, exactly=2)
    heads, kv_heads = op.attr("num_heads", 0), op.attr("kv_num_heads", 0)
    (hidden,) = known((width,), "the query", op.input(0).unknown)
    size = hidden // (heads if op.has(1) else heads + 2 * kv_heads)
    return tokens, heads * size, heads * op.attr("v_head_size", size)


def _paged(op: Operation) -> Sequence[Shape | None]:
    """The result, and the caches that change."""
    tokens, _, width = _paged_widths(op)
    return [(tokens, width), op.shape(3), op.shape(4) if op.has(4) else None]


def _packed_pairs(op: Operation, ends: int, past: int | None) -> int:
    """The pairs of query and key of packed sequences; operand ``ends`` has where they end."""
    lengths = [end - start for start, end in pairwise(op.ints(ends))]
    before = op.ints(past) if past is not None else (0,) * len(lengths)
    return sum(length * (length + kept) for length, kept in zip(lengths, before, strict=True))


def _packed(widths: Widths, ends: int, past: int | None = None) -> Formula:
    """Scores and weighted values of packed sequences."""
    return lambda op: sum(widths(op)[1:]) * _packed_pairs(op, ends, past)


def _packed_scores(ends: int, past: int | None = None, *masks: int) -> Formula:
    return lambda op: (
        _packed_pairs(op, ends, past) * op.attr("num_heads", 0) * score_macs(op, *masks)
    )


def _per_token(widths: Widths, i: int) -> Formula:
    """Each token by operand ``i``, if that is there: a projection or a bias."""

    def macs(op: Operation) -> int:
        tokens = known(widths(op)[:1], "operand 0", op.input(0).unknown)[0]
        return tokens * op.size(i) if op.has(i) else 0

    return macs


def _packed_result(widths: Widths) -> ShapesOf:
    return lambda op: [widths(op)[::2]]


_SELF: Final = _projecting(_self_attention(4, 6), 3)
_PAGED_TYPES: Final = T0 + like(3) + like(4)

TABLE: Final[dict[str, Operator]] = {
    "Attention": _SELF,
    "DecoderMaskedSelfAttention": _SELF,
    "QAttention": _projecting(_self_attention(8), 5, 3),
    "MultiHeadAttention": Operator(
        "scores and weighted values",
        _separate_caches(_multi_head),
        T0,
        attention_products(_multi_head),
        _scored(_multi_head, 4, 5),
    ),
    "GroupQueryAttention": Operator(
        "scores and weighted values",
        _separate_caches(_grouped),
        T0,
        attention_products(_grouped),
        added(_scored(_grouped, 10), _heads_prepared(14)),
    ),
    "SparseAttention": Operator(
        "scores and weighted values of the blocks; rotation",
        _separate_caches(_sparse),
        T0,
        _sparse_products,
        added(lambda op: score_macs(op) * _sparse_pairs(op), _heads_prepared()),
    ),
    "DecoderMaskedMultiHeadAttention": Operator(
        "scores of one query and weighted values; bias",
        _decoder,
        T0,
        attention_products(_decoder_sizes),
        added(_scored(_decoder_sizes, 3, 4), _decoder_bias),
    ),
    "PackedAttention": Operator(
        "projection, scores and weighted values of each sequence",
        _packed_result(_packed_widths),
        T0,
        added(_per_token(_packed_widths, 1), _packed(_packed_widths, 4)),
        added(_per_token(_packed_widths, 2), _packed_scores(4, None, 5)),
    ),
    "PackedMultiHeadAttention": Operator(
        "scores and weighted values of each sequence",
        _packed_result(_packed_heads),
        T0,
        _packed(_packed_heads, 5),
        added(_per_token(_packed_heads, 3), _packed_scores(5, None, 6)),
    ),
    "PagedAttention": Operator(
        "scores and weighted values of each sequence and its past; norm, rotation",
        _paged,
        _PAGED_TYPES,
        _packed(_paged_widths, 5, 6),
        added(_packed_scores(5, 6), _heads_prepared(12)),
    ),
    "LinearAttention": contraction.TABLE["LinearAttention"],
    "CausalConvWithState": contraction.TABLE["CausalConvWithState"],
}
