"""The tensors that nodes make, with shape and type."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from otel_quant.cost import dtypes
from otel_quant.cost.operation import Operation
from otel_quant.cost.results import TensorCost


def made_tensors(
    ops: Iterable[Operation],
    exclude: Collection[str] = (),
    *,
    in_body: bool = False,
    known: Collection[int] = (),
) -> Iterator[TensorCost]:
    """Yields what operations and their bodies make, in order of execution."""
    for op in ops:
        if op.kind in exclude:
            continue
        own = {id(value) for value in op.outputs} if op.inlined else set()
        branches = op.branches if op.taken is None else [op.branches[op.taken]]
        for body in (*op.bodies, *branches):
            yield from made_tensors(body.ops, exclude, in_body=True, known=own)
        for name, value in zip(op.node.outputs, op.outputs, strict=False):
            if name and id(value) not in known:
                is_tensor = value.kind in ("tensor", "unknown")
                dtype = dtypes.name_of(value.dtype) if is_tensor else value.kind
                yield TensorCost(name, dtype, value.shape, value.bytes, op.name, in_body)
