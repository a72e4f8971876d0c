"""Quantized operators that a runtime is expected to run in float, and what would change that."""

from __future__ import annotations

from collections import Counter
from typing import Final, NamedTuple

from otel_quant.cost import dtypes
from otel_quant.cost.fusion import Fused, Obstacle
from otel_quant.cost.operation import Operation
from otel_quant.cost.operators import operator_of
from otel_quant.cost.results import InFloat
from otel_quant.cost.rules.fusions import FUSIONS

_FLOATS: Final = frozenset({dtypes.FLOAT, dtypes.FLOAT16, dtypes.DOUBLE, dtypes.BFLOAT16})

_INTEGERS: Final = frozenset({"int2", "int4", "int8", "int16"})

_NOT_DIRECTLY: Final = Obstacle(
    "something stands between it and the DequantizeLinear of an operand",
    "a DequantizeLinear right in front of each operand",
)
NO_KERNEL: Final = Obstacle("there is no kernel on integers for it", "")


class _Met(NamedTuple):
    ops: Counter[str]
    first: str


class QuantizedContractions:
    """Counts contractions of dequantized integers, apart those for which no kernel is expected."""

    def __init__(self, fused: Fused) -> None:
        self.count = 0
        self._fused = fused
        self._met: dict[Obstacle, _Met] = {}

    def add(self, op: Operation, precision: str) -> None:
        """Adds a contraction."""
        rule = operator_of(op.kind).precision
        floats = all(op.dtype(i) in _FLOATS for i in rule.operands)
        if not floats or rule.executes_in is not None or precision not in _INTEGERS:
            return
        self.count += 1
        if op not in self._fused.on_integers:
            otherwise = _NOT_DIRECTLY if op.kind in FUSIONS else NO_KERNEL
            obstacle = self._fused.obstacles.get(op, otherwise)
            self._met.setdefault(obstacle, _Met(Counter(), op.name)).ops[op.kind] += 1

    def in_float(self) -> tuple[InFloat, ...]:
        """Returns those that are expected to run in float, by what is in the way."""
        return tuple(
            InFloat(dict(met.ops), met.first, obstacle.reason, obstacle.remedy)
            for obstacle, met in self._met.items()
        )
