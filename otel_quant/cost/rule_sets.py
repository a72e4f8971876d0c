"""The two ways of reading the cost rules.

``corrected`` is what goes on spans; ``onnx_tool`` gives the figures of onnx_tool 1.0.1 so
that numbers compare, and the corrected ones where that tool has none.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, Literal, NamedTuple, TypeAlias

from otel_quant.cost.operation import Operation, UnknownError
from otel_quant.cost.operators import operator_of

RuleSetName: TypeAlias = Literal["onnx_tool", "corrected"]


MAX_MACS: Final = (1 << 63) - 1
"""MACs that a node may have: what an attribute of a span can hold, and years of a GPU's work."""

TOO_MANY_MACS: Final = f"that is more than {MAX_MACS:,} MACs, which no machine runs"


class Macs(NamedTuple):
    """MACs of one execution of a node."""

    contraction: int  # Multiply-adds of contractions
    total: int  # All of them


@lru_cache(maxsize=4096)
def _macs(contraction: int, total: int) -> Macs:
    """One record for all nodes that cost the same: layers recur, and nodes may be many."""
    return Macs(contraction, total)


class RuleSet(NamedTuple):
    """One way of reading the rules."""

    name: RuleSetName  # ``corrected`` or ``onnx_tool``
    scalars_count: bool  # A rank-0 tensor has one element; onnx_tool gives it none
    constants_once: bool  # What depends only on constants is computed at load, not per run
    constant_nodes: bool  # A Constant node's tensor is a parameter; onnx_tool leaves it out

    def macs(self, op: Operation) -> Macs:
        """Returns what one execution of a node costs, its bodies left out."""
        operator = operator_of(op.kind)
        rule = operator.cost
        if (
            self.constants_once
            and operator.shape is not None
            and op.outputs
            and op.outputs[0].constant  # all() takes as long as the rest of this
            and all(value.constant for value in op.outputs)
        ):
            return _macs(0, 0)
        if self.name == "onnx_tool" and rule.as_onnx_tool is not None:
            total = _counted(rule.as_onnx_tool(op))
            inner = _counted(rule.contraction(op)) if rule.contraction is not None else 0
            return Macs(min(inner, total), total)
        if rule.contraction is None and rule.rest is None:
            raise UnknownError(rule.source)
        inner = _counted(rule.contraction(op)) if rule.contraction is not None else 0
        rest = _counted(rule.rest(op)) if rule.rest is not None else 0
        return _macs(inner, inner + rest)


def _counted(macs: object) -> int:
    """Checks that a formula gave a count; of a kernel below zero or a rank too low it gives none."""
    if not isinstance(macs, int) or macs < 0:
        raise UnknownError(
            "its cost formula gives no count of MACs: a length or attribute is wrong"
        )
    if macs > MAX_MACS:
        raise UnknownError(TOO_MANY_MACS)
    return macs


RULE_SETS: Final[dict[str, RuleSet]] = {
    "corrected": RuleSet("corrected", True, True, True),
    "onnx_tool": RuleSet("onnx_tool", False, False, False),
}
