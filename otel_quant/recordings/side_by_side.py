"""Two or more sides, figure by figure and step by step, and whether a difference is more than noise.

What a wait for a processor makes of a time: the main thread's wait is lost time. Other threads' waits
may be: the main thread may wait for what they do, or do something else meanwhile. And a busy machine
computes slower too, because programs share caches and cores. Of 380 pairs of identical runs on a busy
machine the waits of all threads alone did not explain the difference of a step in up to 54, twice as
much did in all.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import chain, groupby
from typing import Final

from otel_quant.recordings import compared_runs, summary
from otel_quant.recordings.model import State, StepPath
from otel_quant.schema.catalog import QUANTITIES, Quantity
from otel_quant.schema.dataclass import dataclass

_LONGEST_HEADING: Final = 20


@dataclass(frozen=True, slots=True)
class Side:
    """The runs that stand on one side."""

    name: str  # ``base``, ``new``; ``new 1``, ``new 2`` of several
    runs: tuple[compared_runs.ComparedRun, ...]  # The runs, at least one
    title: str = ""  # What a person calls it, where that is another name: the run's

    @property
    def called(self) -> str:
        """Its name for people."""
        return self.title or self.name

    @property
    def heading(self) -> str:
        """What stands above it: the end of a long name, which tells it from others."""
        name = self.title or self.name.upper()
        return name if len(name) <= _LONGEST_HEADING else f"…{name[1 - _LONGEST_HEADING :]}"

    def at(self, path: StepPath) -> list[tuple[compared_runs.Figures, State, float | None]]:
        """Returns figures, state and number of processors of each run that has a step."""
        return [(*known, run.cpus) for run in self.runs if (known := run.at(path)) is not None]


@dataclass(frozen=True, slots=True)
class FigureRow:
    """A figure on all sides."""

    figure: Quantity
    samples: tuple[Sample | None, ...]  # Its values on each side; None where no run has it
    # How each side but the base differs from it; None where one of both has none
    differences: tuple[Difference | None, ...]


@dataclass(frozen=True, slots=True)
class StepSides:
    """A step on all sides, or the total."""

    path: StepPath  # The step; empty for the total
    runs: tuple[int, ...]  # For each side how many of its runs have the step
    states: tuple[frozenset[State], ...]  # For each side how the step stands there, each state once
    figures: dict[str, FigureRow]  # The figures that a side has, by name


@dataclass(frozen=True, slots=True)
class Comparison:
    """Sides, beside each other."""

    sides: tuple[Side, ...]  # The sides, the base first
    rows: tuple[StepSides, ...]  # The total, then the steps in their order
    # What differs beside the figures, for each side but the base
    differences: tuple[compared_runs.FactDifference, ...]
    # For each side but the base whether it has no step in common with it
    unrelated: tuple[bool, ...]


def side_by_side(sides: Sequence[Side]) -> Comparison:
    """Returns sides beside each other."""
    steps = [chain.from_iterable(run.steps for run in side.runs) for side in sides]
    paths = [*map(dict.fromkeys, steps)]
    base = paths[0]
    facts = tuple(compared_runs.fact_differences([side.runs for side in sides]))
    # Of a figure that was read in another way the difference is none of the program.
    of_gpus = [fact for fact in facts if summary.GPU_PEAK in fact.changes]
    unlike = [any(fact.is_unlike(at) for fact in of_gpus) for at in range(1, len(sides))]
    return Comparison(
        sides=tuple(sides),
        rows=tuple(_row(sides, path, unlike) for path in (compared_runs.TOTAL, *_in_order(paths))),
        differences=facts,
        unrelated=tuple(bool(base and each) and base.keys().isdisjoint(each) for each in paths[1:]),
    )


def _in_order(sides: Iterable[Iterable[StepPath]]) -> list[StepPath]:
    """Returns the paths of all sides, each once: one that a side adds after the one before it."""
    order: list[StepPath] = []
    for paths in sides:
        known = set(order)
        added: dict[StepPath, list[StepPath]] = {}
        before = compared_runs.TOTAL
        for path in paths:
            if path in known:
                before = path
            else:
                added.setdefault(before, []).append(path)
        after = ((path, *added.get(path, ())) for path in (compared_runs.TOTAL, *order))
        order = [*chain.from_iterable(after)][1:]
    return order


def _row(sides: Sequence[Side], path: StepPath, unlike: Sequence[bool]) -> StepSides:
    """Returns the total of all sides, or a step; without differences of GPU memory where it is `unlike` the base's."""
    found = [side.at(path) for side in sides]
    tells_waits = all(summary.CPU_WAIT in each for each, *_ in chain.from_iterable(found))
    rows: dict[str, FigureRow] = {}
    for figure in QUANTITIES:
        samples = tuple(_sample(figure.name, side, tells_waits) for side in found)
        if any(samples):
            base, *others = samples
            none = unlike if figure.name == summary.GPU_PEAK else [False] * len(others)
            differences = (
                None if is_unlike or not (base and new) else difference(base, new, figure.matters)
                for new, is_unlike in zip(others, none, strict=True)
            )
            rows[figure.name] = FigureRow(figure, samples, tuple(differences))
    states = tuple(frozenset(state for _, state, _ in side) for side in found)
    return StepSides(path, tuple(map(len, found)), states, rows)


def _sample(
    name: str, runs: Sequence[tuple[compared_runs.Figures, State, float | None]], tells_waits: bool
) -> Sample | None:
    """Returns a figure of the runs of a side; None where no run has it."""
    known = [(figures, cpus) for figures, _, cpus in runs if name in figures]
    if not known:
        return None
    values = tuple(figures[name] for figures, _ in known)
    if name == summary.MEMORY_PEAK:
        bounds = tuple(each.get(summary.MEMORY_BOUND, each[name]) for each, _ in known)
        return Sample(values, values, bounds)
    if not tells_waits:  # of one side alone it would make the other look worse
        return Sample(values)
    return Sample(values, *zip(*(alone(name, *each) for each in known), strict=True))


# --- noise --------------------------------------------------------------------------------

ALPHA: Final = 0.05
"""A difference is more than noise if chance alone would make one like it less often than this."""

_EXACT: Final = 20  # Runs on both sides together up to which every order of them is counted


@dataclass(frozen=True, slots=True)
class Sample:
    """A figure of the runs of one side."""

    values: tuple[float, ...]  # One for each run that has it, at least one
    # What they would have been without what the main thread waited for a processor
    alone: tuple[float, ...] = ()
    # What they may have been, at best, without all that the wait of threads may have cost; of a peak of
    # memory that was higher than is known, infinity
    bounds: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if not self.alone:
            object.__setattr__(self, "alone", self.values)
            object.__setattr__(self, "bounds", self.values)

    @property
    def median(self) -> float:
        """The middle value."""
        return statistics.median(self.values)

    @property
    def median_alone(self) -> float:
        """The middle of what the values would have been."""
        return statistics.median(self.alone)

    @property
    def lowest(self) -> float:
        """The lowest value."""
        return min(self.values)

    @property
    def highest(self) -> float:
        """The highest value."""
        return max(self.values)

    @property
    def spread(self) -> float:
        """The largest distance of a value from the median."""
        return max(self.highest - self.median, self.median - self.lowest)


@dataclass(frozen=True, slots=True)
class Difference:
    """How the figures of two sides differ."""

    change: float  # Median of the new side minus the median of the base
    ratio: float | None  # The one divided by the other; None if the base has 0
    # How often chance alone makes such a difference, by the test of Mann and Whitney; None with
    # one run on each side
    p: float | None
    is_clear: bool  # Whether it matters, and is more than noise and waits for a processor make


def difference(base: Sample, new: Sample, matters: float = 0.0) -> Difference:
    """Returns how two samples differ.

    With too few runs for the test to reach ``ALPHA`` (fewer than 4 on each side), a difference
    counts if all values of one side are above all of the other, whatever of them was lost by
    waiting for a processor. Less than what `matters` is never clear.
    """
    change = new.median - base.median
    ratio = new.median / base.median if base.median else None
    is_one_each = len(base.values) == len(new.values) == 1
    p = None if is_one_each else mann_whitney(base.alone, new.alone)
    if p is not None and can_tell(base, new):
        is_clear = p <= ALPHA
    else:
        first, second = (base.alone + base.bounds), (new.alone + new.bounds)
        is_clear = max(first) < min(second) or max(second) < min(first)
    is_same_way = change * (new.median_alone - base.median_alone) > 0
    return Difference(change, ratio, p, is_clear and is_same_way and abs(change) >= matters)


def can_tell(base: Sample, new: Sample, level: float = ALPHA) -> bool:
    """Whether there are enough runs for the test to reach a p as low as a level."""
    sizes = len(base.values), len(new.values)
    return 2 / math.comb(sum(sizes), sizes[0]) <= level


def mann_whitney(first: Sequence[float], second: Sequence[float]) -> float:
    """Returns the two-sided p of the rank-sum test of Mann and Whitney.

    Exact up to 20 values, equal ones included: by the share of all orders of the values in which
    the ranks of ``first`` are as far from the middle. Above that by the normal distribution, with
    the corrections for equal values and for continuity.
    """
    together = sorted([*first, *second])
    groups = tuple(len(list(equal)) for _, equal in groupby(together))
    rank_of: dict[float, int] = {}  # twice the mean rank of equal values: a whole number
    below = 0
    for value, size in zip(dict.fromkeys(together), groups, strict=True):
        rank_of[value] = 2 * below + size + 1
        below += size
    ranks = sum(rank_of[value] for value in first)
    if below <= _EXACT:
        ways = _rank_sums(len(first), groups)
        lower = sum(number for total, number in ways.items() if total <= ranks)
        upper = sum(number for total, number in ways.items() if total >= ranks)
        return min(1.0, 2 * min(lower, upper) / math.comb(below, len(first)))
    product = len(first) * len(second)
    equal = sum(size**3 - size for size in groups) / (below * (below - 1))
    deviation = math.sqrt(product / 12 * (below + 1 - equal))
    if not deviation:
        return 1.0
    distance = abs(ranks / 2 - len(first) * (below + 1) / 2)
    return math.erfc(max(0.0, distance - 0.5) / deviation / math.sqrt(2))


def student(first: Sequence[float], second: Sequence[float]) -> float:
    """Returns the two-sided p of Student's t-test, by the sums in Abramowitz and Stegun, 26.7.3 and 26.7.4."""
    means = statistics.fmean(first), statistics.fmean(second)
    freedom = len(first) + len(second) - 2
    sides = zip((first, second), means, strict=True)
    squares = sum((value - mean) ** 2 for values, mean in sides for value in values)
    if not squares:
        return float(means[0] == means[1])
    error = math.sqrt(squares / freedom * (1 / len(first) + 1 / len(second)))
    angle = math.atan(abs(means[0] - means[1]) / error / math.sqrt(freedom))
    is_odd = freedom % 2
    term = math.cos(angle) if is_odd else 1.0
    total = term if freedom > 1 else 0.0
    for at in range(2 + is_odd, freedom, 2):
        term *= math.cos(angle) ** 2 * (at - 1) / at
        total += term
    total *= math.sin(angle)
    return max(0.0, 1 - (2 / math.pi * (angle + total) if is_odd else total))


@lru_cache(256)
def _rank_sums(size: int, groups: tuple[int, ...]) -> Counter[int]:
    """Returns in how many ways ``size`` values have each sum of doubled ranks."""
    ways: list[Counter[int]] = [Counter() for _ in range(size + 1)]
    ways[0][0] = 1
    below = 0
    for group in groups:
        rank = 2 * below + group + 1
        for _ in range(group):
            for chosen in range(size - 1, -1, -1):
                for total, number in ways[chosen].items():
                    ways[chosen + 1][total + rank] += number
        below += group
    return ways[size]


# --- waits for a processor ----------------------------------------------------------------

_LOST: Final = 2  # Seconds that may be lost for each second that a thread waits


def alone(name: str, figures: compared_runs.Figures, cpus: float | None) -> tuple[float, float]:
    """Returns what a figure would have been on a machine of its own."""
    value, seconds = figures[name], figures.get(summary.DURATION, 0.0)
    wait = figures.get(summary.CPU_WAIT, 0.0)
    # A program that uses all processors itself waits for itself.
    busy = min(seconds, figures.get(summary.CPU_TIME, 0.0) / cpus) if cpus else 0.0
    left = max(busy, seconds - wait)
    least = max(0.0, seconds - _LOST * max(wait, figures.get(summary.CPU_WAITS, 0.0)))
    if name == summary.DURATION:
        return left, least
    if name == summary.SAMPLE_RATE and seconds:
        samples = value * seconds
        return samples / left if left else value, samples / least if least else math.inf
    return value, value
