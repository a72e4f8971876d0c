"""Figures of a comparison, and what a gate says, in words."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from otel_quant.recordings.comparison.facts import FactDifference, Value
from otel_quant.recordings.comparison.gate import Check, Outcome, Verdict
from otel_quant.recordings.comparison.side_by_side import Difference, FigureRow, Sample
from otel_quant.recordings.steps import path_text
from otel_quant.schema.figures import Quantity
from otel_quant.schema.units import (
    BY_UNIT,
    binary_sizes,
    count_text,
    counted,
    cut,
    duration_text,
    size,
)

NOISE: Final = "~"
"""Stands for a difference that is not more than noise."""

NOISE_MEANS: Final = f"{NOISE}: noise, or waiting for a processor, may explain the difference"

_MOST_NAMED: Final = 3
_LONGEST: Final = 200
_SEEN: Final = 0.01
"""Part of a time that a wait makes where it is told."""

_OUTCOMES: Final[Mapping[Outcome, str]] = {
    "within": "within the limits",
    "worse": "worse",
    "not comparable": "not comparable",
}


def value_text(figure: Quantity, value: float) -> str:
    """Returns a value with its unit."""
    return BY_UNIT.get(figure.unit, count_text)(value)


def sample_text(figure: Quantity, sample: Sample | None) -> str:
    """Returns the median of a sample and its spread: ``1.02 GiB ± 2 %``; ``-`` for none."""
    if sample is None:
        return "-"
    text = value_text(figure, sample.median)
    if len(sample.values) == 1:
        return text
    if not sample.median:
        return f"{text} ± {value_text(figure, sample.spread)}"
    return f"{text} ± {100 * sample.spread / abs(sample.median):.0f} %"


def change_text(figure: Quantity, difference: Difference | None) -> str:
    """Returns a difference with its sign; ``~`` if it is not more than noise."""
    if difference is None:
        return ""
    if not difference.change:
        return "0"
    if not difference.is_clear:
        return NOISE
    sign = "+" if difference.change > 0 else "-"
    return sign + value_text(figure, abs(difference.change))


def ratio_text(difference: Difference | None) -> str:
    """Returns a ratio as a change in percent: ``+12.0``."""
    if difference is None or difference.ratio is None or not difference.is_clear:
        return ""
    return f"{100 * (difference.ratio - 1):+,.1f}"


def noise_text(row: FigureRow) -> str:
    """Returns what the test says of a figure: ``p=0.008``, ``~ p=0.421``; ``~`` with a run on each side."""
    known = [each for each in row.differences if each is not None]
    return " ".join(filter(None, map(_noise_of, known)))


def is_noisy(row: FigureRow) -> bool:
    """Whether ``~`` is shown of a figure."""
    return NOISE in noise_text(row)


def _noise_of(difference: Difference) -> str:
    if difference.p is None:
        return NOISE if difference.change and not difference.is_clear else ""
    return f"{'' if difference.is_clear else f'{NOISE} '}p={difference.p:.3f}"


def fact_text(fact: FactDifference, side: int) -> str:
    """Returns what a fact is on a side."""
    texts = [_fact_value_text(fact, value) for value in fact.values[side]]
    return cut(" or ".join(texts), _LONGEST) if texts else "not known"


def _fact_value_text(fact: FactDifference, value: Value) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str) or fact.unit != "By":
        return str(value)
    return size(value)


def check_text(check: Check, side: int) -> str:
    """Returns what a check says, in one line."""
    limit = check.limit
    if limit is None:
        return f"{check.outcome}: {check.side.name}: {check.why}"
    where = path_text(check.path)
    if check.side.name != "new":  # there are several
        where = f"{check.side.name}: {where}"
    if check.facts:
        reasons = "; ".join(
            f"{fact.name} {fact_text(fact, 0)} in base, {fact_text(fact, side)} in "
            f"{check.side.name}"
            for fact in check.facts
        )
        return f"{check.outcome}: {limit.text}: {reasons} (--force compares them all the same)"
    if check.why:
        return f"{check.outcome}: {where}: {limit.text}: {check.why}"
    with binary_sizes(limit.is_binary):
        text = f"{check.outcome}: {where}: {_figures_text(check)}"
    if check.waits is None:
        return text
    return (
        f"{text}: its threads waited {duration_text(check.waits)} for a processor, so a busy machine may "
        "be why; four runs on each side can tell (--force compares them all the same)"
    )


def _figures_text(check: Check) -> str:
    assert check.limit is not None
    assert check.new is not None
    figure, new, base = check.limit.figure, check.new, check.base
    text = f"{figure.name} {sample_text(figure, new)}"
    ratio = ratio_text(check.difference)
    if base is not None:
        text += f", base {sample_text(figure, base)}"
        if not check.limit.is_budget and (_has_waited(new) or _has_waited(base)):
            text += (
                f"; without waiting for a processor {value_text(figure, new.median_alone)}, base "
                f"{value_text(figure, base.median_alone)}"
            )
            change = new.median_alone / base.median_alone - 1 if base.median_alone else math.inf
            ratio = f"{100 * change:+,.1f}"
    return f"{text} ({f'{ratio} %, ' if ratio else ''}limit {check.limit.text})"


def _has_waited(sample: Sample) -> bool:
    return abs(sample.median_alone - sample.median) > _SEEN * abs(sample.median)


def outcome_text(verdict: Verdict) -> str:
    """Returns the outcome with the number of checks that led to it: ``worse: 3 of 12 checks``."""
    led = sum(check.outcome == verdict.outcome for check in verdict.checks)
    return f"{_OUTCOMES[verdict.outcome]}: {led:,} of {counted(len(verdict.checks), 'check')}"


def verdict_text(verdict: Verdict, numbers: Mapping[str, int]) -> str:
    """Returns a verdict in one line: the outcome, and the first of the checks that led to it."""
    led = [check for check in verdict.checks if check.outcome == verdict.outcome]
    if verdict.outcome == "within":
        return f"within the limits: {counted(len(led), 'check')}"
    named = list(dict.fromkeys(check_text(check, numbers[check.side.name]) for check in led))
    first = [text.removeprefix(f"{verdict.outcome}: ") for text in named[:_MOST_NAMED]]
    more = len(named) - len(first)
    rest = f"; and {more:,} more" if more > 0 else ""
    return f"{_OUTCOMES[verdict.outcome]}: {'; '.join(first)}{rest}"
