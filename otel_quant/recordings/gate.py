"""Judges a comparison by limits: what is within, what is worse, what cannot be compared.

Many figures are tested at once, and chance alone makes one of twenty differ. So the p of each is corrected
for their number by Holm's method: once for the totals of all limits, once for their steps. At most one
gate of twenty of like runs fails, as `benchmarks/gate.py` simulates.

The order of few runs cannot be as rare as that, so their distance counts too: Student's t-test. Three
runs on each side cannot reach p = 0.05 at all. With too few for the test the best new run has to be worse
than the worst of the base by the limit: one slow run in the base may hide a difference, none makes one.
"""

from __future__ import annotations

import difflib
import math
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Final, Literal, NamedTuple

from otel_quant.recordings.compared_runs import TOTAL, FactDifference
from otel_quant.recordings.model import StepPath, path_text
from otel_quant.recordings.side_by_side import (
    ALPHA,
    Comparison,
    Difference,
    Sample,
    Side,
    StepSides,
    can_tell,
    mann_whitney,
    student,
)
from otel_quant.recordings.summary import BY_NAME, GPU_ALLOCATED, GPU_PEAK, GPU_TREE_PEAK, WAITS
from otel_quant.schema.catalog import Quantity
from otel_quant.schema.dataclass import dataclass, replace
from otel_quant.schema.units import BINARY, UNITS

Outcome = Literal["within", "worse", "not comparable"]

EXIT_CODES: Final[Mapping[Outcome, int]] = {"within": 0, "worse": 1, "not comparable": 3}


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """A limit, applied to one step of one side."""

    limit: GateLimit | None = None  # The limit; None for whether the runs can be judged at all
    path: StepPath = TOTAL  # The step; empty for the total, or where no step fits
    side: Side  # The side that is judged
    outcome: Outcome  # Its result
    base: Sample | None = None  # The figure of the base
    new: Sample | None = None  # The figure of the side
    difference: Difference | None = None  # How they differ
    facts: tuple[FactDifference, ...] = ()  # What differs, so that they cannot be compared
    waits: float | None = None  # Seconds that threads waited for a CPU, where that may be why
    why: str = ""  # Why it is worse or cannot be compared, if not by the figures or the facts


@dataclass(frozen=True, slots=True)
class GateVerdict:
    """What a gate finds."""

    checks: tuple[Check, ...]  # Every check, the worst outcome first

    @property
    def outcome(self) -> Outcome:
        """``worse`` if a check is, else ``not comparable`` if one is."""
        return self.checks[0].outcome if self.checks else "within"

    @property
    def exit_code(self) -> int:
        """Exit code of the command."""
        return EXIT_CODES[self.outcome]


class _Test(NamedTuple):
    """A figure of a side that is compared with the base, before it is judged."""

    check: Check  # Its result if it is worse
    limit: GateLimit
    base: Sample
    new: Sample
    waits: float | None

    @property
    def sign(self) -> int:
        """1 for a figure that is worse the higher it is, else -1."""
        return 1 if self.limit.figure.is_smaller_better else -1

    @property
    def change(self) -> float:
        """By how much the side is worse."""
        return self.sign * (self.new.median_alone - self.base.median_alone)

    @property
    def may_fail(self) -> bool:
        """Whether the runs vary by more than the limit, whichever side each of them was on."""
        values = (*self.base.alone, *self.new.alone)
        return max(values) - min(values) > _allowed(self.limit, min(values))


def judge(comparison: Comparison, limits: Sequence[GateLimit], *, force: bool) -> GateVerdict:
    """Judges each side but the base by limits; `force`: whatever else differs between them."""
    if force:
        alike = (False,) * len(comparison.unrelated)
        comparison = replace(comparison, differences=(), unrelated=alike)
    found: list[Check | _Test] = []
    unusable = [*_standing(comparison.sides[0], is_new=False)]
    for at, side in enumerate(comparison.sides[1:], 1):
        broken = [*unusable, *_standing(side, is_new=True)]
        found += broken
        for limit in () if broken else limits:
            found += _checks(comparison, at, limit)
    checks = [each for each in found if isinstance(each, Check)]
    tests = [each for each in found if isinstance(each, _Test)]
    totals = [each for each in tests if each.check.path == TOTAL]
    checks += _judged(totals, force=force)
    checks += _judged([each for each in tests if each.check.path != TOTAL], force=force)
    return GateVerdict(tuple(sorted(checks, key=_worst_first)))


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
        if run.why:
            outcome: Outcome = "worse" if is_new and run.has_failed else "not comparable"
            yield Check(side=side, outcome=outcome, why=f"{run.name} {run.why}")


def _checks(comparison: Comparison, at: int, limit: GateLimit) -> Sequence[Check | _Test]:
    """Returns what a limit finds on a side, and what is to be tested for it."""
    refused = Check(limit=limit, side=comparison.sides[at], outcome="not comparable")
    kinds = {limit.figure.kind, limit.figure.name}
    facts = [each for each in comparison.differences if kinds & each.changes and each.is_unlike(at)]
    if comparison.unrelated[at - 1] and not limit.is_budget:
        why = "no step is in both: these are runs of different programs"
        return [replace(refused, why=why)]
    if facts and not limit.is_budget:
        return [replace(refused, facts=tuple(facts))]
    rows = [row for row in comparison.rows if _is_meant(limit, row.path)]
    found = [check for row in rows for check in _check(comparison, at, limit, row)]
    return found or [replace(refused, why=_missing(comparison, at, limit, rows))]


def _is_meant(limit: GateLimit, path: StepPath) -> bool:
    if limit.step is None:
        return path == TOTAL or not limit.is_budget
    asked = limit.step.lower()
    names = {path_text(path).lower(), *(name.lower() for name, _ in path[-1:])}
    return asked in names


def _check(
    comparison: Comparison, at: int, limit: GateLimit, row: StepSides
) -> Iterator[Check | _Test]:
    """Yields the check of one step, or what has to be tested; nothing if the figure is not known there."""
    check = Check(limit=limit, path=row.path, side=comparison.sides[at], outcome="worse")
    figure = row.figures.get(limit.figure.name)
    if "failed" in row.states[at] and "failed" not in row.states[0]:
        yield replace(check, why="has failed")
    elif figure is not None and (new := figure.samples[at]) is not None:
        base = figure.samples[0]
        check = replace(check, base=base, new=new, difference=figure.differences[at - 1])
        if limit.sign == "<=":
            yield check if new.highest > limit.amount else replace(check, outcome="within")
        elif limit.sign == ">=":
            yield check if new.lowest < limit.amount else replace(check, outcome="within")
        elif base is not None:
            every = [row.figures[name].samples[at] for name in WAITS if name in row.figures]
            waits = max((each.highest for each in every if each is not None), default=None)
            yield _Test(check, limit, base, new, waits)


def _judged(tests: Sequence[_Test], *, force: bool) -> Iterator[Check]:
    """Judges what is tested together, by Holm's method."""
    number = sum(test.may_fail for test in tests)
    found = [(test, _p(test, ALPHA / max(1, number))) for test in tests]
    by_size = sorted(p for test, p in found if p is not None and test.may_fail)
    steps = zip(by_size, range(number, 0, -1), strict=False)
    rare = {p for p, _ in takewhile(lambda step: step[0] <= ALPHA / step[1], steps)}
    for test, p in found:
        outcome = _outcome(test, None if p is None else p in rare, force=force)
        waits = test.waits if outcome == "not comparable" else None
        yield replace(test.check, outcome=outcome, waits=waits)


def _p(test: _Test, level: float) -> float | None:
    """Returns how often chance alone makes a side as much worse; None with too few runs to tell."""
    if not can_tell(test.base, test.new):
        return None
    if test.change <= 0:
        return 1.0
    p = mann_whitney(test.base.alone, test.new.alone)
    if p > ALPHA or can_tell(test.base, test.new, level):
        return p
    return student(test.base.alone, test.new.alone)


def _outcome(test: _Test, is_rare: bool | None, *, force: bool) -> Outcome:
    """Judges whether a side is worse than the base by more than the limit, and by more than noise.

    Judged is what is left of a time without the wait of the main thread for a processor. With too
    few runs to tell noise (`is_rare` is None), the best run has to be worse than the worst of the
    base by as much; and where that may be the wait of other threads, nobody knows, and `force` decides.
    """
    limit, base, new, sign = test.limit, test.base, test.new, test.sign
    if test.change <= _allowed(limit, base.median_alone):
        return "within"
    if is_rare is not None:
        return "worse" if is_rare else "within"
    best, worst = (min, max) if sign > 0 else (max, min)
    reference = worst(base.alone + base.bounds)  # of a peak that was higher than known, no limit
    allowed = _allowed(limit, reference)
    if sign * (best(new.alone) - reference) <= allowed:
        return "within"
    is_sure = force or sign * (best(new.bounds) - reference) > allowed
    return "worse" if is_sure else "not comparable"


def _allowed(limit: GateLimit, base: float) -> float:
    if not limit.is_share:
        return limit.amount
    return max(limit.amount * base, limit.figure.matters)


def _missing(comparison: Comparison, at: int, limit: GateLimit, rows: Sequence[StepSides]) -> str:
    """Returns why a limit could be applied nowhere."""
    name = limit.figure.name
    figures = [row.figures[name] for row in rows if name in row.figures]
    for place in (at,) if limit.is_budget else (0, at):
        side = comparison.sides[place].called
        if limit.step is not None and not any(row.runs[place] for row in rows):
            return f"no step {limit.step!r} in {side}"
        if not any(figure.samples[place] for figure in figures):
            return f"{name} is not known of {side}"
    return f"{name} is in no step that is in both"


# --- limits -------------------------------------------------------------------------------

_COUNTED: Final[Mapping[str, float]] = {"": 1, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
"""Likewise, of figures that count something."""

_EXPRESSION: Final = re.compile(
    r"\s*(?:(?P<step>.*\S)\s*:)?\s*(?P<figure>[\w.]+)\s*(?P<sign><=|>=|=)\s*(?P<amount>.*\S)\s*"
)
_AMOUNT: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*|%)")

_GATED_BY: Final[Mapping[str, str]] = {
    name: GPU_ALLOCATED
    for name, quantity in BY_NAME.items()
    if quantity.name in (GPU_PEAK, GPU_TREE_PEAK)
}
"""What allocators reserve differs by gigabytes between identical runs; what is allocated does not."""


class LimitError(ValueError):
    """A text is no limit; the message gives the reason."""


@dataclass(frozen=True, slots=True)
class GateLimit:
    """A limit."""

    text: str  # As it was written
    # Name of the steps that it is for, or their path with ``>``; ``total`` for the total, None
    # for the total and every step
    step: str | None
    figure: Quantity
    sign: str  # ``=`` for how much worse it may become, ``<=`` and ``>=`` for a budget
    amount: float  # How much: in the figure's unit, or as a share of the base
    is_share: bool = False  # Whether it is a share of the base

    @property
    def is_budget(self) -> bool:
        """Whether it limits the figure itself, whatever the base has."""
        return self.sign != "="

    @property
    def is_binary(self) -> bool:
        """Whether it is a size in a binary unit, such as GiB."""
        return self.text.rstrip().endswith(BINARY)


def parse(text: str) -> GateLimit:
    """Returns the limit that a text has."""
    found = _EXPRESSION.fullmatch(text)
    if found is None:
        form = "[STEP:]FIGURE=10%, [STEP:]FIGURE=500MiB or [STEP:]FIGURE<=12GiB"
        raise LimitError(f"{text!r} is no limit; expected {form}")
    name = found["figure"]
    figure = BY_NAME.get(_GATED_BY.get(name, name))
    if figure is None:
        near = difflib.get_close_matches(name, BY_NAME, 1)
        meant = f"did you mean {near[0]}? " if near else ""
        names = ", ".join(BY_NAME)
        raise LimitError(f"{text!r}: {name} is no figure; {meant}expected one of {names}")
    amount = _AMOUNT.fullmatch(found["amount"])
    if amount is None:
        raise LimitError(
            f"{text!r}: {found['amount']!r} is no amount; expected a number and its unit, such as 10%, 500MiB or 90 s"
        )
    is_share = found["sign"] == "=" and amount[2] == "%"
    units = {"%": 0.01} if is_share else UNITS.get(figure.unit, _COUNTED)
    if amount[2] not in units:
        allowed = [each or "no unit" for each in units if each != "%"]
        if found["sign"] == "=":
            allowed.insert(0, "%")
        raise LimitError(
            f"{text!r}: {figure.name} cannot be given in {amount[2] or 'a number without a unit'}; expected {', '.join(allowed)}"
        )
    value = float(amount[1]) * units[amount[2]]
    return GateLimit(text, found["step"], figure, found["sign"], value, is_share)


# --- the limits of a repository ----------------------------------------------------------

NAME: Final = "otel-quant.toml"  # Their file
_TABLE: Final = "compare"
_KEYS: Final = ("fail-over", "budgets")


def find(start: Path) -> Path | None:
    """Returns the file of the repository that a folder is in."""
    folder = start.absolute()
    for each in (folder, *folder.parents):
        if (each / NAME).is_file():
            return each / NAME
        if (each / ".git").exists():
            return None
    return None


def load(path: Path) -> list[GateLimit]:
    """Returns the limits of a file."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise LimitError(f"{path}: not TOML: {error}") from error
    table = content.pop(_TABLE, {})
    if content or not isinstance(table, dict):
        found = next(iter(content), _TABLE)
        raise LimitError(f"{path}: {found!r} is not known; expected a table [{_TABLE}]")
    limits = []
    for key, texts in table.items():
        if key not in _KEYS or not isinstance(texts, list):
            expected = f'{" and ".join(_KEYS)}, lists such as ["memory.peak=10%"]'
            raise LimitError(f"{path}: [{_TABLE}] {key} is {texts!r}; expected {expected}")
        try:
            limits += [parse(str(text)) for text in texts]
        except LimitError as error:
            raise LimitError(f"{path}: {key}: {error}") from error
    return limits
