"""Makes the record of a run from its events, which come from a folder or a profile."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from sys import intern
from typing import TYPE_CHECKING, Any, Final

from otel_quant.format.fields import LeftOut, attributes
from otel_quant.recordings.model import (
    LastReading,
    RecordedCheckpoint,
    RecordedRun,
    RecordedStep,
    State,
)
from otel_quant.schema import semconv
from otel_quant.schema.code_lines import Spot
from otel_quant.schema.events import method_of
from otel_quant.schema.readings import UNITS, Count, Counts, LayerAccuracy

if TYPE_CHECKING:
    from otel_quant.schema.readings import Phase

_Event = Mapping[str, Any]

_SPAN: Final = ("trace_id", "span_id", "parent_span_id")
_OF_STEP: Final = ("parent", "mark", *_SPAN)
_OUTCOME: Final = ("devices", "error", "error_message")
_NONE: Final = Count()
_OF_RUN: Final = ("rank", "world_size", "resource", *_SPAN)


class ReadRun:
    """A run while its events are being read."""

    def __init__(self, run: str, at: float, process: str, parent: int | None = None) -> None:
        number = process.partition("-")[0]
        # Fields of the record that are known, and fields of its steps
        self._known: dict[str, Any] = {
            "id": run, "process": process, "pid": int(number) if number.isdecimal() else None,
            "parent_pid": parent, "start": at, "end": None,
        }  # fmt: skip
        self._open: dict[int, dict[str, Any]] = {}
        self._closed: dict[int, RecordedStep] = {}
        self._attributes: dict[str, Any] = {}
        self._custom: dict[str, Any] = {}
        self._checkpoints: list[RecordedCheckpoint] = []
        self._models: list[Mapping[str, Any]] = []
        self._events: list[tuple[str, _Event]] = []
        self._latest = at  # The time of the newest

    @property
    def is_open(self) -> bool:
        """Whether it has not ended."""
        return self._known["end"] is None

    @property
    def open_steps(self) -> dict[str, int]:
        """The indices of the steps that are open, by name."""
        return {step["name"]: index for index, step in self._open.items()}

    def take(self, kind: str, event: _Event, at: float) -> None:
        """Takes an event. Raises KeyError or ValueError if it is of a step that has not begun."""
        self._latest = at
        take = getattr(self, f"_on_{method_of(kind)}", None)
        if take is not None:
            take(event, at)
        else:
            self._events.append((kind, event))

    def _on_run_started(self, event: _Event, at: float) -> None:
        self._known |= _known(event, _OF_RUN)
        self._attributes |= event.get("attributes", {})
        self._checkpoint_at("Start", "start", event, at)

    def _on_run_attributes(self, event: _Event, _: float) -> None:
        """Takes what is known later; with a span, the run has begun another, which may have none above."""
        self._attributes |= event.get("attributes", {})
        if "span_id" in event:
            self._known["parent_span_id"] = None
            self._known |= _known(event, (*_SPAN, "resource"))
        self._known |= _known(event, ("trace_id",))

    def _on_run_ended(self, event: _Event, at: float) -> None:
        self._known |= {"end": at, **_known(event, _OUTCOME)}
        self._attributes |= event.get("attributes", {})
        self._custom |= event.get("custom", {})
        self._checkpoint_at("End", "end", event, at)

    def _on_step_started(self, event: _Event, at: float) -> None:
        index, name = event["index"], event["name"]
        self._open[index] = {
            "index": index, "name": name, "kind": event["step_kind"], "start": at, "layers": (),
            "attributes": event.get("attributes", {}), "counts": Counts(), "progress": [],
            **_known(event, _OF_STEP),
        }  # fmt: skip
        self._checkpoint_at(f"{name} Start", "start", event, at, index)

    def _on_step_ended(self, event: _Event, at: float) -> None:
        index, given = event["index"], event.get("attributes", {})
        step = self._open[index]
        _counted(step, "sample", event.get("samples", 0), at)
        # Former versions have no other trace of layers, and a short step ends before one is written.
        for unit, names in UNITS.items():
            if type(done := given.get(names.count)) is int:
                step["counts"].setdefault(unit, Count(0, given.get(names.total)))
                _counted(step, unit, done, at)
        del self._open[index]
        step["attributes"].update(given)
        step |= _known(event, _OUTCOME)
        self._closed[index] = _recorded_step(step, _state_of(event), at)
        self._checkpoint_at(f"{step['name']} End", "end", event, at, index)

    def _on_samples_expected(self, event: _Event, at: float, unit: str = "sample") -> None:
        step = self._open[event["index"]]
        step["counts"].expect(unit, event["total"])
        step["progress"] = [(at, 0)]

    def _on_layers_expected(self, event: _Event, at: float) -> None:
        self._on_samples_expected(event, at, "layer")

    def _on_passes_expected(self, event: _Event, at: float) -> None:
        self._on_samples_expected(event, at, "pass")

    def _on_samples_consumed(self, event: _Event, at: float) -> None:
        _all_counted(self._open[event["index"]], event, at)

    _on_layers_begun = _on_passes_begun = _on_samples_consumed

    def _on_models_costed(self, event: _Event, _: float) -> None:
        self._models.extend(event["models"])

    def _on_layer_measured(self, event: _Event, _: float) -> None:
        known = LayerAccuracy(
            event["layer"], event["measure"], event.get("value"), event.get("better"),
            event.get("unit"), event["number"], event["time"],
        )  # fmt: skip
        self._open[event["index"]]["layers"] += (known,)

    def _on_checkpoint(self, event: _Event, at: float) -> None:
        self._checkpoint_at(event["name"], "point", event, at, event.get("step"))

    def _on_heartbeat(self, event: _Event, at: float) -> None:
        for unit, names in UNITS.items():
            for number, done in event.get(names.several, {}).items():
                _counted(self._open[int(number)], unit, done, at)
        given = event.get("attributes", {})
        self._known["last"] = LastReading(time=at, attributes=given, open_steps=tuple(self._open))

    def cut_off(self) -> float:
        """Notes that what happened after the newest event could not be written; returns when that was."""
        self._known["cut"] = self._latest
        return self._latest

    def state_known(self, state: Mapping[str, Any], at: float) -> None:
        """Takes what the state file has: the newest reading, and how far open steps are."""
        steps = {each["index"]: each for each in state.get("steps", ())}
        for index in steps.keys() & self._open.keys():
            step, known = self._open[index], steps[index]
            if "line" in known:
                step["line"] = Spot(known.get("own"), known["line"], known.get("waits_for", ""))
            for unit, names in UNITS.items():
                total = known.get(names.expected)
                if total not in (None, step["counts"].get(unit, _NONE).total):
                    step["counts"].expect(unit, total)
            # The counts are newer than the reading beside them: they are written at once.
            _all_counted(step, known, max(at, step["start"]))
        if given := state.get("attributes"):
            named = tuple(self._open) or tuple(steps)
            self._known["last"] = LastReading(time=at, attributes=given, open_steps=named)

    def recorded(self, state_of_open: State = "lost") -> RecordedRun:
        """Returns what has been read."""
        state = state_of_open if self.is_open else _state_of(self._known)
        still_open = {index: _recorded_step(step, state) for index, step in self._open.items()}
        steps = tuple(step for _, step in sorted((self._closed | still_open).items()))
        of_steps: dict[str, Any] = {}  # what the run has of its steps: the first value of each
        for each in steps:
            if copied := _known(each.attributes, semconv.COPIED_TO_RUN):
                of_steps |= copied | of_steps
        return RecordedRun(
            **self._known, state=state,
            attributes={**self._of_models(), **of_steps, **self._attributes}, steps=steps,
            checkpoints=tuple(self._checkpoints), models=tuple(self._models),
            events=tuple(self._events), custom=self._custom,
        )  # fmt: skip

    def _of_models(self) -> dict[str, Any]:
        """Returns what the run's span has of its models: the last of each role."""
        last = {str(model.get("role")): model for model in self._models}
        found = {
            semconv.of_model(role, name): value
            for role, model in last.items()
            for name, value in model["figures"].items()
        }
        for model in reversed(self._models):  # the first counts
            if model.get("role") == "float" and "path" in model:
                found[semconv.INPUT_PATH] = model["path"]
        return attributes.take(found, LeftOut()) or {}  # in a profile a figure may be anything

    def _checkpoint_at(
        self, name: str, phase: Phase, event: _Event, at: float, step: int | None = None
    ) -> None:
        figures = event.get("checkpoint", {})
        if custom := event.get("custom"):
            self._custom.update(custom)
            prefixed = {semconv.CUSTOM_PREFIX + key: value for key, value in custom.items()}
            figures = {**figures, **prefixed}
        self._checkpoints.append(
            RecordedCheckpoint(intern(name), at, step, phase, figures, event.get("time"))
        )


def _state_of(ended: Mapping[str, Any]) -> State:
    return "failed" if ended.get("error") else "ended"


def _recorded_step(step: dict[str, Any], state: State, end: float | None = None) -> RecordedStep:
    step["progress"] = tuple(step["progress"])
    return RecordedStep(**step, state=state, end=end)


def _all_counted(step: dict[str, Any], event: _Event, at: float) -> None:
    for unit, names in UNITS.items():
        if names.several in event:
            _counted(step, unit, event[names.several], at)


def _counted(step: dict[str, Any], unit: str, done: int, at: float) -> None:
    """Notes how many samples or layers have been begun by a time."""
    counts: Counts = step["counts"]
    before, total = counts.get(unit, _NONE)
    if done > before:
        counts[unit] = Count(done, total)
        if unit == counts.newest:
            step["progress"].append((at, done))


def _known(event: _Event, names: Iterable[str]) -> dict[str, Any]:
    return {name: event[name] for name in names if name in event}
