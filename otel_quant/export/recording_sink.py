"""Writes the recording of this process: what has begun and what has ended, as it happens."""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from otel_quant.export.otel.service_name import resource_without_sdk
from otel_quant.export.otel.spans import SpanIds
from otel_quant.format import event_file, series
from otel_quant.format.curve import CurveFile, LargestProcesses
from otel_quant.format.event_file import (
    EventFile,
    StacksWriter,
    StateFile,
    parent_pid,
    process_file,
)
from otel_quant.schema import semconv
from otel_quant.schema.code_lines import Spot
from otel_quant.schema.dataclass import dataclass, field, replace
from otel_quant.schema.events import EVENTS, Event, Sink, method_of, present, shown_custom
from otel_quant.schema.figures import curve_levels, curve_totals
from otel_quant.schema.readings import UNITS, CostedModel, Counts, Reading, RunInfo, StepInfo

_HEARTBEAT: Final = 30_000_000_000  # Nanoseconds between two heartbeats
_LOOK_NS: Final = 1_000_000_000  # Nanoseconds between two looks at which processes are the largest

_PARTS: Final = 20
"""Parts of the limit of memory, at each of which above half of it the stacks are written."""

_PROGRESS_SHARE: Final = 0.02
"""Part of a step's time so far that lies between two records of its samples and layers, a second at least: a
step of ten hours has some hundred of them."""

_TRACEPARENT: Final = re.compile(
    "[0-9a-f]{2}-(?P<trace_id>[0-9a-f]{32})-(?P<parent_span_id>[0-9a-f]{16})-[0-9a-f]{2}"
)

_NO_FIELDS: Final[dict[str, Any]] = {}


@dataclass(slots=True)
class _OpenStep:
    started_ns: int
    counts: Counts  # the recorder's own
    told: Counts = field(default_factory=Counts)  # the counts in the last event
    told_ns: int = 0
    spot: Spot | None = None  # where the last sample has seen it


class RecordingSink(Sink):
    """Writes the files of this process. They are made when its first run begins, and stay open."""

    name = "recording"

    def __init__(
        self,
        folder: Path,
        ids_of: Callable[[StepInfo | CostedModel | None], SpanIds | None],
        *,
        is_launched: bool,  # The launcher writes manifest and curve
        interval: float,
        began_ns: int = 0,  # Monotonic clock since when the program is known; 0 for its first run
    ) -> None:
        self.folder = folder
        self._began_ns = began_ns
        self._ids_of = ids_of
        self._is_launched = is_launched
        self._interval = interval
        self._run: RunInfo | None = None
        self._run_ids: SpanIds | None = None
        self._steps: dict[int, _OpenStep] = {}
        self._events: EventFile | None = None
        self._state: StateFile | None = None
        self._curve: _OwnCurve | None = None
        self._made_manifest = False
        self._wall_ns = 0  # What to add to the monotonic clock
        self._process: str | None = None  # Its name in the names of files
        self._start: Event | None = None  # Of a run whose files could not be made yet
        self._problem: str | None = None  # Why an event could not be written
        self._heartbeat_ns = 0
        self._newest: Event | None = None  # The newest reading
        self._stacks = StacksWriter()
        self._part = _PARTS // 2  # The highest of the limit of memory that it has reached
        # Reentrant: a signal handler may close a step while another is being written.
        self._lock = threading.RLock()

    def receive(self, event: Event) -> None:
        """Writes an event; what is more to do at one has a method."""
        getattr(self, method_of(event.kind), self._write)(event)

    def run_started(self, event: Event) -> None:
        """Makes the files, if this is the first run, and writes the start."""
        run = event.run
        self._run, self._run_ids = run, self._ids_of(None)
        self._steps = {}
        self._newest = replace(event, attributes={})
        self._heartbeat_ns = event.clock_ns
        if self._events is None:
            self._start = event
            self._open(event)
            self._start = None
        ids = _ids_in(self._run_ids) or _ids_without_sdk(run)
        self._write(event, ids)
        with self._lock:
            self._write_state()  # it has its room on the disk from now on
        self._write_stacks(event)  # those before the run, which may end at once

    def run_ended(self, event: Event) -> None:
        """Writes the end."""
        self._write(event, {"custom": shown_custom(event.latest_custom)})
        with self._lock:
            self._run = None
        if self._made_manifest:
            ended = self._wall_ns + event.clock_ns
            event_file.complete_manifest(self.folder, _origin_in(event), ended=ended)
        if self._curve is not None and event.reading is not None:
            self._curve.flush(event.reading)
        self._write_stacks(event)  # last: without room for them, the rest is whole

    def step_started(self, event: Event) -> None:
        """Writes that a step has begun."""
        step = event.step
        assert step is not None
        if self._start is not None:  # there may be a free descriptor by now
            self.run_started(self._start)
        ids = self._ids_of(None)
        if ids is not None and (self._run_ids is None or ids.span_id != self._run_ids.span_id):
            self._run_ids = ids  # a provider has turned up, or a worker has begun another root span
            self._write(event, {"attributes": None, **_ids_in(ids)}, "run.attributes")
        self._steps[step.index] = _OpenStep(event.clock_ns, event.counts)
        self._write(event, {"name": step.label, **_ids_in(self._ids_of(step))})

    def step_ended(self, event: Event) -> None:
        """Writes the attributes of a step's span."""
        assert event.step is not None
        if event.step.index in self._steps:
            self._write(event)
        self._steps.pop(event.step.index, None)  # one whose end is not on disk stays in the state

    def progress_expected(self, event: Event) -> None:
        """Writes how many samples or layers a step goes through."""
        assert event.step is not None
        if event.step.index in self._steps:
            self._write(event, kind=f"{UNITS[event.counts.newest or 'sample'].several}.expected")
            with self._lock:
                self._write_state()

    def counted(self, step: StepInfo, unit: str, count: int) -> None:
        """Writes the number over: it is right when the process is killed at the next sample or layer."""
        with self._lock:
            self._write_state()

    def models_costed(self, event: Event) -> None:
        """Writes what models cost, with the ids of their spans."""
        spans = [_ids_in(self._ids_of(cost)) for cost in event.models]
        lines = EVENTS[event.kind].line_of(event)["models"]
        for line, ids in zip(lines, spans, strict=True):
            if "span_id" in ids:
                line["span_id"] = ids["span_id"]
        self._write(event, {"models": lines})

    # --- between checkpoints ----------------------------------------------------------------

    def sampled(self, reading: Reading) -> None:
        """Adds a reading to the curve."""
        if self._curve is not None:
            self._curve.add(reading)

    def reading_taken(self, event: Event) -> None:
        """Writes the newest figures over, and what is due of progress and heartbeats."""
        if self._run is None:
            return
        with self._lock:
            for index, spot in event.lines.items():
                if (known := self._steps.get(index)) is not None:
                    known.spot = spot
            self._newest = event
            self._write_state()
        for step in event.steps:
            self._tell_progress(step.info.index, event)
        if event.clock_ns - self._heartbeat_ns >= _HEARTBEAT:
            self._heartbeat_ns = event.clock_ns
            counts: dict[str, dict[str, int]] = {}
            for step in event.steps:
                for unit, (done, _) in step.counts.items():
                    counts.setdefault(UNITS[unit].several, {})[str(step.info.index)] = done
            self._write(event, counts, "heartbeat")
        if self._is_nearer_to_its_limit(event) or event.clock_ns >= self._stacks.due_ns:
            self._write_stacks(event)

    def _is_nearer_to_its_limit(self, event: Event) -> bool:
        """Whether memory has risen to another part of its limit: a kill would leave no lines of what has grown since the last write."""
        memory, limit = event.reading and event.reading.memory, event.run.limits.memory
        part = int(_PARTS * memory.tree_rss / limit) if memory and limit else 0
        was, self._part = self._part, max(part, self._part)
        return part > was

    def forget(self) -> None:
        """In a forked child: leaves the files to the parent."""
        self._lock, self._stacks = threading.RLock(), StacksWriter()
        self._run = self._start = None
        for file in (self._events, self._state, self._curve):
            if file is not None:
                file.forget()
        self._events = self._state = self._curve = None

    # --- within -----------------------------------------------------------------------------

    def _open(self, event: Event) -> None:
        assert event.reading is not None
        process, events = event_file.open_events(self.folder)
        began_ns, self._wall_ns = self._began_ns or event.clock_ns, event.time_ns - event.clock_ns
        self._made_manifest = not self._is_launched and event_file.create_manifest(
            self.folder, self._wall_ns + began_ns, began_ns, "process", _origin_in(event)
        )
        self._process, self._events = process, events
        self._state = StateFile(process_file(self.folder, "state", process))
        argv0 = Path(sys.orig_argv[0]).name if sys.orig_argv else ""
        ids = {"pid": event.run.pid, "parent_pid": parent_pid()}
        fields = {**ids, "argv0": argv0, "boot": event_file.boot_id()}
        events.write("process.started", event.time_ns, event.clock_ns, fields)
        if not self._is_launched:
            path = process_file(self.folder, "curve", process)
            self._curve = _OwnCurve(path, event.reading, self._interval)

    def _write(self, event: Event, more: Mapping[str, Any] = _NO_FIELDS, kind: str = "") -> None:
        """Writes the line of an event, with more than the event itself has, if its kind has one."""
        kind, events = kind or event.kind, self._events
        if self._run is not None and events is not None and EVENTS[kind].required:
            try:
                line = {**EVENTS[kind].line_of(event), **more}
                events.write(kind, event.time_ns, event.clock_ns, line)
            except OSError as error:  # the state needs no room: it is written over
                with self._lock:
                    self._problem = error.strerror
                    self._write_state()
                raise

    def _write_state(self) -> None:
        """Writes the state; the caller has the lock."""
        if self._run is not None and self._state is not None and self._newest is not None:
            steps = self._steps.copy().items()
            # Copied, as another thread may begin to count something.
            progress = ((index, Counts(step.counts), step.spot) for index, step in steps)
            self._state.write(self._newest, progress, problem=self._problem)

    def _write_stacks(self, event: Event) -> None:
        if self._process is not None and event.stacks:
            run = event.run.id
            path = process_file(self.folder, "stacks", self._process, run)
            self._stacks.write(path, run, event.stacks, event.clock_ns)

    def _tell_progress(self, index: int, event: Event) -> None:
        step = self._steps.get(index)
        if step is None or step.counts == step.told:
            return
        between = _PROGRESS_SHARE * (event.clock_ns - step.started_ns)
        if event.clock_ns - step.told_ns >= between:
            told, step.told, step.told_ns = step.told, Counts(step.counts), event.clock_ns
            for unit, count in step.told.items():
                if count != told.get(unit):
                    number = {"index": index, UNITS[unit].several: count.done}
                    self._write(event, number, UNITS[unit].consumed)


class _OwnCurve:
    """The curve that this process takes of itself and its children, where no launcher takes it."""

    def __init__(self, path: Path, first: Reading, interval: float) -> None:
        self._file = CurveFile(path, first.time_ns, first.clock_ns, interval)
        self._first = first
        self._largest = LargestProcesses(os.getpid())
        self._looked_ns = 0
        # The sampler may add its last reading while the run ends.
        self._lock = threading.RLock()
        self.flush(first)

    def add(self, reading: Reading) -> None:
        """Adds a reading."""
        levels = curve_levels(reading.resources)
        totals = curve_totals(reading.resources, self._first.resources)
        with self._lock:
            if reading.memory is not None:
                children = {pid: rss for pid, rss, _ in reading.memory.children}
                processes = {os.getpid(): reading.memory.rss, **children}
                if reading.clock_ns - self._looked_ns >= _LOOK_NS:
                    self._looked_ns = reading.clock_ns
                    for name in self._largest.look(processes):
                        self._file.drop(series.PROCESS + name)
                for name, rss in self._largest.series(processes).items():
                    levels[series.PROCESS + name] = rss
            self._file.add(reading.clock_ns, levels, totals)

    def flush(self, last: Reading) -> None:
        """Writes all, with the last reading of a run."""
        with self._lock:
            self.add(last)
            self._file.flush()

    def forget(self) -> None:
        """In a forked child: closes its copy."""
        self._lock = threading.RLock()
        self._file.forget()


def _origin_in(event: Event) -> dict[str, Any]:
    return {name: value for name, value in event.attributes.items() if name in semconv.ORIGIN}


def _ids_in(ids: SpanIds | None) -> Mapping[str, Any]:
    """Returns the fields of a line that have the ids of a span."""
    return _NO_FIELDS if ids is None else present(ids._asdict())


def _ids_without_sdk(run: RunInfo) -> Mapping[str, Any]:
    """Returns what a span would have had from outside: where `otel-quant send` is to put it."""
    fields: dict[str, Any] = {"resource": resource_without_sdk()}
    above = _TRACEPARENT.fullmatch(run.parent_carrier.get("traceparent", ""))
    if above is not None:
        fields |= above.groupdict()
    return fields
