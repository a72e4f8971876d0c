"""Reads a recording: a folder, or a ``quark_profile.yaml`` as one.

What a kill has cut, what is missing and what an older version has written is no error: what there is
is read. What could not be read is said in ``Recording.problems``.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from otel_quant.base.files import is_held
from otel_quant.export.recording import layout
from otel_quant.export.recording.curve import Curve, RecordedCurve, read_curve
from otel_quant.export.recording.event_file import (
    EXPECTED,
    NewerSchemaError,
    NotARecordingError,
    load_manifest,
)
from otel_quant.recordings.model import (
    LAUNCHER,
    Advice,
    Attributes,
    Ending,
    RecordedRun,
    Recording,
    State,
)
from otel_quant.recordings.process_reader import first_event, read_process
from otel_quant.schema import semconv
from otel_quant.schema.recorded_files import MANIFEST, LeftOut
from otel_quant.schema.series import TOTALS


def read(path: Path, ending: Ending | None = None, *, in_brief: bool = False) -> Recording:
    """Reads a recording."""
    if path.is_dir():
        return _read_folder(path, ending, in_brief)
    from otel_quant.recordings.profile_reader import read_profile  # a folder does not need it

    return read_profile(path, in_brief=in_brief)


def _read_folder(folder: Path, ending: Ending | None, in_brief: bool) -> Recording:
    processes = layout.processes_in(folder)
    left_out = LeftOut()
    made = MANIFEST(load_manifest(folder), left_out) or {}
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
