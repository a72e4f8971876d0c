"""How many bytes of activations are alive at once when a graph runs in order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from otel_quant.cost.operation import Operation
from otel_quant.cost.operators import operator_of
from otel_quant.cost.values import Value


def peak_bytes(ops: Sequence[Operation], inputs: Iterable[Value], outputs: Iterable[Value]) -> int:
    """Returns the most bytes of activations alive at once.

    A tensor lives from the operation that makes it to its last reader; inputs from the
    start, outputs to the end. Constants do not count. A view keeps the tensor behind it
    alive. Tensors of unknown size count nothing.

    Args:
        ops: Operations in order of execution, bodies inlined.
        inputs: The model's inputs.
        outputs: The model's outputs.
    """
    behind: dict[int, Value] = {}

    def root(value: Value) -> Value:
        return behind.get(id(value), value)

    for op in ops:
        if operator_of(op.kind).view and op.outputs and op.has(0):
            # The root of its operand, not the operand: views of views may be many.
            behind[id(op.outputs[0])] = root(op.input(0))
    last: dict[int, int] = {}

    end = len(ops)
    for i, op in enumerate(ops):
        for value in (*op.inputs, *op.outputs):
            if value is not None:
                last[id(root(value))] = i
    for value in outputs:
        last[id(root(value))] = end
    dying: dict[int, list[int]] = {}
    alive = 0
    seen: set[int] = set()
    for value in inputs:
        size = value.bytes or 0
        seen.add(id(value))
        alive += size
        dying.setdefault(last.get(id(value), -1), []).append(size)
    peak = alive
    for i, op in enumerate(ops):
        for value in op.outputs:
            held = root(value)
            if id(held) in seen or held.constant:
                continue
            seen.add(id(held))
            size = held.bytes or 0
            alive += size
            dying.setdefault(last[id(held)], []).append(size)
        peak = max(peak, alive)
        alive -= sum(dying.pop(i, ()))
    return peak
