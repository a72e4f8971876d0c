"""Memory of GPUs: how much of what is in use is the program's.

Drivers that do not list our processes, as in some containers, leave a bracket: from what torch has reserved to what
is in use on the devices, less what was before the program began.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple

from otel_quant.format.series import PROCESS_USED, USED, gpu_of
from otel_quant.recordings.model import LAUNCHER, Attributes, RecordedStep, Recording, known, number
from otel_quant.recordings.summary import GPU_PEAK, GPU_TREE_PEAK, StepSummary, value
from otel_quant.schema import semconv
from otel_quant.schema.figures import ALL_GPUS_MEMORY, GPU

_MATTERS: Final = 0.05
"""Share of the memory of all GPUs from which on what other programs have of it is shown."""

_INDEX: Final = GPU.device_stem + semconv.DEVICE_INDEX

_AT_FIRST: Final = 250
"""Milliseconds after its start in which no program has memory of a GPU: it takes longer to load CUDA."""


class Bracket(NamedTuple):
    """Between what the memory of the process tree was, in bytes."""

    least: float | None  # None if torch is not in use
    most: float


def gpu_limit(recording: Recording) -> float | None:
    """Returns what programs can have of the memory of all GPUs, in bytes; None if it is not known."""
    limits = (number(run.attributes, semconv.GPU_MEMORY_LIMIT) for run in recording.runs)
    return max(known(limits), default=None)


def gpu_limit_of_one(recording: Recording) -> tuple[float | None, float]:
    """Returns the memory of one GPU, and of how many the run knows it; it has the sum of all."""
    for run in recording.runs:
        limit = number(run.attributes, semconv.GPU_MEMORY_LIMIT)
        gpus = number(run.attributes, semconv.GPU_COUNT)
        if limit and gpus:
            return limit / gpus, gpus
    return None, 0


def bracket(recording: Recording) -> Bracket | None:
    """Returns it of the recording; None where the memory is known, or nothing but the devices' is."""
    return _bracket(recording, partial(value, recording), _devices(recording))


def bracket_of(recording: Recording, steps: StepSummary, step: RecordedStep) -> Bracket | None:
    """Returns it of a step."""
    return _bracket(recording, partial(steps.value, step), [step.devices])


def highest_on(recording: Recording, index: int) -> float | None:
    """Returns the highest memory of a process tree on one GPU, in bytes; None if no run or step has ended that knows it."""
    every = (each for devices in _devices(recording) for each in devices)
    own = (number(it, semconv.GPU_DEVICE_TREE_PEAK) for it in every if it.get(_INDEX) == index)
    return max(known(own), default=None)


def _devices(recording: Recording) -> list[Sequence[Attributes]]:
    """Returns what runs and steps have used of each GPU."""
    runs = recording.runs
    return [*(run.devices for run in runs), *(step.devices for run in runs for step in run.steps)]


def _bracket(
    recording: Recording,
    highest: Callable[[str], float | None],
    devices: Sequence[Sequence[Attributes]],
) -> Bracket | None:
    used = highest(GPU_PEAK)
    if used is None or highest(GPU_TREE_PEAK) is not None:
        return None
    parts = ([number(each, semconv.GPU_DEVICE_RESERVED_PEAK) for each in row] for row in devices)
    least = max((sum(known(row)) for row in parts if known(row)), default=None)
    before = recording.once("GPU memory before", lambda: _before(recording))
    if least is None and before is None:
        return None
    return Bracket(least, max(used - (before or 0), least or 0))


def _before(recording: Recording) -> float | None:
    """Returns what was in use when the launcher looked first, if that was before the program can have had any."""
    buckets, name = recording.curve(LAUNCHER)[1].buckets.values(), ALL_GPUS_MEMORY.curve
    first = next((each.levels[name] for each in buckets if name in each.levels), None)
    return None if first is None or first.at > _AT_FIRST else first.lowest


def shows_all_programs(recording: Recording) -> bool:
    """Whether the memory that all programs have is worth showing: others have much of it, or no more is known."""
    return recording.once("all programs", lambda: _shows_all_programs(recording))


def _shows_all_programs(recording: Recording) -> bool:
    limit = gpu_limit(recording)
    # A run of an earlier version that was killed has its GPUs' own curves alone.
    if value(recording, GPU_TREE_PEAK) is not None or value(recording, GPU_PEAK) is None:
        return limit is not None and max(_others(recording), default=0) > _MATTERS * limit
    if bracket(recording) is None:
        return True
    return limit is not None and (_before(recording) or 0) > _MATTERS * limit


def _others(recording: Recording) -> Iterator[float]:
    """Yields what other programs had at moments, in bytes."""
    # Without a launcher, curves of several processes are of trees beside each other.
    names = [LAUNCHER] if LAUNCHER in recording.curves else [*recording.curves]
    for name in names if len(names) == 1 else ():
        for bucket in recording.curve(name)[1].buckets.values():
            found = {gpu_of(name): level.last for name, level in bucket.levels.items()}
            indices = {gpu[0] for gpu in found if gpu is not None and gpu[1] == PROCESS_USED}
            yield sum(found.get((at, USED), 0) - found[at, PROCESS_USED] for at in indices)
