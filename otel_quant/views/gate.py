"""What a gate finds, in words and in the formats of other tools: JUnit, github-action-benchmark and Bencher."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any, Final

from otel_quant.recordings.compared_runs import FactDifference
from otel_quant.recordings.gate import Check, GateVerdict
from otel_quant.recordings.model import path_text
from otel_quant.recordings.side_by_side import Comparison, Sample
from otel_quant.recordings.summary import WAITS
from otel_quant.schema.catalog import Quantity
from otel_quant.schema.units import binary_sizes, counted, cut, duration_text
from otel_quant.views.text import cell_text, number_text, phrase, printable

_MOST_WORSE: Final = 3
_LONGEST_FACT: Final = 200
SEEN: Final = 0.01  # Part of a time that a wait makes at least where it is shown


def check_lines(comparison: Comparison, checks: Sequence[Check]) -> Iterator[str]:
    """Yields each check in one line."""
    numbers = {side.name: at for at, side in enumerate(comparison.sides)}
    base = comparison.sides[0].called
    return (check_text(check, numbers[check.side.name], base) for check in checks)


def fact_text(fact: FactDifference, side: int) -> str:
    """Returns what a fact is on a side."""
    texts = [cell_text(value, fact.unit) for value in fact.values[side]]
    return cut(" or ".join(texts), _LONGEST_FACT) if texts else "not known"


def check_text(check: Check, side: int, base: str) -> str:
    """Returns a check in one line; ``base`` is what the base is called."""
    limit, name = check.limit, check.side.called
    is_only = check.side.name == "new"
    where = path_text(check.path) if is_only else f"{name}: {path_text(check.path)}"
    if limit is None:
        text = check.why if check.side.title else f"{name}: {check.why}"
    elif check.facts:
        reasons = "; ".join(
            f"{fact.name} {fact_text(fact, 0)} in {base}, {fact_text(fact, side)} in {name}"
            for fact in check.facts
        )
        text = f"{limit.text}: {reasons} (--force compares them all the same)"
    elif check.why:
        text = f"{where}: {limit.text}: {check.why}"
    else:
        with binary_sizes(limit.is_binary):
            text = f"{where}: {_figures_text(check, base)}"
        if check.waits is not None:
            text += f": threads waited {duration_text(check.waits)} for a CPU: possible contention"
            text += "; use 4 or more runs per side, or --force"
    return f"{check.outcome}: {text}"


def _figures_text(check: Check, called: str) -> str:
    assert check.limit is not None
    assert check.new is not None
    figure, new, base = check.limit.figure, check.new, check.base

    def text_of(sample: Sample) -> str:
        return f"{number_text(sample.median, figure.unit)}{spread_text(figure, sample)}"

    text = f"{figure.name} {text_of(new)}"
    found = check.difference
    ratio = found.ratio - 1 if found and found.ratio and found.is_clear else None
    if base is not None:
        text += f", {called} {text_of(base)}"
        if not check.limit.is_budget and (_has_waited(new) or _has_waited(base)):
            alone = [number_text(each.median_alone, figure.unit) for each in (new, base)]
            text += f"; without waiting for a CPU {f', {called} '.join(alone)}"
            ratio = new.median_alone / base.median_alone - 1 if base.median_alone else math.inf
    change = "" if ratio is None else f"{100 * ratio:+,.1f} %, "
    return f"{text} ({change}limit {check.limit.text})"


def _has_waited(sample: Sample) -> bool:
    return abs(sample.median_alone - sample.median) > SEEN * abs(sample.median)


def outcome_text(verdict: GateVerdict) -> str:
    """Returns the outcome with the number of checks that led to it: ``worse: 3 of 12 checks``."""
    led = sum(check.outcome == verdict.outcome for check in verdict.checks)
    outcome = "within the limits" if verdict.outcome == "within" else verdict.outcome
    return f"{outcome}: {led:,} of {counted(len(verdict.checks), 'check')}"


def verdict_text(comparison: Comparison, verdict: GateVerdict) -> str:
    """Returns the outcome of a gate that fails, and the first of the checks that led to it, in a line."""
    led = [check for check in verdict.checks if check.outcome == verdict.outcome]
    named = list(dict.fromkeys(check_lines(comparison, led)))
    first = [text.removeprefix(f"{verdict.outcome}: ") for text in named[:_MOST_WORSE]]
    rest = phrase("; and {:,} more", len(named) - len(first), int)
    return f"{verdict.outcome}: {'; '.join(first)}{rest}"


def spread_text(figure: Quantity, sample: Sample) -> str:
    """Returns how far the runs of a side are apart: `` ± 8 %``; empty of one run."""
    if len(sample.values) == 1:
        return ""
    if not sample.median:
        return f" ± {number_text(sample.spread, figure.unit)}"
    return f" ± {100 * sample.spread / abs(sample.median):.0f} %"


# --- for other tools ----------------------------------------------------------------------

_UNITS: Final = {"By": "B", "{sample}/s": "samples/s", "1": "share"}


def as_junit(comparison: Comparison, verdict: GateVerdict) -> str:
    """Returns the checks as JUnit XML: worse is a failure, not comparable an error."""
    from xml.etree import ElementTree

    outcomes = [check.outcome for check in verdict.checks]
    suites = ElementTree.Element("testsuites")
    failures, errors = (str(outcomes.count(each)) for each in ("worse", "not comparable"))
    counts = {"tests": str(len(outcomes)), "failures": failures, "errors": errors}
    suite = ElementTree.SubElement(suites, "testsuite", {"name": "otel-quant compare"} | counts)
    for check, line in zip(verdict.checks, check_lines(comparison, verdict.checks), strict=True):
        where = printable(f"{check.side.name}: {path_text(check.path)}")
        name = printable(check.limit.text if check.limit is not None else "run")
        case = ElementTree.SubElement(suite, "testcase", classname=where, name=name)
        if check.outcome != "within":
            tag = "failure" if check.outcome == "worse" else "error"
            text = printable(line)
            ElementTree.SubElement(case, tag, type=check.outcome, message=text).text = text
    ElementTree.indent(suites)
    return ElementTree.tostring(suites, encoding="unicode", xml_declaration=True) + "\n"


def as_action_benchmark(comparison: Comparison) -> str:
    """Returns the new figures as ``customSmallerIsBetter``, which has no place for those of which more is better."""
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
    """Yields the figures of all sides but the base, less waits: they would be shown as a program that became worse."""
    several = len(comparison.sides) > 2
    for (at, side), row in product(enumerate(comparison.sides[1:], 1), comparison.rows):
        step = path_text(row.path)
        name = f"{side.name}: {step}" if several else step
        for each in row.figures.values():
            sample = each.samples[at]
            if sample is not None and each.figure.name not in WAITS:
                yield name, each.figure, sample
