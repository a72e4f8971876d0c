"""Reads a recording: a folder, or a ``quark_profile.yaml`` as one.

What a kill has cut, what is missing and what an older version has written is no error: what there is
is read. What could not be read is said in ``Recording.problems``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from pathlib import Path
from sys import intern
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from otel_quant.base.files import is_held, open_regular
from otel_quant.export.recording import layout, manifest
from otel_quant.export.recording.curve import Curve, RecordedCurve, read_curve
from otel_quant.export.recording.event_file import (
    EXPECTED,
    NewerSchemaError,
    NotARecordingError,
    mapping_in,
    refuse_newer,
)
from otel_quant.recordings.model import (
    LAUNCHER,
    Advice,
    Attributes,
    Ending,
    LastReading,
    RecordedCheckpoint,
    RecordedRun,
    RecordedStep,
    Recording,
    State,
)
from otel_quant.schema import semconv
from otel_quant.schema.recorded_files import EVENTS, MANIFEST, STATE, LeftOut, attributes
from otel_quant.schema.series import TOTALS

if TYPE_CHECKING:
    from otel_quant.schema.records import Phase


def read(path: Path, ending: Ending | None = None, *, in_brief: bool = False) -> Recording:
    """Reads a recording."""
    if path.is_dir():
        return _read_folder(path, ending, in_brief)
    from otel_quant.recordings.profile_reader import read_profile  # a folder does not need it

    return read_profile(path, in_brief=in_brief)


def _read_folder(folder: Path, ending: Ending | None, in_brief: bool) -> Recording:
    processes = layout.processes_in(folder)
    left_out = LeftOut()
    made = MANIFEST(manifest.load(folder), left_out) or {}
    problems = [*left_out.in_words(layout.MANIFEST)]
    launcher = layout.curve_path(folder, LAUNCHER)
    if not processes and not made and not launcher.exists():
        raise NotARecordingError(
            f"{folder}: has no {layout.MANIFEST} and no events.<pid>.jsonl; {EXPECTED}"
        )
    began_ns = made.get("began")
    if began_ns is None:
        problems.append(f"{layout.MANIFEST} is missing or has been cut")
        began_ns = _earliest(folder, processes)
    ending = _ending_of(made.get("ending")) or ending
    runs: list[RecordedRun] = []
    curves: dict[str, RecordedCurve] = {}
    latest = 0.0
    for process in processes:
        state_of_open = partial(_open, folder, process, ending)
        found = read_process(folder, process, began_ns, state_of_open, in_brief=in_brief)
        runs += found.runs
        problems += found.problems
        latest = max(latest, found.latest)
    summary = made.get("summary") if in_brief else None
    if summary is not None:
        curves[LAUNCHER] = RecordedCurve(began_ns, 0, _curve_of(summary))
    for process in _with_curves(processes, runs, in_brief, summary is not None):
        path, left_out = layout.curve_path(folder, process), LeftOut()
        try:
            curve = curves[process] = read_curve(path, left_out)
        except FileNotFoundError:
            continue
        except NewerSchemaError:
            raise
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            problems.append(f"{path.name} is left out: {why}")
            continue
        problems += left_out.in_words(path.name)
        latest = max(latest, _end_of(curve, began_ns))
    ended = made.get("ended")
    if ending is not None:
        latest = max(latest, ending.time)
    elif ended is not None:
        latest = max(latest, (ended - began_ns) / 1e9)
    runs.sort(key=lambda run: run.start)
    return Recording(
        path=folder,
        began_ns=began_ns,
        state=_state(runs, ending, launcher, is_over=ended is not None),
        duration=latest,
        origin=_origin(made.get("origin", {}), runs),
        runs=tuple(runs),
        curves=curves,
        ending=ending,
        launcher=made.get("pid") if made.get("made_by") == "launcher" else None,
        problems=tuple(problems),
    )


def _with_curves(
    processes: list[str], runs: list[RecordedRun], in_brief: bool, is_known: bool
) -> tuple[str, ...]:
    """Returns whose curves are read; in brief those that know more than the ends of runs."""
    if not in_brief:
        return (*processes, LAUNCHER)
    stopped = dict.fromkeys(run.process for run in runs if run.end is None)
    return tuple(stopped) if is_known else (*stopped, LAUNCHER)


def _origin(noted: Attributes, runs: list[RecordedRun]) -> Attributes:
    """Returns what made the recording: what the manifest says, else the first run."""
    by_run = runs[0].attributes if runs else {}
    found = {name: value for name, value in by_run.items() if name in semconv.ORIGIN}
    return {**found, **noted}


def _open(folder: Path, process: str, ending: Ending | None) -> State:
    """Returns how a run of a process stands that has not ended."""
    if is_held(layout.events_path(folder, process)):
        return "running"
    if ending is None:
        return "lost"
    if ending.signal is not None:
        return "killed"
    return "failed" if ending.exit_code else "lost"


def _state(runs: list[RecordedRun], ending: Ending | None, curve: Path, *, is_over: bool) -> State:
    """Returns how the whole stands: as the launcher saw it end, else by its runs; it holds its curve."""
    if ending is not None:
        if ending.signal is not None:
            return "killed"
        return "failed" if ending.exit_code else "ended"
    states = {run.state for run in runs}
    if "running" in states or is_held(curve):
        return "running"
    worst: tuple[State, ...] = ("lost", "failed")
    for state in worst:
        if state in states:
            return state
    return "ended" if runs or is_over else "lost"


def _end_of(curve: RecordedCurve, began_ns: int) -> float:
    position = max(curve.curve.buckets, default=0)
    return (curve.began_ns - began_ns) / 1e9 + position * curve.curve.length / 1000


def _earliest(folder: Path, processes: list[str]) -> int:
    """Returns the wall clock of the first event of all processes; 0 without any."""
    firsts = (first_event(layout.events_path(folder, process)) for process in processes)
    return min((first["time"] for first in firsts if first is not None), default=0)


def _ending_of(found: dict[str, Any] | None) -> Ending | None:
    """Returns how the program ended, as the launcher saw it."""
    if found is None:
        return None
    advice = tuple(Advice(**each) for each in found.get("advice", ()))
    return Ending(**{**found, "advice": advice})


def _curve_of(summary: Mapping[str, float]) -> Curve:
    """Returns what the launcher's curve comes to, as a curve of one bucket."""
    curve = Curve(1)
    levels = {name: value for name, value in summary.items() if name not in TOTALS}
    curve.add(0, levels, {name: summary[name] for name in TOTALS & summary.keys()})
    return curve


# --- what one process has left ------------------------------------------------------------

_MOST_POINTS: Final = 300
"""Points of a step's progress that are kept."""

_Event = Mapping[str, Any]

_SPAN: Final = ("trace_id", "span_id", "parent_span_id")
_OF_STEP: Final = ("parent", *_SPAN)
_OUTCOME: Final = ("devices", "error", "error_message")
_OF_RUN: Final = ("rank", "world_size", "resource", *_SPAN)


class ProcessRuns(NamedTuple):
    """What a process has left."""

    runs: list[RecordedRun]  # Its runs, in order
    latest: float  # When the last that is known was written, in seconds since the recording began
    problems: list[str]  # What could not be read, one sentence each


def read_process(
    folder: Path,
    process: str,
    began_ns: int,
    state_of_open: Callable[[], State],
    *,
    in_brief: bool = False,
) -> ProcessRuns:
    """Reads the events and the state of a process."""
    problems: list[str] = []
    latest = 0.0
    reading: dict[str, ReadRun] = {}
    path = layout.events_path(folder, process)
    left_out = LeftOut()
    offset: int | None = None  # of the recording's time and the process's monotonic clock
    parent: int | None = None
    try:
        for kind, event in _read_events(path, left_out, in_brief=in_brief):
            if offset is None:
                offset = event["time"] - began_ns - event["clock"]
            at = max(0, event["clock"] + offset) / 1e9
            latest = max(latest, at)
            if kind == "process.started":
                parent = event["parent_pid"]
                continue
            if kind == "run.started":
                reading[event["run"]] = ReadRun(event["run"], at, process, parent)
            try:
                reading[event["run"]].take(kind, event, at)
            except KeyError:
                left_out[f"{kind} of what has not started"] += 1
    except OSError as error:
        problems.append(f"{path.name} cannot be read: {error.strerror or error}")
    problems += left_out.in_words(path.name)
    if not reading or any(run.end is None for run in reading.values()):
        path = layout.state_path(folder, process)
        left_out = LeftOut()
        state = STATE(mapping_in(path), left_out)
        problems += left_out.in_words(path.name)
        if state is not None:
            if why := state.get("problem"):
                name = layout.events_path(folder, process).name
                problems.append(f"{name}: the process could not write all of its events: {why}")
            if offset is None:
                offset = state["time"] - began_ns - state["clock"]
            at = max(0, state["clock"] + offset) / 1e9
            # Without a run its events are gone.
            run = reading.setdefault(state["run"], ReadRun(state["run"], at, process))
            if run.end is None:
                run.state_known(state, at)
                latest = max(latest, at)
    is_open = any(run.end is None for run in reading.values())
    open_state = state_of_open() if is_open else "lost"
    runs = [run.recorded(open_state) for run in reading.values()]
    return ProcessRuns(runs, latest, problems)


_DECODE: Final = json.JSONDecoder().decode
"""Without finding out the encoding of each line."""

_OURS: Final = re.compile(rb'\{"schema":\d+,"time":\d+,"clock":\d+,"kind":"(?!run\.|process\.)')
"""Begins a line of neither a run nor a process, as we write it: in brief only such a one is not looked
at. What another program has written anew, as `jq` does, is."""


def _read_events(
    path: Path, left_out: LeftOut, *, in_brief: bool
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields the events of a process; in brief, if all of its runs have ended, only those of the runs.

    The last event of a run has what its steps have said of it.
    """
    with open_regular(path) as file:
        if not in_brief:
            yield from _events(path, file, left_out)
            return
        lines = file.readlines()
    noted = LeftOut()
    events = list(_events(path, [line for line in lines if not _OURS.match(line)], noted))
    kinds = [kind for kind, _ in events]
    if kinds.count("run.started") == kinds.count("run.ended"):
        left_out.update(noted)
        yield from events
    else:
        yield from _events(path, lines, left_out)


def first_event(path: Path) -> dict[str, Any] | None:
    """Returns the first event of a process; None if there is none."""
    try:
        return next((event for _, event in _read_events(path, LeftOut(), in_brief=False)), None)
    except OSError:
        return None


def _events(
    path: Path, lines: Iterable[bytes], left_out: LeftOut
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields the events of lines; a last line that a kill has cut is none, and nothing is left out."""
    for event in _decoded(lines, left_out):
        refuse_newer(path, event)
        kind = event.get("kind") if type(event) is dict else None
        if type(kind) is not str or (fields := EVENTS.get(kind)) is None:
            continue
        if (known := fields(event, left_out)) is not None:
            yield kind, known
        else:
            left_out[kind] += 1


_AT_ONCE: Final = 256
"""Lines that are decoded together: each name is one object then, of 20 in every line of a long run."""


def _decoded(lines: Iterable[bytes], left_out: LeftOut) -> Iterator[Any]:
    """Yields what lines hold."""
    every = iter(lines)
    while some := list(islice(every, _AT_ONCE)):
        with suppress(ValueError, RecursionError):
            found = _DECODE(f"[{b','.join(some).decode()}]")
            if len(found) == len(some):
                yield from found
                continue
        for line in some:
            try:
                event = _DECODE(line.decode())
            except (ValueError, RecursionError):
                if line.endswith(b"\n"):
                    left_out["line"] += 1
            else:
                yield event


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
        self._open: dict[int, dict[str, Any]] = {}
        self._closed: dict[int, RecordedStep] = {}
        self._attributes: dict[str, Any] = {}
        self._custom: dict[str, Any] = {}
        self._checkpoints: list[RecordedCheckpoint] = []
        self._models: list[Mapping[str, Any]] = []

    def take(self, kind: str, event: _Event, at: float) -> None:
        """Takes an event. Raises KeyError if it is of a step that has not begun."""
        _HANDLERS[kind](self, event, at)

    def _on_started(self, event: _Event, at: float) -> None:
        self._known |= _known(event, _OF_RUN)
        self._attributes |= event.get("attributes", {})
        self._checkpoint("Start", "start", event, at)

    def _on_step_started(self, event: _Event, at: float) -> None:
        index = event["index"]
        self._open[index] = {
            "index": index, "name": event["name"], "kind": event["step_kind"], "start": at,
            "attributes": event.get("attributes", {}), **_known(event, _OF_STEP),
        }  # fmt: skip
        self._checkpoint(f"{event['name']} Start", "start", event, at, index)

    def _on_step_ended(self, event: _Event, at: float) -> None:
        if event.get("samples") is not None:
            self._on_samples_consumed(event, at)
        index = event["index"]
        step, error = self._open.pop(index), event.get("error")
        step["attributes"].update(event.get("attributes", {}))
        step |= _known(event, _OUTCOME)
        self._closed[index] = _recorded_step(step, "failed" if error else "ended", at)
        self._checkpoint(f"{step['name']} End", "end", event, at, index)

    def _on_samples_expected(self, event: _Event, at: float) -> None:
        self._open[event["index"]]["expected_samples"] = event["total"]

    def _on_samples_consumed(self, event: _Event, at: float) -> None:
        _consumed(self._open[event["index"]], event["samples"], at)

    def _on_checkpoint(self, event: _Event, at: float) -> None:
        self._checkpoint(event["name"], "point", event, at, event.get("step"))

    def _on_models_costed(self, event: _Event, at: float) -> None:
        self._models += event["models"]

    def _on_learned(self, event: _Event, at: float) -> None:
        self._attributes.update(event.get("attributes", {}))
        if "span_id" in event:
            self._known["parent_span_id"] = None
        names = (*_SPAN, "resource") if "span_id" in event else ("trace_id",)
        self._known |= {name: event[name] for name in names if name in event}

    def _on_heartbeat(self, event: _Event, at: float) -> None:
        steps = {str(index): step for index, step in self._open.items()}
        for index, samples in event.get("samples", {}).items():
            _consumed(steps[index], samples, at)
        self.last = LastReading(
            time=at, attributes=event.get("attributes", {}), open_steps=tuple(self.open_steps)
        )

    def _on_ended(self, event: _Event, at: float) -> None:
        self.end = at
        self.state = "failed" if event.get("error") else "ended"
        self._known |= _known(event, _OUTCOME)
        self._attributes.update(event.get("attributes", {}))
        self._custom.update(event.get("custom", {}))
        self._checkpoint("End", "end", event, at)

    def state_known(self, state: Mapping[str, Any], at: float) -> None:
        """Takes what the state file says: the newest reading, and samples of open steps."""
        steps = state.get("steps", ())
        for each in steps:
            step = self._open.get(each["index"])
            if step is None:
                continue
            if each.get("expected") is not None:
                step["expected_samples"] = each["expected"]
            if each.get("samples"):
                # The samples are newer than the reading beside them: they are written at once.
                _consumed(step, each["samples"], max(at, step["start"]))
        attributes = state.get("attributes", {})
        if attributes:
            named = tuple(each["index"] for each in steps)
            open_steps = tuple(self.open_steps) or named
            self.last = LastReading(time=at, attributes=attributes, open_steps=open_steps)

    @property
    def open_steps(self) -> dict[int, str]:
        """The names of the steps that are open, by index."""
        return {index: step["name"] for index, step in self._open.items()}

    def recorded(self, state_of_open: State = "lost") -> RecordedRun:
        """Returns what has been read."""
        state = self.state or state_of_open
        still_open = {index: _recorded_step(step, state) for index, step in self._open.items()}
        steps = tuple(step for _, step in sorted((self._closed | still_open).items()))
        return RecordedRun(
            **{
                **self._known,
                "resource": self._known.get("resource", {}),
                "end": self.end,
                "state": state,
                "attributes": {**self._of_models(), **_of_steps(steps), **self._attributes},
                "steps": steps,
                "checkpoints": tuple(self._checkpoints),
                "models": tuple(self._models),
                "custom": self._custom,
                "last": self.last,
            }
        )

    def _of_models(self) -> dict[str, Any]:
        """Returns what the run's span has of its models: the last of each role."""
        last = {model.get("role"): model for model in self._models}
        found = {
            f"quant.model.{role}.{name}": value
            for role, model in last.items()
            for name, value in model["figures"].items()
        }
        for model in self._models:
            if model.get("role") == "float" and "path" in model:
                found.setdefault(semconv.INPUT_PATH, model["path"])
        return attributes(found, LeftOut()) or {}  # in a profile a figure may be anything

    def _checkpoint(
        self, name: str, phase: Phase, event: _Event, at: float, step: int | None = None
    ) -> None:
        figures = event.get("checkpoint", {})
        if custom := event.get("custom"):
            self._custom.update(custom)
            prefixed = {semconv.CUSTOM_PREFIX + key: value for key, value in custom.items()}
            figures = {**figures, **prefixed}
        self._checkpoints.append(
            RecordedCheckpoint(
                name=intern(name),
                time=at,
                step=step,
                phase=phase,
                attributes=figures,
                wall_ns=event.get("time"),
            )
        )


def _recorded_step(step: dict[str, Any], state: State, end: float | None = None) -> RecordedStep:
    progress = tuple(_selection(step.pop("progress"))) if "progress" in step else ()
    return RecordedStep(**step, state=state, end=end, progress=progress)


def _consumed(step: dict[str, Any], samples: int, at: float) -> None:
    """Notes how many samples have been consumed by a time."""
    if samples > (step.get("samples") or 0):
        step["samples"] = samples
        step.setdefault("progress", []).append((at, samples))


def _of_steps(steps: Iterable[RecordedStep]) -> dict[str, Any]:
    """Returns what the run's span has of its steps: the first value of each."""
    found: dict[str, Any] = {}
    for step in steps:
        for name in semconv.COPIED_TO_RUN:
            if name in step.attributes:
                found.setdefault(name, step.attributes[name])
    return found


def _known(event: _Event, names: Iterable[str]) -> dict[str, Any]:
    return {name: event[name] for name in names if name in event}


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


def _pid(process: str) -> int | None:
    number = process.partition("-")[0]
    return int(number) if number.isdecimal() else None


def _selection(points: Sequence[tuple[float, int]]) -> Iterator[tuple[float, int]]:
    """Yields at most about `_MOST_POINTS` of the points, the first and the last among them."""
    every = max(1, -(-len(points) // _MOST_POINTS))
    for number, point in enumerate(points):
        if number % every == 0 or number == len(points) - 1:
            yield point
