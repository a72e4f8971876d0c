"""Reads what one process has left in a recording: its runs, with their steps."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from otel_quant.export.recording import layout
from otel_quant.export.recording.event_file import NewerSchemaError, read_ends, read_events
from otel_quant.recordings.model import (
    LastReading,
    RecordedCheckpoint,
    RecordedRun,
    RecordedStep,
    State,
)
from otel_quant.schema import semconv
from otel_quant.schema.catalog import FORMER
from otel_quant.schema.records import Phase

_MOST_POINTS: Final = 300
"""Points of a step's progress that are kept."""

_Event = dict[str, Any]

_SPAN: Final = ("trace_id", "span_id", "parent_span_id", "resource")


@dataclasses.dataclass(slots=True)
class ProcessRuns:
    """What a process has left."""

    runs: list[RecordedRun] = dataclasses.field(default_factory=list)  # Its runs, in order
    # When the last that is known of it was written, in seconds since the recording began
    latest: float = 0.0
    # What could not be read, one sentence each
    problems: list[str] = dataclasses.field(default_factory=list)


def read_process(
    folder: Path,
    process: str,
    began_ns: int,
    state_of_open: Callable[[], State],
    *,
    in_brief: bool = False,
) -> ProcessRuns:
    """Reads the events and the state of a process."""
    found = ProcessRuns()
    reading: dict[str, _OpenRun] = {}
    path = layout.events_path(folder, process)
    clock: _Clock | None = None
    parent: int | None = None
    try:
        for event in read_ends(path) if in_brief else read_events(path):
            try:
                clock = clock or _Clock(event, began_ns)
                at = clock.seconds(event)
                found.latest = max(found.latest, at)
                if event["kind"] == "process.started":
                    parent = event.get("parent_pid")
                elif event["kind"] == "run.started":
                    run = _OpenRun(event, at, process, parent)
                    reading[run.id] = run
                elif (handle := _HANDLERS.get(event["kind"])) is not None:
                    handle(reading[event["run"]], event, at)
            except (AttributeError, KeyError, TypeError, ValueError) as error:
                found.problems.append(
                    f"{path.name}: an event of kind {event['kind']!r} is left out: "
                    f"{type(error).__name__} {error}"
                )
    except NewerSchemaError:
        raise
    except OSError as error:
        found.problems.append(f"{path.name} cannot be read: {error.strerror or error}")
    is_open = not reading or any(run.end is None for run in reading.values())
    state = _state_file(layout.state_path(folder, process)) if is_open else None
    if state is not None:
        _add_state(reading, state, clock or _Clock(state, began_ns), process, found)
    if any(run.end is None for run in reading.values()):
        open_state = state_of_open()
        for run in reading.values():
            run.state = run.state or open_state
    found.runs = [run.recorded() for run in reading.values()]
    return found


class _Clock:
    """Seconds of a process's events since the recording began, by its monotonic clock."""

    def __init__(self, first: Mapping[str, Any], began_ns: int) -> None:
        self._offset = int(first["time"]) - began_ns - int(first["clock"])

    def seconds(self, event: Mapping[str, Any]) -> float:
        return max(0, int(event["clock"]) + self._offset) / 1e9


@dataclasses.dataclass(slots=True)
class _OpenStep:
    started: _Event
    start: float
    attributes: dict[str, Any]
    end: float | None = None
    ended: _Event = dataclasses.field(default_factory=dict)
    samples: int | None = None
    expected: int | None = None
    progress: list[tuple[float, int]] = dataclasses.field(default_factory=list)

    def consumed(self, samples: int, at: float) -> None:
        """Notes how many samples have been consumed by a time."""
        if samples > (self.samples or 0):
            self.samples = samples
            self.progress.append((at, samples))

    def recorded(self, open_state: State) -> RecordedStep:
        started, ended = self.started, self.ended
        error = ended.get("error")
        state: State = open_state if self.end is None else "failed" if error else "ended"
        return RecordedStep(
            index=started["index"],
            name=started["name"],
            kind=started["step_kind"],
            parent=started.get("parent"),
            start=self.start,
            end=self.end,
            state=state,
            attributes=self.attributes,
            devices=_devices(ended),
            samples=self.samples,
            expected_samples=self.expected,
            progress=tuple(_selection(self.progress)),
            error=error,
            error_message=ended.get("error_message"),
            trace_id=started.get("trace_id"),
            span_id=started.get("span_id"),
            parent_span_id=started.get("parent_span_id"),
        )


class _OpenRun:
    """A run while its events are being read."""

    def __init__(self, event: _Event, at: float, process: str, parent: int | None) -> None:
        self.id: str = event["run"]
        self.state: State | None = None
        self.end: float | None = None
        self.last: LastReading | None = None
        self._started, self._at = event, at
        self._process, self._parent = process, parent
        self._attributes: dict[str, Any] = dict(_mapping(event, "attributes"))
        self._custom: dict[str, Any] = {}
        self._steps: dict[int, _OpenStep] = {}
        self._checkpoints: list[RecordedCheckpoint] = []
        self._models: list[Mapping[str, Any]] = []
        self._ended: _Event = {}
        self._checkpoint("Start", "start", event, at)

    def step_started(self, event: _Event, at: float) -> None:
        attributes = dict(_mapping(event, "attributes"))
        self._steps[event["index"]] = _OpenStep(event, at, attributes)
        self._checkpoint(f"{event['name']} Start", "start", event, at, event["index"])

    def step_ended(self, event: _Event, at: float) -> None:
        step = self._steps[event["index"]]
        step.end, step.ended = at, event
        step.attributes.update(_mapping(event, "attributes"))
        if event.get("samples") is not None:
            step.consumed(event["samples"], at)
        self._checkpoint(f"{step.started['name']} End", "end", event, at, event["index"])

    def samples_expected(self, event: _Event, at: float) -> None:
        self._steps[event["index"]].expected = event["total"]

    def samples_consumed(self, event: _Event, at: float) -> None:
        self._steps[event["index"]].consumed(event["samples"], at)

    def checkpoint(self, event: _Event, at: float) -> None:
        self._checkpoint(event["name"], "point", event, at, event.get("step"))

    def models_costed(self, event: _Event, at: float) -> None:
        self._models += [model for model in event["models"] if isinstance(model, dict)]

    def learned(self, event: _Event, at: float) -> None:
        self._started |= {key: event[key] for key in ("trace_id", "span_id") if key in event}
        self._attributes.update(_mapping(event, "attributes"))
        if "span_id" in event:
            self._started = {**self._started, "parent_span_id": None}
            self._started.update((name, event[name]) for name in _SPAN if name in event)

    def heartbeat(self, event: _Event, at: float) -> None:
        for index, samples in _mapping(event, "samples").items():
            self._steps[int(index)].consumed(samples, at)
        still_open = tuple(index for index, step in self._steps.items() if step.end is None)
        self.last = LastReading(
            time=at, attributes=_mapping(event, "attributes"), open_steps=still_open
        )

    def ended(self, event: _Event, at: float) -> None:
        self.end, self._ended = at, event
        self.state = "failed" if event.get("error") else "ended"
        self._attributes.update(_mapping(event, "attributes"))
        self._custom.update(_mapping(event, "custom"))
        self._checkpoint("End", "end", event, at)

    def state_known(self, state: Mapping[str, Any], at: float) -> None:
        """Takes what the state file says: the newest reading, and samples of open steps."""
        steps = [each for each in state.get("steps", ()) if isinstance(each, dict)]
        for each in steps:
            step = self._steps.get(each.get("index", -1))
            if step is None or step.end is not None:
                continue
            if each.get("expected") is not None:
                step.expected = each["expected"]
            if each.get("samples"):
                # The samples are newer than the reading beside them: they are written at once.
                step.consumed(each["samples"], max(at, step.start))
        attributes = _mapping(state, "attributes")
        if attributes:
            still_open = tuple(
                index for index, step in self._steps.items() if step.end is None
            ) or tuple(each["index"] for each in steps if "index" in each and self.end is None)
            self.last = LastReading(time=at, attributes=attributes, open_steps=still_open)

    def recorded(self) -> RecordedRun:
        state = self.state or "lost"
        started, ended = self._started, self._ended
        return RecordedRun(
            id=self.id,
            process=self._process,
            pid=_pid(self._process),
            parent_pid=self._parent,
            rank=started.get("rank"),
            world_size=started.get("world_size"),
            start=self._at,
            end=self.end,
            state=state,
            attributes={**self._of_models(), **self._of_steps(), **self._attributes},
            devices=_devices(ended),
            steps=tuple(step.recorded(state) for _, step in sorted(self._steps.items())),
            checkpoints=tuple(self._checkpoints),
            models=tuple(self._models),
            custom=self._custom,
            error=ended.get("error"),
            error_message=ended.get("error_message"),
            last=self.last,
            trace_id=started.get("trace_id"),
            span_id=started.get("span_id"),
            parent_span_id=started.get("parent_span_id"),
            resource=_mapping(started, "resource"),
        )

    def _of_steps(self) -> dict[str, Any]:
        """Returns what the run's span has of its steps: the first value of each."""
        found: dict[str, Any] = {}
        for _, step in sorted(self._steps.items()):
            for name in semconv.COPIED_TO_RUN:
                if name in step.attributes:
                    found.setdefault(name, step.attributes[name])
        return found

    def _of_models(self) -> dict[str, Any]:
        """Returns what the run's span has of its models: the last of each role."""
        last = {model.get("role"): model for model in self._models}
        found = {
            f"quant.model.{role}.{name}": value
            for role, model in last.items()
            for name, value in _mapping(model, "figures").items()
        }
        for model in self._models:
            if model.get("role") == "float" and "path" in model:
                found.setdefault(semconv.INPUT_PATH, model["path"])
        return found

    def _checkpoint(
        self, name: str, phase: Phase, event: _Event, at: float, step: int | None = None
    ) -> None:
        custom = _mapping(event, "custom")
        self._custom.update(custom)
        self._checkpoints.append(
            RecordedCheckpoint(
                name=name,
                time=at,
                step=step,
                phase=phase,
                attributes={
                    **_mapping(event, "checkpoint"),
                    **{semconv.CUSTOM_PREFIX + key: value for key, value in custom.items()},
                },
            )
        )


_HANDLERS: Final[Mapping[str, Callable[[_OpenRun, _Event, float], None]]] = {
    "run.attributes": _OpenRun.learned,
    "step.started": _OpenRun.step_started,
    "samples.expected": _OpenRun.samples_expected,
    "samples.consumed": _OpenRun.samples_consumed,
    "step.ended": _OpenRun.step_ended,
    "checkpoint": _OpenRun.checkpoint,
    "models.costed": _OpenRun.models_costed,
    "heartbeat": _OpenRun.heartbeat,
    "run.ended": _OpenRun.ended,
}
"""What each kind of event changes; a kind that this version does not know changes nothing."""


def _state_file(path: Path) -> dict[str, Any] | None:
    """Returns the newest figures; None if there are none, or a kill has cut them."""
    try:
        state = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(state, dict) or not {"time", "clock", "run"} <= state.keys():
        return None
    schema = state.get("schema")
    if isinstance(schema, int) and schema > layout.SCHEMA:
        raise NewerSchemaError(f"{path}: schema {schema}", schema)
    return state


def _add_state(
    reading: dict[str, _OpenRun],
    state: dict[str, Any],
    clock: _Clock,
    process: str,
    found: ProcessRuns,
) -> None:
    try:
        at = clock.seconds(state)
        run = reading.get(state["run"])
        if run is None:  # the events are gone
            run = reading[state["run"]] = _OpenRun({"run": state["run"]}, at, process, None)
        if run.end is None:
            run.state_known(state, at)
            found.latest = max(found.latest, at)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        found.problems.append(f"state of process {process}: {type(error).__name__} {error}")


def as_attributes(value: object) -> dict[str, Any]:
    """Returns a mapping as it was before it was written, under the names of today.

    Of anything else it is an empty one.
    """
    if not isinstance(value, dict):
        return {}
    today: Mapping[Any, str] = FORMER
    return {
        today.get(key, key): tuple(each) if type(each) is list else each
        for key, each in value.items()
    }


def _mapping(event: Mapping[str, Any], name: str) -> dict[str, Any]:
    return as_attributes(event.get(name))


def _devices(event: _Event) -> tuple[Mapping[str, Any], ...]:
    found = event.get("devices")
    return tuple(map(as_attributes, found)) if isinstance(found, list) else ()


def _pid(process: str) -> int | None:
    return int(process.partition("-")[0])


def _selection(points: Sequence[tuple[float, int]]) -> Iterator[tuple[float, int]]:
    """Yields at most about `_MOST_POINTS` of the points, the first and the last among them."""
    every = max(1, -(-len(points) // _MOST_POINTS))
    for number, point in enumerate(points):
        if number % every == 0 or number == len(points) - 1:
            yield point
