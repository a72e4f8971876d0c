"""Runs that were killed and went on: what a restart would lose, and the runs that a recording continues."""

from __future__ import annotations

from itertools import islice
from operator import attrgetter
from pathlib import Path
from typing import Final

from otel_quant.diagnosis.resuming import SavedProgress, saved_in
from otel_quant.format.event_file import load_manifest
from otel_quant.recordings.model import Recording
from otel_quant.recordings.reader import local, read
from otel_quant.schema import semconv

_MOST_BESIDE: Final = 1000  # Recordings that are looked at for the one that is continued


def lost_by_restart(recording: Recording, now: float) -> tuple[float, SavedProgress | None]:
    """Returns the seconds of work that a program which ends now has to do again, and what it can go on from, if anything."""
    places = {it.attributes.get(semconv.RESUME_PATH) for run in recording.runs for it in run.steps}
    found = (saved_in(str(place)) for place in places if place)
    saved = max(filter(None, found), key=attrgetter("saved"), default=None)
    since = saved.saved - recording.began_ns / 1e9 if saved is not None else 0.0
    return max(0.0, now - max(0.0, since)), saved


def earlier_runs(recording: Recording) -> list[Recording]:
    """Returns the runs that a recording continues, the one before first."""
    found, path = [recording], recording.continues
    while path and path not in [each.place for each in found]:
        try:
            found.append(read(local(path, is_one=True), in_brief=True))
        except (OSError, ValueError):
            break
        path = found[-1].continues
    return found[1:]


def found_beside(folder: Path) -> str | None:
    """Returns the recording beside one whose program was killed and had written what that one has gone on from."""
    own, known = read(folder, in_brief=True), [(0, "")]
    of_runs = [run.attributes for run in own.runs if run.attributes.get(semconv.RESUME_DONE)]
    places = {each.get(semconv.RESUME_PATH) for each in of_runs}
    for path in islice(folder.resolve().parent.iterdir() if places else (), _MOST_BESIDE):
        found = load_manifest(path) if path.is_dir() else {}
        began, ending = found.get("began") or 0, found.get("ending") or {}
        if ending.get("resume") in places and began < own.began_ns:
            known.append((began, str(path)))
    return max(known)[1] or None
