"""Operators that sum products: matrix multiplication, Einsum, recurrence, attention."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from otel_quant.cost.operation import Operation, UnknownError
from otel_quant.cost.shapes.rule import agree, broadcast
from otel_quant.cost.values import Shape


def product(a: Shape, b: Shape) -> Shape:
    """Returns the shape of ``matmul(a, b)``: vectors, and batch dimensions broadcast."""
    if not a or not b:
        raise UnknownError(
            f"operands of {len(a)} and {len(b)} dimensions; 1 or more each are expected"
        )
    agree("summed lengths of the operands", a[-1], b[-2 if len(b) > 1 else 0])
    rows = (a[-2],) if len(a) > 1 else ()
    columns = (b[-1],) if len(b) > 1 else ()
    return (*broadcast((a[:-2], b[:-2])), *rows, *columns)


def matmul(a: int, b: int) -> Callable[[Operation], Sequence[Shape]]:
    """Matrix product of operands ``a`` and ``b``."""
    return lambda op: [product(op.shape(a), op.shape(b))]


def gemm(a: int, b: int) -> Callable[[Operation], Sequence[Shape]]:
    """Matrix product with transposes by attribute."""

    def shapes(op: Operation) -> Sequence[Shape]:
        left = op.shape(a)
        right = op.shape(b)
        if len(left) != 2 or len(right) != 2:
            raise UnknownError(
                f"operands of {len(left)} and {len(right)} dimensions; 2 each are expected"
            )
        row, summed = left[::-1] if op.attr("transA", 0) else left
        also_summed, column = right[::-1] if op.attr("transB", 0) else right
        agree("summed lengths of the operands", summed, also_summed)
        return [(row, column)]

    return shapes


_MAX_EQUATION: Final = 1024
"""Characters; each dimension has a letter, so real equations are short."""


def einsum_terms(op: Operation) -> tuple[list[list[str]], list[str]]:
    """Returns the letters of each operand and of the result, ellipses spelt out.

    An ellipsis is as many axes as its operand has left; each becomes a label of
    its own (``...0`` the last one), so that two ellipses broadcast from the right.
    """
    equation = op.attr_str("equation", "").replace(" ", "")
    if len(equation) > _MAX_EQUATION:
        raise UnknownError(
            f"an equation of {len(equation)} characters; {_MAX_EQUATION} at most are expected"
        )
    left, arrow, right = equation.partition("->")
    operands: list[list[str]] = []
    for i, term in enumerate(left.split(",")):
        operands.append(_labels(term, len(op.shape(i))))
    widest = max((sum(label[0] == "." for label in labels) for labels in operands), default=0)
    hidden = [f"...{k}" for k in range(widest - 1, -1, -1)]
    if arrow:
        before, dots, after = right.partition("...")
        return operands, [*before, *(hidden if dots else ()), *after]
    flat = [label for labels in operands for label in labels if label[0] != "."]
    return operands, [*hidden, *sorted(label for label in set(flat) if flat.count(label) == 1)]


def _labels(term: str, rank: int) -> list[str]:
    before, dots, after = term.partition("...")
    missing = rank - len(before) - len(after)
    if missing < 0 or (missing and not dots):
        raise UnknownError(
            f"a term of the equation has {rank - missing} letters; {rank} are expected, one for each "
            "dimension of its operand"
        )
    return [*before, *(f"...{k}" for k in range(missing - 1, -1, -1)), *after]


def einsum_lengths(op: Operation) -> dict[str, int | None]:
    """Returns the length of every label."""
    operands, _ = einsum_terms(op)
    lengths: dict[str, int | None] = {}
    for i, labels in enumerate(operands):
        for label, length in zip(labels, op.shape(i), strict=True):
            before = lengths.get(label)
            if before not in (None, 1) and length not in (None, 1):
                agree("lengths of one letter", before, length)
            elif label not in lengths or before in (None, 1):
                lengths[label] = length if length is not None else before
    return lengths


def einsum(op: Operation) -> Sequence[Shape]:
    """Einsum: the lengths of the result's labels."""
    _, result = einsum_terms(op)
    lengths = einsum_lengths(op)
    return [tuple(lengths[label] for label in result)]


def recurrent(op: Operation) -> Sequence[Shape]:
    """LSTM, GRU and RNN: all states, then the last ones."""
    data = op.shape(0, 3)
    directions, _, width = op.shape(1, exactly=3)
    agree("widths of input and weight", data[2], width)
    hidden: int | None = op.attr("hidden_size", 0)
    if not hidden:
        hidden = op.shape(2)[2]
    if op.attr("layout", 0):
        batch, length = data[0], data[1]
        state: Shape = (batch, directions, hidden)
        return [(batch, length, directions, hidden), state, state]
    length, batch = data[0], data[1]
    state = (directions, batch, hidden)
    return [(length, directions, batch, hidden), state, state]
