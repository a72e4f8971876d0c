"""Keeps the figures of a run and of its steps as data, for the program that asked for them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from otel_quant.schema.events import Attributes, Event, Sink
from otel_quant.schema.records import CostedModel, PeakSource, RunInfo, StepInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFigures:
    """What was measured between two readings. A figure that could not be measured is None.

    Attributes:
        duration: Seconds.
        memory_start: RSS of the process tree at the start, in bytes.
        memory_end: The same at the end.
        memory_delta: The difference of the two.
        memory_peak: The highest in between, in bytes.
        memory_peak_source: ``kernel`` if the peak is exact, ``sampled`` if it is the largest
            sample.
        gpu_memory_start: Memory in use on all visible GPUs at the start, by all processes, in
            bytes.
        gpu_memory_end: The same at the end.
        gpu_memory_delta: The difference of the two.
        gpu_memory_peak: The highest in between, in bytes.
        disk_read: Bytes fetched from storage by the process tree.
        disk_write: Bytes sent to storage by the process tree.
        cache_disk_peak: Most that one of the library's cache directories has grown, in bytes.
        cpu_user: CPU time of the process tree in user mode, in seconds.
        cpu_system: CPU time of the process tree in the kernel, in seconds.
    """

    duration: float
    memory_start: int | None = None
    memory_end: int | None = None
    memory_delta: int | None = None
    memory_peak: int | None = None
    memory_peak_source: PeakSource | None = None
    gpu_memory_start: int | None = None
    gpu_memory_end: int | None = None
    gpu_memory_delta: int | None = None
    gpu_memory_peak: int | None = None
    disk_read: int | None = None
    disk_write: int | None = None
    cache_disk_peak: int | None = None
    cpu_user: float | None = None
    cpu_system: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStep(RunFigures):
    """A step that has ended, with the fields of :class:`RunFigures`.

    Attributes:
        index: Position in the run, from 0, in order of opening.
        name: Label of the step: its kind, or the message of a User-Defined step.
        kind: The ``ProfileStep`` constant.
        parent: Index of the enclosing step; None at the top.
        library: Distribution that the step's code belongs to; None for the program's own.
        library_version: Its version.
        start: Seconds from the run's start to the step's.
        samples: Calibration samples consumed, each a batch; None if none were counted.
        items: Items in these samples; None if one of them did not tell.
        error: Class name of the exception that ended the step; None for no error.
        error_message: Its message, on one line.
    """

    index: int
    name: str
    kind: str
    parent: int | None
    library: str | None
    library_version: str | None
    start: float
    samples: int | None
    items: int | None
    error: str | None
    error_message: str | None


_FIGURES: Final = {
    "memory_start": "quant.memory.start",
    "memory_end": "quant.memory.end",
    "memory_delta": "quant.memory.delta",
    "memory_peak": "quant.memory.peak",
    "memory_peak_source": "quant.memory.peak_source",
    "gpu_memory_start": "quant.gpu.memory.start",
    "gpu_memory_end": "quant.gpu.memory.end",
    "gpu_memory_delta": "quant.gpu.memory.delta",
    "gpu_memory_peak": "quant.gpu.memory.peak",
    "disk_read": "quant.disk.read",
    "disk_write": "quant.disk.write",
    "cache_disk_peak": "quant.cache.disk.peak",
    "cpu_user": "quant.cpu.user",
    "cpu_system": "quant.cpu.system",
}
"""The attribute that each field shows."""


class _Ended(NamedTuple):
    """What is kept of a step that has ended: a `RunStep` takes longer to make."""

    info: StepInfo
    start: float  # Seconds from the run's start
    duration: float
    figures: tuple[Any, ...]  # In the order of `_FIGURES`
    samples: int | None
    items: int | None
    error: str | None
    message: str | None


class KeptRun(Sink):
    """Keeps a run. Memory grows with the number of steps."""

    name = "kept run"

    def __init__(self) -> None:
        self._steps: list[_Ended] = []
        self.info: RunInfo | None = None
        self.models: list[CostedModel] = []
        self.total: RunFigures | None = None
        self.text: list[str] = []

    def run_started(self, event: Event) -> None:
        """Keeps the description."""
        self.info = event.run

    def step_ended(self, event: Event) -> None:
        """Keeps the step; of its exception, not what the traceback holds."""
        assert event.step is not None
        self._steps.append(
            _Ended(
                event.step,
                event.elapsed - event.duration,
                event.duration,
                _figures(event.attributes),
                event.samples,
                event.items,
                event.error,
                event.error_message,
            )
        )

    def models_costed(self, event: Event) -> None:
        """Keeps the costs."""
        self.models.extend(event.models)

    def run_ended(self, event: Event) -> None:
        """Keeps the totals."""
        figures = dict(zip(_FIGURES, _figures(event.attributes), strict=True))
        self.total = RunFigures(duration=event.duration, **figures)

    def steps(self) -> tuple[RunStep, ...]:
        """Returns the steps that have ended, in the order in which they opened."""
        return tuple(_step(ended) for ended in sorted(self._steps, key=lambda e: e.info.index))


def _step(ended: _Ended) -> RunStep:
    info = ended.info
    return RunStep(
        index=info.index,
        name=info.label,
        kind=info.kind,
        parent=info.parent,
        library=info.library,
        library_version=info.library_version,
        start=ended.start,
        duration=ended.duration,
        samples=ended.samples,
        items=ended.items,
        error=ended.error,
        error_message=ended.message,
        **dict(zip(_FIGURES, ended.figures, strict=True)),
    )


def _figures(attributes: Attributes) -> tuple[Any, ...]:
    return tuple(attributes.get(name) for name in _FIGURES.values())
