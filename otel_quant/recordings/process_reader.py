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

_SPAN: Final = ("trace_id", "span_id", "parent_span_id")
_OF_RUN: Final = ("rank", "world_size", "resource", *_SPAN)


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
    reading: dict[str, ReadRun] = {}
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
                    run = reading[event["run"]] = ReadRun(event["run"], at, process, parent)
                    run.take(event, at)
                elif event["kind"] in _HANDLERS:
                    reading[event["run"]].take(event, at)
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
    is_open = any(run.end is None for run in reading.values())
    open_state = state_of_open() if is_open else "lost"
    found.runs = [run.recorded(open_state) for run in reading.values()]
    return found


class _Clock:
    """Seconds of a process's events since the recording began, by its monotonic clock."""

    def __init__(self, first: Mapping[str, Any], began_ns: int) -> None:
        self._offset = int(first["time"]) - began_ns - int(first["clock"])

    def seconds(self, event: Mapping[str, Any]) -> float:
        return max(0, int(event["clock"]) + self._offset) / 1e9


class ReadRun:
    """A run while its events are being read."""

    def __init__(self, run: str, at: float, process: str, parent: int | None = None) -> None:
        self.state: State | None = None
        self.end: float | None = None
        self.last: LastReading | None = None
        # Fields of the record that are known, and of those of its steps
        self._known: dict[str, Any] = {
            "id": run, "process": process, "pid": _pid(process), "parent_pid": parent, "start": at,
        }  # fmt: skip
        self._steps: dict[int, dict[str, Any]] = {}
        self._attributes: dict[str, Any] = {}
        self._custom: dict[str, Any] = {}
        self._checkpoints: list[RecordedCheckpoint] = []
        self._models: list[Mapping[str, Any]] = []

    def take(self, event: _Event, at: float) -> None:
        """Takes an event; a kind that this version does not know changes nothing."""
        if (handle := _HANDLERS.get(event["kind"])) is not None:
            handle(self, event, at)

    def _on_started(self, event: _Event, at: float) -> None:
        self._known |= {name: event[name] for name in _OF_RUN if name in event}
        self._attributes |= _mapping(event, "attributes")
        self._checkpoint("Start", "start", event, at)

    def _on_step_started(self, event: _Event, at: float) -> None:
        index = event["index"]
        self._steps[index] = {
            "index": index, "name": event["name"], "kind": event["step_kind"], "start": at,
            "attributes": _mapping(event, "attributes"), "progress": [],
            **{name: event.get(name) for name in ("parent", *_SPAN)},
        }  # fmt: skip
        self._checkpoint(f"{event['name']} Start", "start", event, at, index)

    def _on_step_ended(self, event: _Event, at: float) -> None:
        step, error = self._steps[event["index"]], event.get("error")
        step["attributes"].update(_mapping(event, "attributes"))
        step |= {"end": at, "state": "failed" if error else "ended", **_outcome(event)}
        if event.get("samples") is not None:
            self._on_samples_consumed(event, at)
        self._checkpoint(f"{step['name']} End", "end", event, at, event["index"])

    def _on_samples_expected(self, event: _Event, at: float) -> None:
        self._steps[event["index"]]["expected_samples"] = event["total"]

    def _on_samples_consumed(self, event: _Event, at: float) -> None:
        self._consumed(self._steps[event["index"]], event["samples"], at)

    def _on_checkpoint(self, event: _Event, at: float) -> None:
        self._checkpoint(event["name"], "point", event, at, event.get("step"))

    def _on_models_costed(self, event: _Event, at: float) -> None:
        self._models += [model for model in event["models"] if isinstance(model, dict)]

    def _on_learned(self, event: _Event, at: float) -> None:
        self._attributes.update(_mapping(event, "attributes"))
        if "span_id" in event:
            self._known["parent_span_id"] = None
        names = (*_SPAN, "resource") if "span_id" in event else ("trace_id",)
        self._known |= {name: event[name] for name in names if name in event}

    def _on_heartbeat(self, event: _Event, at: float) -> None:
        for index, samples in _mapping(event, "samples").items():
            self._consumed(self._steps[int(index)], samples, at)
        self.last = LastReading(
            time=at, attributes=_mapping(event, "attributes"), open_steps=tuple(self.open_steps)
        )

    def _on_ended(self, event: _Event, at: float) -> None:
        self.end = at
        self.state = "failed" if event.get("error") else "ended"
        self._known |= _outcome(event)
        self._attributes.update(_mapping(event, "attributes"))
        self._custom.update(_mapping(event, "custom"))
        self._checkpoint("End", "end", event, at)

    def state_known(self, state: Mapping[str, Any], at: float) -> None:
        """Takes what the state file says: the newest reading, and samples of open steps."""
        steps = [each for each in state.get("steps", ()) if isinstance(each, dict)]
        for each in steps:
            step = self._steps.get(each.get("index", -1))
            if step is None or "end" in step:
                continue
            if each.get("expected") is not None:
                step["expected_samples"] = each["expected"]
            if each.get("samples"):
                # The samples are newer than the reading beside them: they are written at once.
                self._consumed(step, each["samples"], max(at, step["start"]))
        attributes = _mapping(state, "attributes")
        if attributes:
            named = tuple(each["index"] for each in steps if "index" in each and self.end is None)
            open_steps = tuple(self.open_steps) or named
            self.last = LastReading(time=at, attributes=attributes, open_steps=open_steps)

    @property
    def open_steps(self) -> dict[int, str]:
        """The names of the steps that are open, by index."""
        return {index: step["name"] for index, step in self._steps.items() if "end" not in step}

    def recorded(self, state_of_open: State = "lost") -> RecordedRun:
        """Returns what has been read."""
        state = self.state or state_of_open
        return RecordedRun(
            **{
                **self._known,
                "resource": _mapping(self._known, "resource"),
                "end": self.end,
                "state": state,
                "attributes": {**self._of_models(), **self._of_steps(), **self._attributes},
                "steps": tuple(
                    RecordedStep(
                        **{"state": state, **step, "progress": tuple(_selection(step["progress"]))}
                    )
                    for _, step in sorted(self._steps.items())
                ),
                "checkpoints": tuple(self._checkpoints),
                "models": tuple(self._models),
                "custom": self._custom,
                "last": self.last,
            }
        )

    @staticmethod
    def _consumed(step: dict[str, Any], samples: int, at: float) -> None:
        """Notes how many samples have been consumed by a time."""
        if samples > (step.get("samples") or 0):
            step["samples"] = samples
            step["progress"].append((at, samples))

    def _of_steps(self) -> dict[str, Any]:
        """Returns what the run's span has of its steps: the first value of each."""
        found: dict[str, Any] = {}
        for _, step in sorted(self._steps.items()):
            for name in semconv.COPIED_TO_RUN:
                if name in step["attributes"]:
                    found.setdefault(name, step["attributes"][name])
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
        prefixed = {semconv.CUSTOM_PREFIX + key: value for key, value in custom.items()}
        figures = _mapping(event, "checkpoint")
        self._checkpoints.append(
            RecordedCheckpoint(
                name=name, time=at, step=step, phase=phase, attributes={**figures, **prefixed}
            )
        )


def _outcome(event: _Event) -> dict[str, Any]:
    """Returns what the end of a run or a step says of it."""
    devices = event.get("devices")
    return {
        "devices": tuple(map(as_attributes, devices)) if isinstance(devices, list) else (),
        "error": event.get("error"),
        "error_message": event.get("error_message"),
    }


_HANDLERS: Final[Mapping[str, Callable[[ReadRun, _Event, float], None]]] = {
    "run.started": ReadRun._on_started,
    "run.attributes": ReadRun._on_learned,
    "step.started": ReadRun._on_step_started,
    "samples.expected": ReadRun._on_samples_expected,
    "samples.consumed": ReadRun._on_samples_consumed,
    "step.ended": ReadRun._on_step_ended,
    "checkpoint": ReadRun._on_checkpoint,
    "models.costed": ReadRun._on_models_costed,
    "heartbeat": ReadRun._on_heartbeat,
    "run.ended": ReadRun._on_ended,
}


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
    reading: dict[str, ReadRun],
    state: dict[str, Any],
    clock: _Clock,
    process: str,
    found: ProcessRuns,
) -> None:
    try:
        at = clock.seconds(state)
        run = reading.get(state["run"])
        if run is None:  # the events are gone
            run = reading[state["run"]] = ReadRun(state["run"], at, process)
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


def _pid(process: str) -> int | None:
    number = process.partition("-")[0]
    return int(number) if number.isdecimal() else None


def _selection(points: Sequence[tuple[float, int]]) -> Iterator[tuple[float, int]]:
    """Yields at most about `_MOST_POINTS` of the points, the first and the last among them."""
    every = max(1, -(-len(points) // _MOST_POINTS))
    for number, point in enumerate(points):
        if number % every == 0 or number == len(points) - 1:
            yield point
