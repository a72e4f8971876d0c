"""A recording that has been read: what its readers (`show`, `watch`, `report`, ...) work with.

Times are seconds since the recording began (``Recording.began_ns``), unless a name ends with ``_ns``.
Figures have the names that they have on spans (:mod:`otel_quant.telemetry.semconv`), with the same
units: bytes and seconds. What could not be measured, or is not known yet, is absent or None.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from otel_quant.recordings.curve_file import RecordedCurve
from otel_quant.records import AttributeValue

Attributes = Mapping[str, AttributeValue]

State = Literal["running", "ended", "failed", "killed", "lost"]
"""How a run or a step stands. ``failed``: ended by an exception or a non-zero exit code. ``killed``:
ended by a signal, as the launcher saw. ``lost``: its process is gone without having said why."""

Certainty = Literal["known", "guessed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedStep:
    """A step.

    Attributes:
        index: Position in its run, from 0, in order of opening.
        name: Its label: the kind, or the message of a User-Defined step.
        kind: The ``ProfileStep`` constant.
        parent: Index of the enclosing step; None at the top.
        start: When it began.
        end: When it ended; None for one that is open, or was when the recording stopped.
        state: How it stands.
        attributes: All attributes of its span: library, figures, calibration.
        devices: What it used of each GPU: the attributes of the log record of that.
        samples: Calibration samples consumed so far, each a batch; None if none were counted.
        expected_samples: How many it will consume; None if not known.
        progress: Samples consumed over time: pairs of time and number; a selection of at most some
            hundred.
        error: Class name of the exception that ended it.
        error_message: Its message, on one line.
        trace_id: Its span's trace, 32 hexadecimal digits; None without an SDK.
        span_id: Its span, 16 hexadecimal digits.
        parent_span_id: The span above.
    """

    index: int
    name: str
    kind: str
    parent: int | None = None
    start: float
    end: float | None = None
    state: State
    attributes: Attributes = field(default_factory=dict)
    devices: tuple[Attributes, ...] = ()
    samples: int | None = None
    expected_samples: int | None = None
    progress: tuple[tuple[float, int], ...] = ()
    error: str | None = None
    error_message: str | None = None
    trace_id: str | None = None
    span_id: str | None = None
    parent_span_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedCheckpoint:
    """A checkpoint.

    Attributes:
        name: Its name: ``Start``, ``Calibration Start``, ...
        time: When it was taken.
        step: Index of its step; None for the run's.
        attributes: The attributes of its log record.
    """

    name: str
    time: float
    step: int | None = None
    attributes: Attributes = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class LastReading:
    """The newest figures of a run: at most a second older than its end, whatever ended it.

    Attributes:
        time: When they were read.
        attributes: Memory and the other figures, with the names of the log record of a reading.
        open_steps: Indices of the open steps, outermost first.
    """

    time: float
    attributes: Attributes = field(default_factory=dict)
    open_steps: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedRun:
    """One run of one process. A process may have several, one after the other.

    Attributes:
        id: Identifier, ``quant.run.id``.
        process: The process as the files of the recording name it.
        pid: Process id.
        parent_pid: Process id of the parent.
        rank: Rank given by a launcher such as torchrun.
        world_size: Number of processes that the launcher started.
        start: When it began.
        end: When it ended; None for one that runs, or has not said so.
        state: How it stands.
        attributes: All attributes of its span; of one that has not ended, what is known so far.
        devices: What it used of each GPU, as of a step.
        steps: Its steps, by index.
        checkpoints: Its checkpoints, in order.
        models: Static cost of the models: ``role`` and ``path``, ``figures`` (names as
            ``quant.model.<role>...`` without that beginning), ``heaviest`` nodes, ``error``.
        custom: Values of the program's own metrics, by name.
        error: Class name of the exception that ended it.
        error_message: Its message, on one line.
        last: Its newest figures; None if it has none beyond its checkpoints.
        trace_id: The trace, 32 hexadecimal digits; None without an SDK.
        span_id: The run's span, 16 hexadecimal digits.
        parent_span_id: The span above; None if it is the outermost of its trace.
        resource: Attributes of what its telemetry says it comes from.
    """

    id: str
    process: str
    pid: int | None = None
    parent_pid: int | None = None
    rank: int | None = None
    world_size: int | None = None
    start: float
    end: float | None = None
    state: State
    attributes: Attributes = field(default_factory=dict)
    devices: tuple[Attributes, ...] = ()
    steps: tuple[RecordedStep, ...] = ()
    checkpoints: tuple[RecordedCheckpoint, ...] = ()
    models: tuple[Mapping[str, Any], ...] = ()
    custom: Mapping[str, Any] = field(default_factory=dict)
    error: str | None = None
    error_message: str | None = None
    last: LastReading | None = None
    trace_id: str | None = None
    span_id: str | None = None
    parent_span_id: str | None = None
    resource: Attributes = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """What would help a run that was killed.

    Attributes:
        text: A sentence.
        source: Where that is known from.
    """

    text: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How the program ended, as the launcher saw it.

    Attributes:
        time: When.
        exit_code: Its exit code; None if a signal ended it.
        signal: Name of the signal that ended it: ``SIGKILL``.
        out_of_memory: Whether the kernel's out-of-memory killer did it: ``known`` from its
            counter, ``guessed`` from memory at the limit; None if neither.
        evidence: What that is concluded from, one sentence.
        process: Which process it was, if not the program itself: ``rank 1 (process 4711)``.
        process_signal: Name of the signal that ended that process; None if it is not known.
        error: Class name of the exception that ended the run, if it was for want of memory.
        where: What it was doing: ``Calibration, sample 37 of 512``; None without an open step.
        open_steps: Names of the open steps, outermost first.
        memory: RSS of the process tree then, in bytes.
        memory_limit: The limit in force, in bytes.
        memory_limit_source: ``cgroup``, ``physical``, ...
        memory_per_sample: Growth of memory with each calibration sample, in bytes.
        processes: The largest processes: name and RSS in bytes, largest first.
        disk: What took the disk: name and bytes, largest first.
        advice: What would help, most useful first.
    """

    time: float
    exit_code: int | None = None
    signal: str | None = None
    out_of_memory: Certainty | None = None
    evidence: str | None = None
    process: str | None = None
    process_signal: str | None = None
    error: str | None = None
    where: str | None = None
    open_steps: tuple[str, ...] = ()
    memory: int | None = None
    memory_limit: int | None = None
    memory_limit_source: str | None = None
    memory_per_sample: int | None = None
    processes: tuple[tuple[str, int], ...] = ()
    disk: tuple[tuple[str, int], ...] = ()
    advice: tuple[Advice, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """A recording, or a local file as one.

    Attributes:
        path: The folder or the file.
        began_ns: Wall clock when it began, in nanoseconds since the epoch.
        state: How the whole stands.
        duration: Seconds until it ended, or until the last that is known of it.
        origin: What made it, with the names of the run span's attributes: command, host, versions,
            limits, git, CI.
        runs: The runs of all processes, in the order of their starts; several for ranks, workers
            and blocks.
        curves: The curves: the launcher's, or one for each process, by process; ``launcher`` for
            the launcher's.
        ending: How the program ended; None while it runs and without a launcher.
        problems: What could not be read, one sentence each.
    """

    path: Path
    began_ns: int
    state: State
    duration: float
    origin: Attributes = field(default_factory=dict)
    runs: tuple[RecordedRun, ...] = ()
    curves: Mapping[str, RecordedCurve] = field(default_factory=dict)
    ending: Ending | None = None
    problems: tuple[str, ...] = ()
