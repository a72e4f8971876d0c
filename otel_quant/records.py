"""Measurements: immutable records that probes make and sinks receive.

``None`` (or an empty tuple) means that a figure could not be measured. It is never replaced by
0, because a chart would show that as a measured value.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

AttributeValue = str | bool | int | float | tuple[str, ...] | tuple[int, ...]

PeakSource = Literal["kernel", "sampled"]
Phase = Literal["start", "end", "point"]


@dataclass(frozen=True, slots=True)
class MemoryReading:
    """Resident memory of the process tree at one instant.

    Attributes:
        rss: RSS of this process, in bytes.
        tree_rss: RSS of this process and all its descendants, in bytes; shared pages
            count once for each process that maps them, as in Quark's `cpu_memory_mb`.
        high_water: Highest RSS of this process since it began or since the mark was
            reset (``VmHWM``), in bytes; None where the system has no such mark.
        children: One (pid, rss, high_water) for each live descendant, in bytes.
        reaped_high_water: Highest RSS of any descendant that has exited and been waited
            for (``ru_maxrss`` of ``RUSAGE_CHILDREN``), in bytes; None unless it is above
            every other mark that was read since the run began.
        reaped_faults: Page faults of all descendants that have been waited for, if there is no
            descendant now; None if there is one, or if one could end unnoticed. If two
            successive readings have the same number, no descendant lived between them.
    """

    rss: int
    tree_rss: int
    high_water: int | None = None
    children: tuple[tuple[int, int, int | None], ...] = ()
    reaped_high_water: int | None = None
    reaped_faults: int | None = None

    def with_marks_lowered(self, pids: Collection[int]) -> MemoryReading:
        """Returns the same memory with the marks of this process and of some others reset.

        Args:
            pids: The descendants whose marks were lowered to their RSS.
        """
        return MemoryReading(
            rss=self.rss,
            tree_rss=self.tree_rss,
            high_water=self.rss,
            children=tuple(
                (pid, rss, rss if pid in pids else mark) for pid, rss, mark in self.children
            ),
            reaped_high_water=self.reaped_high_water,
            reaped_faults=self.reaped_faults,
        )


@dataclass(frozen=True, slots=True)
class DiskReading:
    """Cumulative I/O of the process tree, including exited descendants, in bytes.

    Attributes:
        read: Fetched from storage.
        write: Sent to storage.
        read_chars: Read through system calls, including page-cache hits.
        write_chars: Written through system calls.
    """

    read: int
    write: int
    read_chars: int | None = None
    write_chars: int | None = None


@dataclass(frozen=True, slots=True)
class CpuReading:
    """Cumulative CPU time of the process tree, including exited descendants.

    Attributes:
        user: Seconds in user mode.
        system: Seconds in the kernel.
        major_faults: Page faults that waited for storage.
        wait: Seconds for which the main thread of the process, not of its descendants, was ready
            to run and waited for a processor; None where the system does not tell.
    """

    user: float
    system: float
    major_faults: int | None = None
    wait: float | None = None


@dataclass(frozen=True, slots=True)
class GpuActivity:
    """What one visible GPU does, at most a second ago. None for what it does not tell.

    Attributes:
        utilization: Share of the last moments in which it computed, 0 to 1; the driver says how
            long those are.
        power: Electric power, in watts.
        temperature: Of the chip, in degrees Celsius.
        clock: Clock of the processors, in hertz.
        memory_clock: Clock of the memory, in hertz.
        slowed_by: What makes it slower than it could be, such as heat; None if not known.
        memory_errors: Errors of its memory that could not be corrected, since the driver was
            loaded.
    """

    utilization: float | None = None
    power: float | None = None
    temperature: float | None = None
    clock: int | None = None
    memory_clock: int | None = None
    slowed_by: tuple[str, ...] | None = None
    memory_errors: int | None = None


@dataclass(frozen=True, slots=True)
class GpuReading:
    """Memory of one visible GPU at one instant, in bytes, and what it does.

    Attributes:
        index: Position among the devices that this process can see, from 0.
        id: Stable identifier: UUID (NVIDIA, MIG) or PCI address (AMD).
        name: Product name; None if the driver does not report it.
        used: In use on the device, by all processes.
        limit: Size of the device's memory.
        process_used: In use by this process tree; None if the driver does not report it.
        torch_allocated: Allocated by torch's caching allocator, if torch is in use.
        torch_reserved: Reserved by torch's caching allocator.
        activity: What it does; None if it does not tell.
    """

    index: int
    id: str
    name: str | None
    used: int
    limit: int | None = None
    process_used: int | None = None
    torch_allocated: int | None = None
    torch_reserved: int | None = None
    activity: GpuActivity | None = None


@dataclass(frozen=True, slots=True)
class Reading:
    """The resources in use at one instant.

    Attributes:
        time_ns: Wall clock, nanoseconds since the epoch; for timestamps.
        clock_ns: Monotonic clock, nanoseconds; for durations.
        resources: The record of each probe, by name of the resource; a resource that could not
            be measured is not in it.
        order: Position among the readings of memory in this process. Threads that read at the
            same time may finish in another order.
    """

    time_ns: int
    clock_ns: int
    resources: Mapping[str, Any] = field(default_factory=dict)
    order: int = 0

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
    """Limits of the process.

    Attributes:
        memory: The cgroup's limit or physical memory, whichever is smaller, in bytes.
        memory_source: Which of the two it is.
    """

    memory: int | None = None
    memory_source: Literal["cgroup", "physical"] | None = None


@dataclass(frozen=True, slots=True)
class StepInfo:
    """A step, as known when it opens.

    Attributes:
        index: Position in the run, from 0, in order of opening.
        label: Name of the step: its kind, or the user's message.
        kind: The ``ProfileStep`` constant.
        parent: Index of the enclosing step, None at the top.
        library: Distribution that the code belongs to.
        library_version: Its version.
        function: Qualified name of the function that is the step.
        thread: Identifier of the thread that opened it.
        filled_in: Whether otel-quant reports the step and the library's own profiler does not.
    """

    index: int
    label: str
    kind: str
    parent: int | None = None
    library: str | None = None
    library_version: str | None = None
    function: str | None = None
    thread: int = 0
    filled_in: bool = False


@dataclass(frozen=True, slots=True)
class Peaks:
    """Highest figures of a step or a run.

    Attributes:
        figures: By name of the figure: ``memory``, ``gpu.memory``, ``cache.disk``.
        sources: Source of a peak, by name of the figure: ``kernel`` if it is certainly the
            highest (the high-water mark of a process without children, and it rose), else
            ``sampled``: the highest that was seen. Only memory has one.
        devices: By name of the resource, index of the device and name of the figure.
        process_memory: RSS of the main process alone, in bytes.
    """

    figures: Mapping[str, int | float] = field(default_factory=dict)
    sources: Mapping[str, PeakSource] = field(default_factory=dict)
    devices: Mapping[str, Mapping[int, Mapping[str, int | float]]] = field(default_factory=dict)
    process_memory: int | None = None


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """One reading at a step's boundary.

    Attributes:
        sequence: Position in the order in which checkpoints reach the sinks, from 0.
        name: Its name: ``Start``, ``Calibration Start``, ...
        phase: Start or end of a step or of the run; ``point`` for any other checkpoint.
        reading: The reading that was taken.
        baseline: The run's first reading; cumulative figures are relative to it.
        step: The step that it belongs to; None for the run.
        custom: Values of the program's own metrics, by name.
        error: Class name of the exception that ended the step.
    """

    sequence: int
    name: str
    phase: Phase
    reading: Reading
    baseline: Reading
    step: StepInfo | None = None
    custom: Mapping[str, object] = field(default_factory=dict)
    error: str | None = None

    @property
    def elapsed(self) -> float:
        """Seconds since the run's first checkpoint."""
        return (self.reading.clock_ns - self.baseline.clock_ns) / 1e9


@dataclass(frozen=True, slots=True)
class StepRecord:
    """A finished step.

    Attributes:
        info: Its description.
        start: Reading at its start.
        end: Reading at its end.
        peaks: Highest figures between the two.
        attributes: Attributes of its span, by name.
        samples: Calibration samples consumed; None if none were counted.
        items: Items in these samples; None if one of them did not tell.
        custom: Last values of custom metrics, by name.
        error: The exception that ended it; None for no error.
    """

    info: StepInfo
    start: Reading
    end: Reading
    peaks: Peaks
    attributes: Mapping[str, AttributeValue] = field(default_factory=dict)
    samples: int | None = None
    items: int | None = None
    custom: Mapping[str, object] = field(default_factory=dict)
    error: BaseException | None = None

    @property
    def duration(self) -> float:
        """Seconds from start to end."""
        return (self.end.clock_ns - self.start.clock_ns) / 1e9


@dataclass(frozen=True, slots=True)
class GrowthForecast:
    """Memory that grows with the samples of a step.

    Attributes:
        resource: ``memory`` of the process tree, or ``gpu``: all that is in use on one GPU.
        at_end: Estimate of what is in use after the last sample, in bytes.
        per_sample: Growth with each sample, in bytes.
        limit: What there is, in bytes.
        device: Identifier of the GPU; None for memory.
        is_warning: Whether ``at_end`` is above the limit and enough has been seen to say so.
    """

    resource: Literal["memory", "gpu"]
    at_end: int
    per_sample: int
    limit: int
    device: str | None = None
    is_warning: bool = False


@dataclass(frozen=True, slots=True)
class Forecast:
    """Where an open step will be at its end. All of it is estimated.

    Attributes:
        time_left: Seconds until the last sample; None before that can be told.
        growths: Memory that grows with the samples; empty for level memory.
    """

    time_left: float | None = None
    growths: tuple[GrowthForecast, ...] = ()


@dataclass(frozen=True, slots=True)
class StepProgress:
    """A step that is open.

    Attributes:
        info: Its description.
        samples: Calibration samples consumed so far; None if none were counted.
        expected_samples: How many it will consume; None if that is not known.
        forecast: Where it will be after them; None without an expected number.
    """

    info: StepInfo
    samples: int | None = None
    expected_samples: int | None = None
    forecast: Forecast | None = None


@dataclass(frozen=True, slots=True)
class RunProgress:
    """What a run does and uses at a moment between two checkpoints.

    Attributes:
        reading: The newest reading. It has only the resources that are read between checkpoints.
        baseline: The run's first reading.
        peaks: Highest figures of the run so far.
        steps: The open steps, in the order in which they opened.
    """

    reading: Reading
    baseline: Reading
    peaks: Peaks
    steps: tuple[StepProgress, ...]


@dataclass(frozen=True, slots=True)
class CostedModel:
    """The static cost of one ONNX model.

    Attributes:
        role: ``float`` for the model that a quantization read, ``quantized`` for the one that it
            wrote.
        path: Its file; None for a model in memory, or if paths are switched off.
        start_ns: Wall clock when costing began.
        end_ns: Wall clock when it ended.
        figures: Totals, by the last part of their attributes' names; empty if it could
            not be costed.
        heaviest: The nodes with the most MACs.
        error: Why it could not be costed.
    """

    role: Literal["float", "quantized"]
    path: str | None
    start_ns: int
    end_ns: int
    figures: Mapping[str, AttributeValue]
    heaviest: tuple[Mapping[str, str | int], ...] = ()
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Origin:
    """What made a run: where and with what it was started.

    Attributes:
        command: The command line, on one line and without passwords or tokens; empty if unknown.
        host: Name of the machine.
        system: Operating system, its release and the architecture: ``Linux 6.1.0 x86_64``.
        python: Version of Python.
        libraries: Libraries that are loaded, each with its version: ``onnxruntime 1.20.1``.
        cpu_model: Name of the processor.
        cpu_count: Processors of the machine.
        cpu_limit: Processors that the process may use: the fewer of those that it is bound to and
            the quota of the control group.
        address_space_limit: Limit of the process's addresses (``RLIMIT_AS``), in bytes.
        file_size_limit: Limit of the size of a file (``RLIMIT_FSIZE``), in bytes.
        gpu_drivers: Each GPU driver with its version: ``nvidia 550.54.15``.
        revision: Commit of the git repository that the current folder is in.
        ref: Its branch.
        is_dirty: Whether files of that repository differ from the commit; None if unknown.
        ci: What the CI system says, by the names of :mod:`otel_quant.recording.ci`.
    """

    command: str
    host: str
    system: str
    python: str
    libraries: tuple[str, ...] = ()
    cpu_model: str | None = None
    cpu_count: int | None = None
    cpu_limit: float | None = None
    address_space_limit: int | None = None
    file_size_limit: int | None = None
    gpu_drivers: tuple[str, ...] = ()
    revision: str | None = None
    ref: str | None = None
    is_dirty: bool | None = None
    ci: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RunInfo:
    """A run, as known when it begins.

    Attributes:
        id: Identifier, 16 hexadecimal digits.
        pid: Process.
        name: Name for people, the same in the processes of one run; empty before it begins.
        model: Name of the float model, where the step that begins the run has one.
        method: Calibration method, where that step has one.
        config: Name of the configuration, where that step has one.
        launched_ns: When the launcher that gave the rank was started, in nanoseconds since the
            epoch; None without a rank.
        limits: Limits of the process.
        rank: Rank given by a launcher such as torchrun.
        world_size: Number of processes that the launcher started.
        parent_carrier: W3C trace context to continue, as header name and value.
        origin: What made it; None if it was not collected.
        paths: Whether paths of files, and texts that may name one, may leave the process.
    """

    id: str
    pid: int
    name: str = ""
    model: str | None = None
    method: str | None = None
    config: str | None = None
    launched_ns: int | None = None
    limits: Limits = field(default_factory=Limits)
    rank: int | None = None
    world_size: int | None = None
    parent_carrier: Mapping[str, str] = field(default_factory=dict)
    origin: Origin | None = None
    paths: bool = True


@dataclass(frozen=True, slots=True)
class RunRecord:
    """A finished run.

    Attributes:
        info: Its description.
        start: Its first reading.
        end: Its last reading.
        peaks: Highest figures between the two.
        steps: Number of steps that finished.
        failed_steps: Number of steps that ended with an exception.
        custom: Values of the program's own metrics, by name: those of the whole run, and the
            last value of each checkpoint metric.
        error: Class name of the exception that ended the run; None for no error.
        run_peaks: Highest figures of the whole run. In a worker, the other fields cover only
            the time since the last report.
    """

    info: RunInfo
    start: Reading
    end: Reading
    peaks: Peaks
    steps: int
    failed_steps: int
    custom: Mapping[str, object] = field(default_factory=dict)
    error: str | None = None
    run_peaks: Peaks = field(default_factory=Peaks)
