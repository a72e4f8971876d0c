"""What operations read and make when they run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from otel_quant.cost.operation import Operation
from otel_quant.cost.values import Value


@dataclass(frozen=True, slots=True, eq=False)
class Kernel:
    """An operation as a runtime executes it.

    Attributes:
        reads: Tensors in memory that it reads.
        makes: Tensors that it writes to memory; none if it is part of another's kernel.
    """

    reads: Sequence[Value | None]
    makes: Sequence[Value]


def executed(ops: Sequence[Operation]) -> Iterator[Operation]:
    """Yields the operations of one graph in order, those of functions in place of their calls."""
    for op in ops:
        if op.inlined:
            for body in op.bodies:
                yield from executed(body.ops)
        else:
            yield op
