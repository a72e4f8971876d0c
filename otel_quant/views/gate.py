"""What a gate finds, in words."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final

from otel_quant.recordings.comparison.gate import Check, Verdict
from otel_quant.recordings.comparison.runs import FactDifference
from otel_quant.recordings.comparison.side_by_side import Comparison, Sample
from otel_quant.recordings.model import path_text
from otel_quant.schema.catalog import Quantity
from otel_quant.schema.units import binary_sizes, counted, cut, duration_text
from otel_quant.views.cells import cell_text, number_text

_MOST_NAMED: Final = 3
_LONGEST_FACT: Final = 200
_SEEN: Final = 0.01
"""Part of a time that a wait makes at least where it is shown."""

DOUBT: Final = (
    "With one run on each side a busy machine looks like a slower program; four on each side can tell "
    "them apart."
)


def check_lines(comparison: Comparison, checks: Sequence[Check]) -> Iterator[str]:
    """Yields each check in one line."""
    numbers = {side.name: at for at, side in enumerate(comparison.sides)}
    return (check_text(check, numbers[check.side.name]) for check in checks)


def is_doubtful(check: Check) -> bool:
    """Whether a single run is judged slower than another, and nothing is known of waits."""
    is_single = check.difference is not None and check.difference.p is None
    is_time = check.limit is not None and check.limit.figure.kind == "time"
    return is_time and is_single and check.new is not None and check.new.bounds == check.new.values


def fact_text(fact: FactDifference, side: int) -> str:
    """Returns what a fact is on a side."""
    texts = [cell_text(value, fact.unit) for value in fact.values[side]]
    return cut(" or ".join(texts), _LONGEST_FACT) if texts else "not known"


def check_text(check: Check, side: int) -> str:
    """Returns a check in one line."""
    limit, name = check.limit, check.side.name
    where = path_text(check.path) if name == "new" else f"{name}: {path_text(check.path)}"
    if limit is None:
        text = f"{name}: {check.why}"
    elif check.facts:
        reasons = "; ".join(
            f"{fact.name} {fact_text(fact, 0)} in base, {fact_text(fact, side)} in {name}"
            for fact in check.facts
        )
        text = f"{limit.text}: {reasons} (--force compares them all the same)"
    elif check.why:
        text = f"{where}: {limit.text}: {check.why}"
    else:
        with binary_sizes(limit.is_binary):
            text = f"{where}: {_figures_text(check)}"
        if check.waits is not None:
            text += f": threads waited {duration_text(check.waits)} for a CPU: possible contention"
            text += "; use 4 or more runs per side, or --force"
    return f"{check.outcome}: {text}"


def _figures_text(check: Check) -> str:
    assert check.limit is not None
    assert check.new is not None
    figure, new, base = check.limit.figure, check.new, check.base

    def text_of(sample: Sample) -> str:
        return f"{number_text(sample.median, figure.unit)}{spread_text(figure, sample)}"

    text = f"{figure.name} {text_of(new)}"
    difference = check.difference
    ratio = (
        difference.ratio - 1 if difference and difference.ratio and difference.is_clear else None
    )
    if base is not None:
        text += f", base {text_of(base)}"
        if not check.limit.is_budget and (_has_waited(new) or _has_waited(base)):
            text += (
                f"; without waiting for a CPU {number_text(new.median_alone, figure.unit)}, base "
                f"{number_text(base.median_alone, figure.unit)}"
            )
            ratio = new.median_alone / base.median_alone - 1 if base.median_alone else math.inf
    change = "" if ratio is None else f"{100 * ratio:+,.1f} %, "
    return f"{text} ({change}limit {check.limit.text})"


def _has_waited(sample: Sample) -> bool:
    return abs(sample.median_alone - sample.median) > _SEEN * abs(sample.median)


def outcome_text(verdict: Verdict) -> str:
    """Returns the outcome with the number of checks that led to it: ``worse: 3 of 12 checks``."""
    led = sum(check.outcome == verdict.outcome for check in verdict.checks)
    outcome = "within the limits" if verdict.outcome == "within" else verdict.outcome
    return f"{outcome}: {led:,} of {counted(len(verdict.checks), 'check')}"


def verdict_text(comparison: Comparison, verdict: Verdict) -> str:
    """Returns the outcome of a gate that fails, and the first of the checks that led to it, in a line."""
    led = [check for check in verdict.checks if check.outcome == verdict.outcome]
    named = list(dict.fromkeys(check_lines(comparison, led)))
    first = [text.removeprefix(f"{verdict.outcome}: ") for text in named[:_MOST_NAMED]]
    rest = f"; and {len(named) - len(first):,} more" if len(named) > len(first) else ""
    return f"{verdict.outcome}: {'; '.join(first)}{rest}"


def spread_text(figure: Quantity, sample: Sample) -> str:
    """Returns how far the runs of a side are apart: `` ± 8 %``; empty of one run."""
    if len(sample.values) == 1:
        return ""
    if not sample.median:
        return f" ± {number_text(sample.spread, figure.unit)}"
    return f" ± {100 * sample.spread / abs(sample.median):.0f} %"
