"""What a gate says, and the figures that it judged, in the formats of other tools."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from xml.etree import ElementTree

from otel_quant.recordings.comparison.figures import WAITS, Figure
from otel_quant.recordings.comparison.gate import Verdict
from otel_quant.recordings.comparison.noise import Sample
from otel_quant.recordings.comparison.runs import path_text
from otel_quant.recordings.comparison.side_by_side import Comparison
from otel_quant.views.comparison_words import check_text, value_text
from otel_quant.views.text import printable

_UNITS = {"By": "B", "{sample}/s": "samples/s", "1": "share"}


def as_junit(comparison: Comparison, verdict: Verdict) -> str:
    """Returns the checks as JUnit XML: worse is a failure, not comparable an error."""
    numbers = {side.name: at for at, side in enumerate(comparison.sides)}
    outcomes = [check.outcome for check in verdict.checks]
    suites = ElementTree.Element("testsuites")
    suite = ElementTree.SubElement(
        suites,
        "testsuite",
        name="otel-quant compare",
        tests=str(len(outcomes)),
        failures=str(outcomes.count("worse")),
        errors=str(outcomes.count("not comparable")),
    )
    for check in verdict.checks:
        name = check.limit.text if check.limit is not None else "run"
        case = ElementTree.SubElement(
            suite,
            "testcase",
            classname=printable(f"{check.side.name}: {path_text(check.path)}"),
            name=printable(name),
        )
        if check.outcome != "within":
            tag = "failure" if check.outcome == "worse" else "error"
            text = printable(check_text(check, numbers[check.side.name]))
            ElementTree.SubElement(case, tag, type=check.outcome, message=text).text = text
    ElementTree.indent(suites)
    return ElementTree.tostring(suites, encoding="unicode", xml_declaration=True) + "\n"


def as_action_benchmark(comparison: Comparison) -> str:
    """Returns the new figures as ``customSmallerIsBetter`` of github-action-benchmark.

    Figures of which more is better are left out: its format has none beside the others.
    """
    found: list[dict[str, Any]] = []
    for name, figure, sample in _new_figures(comparison):
        if figure.is_smaller_better:
            found.append(
                {
                    "name": f"{name}: {figure.name}",
                    "unit": _UNITS.get(figure.unit, figure.unit.strip("{}")),
                    "value": sample.median,
                    "range": f"± {value_text(figure, sample.spread)}",
                    "extra": figure.brief,
                }
            )
    return json.dumps(found, indent=2) + "\n"


def as_bencher(comparison: Comparison) -> str:
    """Returns the new figures in Bencher's metric format: a benchmark for each step."""
    found: dict[str, dict[str, Any]] = {}
    for name, figure, sample in _new_figures(comparison):
        found.setdefault(name, {})[figure.name] = {
            "value": sample.median,
            "lower_value": sample.lowest,
            "upper_value": sample.highest,
        }
    return json.dumps(found, indent=2) + "\n"


def _new_figures(comparison: Comparison) -> Iterator[tuple[str, Figure, Sample]]:
    """Yields the figures of all sides but the base, with the name of the step.

    Waits are left out: they would be told as a program that became worse.
    """
    several = len(comparison.sides) > 2
    for at, side in enumerate(comparison.sides[1:], 1):
        for row in comparison.rows:
            name = path_text(row.path)
            for each in row.figures.values():
                sample = each.samples[at]
                if sample is not None and each.figure.name not in WAITS:
                    yield f"{side.name}: {name}" if several else name, each.figure, sample
