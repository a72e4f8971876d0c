"""A comparison in the formats of other tools: JUnit, github-action-benchmark and Bencher."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final
from xml.etree import ElementTree

from otel_quant.recordings.comparison.gate import Verdict
from otel_quant.recordings.comparison.side_by_side import Comparison, Sample
from otel_quant.recordings.model import path_text
from otel_quant.recordings.summary import WAITS
from otel_quant.schema.catalog import Quantity
from otel_quant.views.cells import number_text
from otel_quant.views.gate import check_lines
from otel_quant.views.text import printable

_UNITS: Final = {"By": "B", "{sample}/s": "samples/s", "1": "share"}


def as_junit(comparison: Comparison, verdict: Verdict) -> str:
    """Returns the checks as JUnit XML: worse is a failure, not comparable an error."""
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
    for check, line in zip(verdict.checks, check_lines(comparison, verdict.checks), strict=True):
        case = ElementTree.SubElement(
            suite,
            "testcase",
            classname=printable(f"{check.side.name}: {path_text(check.path)}"),
            name=printable(check.limit.text if check.limit is not None else "run"),
        )
        if check.outcome != "within":
            tag = "failure" if check.outcome == "worse" else "error"
            text = printable(line)
            ElementTree.SubElement(case, tag, type=check.outcome, message=text).text = text
    ElementTree.indent(suites)
    return ElementTree.tostring(suites, encoding="unicode", xml_declaration=True) + "\n"


def as_action_benchmark(comparison: Comparison) -> str:
    """Returns the new figures as ``customSmallerIsBetter`` of github-action-benchmark.

    Figures of which more is better are left out: its format has none beside the others.
    """
    found = [
        {
            "name": f"{name}: {figure.name}",
            "unit": _UNITS.get(figure.unit, figure.unit.strip("{}")),
            "value": sample.median,
            "range": f"± {number_text(sample.spread, figure.unit)}",
            "extra": figure.brief,
        }
        for name, figure, sample in _new_figures(comparison)
        if figure.is_smaller_better
    ]
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


def _new_figures(comparison: Comparison) -> Iterator[tuple[str, Quantity, Sample]]:
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
