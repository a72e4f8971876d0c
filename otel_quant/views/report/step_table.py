"""The table of steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from otel_quant.recordings.attributes import number
from otel_quant.recordings.model import Recording, State
from otel_quant.schema import semconv, series
from otel_quant.schema.records import AttributeValue
from otel_quant.schema.units import GB, MB, counted, cut, duration_text
from otel_quant.views.report.attributes import CACHE_PEAK, MEMORY_END
from otel_quant.views.report.bands import ShownStep, most_telling
from otel_quant.views.report.grid import LAUNCHER
from otel_quant.views.report.subject import Subject
from otel_quant.views.report.tables import Column, PageTable, Row

_LONGEST_NAME: Final = 120
_LONGEST_ERROR: Final = 200
_MANY: Final = 10
_MOST_NAMES: Final = 3

STATES: Final[dict[State, str]] = {
    "ended": "ok",
    "failed": "failed",
    "killed": "killed",
    "lost": "lost",
    "running": "open",
}
"""How a step stands, in the table."""


@dataclass(frozen=True, slots=True)
class _Figure:
    """A column of numbers."""

    heading: str  # Its name
    unit: str  # ``bytes`` for one that is chosen by the largest value, else the unit itself
    value: Callable[[ShownStep], float | None]  # Computes it; None for what is not known
    digits: int = 1  # Digits after the point
    title: str = ""  # What it means


def _of(name: str) -> Callable[[ShownStep], float | None]:
    return lambda each: number(each.step.attributes, name)


def _cpu(each: ShownStep) -> float | None:
    parts = (number(each.step.attributes, name) for name in (semconv.CPU_USER, semconv.CPU_SYSTEM))
    known = [part for part in parts if part is not None]
    return sum(known) if known else None


def _share_of_limit(each: ShownStep) -> float | None:
    share = number(each.step.attributes, semconv.MEMORY_PEAK_RATIO)
    return None if share is None else 100 * share


_FIGURES: Final = (
    _Figure("Start", "s", lambda each: each.step.start, 2),
    _Figure("Time", "s", lambda each: each.duration, 2),
    _Figure("Memory at start", "bytes", _of(semconv.MEMORY_START)),
    _Figure("Memory at end", "bytes", _of(MEMORY_END)),
    _Figure("Memory peak", "bytes", _of(semconv.MEMORY_PEAK)),
    _Figure("Peak of limit", "%", _share_of_limit),
    _Figure("GPU peak", "bytes", _of(semconv.GPU_MEMORY_PEAK)),
    _Figure("Read", "bytes", _of(semconv.DISK_READ), 1, "from disk"),
    _Figure("Written", "bytes", _of(semconv.DISK_WRITE), 1, "to disk"),
    _Figure("Caches", "bytes", _of(CACHE_PEAK), 1, "growth of the cache directory"),
    _Figure("CPU", "s", _cpu, 1, "CPU time, user and system"),
    _Figure("Samples", "", lambda each: each.step.samples, 0, "calibration samples: batches"),
    _Figure("Samples a second", "", _of(semconv.CALIBRATION_SAMPLE_RATE), 2, "samples a second"),
)


def step_table(recording: Recording, subject: Subject) -> PageTable:
    """Returns the table of a process's steps."""
    shown = [_with_peak(each, recording) for each in most_telling(subject.steps)]
    columns = [Column("Step", is_text=True), Column("State", is_text=True)]
    cells = [
        [cut(each.step.name, _LONGEST_NAME) for each in shown],
        [_state(each) for each in shown],
    ]
    for figure in _FIGURES:
        values = [figure.value(each) for each in shown]
        if all(value is None for value in values):
            continue
        unit, scale = _unit(figure.unit, values)
        columns.append(Column(figure.heading, unit, title=figure.title))
        cells.append([_cell(value, scale, figure.digits) for value in values])
        if figure.heading == "Time" and recording.duration:
            columns.append(Column("Time of all", "%", title="share of the recording's time"))
            shares = [100 * each.duration / recording.duration for each in shown]
            cells.append([_cell(share, 1, 1) for share in shares])
    caption = f"Steps of {subject.name}" if subject.why else "Table of steps"
    return PageTable(
        "steps",
        f"{caption}, {subject.why}" if subject.why else caption,
        tuple(columns),
        tuple(
            Row(row, each.depth, each.state)
            for row, each in zip(zip(*cells, strict=True), shown, strict=True)
        ),
        _left_out(subject.steps, {(id(each.run), each.step.index) for each in shown}),
    )


def _with_peak(each: ShownStep, recording: Recording) -> ShownStep:
    """Returns a step with its highest memory from the curve, where it could not say it itself."""
    launcher = recording.curves.get(LAUNCHER)
    if launcher is None or semconv.MEMORY_PEAK in each.step.attributes or each.step.end is not None:
        return each
    offset = (launcher.began_ns - recording.began_ns) / 1e9
    within = [
        level.highest
        for bucket in launcher.curve.buckets.values()
        if (level := bucket.levels.get(series.MEMORY)) is not None
        and offset + level.at / 1000 >= each.step.start
    ]
    if not within:
        return each
    peak: dict[str, AttributeValue] = {semconv.MEMORY_PEAK: round(max(within))}
    return replace(each, step=replace(each.step, attributes={**each.step.attributes, **peak}))


def _unit(unit: str, values: Sequence[float | None]) -> tuple[str, float]:
    if unit != "bytes":
        return unit, 1
    highest = max(abs(value) for value in values if value is not None)
    return ("GB", GB) if highest >= _MANY * GB else ("MB", MB)


def _cell(value: float | None, scale: float, digits: int) -> str:
    if value is None:
        return ""
    more = 1 if scale == GB else 0
    return f"{value / scale:,.{digits + more}f}"


def _state(each: ShownStep) -> str:
    state, error = STATES[each.state], each.step.error
    if error is None:
        return state
    message = f": {each.step.error_message}" if each.step.error_message else ""
    return cut(f"{state}: {error}{message}", _LONGEST_ERROR)


def _left_out(every: Sequence[ShownStep], shown: set[tuple[int, int]]) -> str:
    """Returns what is cut, with its number: the shortest steps that ended well."""
    count = len(every) - len(shown)
    if not count:
        return ""
    cut_steps = [each for each in every if (id(each.run), each.step.index) not in shown]
    names = Counter(each.step.name for each in cut_steps).most_common(_MOST_NAMES)
    most = ", ".join(f"{cut(name, 40)} ({number:,})" for name, number in names)
    seconds = sum(each.duration for each in cut_steps if each.depth == 0)
    longest = max(each.duration for each in cut_steps)
    total = f", together {duration_text(seconds)} at the top level" if seconds else ""
    return (
        f"{counted(count, 'step')} of {len(every):,} left out, the shortest: none took more than "
        f"{duration_text(longest)}{total}. Most of them: {most}."
    )
