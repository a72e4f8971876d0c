"""The table of steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from otel_quant.recordings import summary
from otel_quant.recordings.model import Recording, State, number
from otel_quant.recordings.summary import BY_NAME, StepSummary
from otel_quant.schema import semconv
from otel_quant.schema.figures import QUANTITIES
from otel_quant.schema.units import GB, MB, counted, cut, duration_text
from otel_quant.views.report.attributes import MEMORY_END
from otel_quant.views.report.bands import ShownStep, most_telling
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
    # Computes it; None for what is not known
    value: Callable[[StepSummary, ShownStep], float | None]
    digits: int = 1  # Digits after the point
    title: str = ""  # What it means
    name: str = ""  # Of the quantity that it is; empty for none


def _of(name: str, heading: str, digits: int = 1, title: str = "") -> _Figure:
    """Returns the column of a quantity."""
    unit = {"By": "bytes", "{sample}/s": ""}.get(BY_NAME[name].unit, BY_NAME[name].unit)
    return _Figure(heading, unit, lambda of, each: of.value(each.step, name), digits, title, name)


def _attribute(name: str) -> Callable[[StepSummary, ShownStep], float | None]:
    return lambda of, each: number(each.step.attributes, name)


def _share_of_limit(of: StepSummary, each: ShownStep) -> float | None:
    peak = of.value(each.step, summary.MEMORY_PEAK)
    return None if peak is None or of.limit is None else 100 * peak / of.limit.value


_FIRST: Final = (
    _Figure("Start", "s", lambda of, each: each.step.start, 2),
    _Figure("Time", "s", lambda of, each: each.duration, 2),
    _Figure("Memory at start", "bytes", _attribute(semconv.MEMORY_START)),
    _Figure("Memory at end", "bytes", _attribute(MEMORY_END)),
    _of(summary.MEMORY_PEAK, "Memory peak"),
    _Figure("Peak of limit", "%", _share_of_limit),
    _of(summary.GPU_PEAK, "GPU peak"),
    _of("disk.read", "Read", title="from disk"),
    _of("disk.write", "Written", title="to disk"),
    _of(summary.CACHE_PEAK, "Caches", title="growth of the cache directory"),
    _of(summary.CPU_TIME, "CPU", title="CPU time, user and system"),
    _Figure("Samples", "", lambda of, each: each.step.samples, 0, "calibration samples: batches"),
    _of(summary.SAMPLE_RATE, "Samples a second", 2, "samples a second"),
)
_NAMED: Final = {figure.name for figure in _FIRST} | {summary.DURATION, summary.MEMORY_SEEN}
_FIGURES: Final = (
    *_FIRST,
    *(
        _of(each.name, each.heading.capitalize(), title=each.brief)
        for each in QUANTITIES
        if each.heading and each.is_of_steps and each.name not in _NAMED
    ),
)


def step_table(recording: Recording, subject: Subject) -> PageTable:
    """Returns the table of a process's steps."""
    shown = most_telling(subject.steps)
    of_run = summary.steps_of(recording)
    columns = [Column("Step", is_text=True), Column("State", is_text=True)]
    cells = [
        [cut(each.step.name, _LONGEST_NAME) for each in shown],
        [_state(each) for each in shown],
    ]
    for figure in _FIGURES:
        values = [figure.value(of_run(each), each) for each in shown]
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
