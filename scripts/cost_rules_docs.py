"""Makes docs/cost-rules.md from the operators' rules in `otel_quant/cost/operators/`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from otel_quant.cost.operators import all_operators, rule
from otel_quant.cost.operators.rule import Rule

PAGE = Path(__file__).resolve().parent.parent / "docs" / "cost-rules.md"

_INTRO = """\
# Cost rules

<!-- Made by scripts/docs.py from the tables in otel_quant/cost/operators/. Edit those. -->

What each operator costs in MACs; how they are read is in [cost.md](cost.md). `x` and `y` are
the first operand and result, `W` and `R` weights, `K` the length that is summed over, `|t|` a
tensor's number of elements, `b` batch and `s` sequence length. A **contraction** counts under
`macs_contraction`; biases, activations and normalizations beside it only under `macs`. Where
the rule set `onnx_tool` differs, its figure is in brackets; where onnx_tool 1.0.1 aborts,
it takes the same figure. Nodes of an operator that is not costed, or not here, are counted in
`uncosted_ops`, and each has its reason in `unknown_reason`.

| constant | MACs |
|---|---|
"""

_CONSTANTS = {
    "multiplication, addition, comparison": rule.MUL,
    "division": rule.DIV,
    "exp, pow": rule.EXP,
    "log": rule.LOG,
    "sin, cos": rule.SIN,
    "sqrt": rule.SQRT,
    "tanh": rule.TANH,
    "atan": rule.ATAN,
    "erf (onnx_tool: 0)": rule.ERF,
}

_TITLES = {
    "": "ONNX",
    "com.microsoft": "onnxruntime (`com.microsoft`)",
    "com.amd.quark": "AMD Quark (`com.amd.quark`, and `com.vai.quantize` alike)",
}


def document() -> str:
    """Returns the page."""
    constants = "".join(f"| {name} | {macs} |\n" for name, macs in _CONSTANTS.items())
    return _INTRO + constants + "".join(_section(domain) for domain in _TITLES)


def _section(domain: str) -> str:
    lines = [f"\n## {_TITLES[domain]}\n", "| operators | contraction | MACs |", "|---|---|---|"]
    return "\n".join([*lines, *_rows(domain), ""])


def _rows(domain: str) -> Iterator[str]:
    """One row per rule; operators that share its words share the row."""
    rows: dict[tuple[bool, str], list[str]] = {}
    for kind, operator in all_operators().items():
        home, _, name = kind.rpartition(":")
        if home == domain:
            rows.setdefault((operator.contraction is not None, _words(operator)), []).append(
                f"`{name}`"
            )
    for (contraction, words), names in rows.items():
        yield f"| {' '.join(sorted(names))} | {'yes' if contraction else ''} | {words} |"


def _words(operator: Rule) -> str:
    return operator.words.replace("|", "\\|").replace("*", "\\*")
