"""Two or more sides, figure by figure and step by step."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from otel_quant.recordings.comparison.facts import (
    FactDifference,
    fact_differences,
    without_common_step,
)
from otel_quant.recordings.comparison.figures import CPU_WAIT, FIGURES, Figure, Figures
from otel_quant.recordings.comparison.noise import Difference, Sample, difference
from otel_quant.recordings.comparison.runs import TOTAL, ComparedRun, StepPath
from otel_quant.recordings.comparison.waits import alone
from otel_quant.recordings.model import State


@dataclass(frozen=True, slots=True)
class Side:
    """The runs that stand on one side."""

    name: str  # ``base``, ``new``; ``new 1``, ``new 2`` of several
    runs: tuple[ComparedRun, ...]  # The runs, at least one


@dataclass(frozen=True, slots=True)
class FigureRow:
    """A figure on all sides."""

    figure: Figure  # The figure
    samples: tuple[Sample | None, ...]  # Its values on each side; None where no run has it
    # How each side but the base differs from it; None where one of both has none
    differences: tuple[Difference | None, ...]


@dataclass(frozen=True, slots=True)
class StepRow:
    """A step on all sides, or the whole."""

    path: StepPath  # The step; empty for the whole
    runs: tuple[int, ...]  # For each side how many of its runs have the step
    states: tuple[frozenset[State], ...]  # For each side how the step stands there, each state once
    figures: dict[str, FigureRow]  # The figures that a side has, by name


@dataclass(frozen=True, slots=True)
class Comparison:
    """Sides, beside each other."""

    sides: tuple[Side, ...]  # The sides, the base first
    rows: tuple[StepRow, ...]  # The whole, then the steps in their order
    # What differs beside the figures, for each side but the base
    differences: tuple[FactDifference, ...]
    # For each side but the base whether it has no step in common with it
    unrelated: tuple[bool, ...]


def side_by_side(sides: Sequence[Side]) -> Comparison:
    """Returns sides beside each other."""
    order = _in_order([path for run in side.runs for path in run.steps] for side in sides)
    rows = [_row(sides, TOTAL), *(_row(sides, path) for path in order)]
    return Comparison(
        sides=tuple(sides),
        rows=tuple(rows),
        differences=tuple(fact_differences([side.runs for side in sides])),
        unrelated=tuple(without_common_step(sides[0].runs, side.runs) for side in sides[1:]),
    )


def _in_order(sides: Iterable[Sequence[StepPath]]) -> list[StepPath]:
    """Returns the paths of all sides, each once: one that a side adds after the one before it."""
    order: list[StepPath] = []
    for paths in sides:
        known = set(order)
        added: dict[StepPath, list[StepPath]] = {}
        before = TOTAL
        for path in dict.fromkeys(paths):
            if path in known:
                before = path
            else:
                added.setdefault(before, []).append(path)
        order = [each for path in (TOTAL, *order) for each in (path, *added.get(path, ())) if each]
    return order


def _row(sides: Sequence[Side], path: StepPath) -> StepRow:
    found = [[each for each in side.runs if path == TOTAL or path in each.steps] for side in sides]
    figures = [[(_figures(run, path), run.cpus) for run in side] for side in found]
    tells_waits = all(CPU_WAIT in each for side in figures for each, _ in side)
    rows: dict[str, FigureRow] = {}
    for figure in FIGURES:
        samples = tuple(_sample(figure.name, side, tells_waits) for side in figures)
        if any(samples):
            base = samples[0]
            rows[figure.name] = FigureRow(
                figure,
                samples,
                tuple(difference(base, new) if base and new else None for new in samples[1:]),
            )
    return StepRow(
        path,
        tuple(map(len, found)),
        tuple(frozenset(_state(run, path) for run in side) for side in found),
        rows,
    )


def _figures(run: ComparedRun, path: StepPath) -> Figures:
    return run.total if path == TOTAL else run.steps[path].figures


def _state(run: ComparedRun, path: StepPath) -> State:
    return run.recording.state if path == TOTAL else run.steps[path].step.state


def _sample(
    name: str, runs: Iterable[tuple[Figures, float | None]], tells_waits: bool
) -> Sample | None:
    known = [(figures, cpus) for figures, cpus in runs if name in figures]
    if not known:
        return None
    values = tuple(figures[name] for figures, _ in known)
    if not tells_waits:  # of one side alone it would make the other look worse
        return Sample(values)
    return Sample(values, *zip(*(alone(name, *each) for each in known), strict=True))
