"""Measurements: immutable records that probes make and sinks receive.

``None`` (or an empty tuple) means that a figure could not be measured. It is never replaced by
0, because a chart would show that as a measured value.

What is made at each reading is a named tuple: a frozen dataclass takes four times as long to make.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple

from otel_quant.schema import semconv
from otel_quant.schema.dataclass import dataclass, field

# --- how far a step is: which calibration sample or layer it has begun, of how many ------------


@dataclass(frozen=True, slots=True)
class Unit:
    """What a step goes through one after the other."""

    several: str  # Its name in the plural: field of a recording, how many were begun
    count: str  # Attribute: how many it has begun
    total: str  # Attribute: how many there are
    metric: str  # Counter of those that were begun
    share: str  # Gauge: those that were begun, divided by all
    consumed: str  # Kind of event in a recording: how many were begun by a time
    expected: str  # Field of a recording's state: how many there are
    growth: Mapping[str, str]  # Attribute of a forecast: how much a resource grows with each


UNITS: Final[Mapping[str, Unit]] = {
    "layer": Unit("layers", semconv.LAYER_COUNT, semconv.LAYER_TOTAL, semconv.STEP_LAYERS, semconv.STEP_LAYER_PROGRESS, "layers.begun", "expected_layers", {"memory": semconv.FORECAST_MEMORY_PER_LAYER, "gpu": semconv.FORECAST_GPU_MEMORY_PER_LAYER}),
    # Of a batch through a part of the model; never the newest of the counts, of which forecasts are made.
    "pass": Unit("passes", semconv.PASS_COUNT, semconv.PASS_TOTAL, semconv.STEP_PASSES, semconv.STEP_PASS_PROGRESS, "passes.begun", "expected_passes", {}),
    "sample": Unit("samples", semconv.CALIBRATION_SAMPLE_COUNT, semconv.CALIBRATION_SAMPLE_TOTAL, semconv.CALIBRATION_SAMPLES, semconv.CALIBRATION_PROGRESS, "samples.consumed", "expected", {"memory": semconv.FORECAST_MEMORY_PER_SAMPLE, "gpu": semconv.FORECAST_GPU_MEMORY_PER_SAMPLE}),
}  # fmt: skip
"""By name, in the order in which texts have them."""


class Count(NamedTuple):
    """How many of a unit a step has begun."""

    done: int = 0
    total: int | None = None  # Of how many; None if that is not known


_NONE: Final = Count()


class Counts(dict[str, Count]):
    """The counts of a step, by name of the unit; the one whose total was learned last is its progress."""

    @property
    def newest(self) -> str | None:
        """The unit that the step goes through now; None if it counts nothing."""
        return next(reversed(self), None)

    @property
    def current(self) -> Count:
        """The count of that unit."""
        return self.get(self.newest or "", _NONE)

    @property
    def samples(self) -> int | None:
        """Calibration samples consumed, each a batch; None if none were counted."""
        return self.get("sample", _NONE).done or None

    def expect(self, unit: str, total: int) -> None:
        """Begins to count a unit of which there are so many. A second loop over layers begins anew."""
        self.pop(unit, None)
        self[unit] = Count(0, total)

    def attributes(self) -> dict[str, Any]:
        """Returns the attributes of telemetry; None for what is not known."""
        return {
            name: value
            for unit, (done, total) in self.items()
            for name, value in ((UNITS[unit].count, done or None), (UNITS[unit].total, total))
        }

    def __str__(self) -> str:
        """``layer 17 of 32, sample 5 of 512``; what is complete is left out, unless it was begun last."""
        shown = ((unit, *self[unit]) for unit in UNITS if unit in self)
        return ", ".join(
            f"{unit} {done:,}{'' if total is None else f' of {total:,}'}"
            for unit, done, total in shown
            if unit == self.newest or done != total
        )


# --- measurements -------------------------------------------------------------------------

AttributeValue = str | bool | int | float | tuple[str, ...] | tuple[int, ...]

_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})

PeakSource = Literal["kernel", "allocator", "sampled", "at_least"]
AT_LEAST: Final = "at_least"
Phase = Literal["start", "end", "point"]


class MemoryReading(NamedTuple):
    """Resident memory of the process tree at one instant."""

    rss: int  # RSS of this process, in bytes
    # RSS of this process and all its descendants, in bytes; shared pages count once for each
    # process that maps them, as in Quark's `cpu_memory_mb`
    tree_rss: int
    # Highest RSS of this process since it began or since the mark was reset (``VmHWM``), in
    # bytes; None where the system has no such mark
    high_water: int | None = None
    children: tuple[tuple[int, int, int | None], ...] = ()  # pid, rss, high_water of each live one
    # Highest RSS of any descendant that has exited and been waited for (``ru_maxrss`` of
    # ``RUSAGE_CHILDREN``), in bytes; None unless it is above every other mark that was read since
    # the run began
    reaped_high_water: int | None = None
    # Page faults of all descendants that have been waited for, if there is no descendant now;
    # None if there is one, or if one could end unnoticed. If two successive readings have the
    # same number, no descendant lived between them.
    reaped_faults: int | None = None
    is_brief: bool = False  # Taken between two checkpoints: only the memory in use
    # Above the highest RSS of any of the processes by then, also of those that have ended: a mark
    # that is higher rose later. None where the system has no marks
    above_marks: int | None = None
    # What this process may have held since the reading before, in bytes: a page that it touches costs a
    # page fault. 0 for nothing that is known
    possible: int = 0

    def within(self, rss: int | None) -> int:
        """Returns the memory of the process tree, with that RSS of this process at most, in bytes."""
        return self.tree_rss if rss is None else self.tree_rss - max(0, self.rss - rss)

    def with_marks_lowered(self, pids: Collection[int]) -> MemoryReading:
        """Returns the same memory with the marks of this process and of some others reset."""
        children = ((pid, rss, rss if pid in pids else mark) for pid, rss, mark in self.children)
        return self._replace(high_water=self.rss, children=tuple(children))


class DiskReading(NamedTuple):
    """Cumulative I/O of the process tree, including exited descendants, in bytes."""

    read: int  # Fetched from storage
    write: int  # Sent to storage
    read_chars: int | None = None  # Read through system calls, including page-cache hits
    write_chars: int | None = None  # Written through system calls


class CpuReading(NamedTuple):
    """Cumulative CPU time of the process tree, including exited descendants."""

    user: float  # Seconds in user mode
    system: float  # Seconds in the kernel
    major_faults: int | None = None  # Page faults that waited for storage
    # Seconds for which the main thread of the process, not of its descendants, was ready to run
    # and waited for a processor; None where the system does not tell
    wait: float | None = None
    # Joules that the processors' packages have used since the first reading, whatever program
    # used them; None where they do not tell
    energy: float | None = None


@dataclass(frozen=True, slots=True)
class GpuActivity:
    """What one visible GPU does, at most a second ago. None for what it does not tell."""

    utilization: float | None = None  # Share of the last moments in which it computed, 0 to 1
    power: float | None = None  # Electric power, in watts
    temperature: float | None = None  # Of the chip, in degrees Celsius
    clock: int | None = None  # Clock of the processors, in hertz
    memory_clock: int | None = None  # Clock of the memory, in hertz
    slowed_by: tuple[str, ...] | None = None  # What slows it, such as heat; None if not known
    memory_errors: int | None = None  # That could not be corrected, since the driver was loaded


class GpuWork(NamedTuple):
    """What one visible GPU has done lately, whatever program it did it for, on average. NaN for what it does not tell."""

    busy: float = math.nan  # Share of the time in which a kernel ran on it, 0 to 1
    sm: float = math.nan  # Share of its multiprocessors that had work
    dram: float = math.nan  # Share of the bandwidth of its memory
    pcie: float = math.nan  # Bytes a second to it or from it, the larger of the two
    link: float = math.nan  # Bytes a second that its link can take in one direction
    power: float = math.nan  # Share of the limit of its power


class AllocatorMark(NamedTuple):
    """The highest that a counter has reached."""

    moves: int  # How often it was seen to move, from 1; it never falls
    bytes: int


class TorchMemory(NamedTuple):
    """What torch's caching allocator in this process holds of one GPU, in bytes."""

    allocated: int
    reserved: int  # From the driver, what is allocated included
    allocated_mark: AllocatorMark
    reserved_mark: AllocatorMark
    # How often no more could be reserved, so that the cache was freed and it tried again; None of
    # an allocator that does not count it
    retries: int | None = None


GpuMemorySource = Literal["nvmlMemory_v1", "nvmlMemory_v2", "amdgpu"]
"""What the memory in use on a device was read from. Version 1 of NVML's counts what the driver keeps for itself."""


@dataclass(slots=True)
class GpuReading:
    """Memory of one visible GPU at one instant, in bytes, and what it does. Only its probe changes it, as it makes it."""

    index: int  # Position among the devices that this process can see, from 0
    id: str  # Stable identifier: UUID (NVIDIA, MIG) or PCI address (AMD)
    name: str | None  # Product name; None if the driver does not report it
    used: int  # In use on the device, by all processes
    limit: int | None = None  # What programs can have of the device's memory
    process_used: int | None = None  # By this process tree; None if the driver does not report it
    torch: TorchMemory | None = None  # Of torch's caching allocator; None if torch is not in use
    activity: GpuActivity | None = None  # What it does; None if it does not tell
    is_whole: bool = True  # Whether every GPU was read with it, and none failed for the moment
    source: GpuMemorySource | None = None  # What ``used`` was read from
    processes: int | None = None  # How many of this process tree have memory on it
    is_alone: bool = False  # Whether this process has, and no other that the driver lists
    # Joules that it has used since this process first looked, whatever program used them: by power
    # times time since it was last asked; None if it counts none
    energy: float | None = None
    # What it has done since the last checkpoint, or lately; only between two checkpoints
    work: GpuWork | None = None

    @property
    def own(self) -> int | None:
        """Memory of this program on it, in bytes, as far as that is known."""
        reserved = None if self.torch is None else self.torch.reserved
        return reserved if self.process_used is None else self.process_used

    def has_same_memory(self, other: GpuReading) -> bool:
        """Whether no memory has changed since another reading, nor has been used in between as far as torch tells."""
        return self.levels[:3] == other.levels[:3]

    @property
    def levels(self) -> tuple[object, ...]:
        """All that rises and falls: readings that have the same have the same peaks."""
        return self.used, self.process_used, self.torch, self.activity, self.limit, self.is_whole


OWN_MEMORY: Final = 12_000_000
"""Bytes of a recorded process that are otel-quant's own, about: code that is loaded, and what it keeps."""


class Reading(NamedTuple):
    """The resources in use at one instant."""

    time_ns: int  # Wall clock, nanoseconds since the epoch; for timestamps
    clock_ns: int  # Monotonic clock, nanoseconds; for durations
    resources: Mapping[str, Any] = _NOTHING  # The record of each probe; absent if it failed
    # Position among the readings of memory in this process. Threads that read at the same time
    # may finish in another order.
    order: int = 0
    # The same memory with the kernel's marks lowered to it, right after it was read (exact mode)
    lowered: Reading | None = None

    @property
    def memory(self) -> MemoryReading | None:
        """Process memory."""
        memory: MemoryReading | None = self.resources.get("memory")
        return memory

    @property
    def gpus(self) -> tuple[GpuReading, ...]:
        """One reading for each visible GPU, in order of index."""
        gpus: tuple[GpuReading, ...] = self.resources.get("gpu", ())
        return gpus


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of the process."""

    memory: int | None = None  # The cgroup's or physical memory, the smaller, in bytes
    memory_source: Literal["cgroup", "physical"] | None = None  # Which of the two it is


@dataclass(slots=True)
class StepInfo:
    """A step, as known when it opens. Nobody changes it; frozen, it would take four times as long to make."""

    index: int  # Position in the run, from 0, in order of opening
    label: str  # Name of the step: its kind, or the user's message
    kind: str  # The ``ProfileStep`` constant
    parent: int | None = None  # Index of the enclosing step, None at the top
    library: str | None = None  # Distribution that the code belongs to
    library_version: str | None = None  # Its version
    function: str | None = None  # Qualified name of the function that is the step
    thread: int = 0  # Identifier of the thread that opened it
    filled_in: bool = False  # Whether the library's own profiler does not report it


class Peaks(NamedTuple):
    """Highest figures of a step or a run."""

    figures: Mapping[str, int | float] = _NOTHING  # ``memory``, ``gpu.memory``, ``cache.disk``
    # Source of a peak, by name of the figure: ``kernel`` if it is certainly the highest (the
    # high-water mark of a process without children, and it rose), likewise ``allocator`` (torch's,
    # of a single process on a single GPU), else ``sampled``: the highest that was seen, or
    # ``at_least`` if page faults contradict that. Only memory has one.
    sources: Mapping[str, PeakSource] = _NOTHING
    # By name of the resource, index of the device and name of the figure
    devices: Mapping[str, Mapping[int, Mapping[str, int | float]]] = _NOTHING
    process_memory: int | None = None  # RSS of the main process alone, in bytes


@dataclass(frozen=True, slots=True)
class GrowthForecast:
    """Memory that grows with the samples or the layers of a step."""

    resource: Literal["memory", "gpu"]  # Of the process tree, or all in use on one GPU
    at_end: int  # Estimate of what is in use after the last one, in bytes
    per_unit: int  # Growth with each, in bytes
    limit: int  # What there is, in bytes
    device: str | None = None  # Identifier of the GPU; None for memory
    is_warning: bool = False  # ``at_end`` is above the limit, and enough was seen to warn
    unit: str = "sample"  # Or ``layer``


@dataclass(frozen=True, slots=True)
class Forecast:
    """Where an open step will be at its end. All of it is estimated."""

    # Seconds until the last sample or layer; None before that can be told
    time_left: float | None = None
    growths: tuple[GrowthForecast, ...] = ()  # Memory that grows with them
    stalled: float | None = None  # Seconds since the last one, where that is far too long


@dataclass(frozen=True, slots=True)
class StepProgress:
    """A step that is open."""

    info: StepInfo  # Its description
    counts: Counts = field(default_factory=Counts)  # How many samples and layers it has begun
    forecast: Forecast = field(default_factory=Forecast)  # Where it will be after them
    findings: tuple[str, ...] = ()  # What is wrong with its calibration so far


@dataclass(frozen=True, slots=True)
class CostedModel:
    """The static cost of one ONNX model, or the audit of a checkpoint."""

    role: Literal["float", "quantized"]  # ``float`` for the one that was read
    path: str | None  # Its file; None for a model in memory, or if paths are switched off
    start_ns: int  # Wall clock when costing began
    end_ns: int  # Wall clock when it ended
    # Totals, by the last part of their attributes' names; empty if it could not be costed
    figures: Mapping[str, AttributeValue]
    heaviest: tuple[Mapping[str, str | int], ...] = ()  # The nodes with the most MACs
    error: str | None = None  # Why it could not be costed

    @property
    def is_checkpoint(self) -> bool:
        """Whether it is no ONNX model: of a checkpoint its audit alone is known."""
        names = self.figures.keys() - {"size"}
        return bool(names) and all(name.startswith("audit.") for name in names)


class LayerAccuracy(NamedTuple):
    """What a library has computed itself of how well it has quantized a layer, or of another part of its work."""

    layer: str  # As the library names it
    measure: str  # The library's own name of what it has computed: ``loss``, ``qdq_err``
    value: float | None  # None if it is not finite
    better: Literal["lower", "higher"] | None = None  # Which values are; None if that is not known
    unit: str | None = None  # UCUM unit; None if it has none
    number: int = 0  # Position among the values of the step, from 0
    time_ns: int = 0  # Wall clock when it was known


class LayerSeen(NamedTuple):
    """What reached a layer in a calibration, as far as an observer of the library tells."""

    layer: str  # Its name in the model, or that of a tensor
    samples: int  # Samples of which something reached it
    tokens: int | None  # Vectors of features that did, or images; None where no shape tells
    is_finite: bool = True  # Whether its range is
    sample: int | None = None  # The first sample after which it was not, from 1
    growth: float | None = None  # Times by which its range grew in the last tenth of the samples
    settled: int | None = None  # The sample after which its range grew by a hundredth at most

    def attributes(self) -> dict[str, Any]:
        """Returns the attributes of its log record; None for what is not known."""
        return dict(zip(semconv.OF_LAYER_SEEN, self, strict=True))


def worst_first(layers: Iterable[LayerAccuracy]) -> list[LayerAccuracy]:
    """Returns values of one measure in order, those that are not finite first; as they came if no value is better."""
    signs = {"lower": -1, "higher": 1, None: 0}
    return sorted(
        layers,
        key=lambda each: -math.inf if each.value is None else signs[each.better] * each.value,
    )


@dataclass(frozen=True, slots=True)
class RunInfo:
    """A run, as known when it begins."""

    id: str  # Identifier, 16 hexadecimal digits
    pid: int | None  # Process; None where a recording has no number of it
    name: str = ""  # Name for people, the same in the processes of one run; empty before it begins
    model: str | None = None  # Name of the float model, where the step that begins the run has one
    method: str | None = None  # Calibration method, where that step has one
    config: str | None = None  # Name of the configuration, where that step has one
    launched_ns: int | None = None  # When the launcher of ranks was started, since the epoch
    limits: Limits = field(default_factory=Limits)  # Limits of the process
    rank: int | None = None  # Rank given by a launcher such as torchrun
    world_size: int | None = None  # Number of processes that the launcher started
    parent_carrier: Mapping[str, str] = field(default_factory=dict)  # W3C trace context to continue
    origin: Mapping[str, AttributeValue] = field(default_factory=dict)  # Attributes of what made it
    paths: bool = True  # Whether paths of files, and texts that may name one, may leave the process


# --- names of steps -----------------------------------------------------------------------


class ProfileStep:
    """Names of steps.

    Every constant is a plain string, so a step of your own needs no subclass: use
    ``USER_DEFINED`` with a message, or pass any other string.
    """

    # Start and end of a run, and general steps.
    START: Final = "Start"
    END: Final = "End"
    USER_DEFINED: Final = "User-Defined"
    MODEL_LOADED: Final = "Model Loaded"

    # PyTorch.
    FILE_TO_FILE_QUANTIZATION: Final = "File-to-File Quantization"
    MODEL_LOADING: Final = "Model Loading"
    DATASET_LOADING: Final = "Dataset Loading"
    MODEL_QUANTIZATION: Final = "Model Quantization"
    MODEL_EVALUATION: Final = "Model Evaluation"
    ADVANCED_ALGORITHMS: Final = "Advanced Algorithms"
    CALIBRATION_WEIGHTS: Final = "Calibration (Weights)"
    CALIBRATION_FORWARD: Final = "Calibration (Forward)"
    FREEZE_MODEL: Final = "Freeze Model"
    MODEL_PREPARATION: Final = "Model Preparation"

    # Exports.
    EXPORT_HF_SAFETENSORS: Final = "Export HF Safetensors"
    EXPORT_ONNX: Final = "Export ONNX"
    EXPORT_GGUF: Final = "Export GGUF"

    # ONNX.
    PRE_PROCESS: Final = "Pre-process"
    CALIBRATION: Final = "Calibration"
    QUANTIZATION_MATMUL_NBITS: Final = "Quantization (MatMulNBits)"
    QUANTIZATION_STATIC: Final = "Quantization (Static)"
    QUANTIZATION_DYNAMIC: Final = "Quantization (Dynamic)"
    POST_PROCESS: Final = "Post-process"
    FAST_FINETUNE: Final = "Fast Finetune"
    MODEL_CACHING: Final = "Model Caching"
    FLOAT_MODEL_VALIDATION: Final = "Float Model Validation"


ALL_STEPS: Final[frozenset[str]] = frozenset(
    value for name, value in vars(ProfileStep).items() if name.isupper() and isinstance(value, str)
)
"""Every name above; any other name is the user's own."""
