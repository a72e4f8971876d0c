"""Operators on sequences and optionals, and control flow, whose bodies are costed."""

from __future__ import annotations

from typing import Final

from otel_quant.cost.rules.formula import FREE, CostRule, zero
from otel_quant.cost.rules.operator import Operator
from otel_quant.cost.shapes import control, sequences
from otel_quant.cost.shapes.rule import ShapeRule, ValuesOf


def _of(values: ValuesOf) -> Operator:
    return Operator(ShapeRule(lambda op: (), (), values), FREE)


_BODIES: Final = CostRule("nothing itself; what it runs is costed", rest=zero)

TABLE: Final[dict[str, Operator]] = {
    "SequenceEmpty": _of(sequences.empty),
    "SequenceConstruct": _of(sequences.construct),
    "SequenceInsert": _of(sequences.insert),
    "SequenceErase": _of(sequences.erase),
    "SequenceAt": _of(sequences.at),
    "SequenceLength": _of(sequences.length),
    "SplitToSequence": _of(sequences.split),
    "ConcatFromSequence": _of(sequences.concat),
    "Optional": _of(sequences.optional),
    "OptionalGetElement": _of(sequences.get_element),
    "OptionalHasElement": _of(sequences.has_element),
    "If": Operator(None, _BODIES, bodies=control.if_, results_in_bodies=True),
    "Loop": Operator(None, _BODIES, bodies=control.loop),
    "Scan": Operator(None, _BODIES, bodies=control.scan),
    "SequenceMap": Operator(None, _BODIES, bodies=control.sequence_map),
}
