"""The figures of a run that can be compared: one flat mapping for each step, and one for the whole.

A figure has the name that it has on spans without ``quant.``: ``memory.peak``. What was not measured
is absent.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from otel_quant.export.recording.curve_file import RecordedCurve
from otel_quant.recordings.attributes import number, numbers
from otel_quant.recordings.model import Attributes, RecordedRun, RecordedStep, Recording
from otel_quant.schema import semconv, series

Figures: TypeAlias = Mapping[str, float]
"""Numbers by the name of the figure, in the figure's unit."""

Kind = Literal["time", "memory", "gpu", "disk", "cost"]
"""What a figure is a measure of. It decides which differences of machines change the figure."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure."""

    name: str  # Its name: ``memory.peak``
    unit: str  # UCUM unit
    kind: Kind  # What it is a measure of
    brief: str  # What it is
    is_smaller_better: bool = True  # Whether less of it is better


DURATION: Final = "duration"
CPU_TIME: Final = "cpu.time"
MEMORY_PEAK: Final = "memory.peak"
MEMORY_SEEN: Final = "memory.seen"
PROCESS_PEAK: Final = "memory.process_peak"
GPU_PEAK: Final = "gpu.memory.peak"
GPU_ALLOCATED: Final = "gpu.torch_allocated.peak"
DISK_READ: Final = "disk.read"
DISK_WRITE: Final = "disk.write"
CACHE_PEAK: Final = "cache.disk.peak"
SAMPLE_RATE: Final = "calibration.sample_rate"
CPU_WAIT: Final = "cpu.wait"
CPU_WAITS: Final = "cpu.waits"

WAITS: Final = (CPU_WAIT, CPU_WAITS)
"""Figures of the machine's other work rather than of the program."""

_OF_MODEL: Final = (
    Figure("size", "By", "cost", "size of the file, external data included"),
    Figure("params", "{element}", "cost", "elements of the static tensors"),
    Figure("weight_bytes", "By", "cost", "bytes of the weights as stored"),
    Figure("macs", "{mac}", "cost", "forward MACs"),
    Figure("memory", "By", "cost", "weights and the outputs of all nodes"),
    Figure("peak_activation_bytes", "By", "cost", "tensors in memory at one time"),
    Figure("nodes", "{node}", "cost", "nodes"),
    Figure("integer_mac_share", "1", "cost", "share of MACs in int8 or narrower", False),
)

FIGURES: Final[tuple[Figure, ...]] = (
    Figure(DURATION, "s", "time", "time from start to end"),
    Figure(CPU_TIME, "s", "time", "CPU time of the process tree"),
    Figure(CPU_WAIT, "s", "time", "time for which the main thread waited for a processor"),
    Figure(CPU_WAITS, "s", "time", "time for which threads waited for a processor, added up, at most"),
    Figure(SAMPLE_RATE, "{sample}/s", "time", "calibration samples per second", False),
    Figure(MEMORY_PEAK, "By", "memory", "highest RSS of the process tree"),
    Figure(MEMORY_SEEN, "By", "memory", "highest RSS of the process tree at a checkpoint"),
    Figure(PROCESS_PEAK, "By", "memory", "highest RSS of the main process alone"),
    Figure(GPU_PEAK, "By", "gpu", "highest memory in use on all visible GPUs"),
    Figure(GPU_ALLOCATED, "By", "gpu", "highest memory that torch has allocated on all GPUs"),
    Figure(DISK_READ, "By", "disk", "bytes fetched from storage"),
    Figure(DISK_WRITE, "By", "disk", "bytes sent to storage"),
    Figure(CACHE_PEAK, "By", "disk", "largest growth of a cache directory"),
    *(
        Figure(f"model.{role}.{figure.name}", figure.unit, figure.kind,
               f"{role} model: {figure.brief}", figure.is_smaller_better)
        for role in ("float", "quantized")
        for figure in _OF_MODEL
    ),
)  # fmt: skip
"""Every figure, in the order in which they are shown. Those of models, and ``memory.process_peak``, are of the whole
alone."""

BY_NAME: Final[Mapping[str, Figure]] = {figure.name: figure for figure in FIGURES}

_SAME: Final = (CPU_WAIT, MEMORY_PEAK, GPU_PEAK, DISK_READ, DISK_WRITE, CACHE_PEAK)
"""Figures that are an attribute of a step as they are."""

LAUNCHER: Final = "launcher"
"""The curve that the launcher has made of all processes."""


def figures_of_steps(
    run: RecordedRun, waits_between: Callable[[float, float], float | None]
) -> dict[int, dict[str, float]]:
    """Returns the figures of each step of a run, by the step's index."""
    found = {step.index: _of_step(step) for step in run.steps}
    for step in run.steps:
        waits = waits_between(step.start, step.end) if step.end is not None else None
        if waits is not None:
            found[step.index][CPU_WAITS] = waits
    for step in sorted(run.steps, key=lambda each: each.index, reverse=True):
        seen = found[step.index].get(MEMORY_SEEN)
        above = found.get(-1 if step.parent is None else step.parent)
        if seen is not None and above is not None:
            above[MEMORY_SEEN] = max(seen, above.get(MEMORY_SEEN, seen))
    return found


def figures_of(recording: Recording) -> dict[str, float]:
    """Returns the figures of a whole recording: of all its processes together."""
    runs, curve = recording.runs, recording.curves.get(LAUNCHER)
    steps = [step for run in runs for step in run.steps]
    attributes = [*(run.attributes for run in runs), *(step.attributes for step in steps)]
    figures: dict[str, float | None] = {
        DURATION: recording.duration,
        CPU_TIME: _total(recording, series.CPU, (semconv.CPU_USER, semconv.CPU_SYSTEM)),
        CPU_WAIT: _last_total(curve, series.CPU_WAIT)
        if curve is not None
        else _highest(numbers((run.attributes for run in runs), semconv.CPU_WAIT)),
        CPU_WAITS: _last_total(curve, series.CPU_WAITS),
        SAMPLE_RATE: _sample_rate(runs),
        MEMORY_PEAK: _highest(
            (
                *numbers(attributes, semconv.MEMORY_PEAK),
                *numbers(_last(runs), semconv.READING_MEMORY_PEAK),
                *_levels(curve, series.MEMORY),
                *_ending(recording),
            )
        ),
        MEMORY_SEEN: _highest(
            numbers(
                (point.attributes for run in runs for point in run.checkpoints),
                semconv.CHECKPOINT_MEMORY,
            )
        ),
        PROCESS_PEAK: _highest(numbers(attributes, semconv.MEMORY_PROCESS_PEAK)),
        GPU_PEAK: _highest(numbers(attributes, semconv.GPU_MEMORY_PEAK)),
        GPU_ALLOCATED: _allocated_by_processes(runs),
        DISK_READ: _total(recording, series.DISK_READ, (semconv.DISK_READ,)),
        DISK_WRITE: _total(recording, series.DISK_WRITE, (semconv.DISK_WRITE,)),
        CACHE_PEAK: _highest(
            (
                *numbers((*attributes, *_last(runs)), series.CACHE_GROWTH),
                *_levels(curve, series.CACHE),
            )
        ),
        **_of_models(runs),
    }
    return _known(figures)


def _of_step(step: RecordedStep) -> dict[str, float]:
    attributes, is_over = step.attributes, step.end is not None
    seconds = step.end - step.start if step.end is not None else None
    rate = number(attributes, semconv.CALIBRATION_SAMPLE_RATE)
    if rate is None and step.samples and seconds:
        rate = step.samples / seconds
    return _known(
        {
            DURATION: seconds,
            CPU_TIME: _cpu_time(attributes),
            SAMPLE_RATE: rate if is_over else None,
            MEMORY_SEEN: _highest(
                value
                for name in (semconv.MEMORY_START, "quant.memory.end")
                for value in numbers((attributes,), name)
            ),
            GPU_ALLOCATED: _allocated(step.devices),
            **{name: number(attributes, semconv.PREFIX + name) for name in _SAME},
        }
    )


def _of_models(runs: Iterable[RecordedRun]) -> dict[str, float]:
    """Returns the cost of the last model of each role."""
    return {
        name: value
        for run in runs
        for model in run.models
        for key, value in model.get("figures", {}).items()
        if (name := f"model.{model.get('role')}.{key}") in BY_NAME
        and isinstance(value, int | float)
    }


def _allocated(devices: Sequence[Attributes]) -> float | None:
    known = numbers(devices, "quant.gpu.device.torch_allocated.peak")
    return sum(known) if known else None


def _allocated_by_processes(runs: Iterable[RecordedRun]) -> float | None:
    """Returns what all processes have allocated; of the runs of one process the highest counts."""
    highest: dict[str, float] = {}
    for run in runs:
        of_steps = (step.devices for step in run.steps)
        for value in filter(None, map(_allocated, (run.devices, *of_steps))):
            highest[run.process] = max(value, highest.get(run.process, value))
    return sum(highest.values()) if highest else None


def _cpu_time(attributes: Attributes) -> float | None:
    user = number(attributes, semconv.CPU_USER)
    system = number(attributes, semconv.CPU_SYSTEM)
    return None if user is None or system is None else user + system


def _sample_rate(runs: Iterable[RecordedRun]) -> float | None:
    """Returns the samples of the outermost steps that count some, by the time of these steps."""
    samples, seconds = 0, 0.0
    for run in runs:
        counting: set[int] = set()
        for step in sorted(run.steps, key=lambda each: each.index):
            if step.parent in counting:
                counting.add(step.index)
            elif step.samples and step.end is not None:
                counting.add(step.index)
                samples, seconds = samples + step.samples, seconds + step.end - step.start
    return samples / seconds if seconds else None


def _total(recording: Recording, name: str, attributes: Sequence[str]) -> float | None:
    """Returns a total of the whole: by the launcher's curve, else of the outermost processes."""
    curve = recording.curves.get(LAUNCHER)
    if curve is not None:
        return _last_total(curve, name)
    found = [
        number(run.attributes, attribute)
        for run in outermost_runs(recording)
        for attribute in attributes
    ]
    known = [value for value in found if value is not None]
    return sum(known) if known and len(known) == len(found) else None


def _last_total(curve: RecordedCurve | None, name: str) -> float | None:
    buckets = curve.curve.buckets.values() if curve is not None else ()
    return _highest(bucket.totals[name] for bucket in buckets if name in bucket.totals)


def outermost_runs(recording: Recording) -> Iterator[RecordedRun]:
    """Yields the runs of processes that no recorded process has started."""
    pids = {run.pid for run in recording.runs if run.pid is not None}
    return (run for run in recording.runs if run.parent_pid not in pids)


def _levels(curve: RecordedCurve | None, name: str) -> list[float]:
    buckets = curve.curve.buckets.values() if curve is not None else ()
    return [bucket.levels[name].highest for bucket in buckets if name in bucket.levels]


def _ending(recording: Recording) -> list[float]:
    ending = recording.ending
    return [] if ending is None or ending.memory is None else [ending.memory]


def _last(runs: Iterable[RecordedRun]) -> list[Attributes]:
    return [run.last.attributes for run in runs if run.last is not None]


def _highest(values: Iterable[float]) -> float | None:
    return max(values, default=None)


def _known(figures: Mapping[str, float | None]) -> dict[str, float]:
    return {
        name: value
        for name, value in figures.items()
        if value is not None and math.isfinite(value)  # a file may say anything
    }
