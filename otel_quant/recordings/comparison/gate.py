"""Judges a comparison by limits: what is within, what is worse, what cannot be compared.

Three runs on each side cannot reach p = 0.05. With too few for the test the best new run has to be worse
than the worst of the base by the limit: one slow run in the base may hide a difference, none makes one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from otel_quant.recordings.comparison.facts import FactDifference
from otel_quant.recordings.comparison.limits import Limit
from otel_quant.recordings.comparison.runs import TOTAL
from otel_quant.recordings.comparison.side_by_side import (
    ALPHA,
    Comparison,
    Difference,
    FigureRow,
    Sample,
    Side,
    StepRow,
    can_tell,
)
from otel_quant.recordings.steps import StepPath, path_text
from otel_quant.recordings.summary import WAITS

Outcome = Literal["within", "worse", "not comparable"]

EXIT_CODES: Final[Mapping[Outcome, int]] = {"within": 0, "worse": 1, "not comparable": 3}


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """A limit, applied to one step of one side."""

    limit: Limit | None = None  # The limit; None for whether the runs can be judged at all
    path: StepPath = TOTAL  # The step; empty for the whole, or where no step fits
    side: Side  # The side that is judged
    outcome: Outcome  # What came of it
    base: Sample | None = None  # The figure of the base
    new: Sample | None = None  # The figure of the side
    difference: Difference | None = None  # How they differ
    # What differs between the runs, so that they cannot be compared
    facts: tuple[FactDifference, ...] = ()
    # Seconds that threads of a run waited for a processor, added up, where that may be why a
    # figure of time is worse
    waits: float | None = None
    why: str = ""  # Why it is worse or cannot be compared, if not by the figures or the facts


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a gate says."""

    checks: tuple[Check, ...]  # Every check, the worst outcome first

    @property
    def outcome(self) -> Outcome:
        """``worse`` if a check is, else ``not comparable`` if one is."""
        return self.checks[0].outcome if self.checks else "within"

    @property
    def exit_code(self) -> int:
        """Exit code of the command."""
        return EXIT_CODES[self.outcome]


def judge(comparison: Comparison, limits: Sequence[Limit], *, force: bool) -> Verdict:
    """Judges each side but the base by limits."""
    checks: list[Check] = []
    base = comparison.sides[0]
    unusable = [*_standing(base, is_new=False)]
    for at, side in enumerate(comparison.sides[1:], 1):
        broken = [*unusable, *_standing(side, is_new=True)]
        checks += broken
        if not broken:
            for limit in limits:
                checks += _checks(comparison, at, limit, force=force)
    return Verdict(tuple(sorted(checks, key=_worst_first)))


_ORDER: Final[tuple[Outcome, ...]] = ("worse", "not comparable", "within")


def _worst_first(check: Check) -> tuple[float, ...]:
    """Sorts by outcome, then by how large a share of the base the change is, inner steps first."""
    outcome, each = _ORDER.index(check.outcome), check.difference
    if check.outcome != "worse" or each is None:
        return (outcome,)
    ratio = each.ratio if each.ratio is not None else math.inf
    return outcome, -round(abs(ratio - 1), 2), -len(check.path), -abs(each.change)


def _standing(side: Side, *, is_new: bool) -> Iterator[Check]:
    """Yields a check for each run that is not whole."""
    for run in side.runs:
        if run.standing != "whole":
            is_worse = is_new and run.standing == "failed"
            yield Check(
                side=side,
                outcome="worse" if is_worse else "not comparable",
                why=f"{run.name} {run.why}",
            )


def _checks(comparison: Comparison, at: int, limit: Limit, *, force: bool) -> Iterator[Check]:
    side = comparison.sides[at]
    if not limit.is_budget and not force:
        if comparison.unrelated[at - 1]:
            why = "no step is in both: these are runs of different programs"
            yield Check(limit=limit, side=side, outcome="not comparable", why=why)
            return
        facts = tuple(
            each
            for each in comparison.differences
            if {limit.figure.kind, limit.figure.name} & each.changes and each.is_unlike(at)
        )
        if facts:
            yield Check(limit=limit, side=side, outcome="not comparable", facts=facts)
            return
    rows = [row for row in comparison.rows if _is_meant(limit, row.path)]
    found = (_check(comparison, at, limit, row, force=force) for row in rows)
    checks = [check for check in found if check is not None]
    if checks:
        yield from checks
        return
    yield Check(
        limit=limit, side=side, outcome="not comparable", why=_missing(comparison, at, limit, rows)
    )


def _is_meant(limit: Limit, path: StepPath) -> bool:
    if limit.step is None:
        return path == TOTAL or not limit.is_budget
    asked = limit.step.lower()
    names = {path_text(path).lower(), *(name.lower() for name, _ in path[-1:])}
    return asked in names


def _check(
    comparison: Comparison, at: int, limit: Limit, row: StepRow, *, force: bool
) -> Check | None:
    """Returns the check of one step; None if the figure is not known there."""
    side = comparison.sides[at]
    if "failed" in row.states[at] and "failed" not in row.states[0]:
        return Check(limit=limit, path=row.path, side=side, outcome="worse", why="has failed")
    figure = row.figures.get(limit.figure.name)
    new = figure.samples[at] if figure is not None else None
    if figure is None or new is None:
        return None
    base, difference = figure.samples[0], figure.differences[at - 1]
    outcome: Outcome
    if limit.is_budget:
        is_worse = new.highest > limit.amount if limit.sign == "<=" else new.lowest < limit.amount
        outcome = "worse" if is_worse else "within"
    elif base is None or difference is None:
        return None
    else:
        outcome = _outcome(limit, base, new, difference)
    waits = None
    if outcome == "not comparable":
        outcome, waits = ("worse", None) if force else (outcome, _waits(row, at))
    return Check(
        limit=limit,
        path=row.path,
        side=side,
        outcome=outcome,
        base=base,
        new=new,
        difference=difference,
        waits=waits,
    )


def _outcome(limit: Limit, base: Sample, new: Sample, difference: Difference) -> Outcome:
    """Says whether a side is worse than the base by more than the limit, and by more than noise.

    Judged is what is left of a time without the wait of the main thread for a processor. With too
    few runs to tell noise, the best run has to be worse than the worst of the base by as much; and
    where that may be the wait of other threads, nobody knows.
    """
    best, worst, sign = (min, max, 1) if limit.figure.is_smaller_better else (max, min, -1)
    change = new.median_alone - base.median_alone
    if sign * change <= _allowed(limit, base.median_alone):
        return "within"
    if can_tell(base, new):
        return "worse" if difference.p is not None and difference.p <= ALPHA else "within"
    reference = worst(base.alone)
    allowed = _allowed(limit, reference)
    if sign * (best(new.alone) - reference) <= allowed:
        return "within"
    return "worse" if sign * (best(new.bounds) - reference) > allowed else "not comparable"


def _waits(row: StepRow, at: int) -> float:
    """Returns the longest waits of a run of a side."""
    samples = [row.figures[name].samples[at] for name in WAITS if name in row.figures]
    return max(sample.highest for sample in samples if sample is not None)


def _allowed(limit: Limit, base: float) -> float:
    if not limit.is_share:
        return limit.amount
    return max(limit.amount * base, limit.figure.matters)


def _missing(comparison: Comparison, at: int, limit: Limit, rows: Iterable[StepRow]) -> str:
    """Returns why a limit could be applied nowhere."""
    sides = comparison.sides[0], comparison.sides[at]
    found = [row for row in rows if row.runs[0] or limit.is_budget]
    if limit.step is not None and not found:
        return f"no step {limit.step!r} in {sides[0].name}"
    if limit.step is not None and not any(row.runs[at] for row in found):
        return f"no step {limit.step!r} in {sides[1].name}"
    figures: list[FigureRow] = [
        row.figures[limit.figure.name] for row in found if limit.figure.name in row.figures
    ]
    for place, side in zip((0, at), sides, strict=True):
        if (place or not limit.is_budget) and not any(row.samples[place] for row in figures):
            return f"{limit.figure.name} is not known of {side.name}"
    return f"{limit.figure.name} is in no step that is in both"
