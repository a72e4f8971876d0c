"""How often a loop runs its body, where what ends it is a counter.

``while i < n: i += 1`` reaches ONNX as a Loop whose body compares, say, ``Less(i + 1, n)``. A
counter grows by the same amount in each iteration, so the iteration that ends the loop can be
computed without running it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

from otel_quant.cost import dtypes
from otel_quant.cost.operation import Carried, Operation
from otel_quant.cost.values import Value

_MAX_STEPS: Final = 4096
"""Operations that are looked at behind one condition."""

_MAX_NUMBER: Final = 1 << 62
"""Beyond it a runtime's integers overflow."""

_MOVES: Final = frozenset({"Cast", "Identity", "Reshape", "Squeeze", "Unsqueeze"})
"""Operators that hand on their first operand's only element."""

_BELOW: Final[Mapping[tuple[str, bool], tuple[int, int]]] = {
    ("Less", True): (1, 0),
    ("LessOrEqual", True): (1, -1),
    ("Greater", True): (-1, 0),
    ("GreaterOrEqual", True): (-1, -1),
    ("Less", False): (-1, -1),
    ("LessOrEqual", False): (-1, 0),
    ("Greater", False): (1, -1),
    ("GreaterOrEqual", False): (1, 0),
}
"""Comparison of a and b, and what it has to give -> f, c: it does where f * (a - b) + c < 0."""

_BOTH: Final = frozenset({("And", True), ("Or", False)})
"""What gives this only where both of its operands do."""


class Iterations:
    """The values of a loop's body in iteration t, counted from 0."""

    def __init__(self, ops: Sequence[Operation], number: Value, carried: Sequence[Carried]) -> None:
        """Takes the body's operations, its iteration number, and what iterations hand on."""
        self._makers = {id(value): op for op in ops for value in op.outputs}
        self._number = number
        self._carried = {id(item.entering): item for item in carried}
        self._steps = 0

    def count(self, condition: Value, limit: int | None) -> int | None:
        """Returns how often a loop that begins runs its body; None if that is not known."""
        more = self._more(condition)
        if more is None or (more == math.inf and limit is None):
            return None
        return int(min(more + 1, math.inf if limit is None else max(0, limit)))

    def _more(self, condition: Value) -> int | float | None:
        """After how many iterations the condition still holds, ``inf`` for all of them."""
        found: int | float = math.inf
        left: list[tuple[Value, bool]] = [(condition, True)]
        while left:
            value, wanted = left.pop()
            if value.data is not None and len(value.data) == 1 and value.data[0] is not None:
                if bool(value.data[0]) != wanted:
                    return 0
                continue
            op = self._maker(value)
            if op is None or len(op.inputs) < 1 or None in op.inputs:
                return None
            if op.kind == "Not":
                left.append((op.input(0), not wanted))
            elif op.kind in _MOVES:
                left.append((op.input(0), wanted))
            elif (op.kind, wanted) in _BOTH:
                left += [(op.input(0), wanted), (op.input(1), wanted)]
            else:
                holds = self._comparison(op, wanted)
                if holds is None:
                    return None
                found = min(found, holds)
        return found

    def _comparison(self, op: Operation, wanted: bool) -> int | float | None:
        if len(op.inputs) != 2:
            return None
        left, right = self._series(op.input(0)), self._series(op.input(1))
        if left is None or right is None:
            return None
        start, step = left[0] - right[0], left[1] - right[1]
        if op.kind == "Equal" and not wanted:
            if step == 0:
                return math.inf if start else 0
            meets, rest = divmod(-start, step)
            return math.inf if rest or meets < 0 else meets
        if (op.kind, wanted) not in _BELOW:
            return None
        factor, shift = _BELOW[op.kind, wanted]
        start, step = factor * start + shift, factor * step
        if start >= 0:
            return 0
        return math.inf if step <= 0 else -(start // step)

    def _series(self, value: Value) -> tuple[int, int] | None:
        """Start and growth of an integer; None if it does not grow evenly."""
        form = self._form(value)
        if form is None:
            return None
        counter, factor, shift = form
        if counter is None:
            return shift, 0
        if counter is self._number:
            return shift, factor
        item = self._carried[id(counter)]
        first = None if item.first is None else _number(item.first)
        after = self._form(item.leaving)
        if first is None or after is None or after[0] is not counter or after[1] != 1:
            return None
        return factor * first + shift, factor * after[2]

    def _form(self, value: Value) -> tuple[Value | None, int, int] | None:
        """An integer as factor * counter + shift; of a constant as its shift alone."""
        factor, shift = 1, 0
        while abs(factor) < _MAX_NUMBER and abs(shift) < _MAX_NUMBER:
            number = _number(value)
            if number is not None:
                return None, 0, factor * number + shift
            if value.dtype not in dtypes.INTEGERS or value.size != 1:
                return None
            if value is self._number or id(value) in self._carried:
                return value, factor, shift
            op = self._maker(value)
            if op is None or len(op.inputs) < 1 or None in op.inputs:
                return None
            if op.kind in _MOVES:
                value = op.input(0)
                continue
            if len(op.inputs) != 2:
                return None
            left, right = _number(op.input(0)), _number(op.input(1))
            constant = right if left is None else left
            if constant is None:
                return None
            value = op.input(0) if left is None else op.input(1)
            if op.kind == "Add":
                shift += factor * constant
            elif op.kind == "Sub" and left is None:
                shift -= factor * constant
            elif op.kind == "Sub":
                shift += factor * constant
                factor = -factor
            elif op.kind == "Mul":
                factor *= constant
            else:
                return None
        return None

    def _maker(self, value: Value) -> Operation | None:
        self._steps += 1
        return self._makers.get(id(value)) if self._steps <= _MAX_STEPS else None


def _number(value: Value) -> int | None:
    data = value.data
    if data is None or len(data) != 1 or not isinstance(data[0], int):
        return None
    return data[0]
