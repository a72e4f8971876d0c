"""Several processes in one report: each one's figures, the slowest, and the imbalance per step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from otel_quant.recordings import summary
from otel_quant.recordings.model import RecordedRun, Recording, State
from otel_quant.schema.units import cut, duration_text, share_text
from otel_quant.views.document import ONE, Column, Row, Table
from otel_quant.views.report.subject import by_process, process_name
from otel_quant.views.steps import STATES

_MOST_PROCESSES: Final = 128
_MOST_STEPS: Final = 60
_LONGEST_NAME: Final = 120
_WORST_FIRST: Final[tuple[State, ...]] = ("failed", "killed", "lost", "running", "ended")


@dataclass(frozen=True, slots=True)
class _Process:
    """One process with all its runs."""

    name: str  # In words
    runs: Sequence[RecordedRun]  # Its runs
    start: float  # When the first began
    end: float  # When the last ended, or the end of what is known
    peak: float | None  # Highest memory of its tree, in bytes

    @property
    def seconds(self) -> float:
        return self.end - self.start

    @property
    def state(self) -> State:
        states = {run.state for run in self.runs}
        return next(state for state in _WORST_FIRST if state in states)


def processes_of(recording: Recording) -> tuple[str, list[Table]]:
    """Returns a sentence on several processes, and their tables; nothing for a single one."""
    processes = [
        _Process(
            process_name(runs[0]),
            runs,
            runs[0].start,
            max(recording.duration if run.end is None else run.end for run in runs),
            max(_peaks(recording, runs), default=None),
        )
        for runs in by_process(recording).values()
    ]
    if len(processes) == 1 or not processes:
        return "", []
    processes.sort(key=lambda each: -each.seconds)
    imbalance = list(_imbalance_tables(recording, processes))
    return _sentence(processes, bool(imbalance)), [*imbalance, _process_table(processes)]


def _peaks(recording: Recording, runs: Sequence[RecordedRun]) -> Iterator[float]:
    for run in runs:
        if (peak := summary.peak_of_run(recording, run)) is not None:
            yield peak.value


def _sentence(processes: Sequence[_Process], have_same_steps: bool) -> str:
    slowest, typical = processes[0], median(each.seconds for each in processes)
    text = f"{len(processes):,} processes: {slowest.name} took longest with {duration_text(slowest.seconds)}"
    if typical and have_same_steps:
        text += f", {share_text(slowest.seconds / typical - 1)} more than the median"
    return f"{text}."


def _process_table(processes: Sequence[_Process]) -> Table:
    typical = median(each.seconds for each in processes)
    ratio = Column[_Process](
        "Time to median", "1", lambda each: each.seconds / typical - 1 if typical else None,
        shown_in="%", is_signed=True, title="longer or shorter than the median process",
    )  # fmt: skip
    return Table.of(
        (*_COLUMNS[:4], ratio, *_COLUMNS[4:]),
        processes,
        row=lambda each, cells: Row(cells, state=each.state),
        id="processes",
        caption="Processes, slowest first",
    ).first(_MOST_PROCESSES, "faster process", "faster processes")


_COLUMNS: Final = (
    Column[_Process]("Process", None, lambda each: each.name),
    Column[_Process]("State", None, lambda each: STATES[each.state]),
    Column[_Process]("Start", "s", lambda each: each.start, shown_in="s"),
    Column[_Process]("Time", "s", lambda each: each.seconds, shown_in="s"),
    Column[_Process](
        "Memory peak", "By", lambda each: each.peak, shown_in=ONE,
        title="of the process and its children",
    ),
    Column[_Process]("Steps", "", lambda each: sum(len(run.steps) for run in each.runs)),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Shares:
    """A step as the processes took it: seconds and peak of each that has it."""

    name: str
    seconds: tuple[tuple[float, str], ...]
    peaks: tuple[tuple[float, str], ...]

    @property
    def typical(self) -> float:
        return median(seconds for seconds, _ in self.seconds)

    @property
    def peak(self) -> tuple[float | None, str | None]:
        return max(self.peaks, default=(None, None))


def _imbalance_tables(recording: Recording, processes: Sequence[_Process]) -> Iterator[Table]:
    shares = [each for each in _shares(recording, processes) if len(each.seconds) > 1]
    if shares:
        shares.sort(key=lambda each: -max(each.seconds)[0])
        yield Table.of(
            _IMBALANCE, shares, id="imbalance", caption="The same step in all processes"
        ).first(_MOST_STEPS, "shorter step")


_IMBALANCE: Final = (
    Column[_Shares]("Step", None, lambda each: cut(each.name, _LONGEST_NAME)),
    Column[_Shares]("Processes", "", lambda each: len(each.seconds)),
    Column[_Shares]("Shortest", "s", lambda each: min(each.seconds)[0], shown_in="s"),
    Column[_Shares]("Median", "s", lambda each: each.typical, shown_in="s"),
    Column[_Shares]("Longest", "s", lambda each: max(each.seconds)[0], shown_in="s"),
    Column[_Shares]("Slowest", None, lambda each: max(each.seconds)[1]),
    Column[_Shares](
        "Imbalance", "1",
        lambda each: max(each.seconds)[0] / each.typical - 1 if each.typical else None,
        shown_in="%", is_signed=True, title="by how much the longest is longer than the median",
    ),
    Column[_Shares](
        "Memory peak", "By", lambda each: each.peak[0], shown_in=ONE,
        title="highest of any process",
    ),
    Column[_Shares]("Peak in", None, lambda each: each.peak[1]),
)  # fmt: skip


def _shares(recording: Recording, processes: Sequence[_Process]) -> Iterator[_Shares]:
    """Yields steps by name; those of one process that have the same name are added up."""
    seconds: dict[str, dict[str, float]] = {}
    peaks: dict[str, dict[str, float]] = {}
    for process in processes:
        for run in process.runs:
            of_steps = summary.StepSummary(recording, run)
            for step in run.steps:
                end = step.end if step.end is not None else process.end
                times = seconds.setdefault(step.name, {})
                times[process.name] = times.get(process.name, 0.0) + end - step.start
                peak = of_steps.value(step, summary.MEMORY_PEAK)
                if peak is not None:
                    highest = peaks.setdefault(step.name, {})
                    highest[process.name] = max(peak, highest.get(process.name, 0.0))
    for name, times in seconds.items():
        yield _Shares(
            name,
            tuple((value, process) for process, value in times.items()),
            tuple((value, process) for process, value in peaks.get(name, {}).items()),
        )
