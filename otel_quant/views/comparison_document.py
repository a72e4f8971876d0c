"""A comparison as parts that each format lays out in its own way: a table for each figure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from otel_quant.recordings.comparison.figures import (
    CPU_WAITS,
    DURATION,
    FIGURES,
    MEMORY_PEAK,
    MEMORY_SEEN,
    PROCESS_PEAK,
    WAITS,
    Figure,
)
from otel_quant.recordings.comparison.gate import Check, Verdict
from otel_quant.recordings.comparison.runs import name_text
from otel_quant.recordings.comparison.side_by_side import Comparison, FigureRow, StepRow
from otel_quant.schema.units import counted, cut
from otel_quant.views.comparison_words import (
    NOISE_MEANS,
    change_text,
    check_text,
    fact_text,
    is_noisy,
    noise_text,
    outcome_text,
    ratio_text,
    sample_text,
)
from otel_quant.views.former_document import Facts, Lines, Part, Table

_MOST_ROWS: Final = 60
_MOST_CHECKS: Final = 40
_LONGEST_NAME: Final = 80
_SEEN: Final = 0.01
"""Part of a run's time that the wait for a processor takes at least where it is shown."""


def parts_of(comparison: Comparison, verdict: Verdict | None) -> Iterator[Part]:
    """Yields what is printed of a comparison."""
    if verdict is not None:
        yield from _gate(comparison, verdict)
    yield Facts(tuple(_sides(comparison)))
    if comparison.differences:
        yield _table(
            ("DIFFERS", *(side.name.upper() for side in comparison.sides)),
            [
                (fact.name, *(fact_text(fact, at) for at in range(len(comparison.sides))))
                for fact in comparison.differences
            ],
            left=1 + len(comparison.sides),
        )
    whole, steps = comparison.rows[0], comparison.rows[1:]
    yield _figures(comparison, "TOTAL", list(_of(whole)))
    if any(is_noisy(each) for row in comparison.rows for _, each in _of(row)):
        yield Lines((NOISE_MEANS,))
    for figure in FIGURES:
        rows = [row for row in steps if figure.name in row.figures]
        if any(is_telling(row, figure.name) for row in rows):
            yield Lines((f"{figure.name}: {figure.brief}",))
            yield from _steps(comparison, figure, rows)


def _gate(comparison: Comparison, verdict: Verdict) -> Iterator[Part]:
    numbers = {side.name: at for at, side in enumerate(comparison.sides)}
    yield Lines((outcome_text(verdict),))
    told = [check for check in verdict.checks if check.outcome != "within"]
    if told:
        lines = [check_text(check, numbers[check.side.name]) for check in told]
        shown = list(dict.fromkeys(lines))
        more = len(shown) - _MOST_CHECKS
        yield Lines(
            (*shown[:_MOST_CHECKS], *([f"{counted(more, 'check')} more"] if more > 0 else []))
        )
    if any(map(_is_doubtful, told)):
        yield Lines((_DOUBT,))


_DOUBT: Final = (
    "With one run on each side a busy machine looks like a slower program; four on each side can tell "
    "them apart."
)


def _is_doubtful(check: Check) -> bool:
    """Whether a single run is said to be slower than another, and nothing is known of waits."""
    is_time = check.limit is not None and check.limit.figure.kind == "time"
    is_single = check.difference is not None and check.difference.p is None
    return is_time and is_single and check.new is not None and check.new.bounds == check.new.values


def _sides(comparison: Comparison) -> Iterator[tuple[str, str]]:
    for side in comparison.sides:
        for number, run in enumerate(side.runs):
            yield side.name if not number else "", f"{run.name}{_standing(run.why)}"


def _standing(why: str) -> str:
    return f" ({why})" if why else ""


def _of(row: StepRow) -> Iterator[tuple[Figure, FigureRow]]:
    for name, each in row.figures.items():
        if is_telling(row, name):
            yield each.figure, each


def is_telling(row: StepRow, name: str) -> bool:
    """Whether a side has more than nothing of a figure, and no other figure says more."""
    if name == CPU_WAITS and row.path:  # of a short step it is not known exactly
        return False
    if name in WAITS and not _is_busy(row):
        return False
    peak = row.figures.get(MEMORY_PEAK)
    if name in (MEMORY_SEEN, PROCESS_PEAK) and peak is not None and all(peak.samples):
        return False
    of = row.figures.get(name)
    return of is not None and any(sample is not None and sample.highest for sample in of.samples)


def _is_busy(row: StepRow) -> bool:
    """Whether threads had to wait for a processor for a part of a run's time that can be seen."""
    lasted = row.figures[DURATION].samples if DURATION in row.figures else ()
    return any(
        waited is not None and seconds is not None and waited.highest > _SEEN * seconds.highest
        for name in WAITS
        if name in row.figures
        for waited, seconds in zip(row.figures[name].samples, lasted, strict=False)
    )


def _figures(
    comparison: Comparison, heading: str, rows: Sequence[tuple[Figure, FigureRow]]
) -> Table:
    cells = [(figure.name, *_cells(figure, row), noise_text(row)) for figure, row in rows]
    return _table((heading, *_headings(comparison), "NOTE"), cells)


def _steps(comparison: Comparison, figure: Figure, steps: Sequence[StepRow]) -> Iterator[Part]:
    shown = largest(figure, steps)
    cells = []
    for row in shown:
        indent = "  " * (len(row.path) - 1)
        name = f"{indent}{cut(name_text(row.path), _LONGEST_NAME)}"
        of = row.figures[figure.name]
        note = ", ".join(filter(None, (noise_text(of), *notes(comparison, row))))
        cells.append((name, *_cells(figure, of), note))
    yield _table(("STEP", *_headings(comparison), "NOTE"), cells)
    left_out = len(steps) - len(shown)
    if left_out:
        yield Lines((f"{counted(left_out, 'step')} left out: those that differ least",))


def largest(figure: Figure, steps: Sequence[StepRow]) -> Sequence[StepRow]:
    """Returns the steps that differ most, in their order."""
    if len(steps) <= _MOST_ROWS:
        return steps

    def size(row: StepRow) -> float:
        differences = row.figures[figure.name].differences
        return max((abs(each.change) for each in differences if each), default=-1.0)

    kept = sorted(range(len(steps)), key=lambda at: -size(steps[at]))[:_MOST_ROWS]
    return [steps[at] for at in sorted(kept)]


def _headings(comparison: Comparison) -> Iterator[str]:
    for number, side in enumerate(comparison.sides):
        yield side.name.upper()
        if number:
            yield "DIFFERENCE"
            yield "%"


def _cells(figure: Figure, row: FigureRow) -> Iterator[str]:
    for number, sample in enumerate(row.samples):
        yield sample_text(figure, sample)
        if number:
            difference = row.differences[number - 1]
            yield change_text(figure, difference)
            yield ratio_text(difference)


def notes(comparison: Comparison, row: StepRow) -> Iterator[str]:
    """Yields what has to be known of a step: which sides have it, and where it did not end well."""
    having = [side.name for side, runs in zip(comparison.sides, row.runs, strict=True) if runs]
    if len(having) < len(comparison.sides):
        yield f"only in {', '.join(having)}"
    for side, runs, states in zip(comparison.sides, row.runs, row.states, strict=True):
        if 0 < runs < len(side.runs):
            yield f"in {runs} of {len(side.runs)} runs of {side.name}"
        for state in sorted(states - {"ended"}):
            yield f"{state} in {side.name}"


def _table(header: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> Table:
    return Table(tuple(header), ("",) * len(header), tuple(map(tuple, rows)), left)
