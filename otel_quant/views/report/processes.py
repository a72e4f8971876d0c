"""Several processes in one report: each one's figures, the slowest, and the imbalance per step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from otel_quant.recordings import summary
from otel_quant.recordings.model import RecordedRun, Recording, State
from otel_quant.schema.units import MB, cut, duration_text, share_text
from otel_quant.views.report.step_table import STATES
from otel_quant.views.report.subject import by_process, process_name
from otel_quant.views.report.tables import Column, PageTable, Row

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


def processes_of(recording: Recording) -> tuple[str, list[PageTable]]:
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


def _process_table(processes: Sequence[_Process]) -> PageTable:
    typical = median(each.seconds for each in processes)
    shown = processes[:_MOST_PROCESSES]
    rows = tuple(
        Row(
            (
                each.name,
                STATES[each.state],
                f"{each.start:,.2f}",
                f"{each.seconds:,.2f}",
                f"{100 * (each.seconds / typical - 1):+.1f}" if typical else "",
                "" if each.peak is None else f"{each.peak / MB:,.1f}",
                f"{sum(len(run.steps) for run in each.runs):,}",
            ),
            state=each.state,
        )
        for each in shown
    )
    left_out = len(processes) - len(shown)
    return PageTable(
        "processes",
        "Processes, slowest first",
        (
            Column("Process", is_text=True),
            Column("State", is_text=True),
            Column("Start", "s"),
            Column("Time", "s"),
            Column("Time to median", "%", title="longer or shorter than the median process"),
            Column("Memory peak", "MB", title="of the process and its children"),
            Column("Steps"),
        ),
        rows,
        f"{left_out:,} faster processes are left out." if left_out else "",
    )


@dataclass(frozen=True, slots=True)
class _Shares:
    """A step as the processes took it: seconds and peak of each that has it."""

    name: str
    seconds: tuple[tuple[float, str], ...]
    peaks: tuple[tuple[float, str], ...]


def _imbalance_tables(recording: Recording, processes: Sequence[_Process]) -> Iterator[PageTable]:
    shares = [each for each in _shares(recording, processes) if len(each.seconds) > 1]
    if not shares:
        return
    shares.sort(key=lambda each: -max(each.seconds)[0])
    shown, left_out = shares[:_MOST_STEPS], len(shares) - _MOST_STEPS
    rows = []
    for each in shown:
        longest, slowest = max(each.seconds)
        typical = median(seconds for seconds, _ in each.seconds)
        peak = max(each.peaks, default=None)
        rows.append(
            Row(
                (
                    cut(each.name, _LONGEST_NAME),
                    f"{len(each.seconds):,}",
                    f"{min(each.seconds)[0]:,.2f}",
                    f"{typical:,.2f}",
                    f"{longest:,.2f}",
                    slowest,
                    f"{100 * (longest / typical - 1):+.1f}" if typical else "",
                    "" if peak is None else f"{peak[0] / MB:,.1f}",
                    "" if peak is None else peak[1],
                )
            )
        )
    yield PageTable(
        "imbalance",
        "The same step in all processes",
        (
            Column("Step", is_text=True),
            Column("Processes"),
            Column("Shortest", "s"),
            Column("Median", "s"),
            Column("Longest", "s"),
            Column("Slowest", is_text=True),
            Column("Imbalance", "%", title="by how much the longest is longer than the median"),
            Column("Memory peak", "MB", title="highest of any process"),
            Column("Peak in", is_text=True),
        ),
        tuple(rows),
        f"{left_out:,} shorter steps are left out." if left_out > 0 else "",
    )


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
