"""Makes docs/cost-rules.md from the operators' records in `otel_quant/cost/rules/`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from otel_quant.cost.operators import all_operators
from otel_quant.cost.rules import formula
from otel_quant.cost.rules.formula import CostRule

PAGE = Path(__file__).resolve().parent.parent / "docs" / "cost-rules.md"

_INTRO = """\
# Cost rules

<!-- Made by scripts/docs.py from the tables in otel_quant/cost/rules/. Edit those. -->

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
    "multiplication, addition, comparison": formula.MUL,
    "division": formula.DIV,
    "exp, pow": formula.EXP,
    "log": formula.LOG,
    "sin, cos": formula.SIN,
    "sqrt": formula.SQRT,
    "tanh": formula.TANH,
    "atan": formula.ATAN,
    "erf (onnx_tool: 0)": formula.ERF,
}

_TITLES = {
    "": "ONNX",
    "ai.onnx.ml": "ONNX, classical machine learning (`ai.onnx.ml`)",
    "ai.onnx.preview": "ONNX, previews (`ai.onnx.preview`)",
    "ai.onnx.preview.training": "ONNX, training (`ai.onnx.preview.training`)",
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
        rule = operator.cost
        home, _, name = kind.rpartition(":")
        if home == domain:
            rows.setdefault((rule.contraction is not None, _words(rule)), []).append(f"`{name}`")
    for (contraction, words), names in rows.items():
        yield f"| {' '.join(sorted(names))} | {'yes' if contraction else ''} | {words} |"


def _words(rule: CostRule) -> str:
    return rule.source.replace("|", "\\|").replace("*", "\\*")
