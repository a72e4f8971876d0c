"""A recording that has been read: what its readers (`show`, `watch`, `report`, ...) work with.

Times are seconds since the recording began (``Recording.began_ns``), unless a name ends with ``_ns``.
Figures have the names that they have on spans (:mod:`otel_quant.schema.semconv`), with the same
units: bytes and seconds. What could not be measured, or is not known yet, is absent or None.
"""

from __future__ import annotations

import math
import os
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain, pairwise
from operator import attrgetter
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias, TypeVar

from otel_quant.format.curve import Curve, RecordedCurve
from otel_quant.schema import semconv
from otel_quant.schema.code_lines import Spot
from otel_quant.schema.dataclass import dataclass, field
from otel_quant.schema.readings import Counts

if TYPE_CHECKING:
    from otel_quant.schema.readings import AttributeValue, LayerAccuracy, Phase

Attributes: TypeAlias = "Mapping[str, AttributeValue]"

_NOTHING: Final[Attributes] = {}

State = Literal["running", "ended", "failed", "killed", "lost"]
"""How a run or a step stands. ``failed``: ended by an exception or a non-zero exit code. ``killed``:
ended by a signal, as the launcher saw. ``lost``: its process stopped without an end record."""

WORST_FIRST: Final[tuple[State, ...]] = ("failed", "killed", "lost", "running", "ended")


class StateWords(NamedTuple):
    """How a run or a step stands, in words."""

    cell: str  # In a table
    verb: str  # After its name: ``was killed``
    of_several: str  # After "those that": ``were killed``


STATES: Final[Mapping[State, StateWords]] = {
    "running": StateWords("open", "is still running", "are still running"),
    "ended": StateWords("ok", "has ended", "ended"),
    "failed": StateWords("failed", "has failed", "failed"),
    "killed": StateWords("killed", "was killed", "were killed"),
    "lost": StateWords("lost", "stopped without an end record", "stopped without an end record"),
}

_STOPPED: Final = STATES["lost"]._replace(cell="stopped")
LAUNCHER: Final = "launcher"  # Name of the curve that the launcher has made of all processes
_NO_CURVE: Final = RecordedCurve(0, 0, Curve(1))
_Made = TypeVar("_Made")

Certainty = Literal["known", "guessed"]

Spans: TypeAlias = tuple[tuple[float, float], ...]
"""Stretches of time, in order: the start and the end of each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedStep:
    """A step."""

    index: int  # Position in its run, from 0, in order of opening
    name: str  # Its label: the kind, or the message of a User-Defined step
    kind: str  # The ``ProfileStep`` constant
    parent: int | None = None  # Index of the enclosing step; None at the top
    start: float  # When it began
    end: float | None = None  # When it ended; None for one that has not
    state: State  # How it stands
    # All attributes of its span: library, figures, calibration
    attributes: Attributes = field(default_factory=dict)
    # Above all marks of the kernel when it began, in bytes: a higher one rose later
    mark: int | None = None
    devices: tuple[Attributes, ...] = ()  # The attributes of the log record of each GPU
    counts: Counts = field(default_factory=Counts)  # Samples and layers begun so far
    line: Spot | None = None  # Where it was last seen; None of one that has ended
    progress: tuple[tuple[float, int], ...] = ()  # Time and number, of the newest of its counts
    layers: tuple[LayerAccuracy, ...] = ()  # How well the library has quantized them
    error: str | None = None  # Class name of the exception that ended it
    error_message: str | None = None  # Its message, on one line
    trace_id: str | None = None  # Its span's trace, 32 hexadecimal digits; None without an SDK
    span_id: str | None = None  # Its span, 16 hexadecimal digits
    parent_span_id: str | None = None  # The span above
    # Of the time outside of steps, the stretches of it: its end is its start and their sum
    spans: Spans = ()

    @property
    def samples(self) -> int | None:
        """Calibration samples consumed so far, each a batch; None if none were counted."""
        return self.counts.samples

    @property
    def lasted(self) -> float | None:
        """Seconds from its start to its end; None of one that has not ended."""
        return None if self.end is None else self.end - self.start


class RecordedCheckpoint(NamedTuple):
    """A checkpoint."""

    name: str  # Its name: ``Start``, ``Calibration Start``, ..
    time: float  # When it was taken
    step: int | None = None  # Its step; of a ``point`` the innermost; None for the run's
    phase: Phase = "point"  # ``start`` or ``end`` of its step or of the run; else ``point``
    attributes: Attributes = _NOTHING  # The attributes of its log record
    wall_ns: int | None = None  # Nanoseconds since the epoch; None of a profile


@dataclass(frozen=True, slots=True, kw_only=True)
class LastReading:
    """The newest figures of a run: at most a second older than its end, whatever ended it."""

    time: float  # When they were read
    # Memory and the other figures, with the names of the log record of a reading
    attributes: Attributes = field(default_factory=dict)
    open_steps: tuple[int, ...] = ()  # Indices of the open steps, outermost first


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedRun:
    """One run of one process. A process may have several, one after the other."""

    id: str  # Identifier, ``quant.run.id``
    process: str  # The process as the files of the recording name it
    pid: int | None = None  # Process id
    parent_pid: int | None = None  # Process id of the parent
    rank: int | None = None  # Rank given by a launcher such as torchrun
    world_size: int | None = None  # Number of processes that the launcher started
    start: float  # When it began
    end: float | None = None  # When it ended; None while it runs, or without an end record
    # When its process was seen first and when it was gone, if that failed; None if it is not known
    began: float | None = None
    cut: float | None = None  # After this nothing of it could be recorded, because a disk was full
    gone: float | None = None
    state: State  # How it stands
    # All attributes of its span; of one that has not ended, what is known so far
    attributes: Attributes = field(default_factory=dict)
    devices: tuple[Attributes, ...] = ()  # What it used of each GPU, as of a step
    steps: tuple[RecordedStep, ...] = ()  # Its steps, by index
    checkpoints: tuple[RecordedCheckpoint, ...] = ()  # Its checkpoints, in order
    # Static cost of the models: ``role`` and ``path``, ``figures`` (names as
    # ``quant.model.<role>...`` without that beginning), ``heaviest`` nodes, ``error``
    models: tuple[Mapping[str, Any], ...] = ()
    # Kind and fields of the events of which nothing else here is made
    events: tuple[tuple[str, Mapping[str, Any]], ...] = ()
    # Values of the program's own metrics, by name
    custom: Mapping[str, Any] = field(default_factory=dict)
    # Totals that a profile ends with, by its own keys; empty in a folder
    summary: Mapping[str, Any] = field(default_factory=dict)
    # Class name of the exception that ended it; of a process that failed without one how it
    # ended: ``exit code 3``, ``SIGABRT``
    error: str | None = None
    error_message: str | None = None  # The exception's message, on one line
    last: LastReading | None = None  # None if it has none beyond its checkpoints
    trace_id: str | None = None  # The trace, 32 hexadecimal digits; None without an SDK
    span_id: str | None = None  # The run's span, 16 hexadecimal digits
    parent_span_id: str | None = None  # The span above; None if it is the outermost of its trace
    resource: Attributes = field(default_factory=dict)  # The resource of its telemetry

    @property
    def last_read(self) -> Attributes:
        """The attributes of its last reading; none without one."""
        return _NOTHING if self.last is None else self.last.attributes

    @property
    def has_events(self) -> bool:
        """Whether its process has recorded it; else the launcher alone has seen the process, and that it failed."""
        return self.gone is None or self.gone != self.end

    @property
    def is_unended(self) -> bool:
        """Whether it is of an SDK, and its span has not ended and never will."""
        return self.end is None and self.state != "running" and self.span_id is not None

    @property
    def words(self) -> StateWords:
        """How it stands in words: a worker that a pool has ended is not lost."""
        return _STOPPED if self.state == "lost" and not self.is_broken else STATES[self.state]

    @property
    def is_broken(self) -> bool:
        """Whether it did not end well. A worker without an open step may have been ended on purpose: by a pool."""
        is_open = any(step.end is None for step in self.steps)
        return self.state in ("failed", "killed") or (self.state == "lost" and is_open)


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """What would help a run that was killed."""

    text: str  # A sentence
    source: str  # Where that is known from


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How the program ended, as the launcher saw it."""

    time: float  # When
    exit_code: int | None = None  # Its exit code; None if a signal ended it
    signal: str | None = None  # Name of the signal that ended it: ``SIGKILL``
    cause: str | None = None  # Why: ``limit of CPU time``; None if that is not known
    # Whether the kernel's out-of-memory killer did it: ``known`` from the counter of the program's
    # control group, ``guessed`` from the machine's counter, or without any from memory at the limit;
    # None if neither
    out_of_memory: Certainty | None = None
    evidence: str | None = None  # What that is concluded from, or is known beside, one sentence
    process: str | None = None  # If not the program itself: ``rank 1 (process 4711)``
    process_signal: str | None = None  # Signal that ended that process; None if not known
    error: str | None = None  # Exception that ended the run, if it was for want of memory
    where: str | None = None  # ``Calibration, sample 37 of 512``; None without an open step
    open_steps: tuple[str, ...] = ()  # Names of the open steps, outermost first
    memory: int | None = None  # RSS of the process tree then, in bytes
    memory_limit: int | None = None  # The limit in force, in bytes
    memory_limit_source: str | None = None  # ``cgroup``, ``physical``, ..
    memory_per_sample: int | None = None  # Growth of memory with each calibration sample, in bytes
    memory_per_layer: int | None = None  # Or with each layer
    memory_per_second: int | None = None  # Growth of memory that went on to the end, in bytes
    memory_of_others: int | None = None  # What other programs of the machine used, in bytes
    processes: tuple[tuple[str, int], ...] = ()  # The largest, with their RSS in bytes
    advice: tuple[Advice, ...] = ()  # What would help, most useful first
    lost: float | None = None  # Seconds of work that the same program has to do again
    saved: str | None = None  # What it goes on from, in words
    resume: str | None = None  # The folder of that
    why_no_step: str | None = None  # Why there is no step, if there is none

    @property
    def state(self) -> State:
        """How it left the program."""
        if self.signal is not None:
            return "killed"
        return "failed" if self.exit_code else "ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """A recording, or a local file as one."""

    path: Path  # The folder or the file
    began_ns: int  # Wall clock when it began, in nanoseconds since the epoch
    state: State  # Whether it runs or how it ended
    duration: float  # Seconds until it ended, or until the last that is known of it
    # What made it, with the names of the run span's attributes: command, host, versions, limits,
    # git, CI
    origin: Attributes = field(default_factory=dict)
    runs: tuple[RecordedRun, ...] = ()  # Of all processes, in the order of their starts
    curves: Mapping[str, RecordedCurve] = field(default_factory=dict)  # By process, or ``launcher``
    ending: Ending | None = None  # How the program ended; None while it runs and without a launcher
    launcher: int | None = None  # Process id of the launcher; None without one
    # Identifies since when the machine runs: its clocks are one; empty if that is not known
    boot: str = field(default="", compare=False)
    # Processes of its launcher's control group that the kernel has killed since, where both died
    killed_too: int = field(default=0, compare=False)
    # Trace and id of the span of the program; None where its launcher has sent none
    span: tuple[str, str] | None = None
    problems: tuple[str, ...] = ()  # What could not be read, one sentence each
    continues: str | None = None  # Path of the recording that its program has gone on from
    # What its readers have worked out of all that is above, and ask for more than once
    memo: dict[object, Any] = field(default_factory=dict, init=False, compare=False, repr=False)

    @property
    def place(self) -> str:
        """Its path, or the URL that it was read from."""
        return shown(os.fspath(self.path))

    def once(self, key: object, make: Callable[[], _Made]) -> _Made:
        """Returns what is made of the recording, the first time that it is asked for."""
        if key not in self.memo:
            self.memo[key] = make()
        made: _Made = self.memo[key]
        return made

    def curve(self, process: str) -> tuple[float, Curve]:
        """Returns the curve of a process or of the launcher, and when it began; without it an empty one."""
        found = self.curves.get(process, _NO_CURVE)
        return (found.began_ns - self.began_ns) / 1e9, found.curve


COPIES: Final[dict[str, str]] = {}
"""The URL of each copy of what is in a store, by its path."""


def shown(path: str) -> str:
    """Returns a path as it was given: within a copy the URL."""
    for copy, url in COPIES.items():
        if path == copy or path.startswith(copy + os.sep):
            return url + path[len(copy) :]
    return path


def number(attributes: Attributes, name: str) -> float | None:
    """Returns the number that attributes have under a name; None if it is absent or no number."""
    value = attributes.get(name)
    return value if type(value) is int or type(value) is float else None


def known(values: Iterable[float | None]) -> list[float]:
    """Returns those of some values that are known."""
    return [each for each in values if each is not None]


_SCRIPTS: Final = (".py", ".sh", ".ipynb")


def script_of(command: str) -> str | None:
    """Returns which program a command line runs."""
    try:
        words = shlex.split(command)
    except ValueError:  # it has been cut
        words = command.split()
    scripts = (str(PurePath(word)) for word in words if word.endswith(_SCRIPTS))
    pairs = [*pairwise(words[1:])]
    given = (" ".join(pair) for option in ("-m", "-c") for pair in pairs if pair[0] == option)
    names = (PurePath(word).name for word in words[:1] if "<path>" not in words)
    return next(chain(scripts, given, names), None)


# --- the steps of runs as a tree ----------------------------------------------------------

StepPath: TypeAlias = tuple[tuple[str, int], ...]
"""The steps around a step and the step itself: the name of each, and which of that name it is within
the one around it, from 1. The path of the total is empty."""


@dataclass(slots=True)
class PlacedStep:
    """A step with its place."""

    step: RecordedStep
    run: RecordedRun
    path: StepPath
    end: float  # When it ended; of an open step the end of what is known
    own: float  # Seconds that no step within it took

    @property
    def depth(self) -> int:
        """How many steps are around it."""
        return len(self.path) - 1

    @property
    def duration(self) -> float:
        """Seconds from its start to its end, or to the end of what is known."""
        return max(0.0, self.end - self.step.start)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the steps around it and its own, outermost first."""
        return tuple(name for name, _ in self.path)


def steps_in(
    recording: Recording, runs: Sequence[RecordedRun] | None = None
) -> Sequence[PlacedStep]:
    """Returns the steps of a recording, or of some of its runs, as :func:`placed_steps` does."""
    every = recording.once("steps", lambda: placed_steps(recording.runs, recording.duration))
    if runs is None or len(runs) == len(recording.runs):
        return every
    wanted = set(map(id, runs))
    return [each for each in every if id(each.run) in wanted]


def placed_steps(runs: Iterable[RecordedRun], until: float) -> list[PlacedStep]:
    """Returns the steps of runs: run by run, in the order in which they opened."""
    placed: list[PlacedStep] = []
    of_that_name: Counter[tuple[str, StepPath]] = Counter()
    for run in runs:
        places: dict[int | None, PlacedStep] = {}
        last_known = min(known((run.cut, until if run.gone is None else run.gone)))
        for step in sorted(run.steps, key=attrgetter("index")):
            above = places.get(step.parent)
            around = () if above is None else above.path
            unnumbered = run.process, (*around, (step.name, 0))
            of_that_name[unnumbered] += 1
            path = (*around, (step.name, of_that_name[unnumbered]))
            end = max(last_known, step.start) if step.end is None else step.end
            seconds = max(0.0, end - step.start)
            places[step.index] = PlacedStep(step, run, path, end, seconds)
            if above is not None:
                above.own = max(0.0, above.own - seconds)
        placed += places.values()
    return placed


def covered(steps: Sequence[PlacedStep], most: float = math.inf) -> float:
    """Returns the seconds in which a step was open, until a moment at most."""
    seconds, until = 0.0, -math.inf
    for each in sorted(steps, key=lambda step: step.step.start):
        end = min(each.end, most)
        seconds += max(0.0, end - max(each.step.start, until))
        until = max(until, end)
    return seconds


def step_at(steps: Iterable[PlacedStep], time: float) -> PlacedStep | None:
    """Returns the innermost step that was open at a time; None if none was."""
    within = [each for each in steps if each.step.start <= time <= each.end]
    return max(within, key=lambda each: (each.depth, each.step.start), default=None)


def forecast_of(run: RecordedRun, step: RecordedStep) -> Mapping[str, Any]:
    """Returns the attributes of a step's forecast: the newest of one that is open, else the warning."""
    last = run.last
    if step.end is None and last is not None and last.open_steps[-1:] == (step.index,):
        return last.attributes
    return step.attributes


def function_of(step: RecordedStep) -> str:
    """Returns the library's function that is a step; empty for a step of the program's own."""
    has_library = semconv.LIBRARY_NAME in step.attributes
    return str(step.attributes.get(semconv.CODE_FUNCTION_NAME, "")) if has_library else ""


def name_text(path: StepPath) -> str:
    """Returns the last part of a path: ``Layer #2``, ``total``."""
    return path_text(path[-1:])


def path_text(path: StepPath) -> str:
    """Returns a path in words: ``Model Quantization > Layer #2``, ``total``."""
    names = (name if number == 1 else f"{name} #{number}" for name, number in path)
    return " > ".join(names) or "total"
