"""All cost rules, and the two ways of reading them.

``corrected`` is what goes on spans; ``onnx_tool`` gives the figures of onnx_tool 1.0.1 so
that numbers compare, and the corrected ones where that tool has none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from otel_quant.cost.operation import RULE_ERRORS, Operation
from otel_quant.cost.rules import contractions, microsoft, simple
from otel_quant.cost.rules.formula import CostRule

RuleSetName: TypeAlias = Literal["onnx_tool", "corrected"]

COST_RULES: Final[dict[str, CostRule]] = {
    **simple.TABLE,
    **contractions.TABLE,
    **microsoft.TABLE,
}


@dataclass(frozen=True, slots=True)
class Macs:
    """MACs of one execution of a node.

    Attributes:
        contraction: Multiply-adds of contractions.
        total: All of them.
    """

    contraction: int
    total: int


@dataclass(frozen=True, slots=True)
class RuleSet:
    """One way of reading the rules.

    Attributes:
        name: ``corrected`` or ``onnx_tool``.
        scalars_count: A rank-0 tensor has one element; onnx_tool gives it none.
        constants_once: What depends only on constants is computed at load, not per run.
        constant_nodes: A Constant node's tensor is a parameter; onnx_tool leaves it out.
    """

    name: RuleSetName
    scalars_count: bool
    constants_once: bool
    constant_nodes: bool

    def macs(self, op: Operation) -> Macs | None:
        """Returns what one execution of a node costs, its bodies left out.

        Returns:
            None if there is no rule for it, or what the rule needs is not known.
        """
        rule = COST_RULES.get(op.kind)
        if rule is None:
            return None
        if self.constants_once and op.outputs and all(value.constant for value in op.outputs):
            return Macs(0, 0)
        try:
            if self.name == "onnx_tool" and rule.as_onnx_tool is not None:
                total = rule.as_onnx_tool(op)
                inner = rule.contraction(op) if rule.contraction is not None else 0
                return Macs(min(inner, total), total) if _counts(inner) and _counts(total) else None
            if rule.contraction is None and rule.rest is None:
                return None
            inner = rule.contraction(op) if rule.contraction is not None else 0
            rest = rule.rest(op) if rule.rest is not None else 0
        except RULE_ERRORS:
            return None
        if not (_counts(inner) and _counts(rest)):
            return None
        return Macs(inner, inner + rest)


def _counts(macs: object) -> bool:
    """Whether a formula gave a count; of a kernel below zero or a rank too low it gives none."""
    return isinstance(macs, int) and macs >= 0


RULE_SETS: Final[dict[str, RuleSet]] = {
    "corrected": RuleSet("corrected", True, True, True),
    "onnx_tool": RuleSet("onnx_tool", False, False, False),
}
