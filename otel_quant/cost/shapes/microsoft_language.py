"""What exports of language models use of onnxruntime's own domain, beside attention's common forms."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import prod

from otel_quant.cost.operation import Operation, UnknownError, known
from otel_quant.cost.shapes.contraction import product
from otel_quant.cost.shapes.microsoft import block_quantized
from otel_quant.cost.shapes.rule import ShapesOf
from otel_quant.cost.values import Shape


def packed_pairs(op: Operation, ends: int, past: int | None = None) -> int:
    """Returns the pairs of query and key of sequences that are packed one behind the other."""
    bounds = op.ints(ends)
    lengths = [end - start for start, end in pairwise(bounds)]
    before = op.ints(past) if past is not None else (0,) * len(lengths)
    return sum(length * (length + kept) for length, kept in zip(lengths, before, strict=True))


def sparse_pairs(op: Operation) -> int:
    """Returns SparseAttention's pairs of query and key over all heads, blocks counted whole.

    Operand 5 has for each layout of blocks where the blocks of each row of them begin.
    """
    layouts, width = op.dims(5, exactly=2)
    begins, total, block = op.ints(5), op.int_(7), op.attr("sparse_block_size", 0)
    batch, queries, _ = op.dims(0, exactly=3)
    if block < 1 or total > (width - 1) * block:
        raise UnknownError(f"{total} keys do not fit into {width - 1} blocks of {block}")
    pairs = 0
    for row in range(width - 1):
        asking = min((row + 1) * block, total) - max(row * block, total - queries)
        if asking > 0:
            blocks = sum(
                begins[i + row + 1] - begins[i + row] for i in range(0, layouts * width, width)
            )
            pairs += asking * blocks * block
    return batch * pairs * op.attr("num_heads", 0) // layouts


def packed_attention(op: Operation) -> tuple[int | None, int, int]:
    """PackedAttention, which projects: tokens, width of all queries, width of all values."""
    split = op.attr_ints("qkv_hidden_sizes")
    if split:
        return op.shape(0, exactly=2)[0], split[0], split[2]
    return op.shape(0, exactly=2)[0], op.dims(1, exactly=2)[1] // 3, op.dims(1)[1] // 3


def packed_multi_head(op: Operation) -> tuple[int | None, int, int]:
    """PackedMultiHeadAttention: the same of operands apart, or as [tokens, heads, 3, size]."""
    shape = op.shape(0, 2)
    if len(shape) == 4:
        width = prod(known((shape[1], shape[3]), "the heads", op.input(0).unknown))
        return shape[0], width, width
    return shape[0], op.dims(0)[1], op.dims(2, exactly=2)[1]


def paged(op: Operation) -> tuple[int | None, int, int]:
    """PagedAttention: the query apart, or with key and value behind it."""
    tokens, width = op.shape(0, exactly=2)
    heads, kv_heads = op.attr("num_heads", 0), op.attr("kv_num_heads", 0)
    (hidden,) = known((width,), "the query", op.input(0).unknown)
    size = hidden // (heads if op.has(1) else heads + 2 * kv_heads)
    return tokens, heads * size, heads * op.attr("v_head_size", size)


def paged_attention(op: Operation) -> Sequence[Shape | None]:
    """PagedAttention and SparsePagedAttention: the result, and the caches that they change."""
    tokens, _, width = paged(op)
    return [(tokens, width), op.shape(3), op.shape(4) if op.has(4) else None]


def gated_mlp(op: Operation) -> Sequence[Shape]:
    """MatMulNBitsMlp: the product, and the sum with the residual."""
    return [*block_quantized(op), op.shape(0)]


def query_key_value(op: Operation) -> Sequence[Shape]:
    """MatMulNBitsQkv: three products, and the sum with the residual."""
    rows = op.shape(0, 1)[:-1]
    columns = (op.attr("Nq", 0), op.attr("Nkv", 0), op.attr("Nkv", 0))
    return [*((*rows, column) for column in columns), op.shape(0)]


def rows_of_weight(op: Operation) -> Sequence[Shape]:
    """The block-quantized products whose weight has a row for each column of the result."""
    return [(*op.shape(0, 1)[:-1], op.shape(1, exactly=2)[0])]


def ordered_matmul(op: Operation) -> Sequence[Shape]:
    """QOrderedMatMul: the weight may lie transposed, so only its number of elements counts."""
    summed = op.dims(0, 2)[-1]
    weight = op.dims(2, 2)
    columns = prod(weight[-2:]) // summed
    return [product(op.shape(0), (*weight[:-2], summed, columns))]


def ordered_attention(op: Operation) -> Sequence[Shape]:
    """QOrderedAttention: the width of the values."""
    return [(*op.shape(0, exactly=3)[:2], op.shape(7, exactly=2)[1])]


def without_padding(op: Operation) -> Sequence[Shape]:
    """RemovePadding: tokens of all sequences, where they were, where sequences end, the longest."""
    batch, length, hidden = op.shape(0, exactly=3)
    counts = op.ints(1) if op.input(1).data is not None else None
    tokens = None if counts is None else sum(counts)
    ends = None if batch is None else batch + 1
    return [(tokens, hidden), (batch, length), (ends,), (1,)]


def _length(op: Operation, i: int) -> int | None:
    return op.int_(i) if op.input(i).data is not None else None


def position_bias(op: Operation) -> Sequence[Shape]:
    """RelativePositionBias: a value for each head, query and key."""
    return [(1, op.shape(0, exactly=2)[1], _length(op, 1), _length(op, 2))]


def gated_position_bias(op: Operation) -> Sequence[Shape]:
    """GatedRelativePositionBias: the bias of every sequence."""
    sequences = op.shape(6 if op.has(6) else 0, 2)[0]
    return [(sequences, *op.shape(2, exactly=4)[1:])]


def reduced_branches(op: Operation) -> Sequence[Shape]:
    """HyperConnectionPreMix: branches, on an axis of their own or not, made one."""
    shape, branches = op.shape(0, 2), op.attr("num_branches", 0)
    if not branches:
        return [(*shape[:-2], shape[-1])]
    width = shape[-1]
    return [(*shape[:-1], None if width is None else width // branches)]


def same_as(*operands: int) -> ShapesOf:
    """Results with the shapes of these operands."""
    return lambda op: [op.shape(i) for i in operands]
