"""The files of this process in a recording: where they are, and that no others are written over."""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from typing import Final

from otel_quant.base.files import is_held
from otel_quant.base.log import LOG
from otel_quant.export.recording import layout
from otel_quant.export.recording.event_file import EventFile, read_events

_TRIES: Final = 10_000


def choose_folder(asked: Path, *, is_ours: bool, rank: int | None, names_paths: bool) -> Path:
    """Returns the folder for the recording of this process.

    Processes that run at the same time, and ranks that one launcher has started, share a recording.
    Any other recording that is at the path stays as it is.
    """
    folder = asked.absolute()
    if is_ours:
        return folder
    for number in range(_TRIES):
        numbered = folder.with_name(f"{folder.name}-{number}") if number else folder
        if not _is_another(numbered, rank):
            break
    if number:
        LOG.warning(
            "%s holds another recording, which is kept; this one is in %s",
            folder if names_paths else "the folder of OTEL_QUANT_RECORD",
            numbered if names_paths else numbered.name,
        )
    return numbered


def make_folder(folder: Path, *, names_paths: bool) -> bool:
    """Makes the folder of a recording, and those above it."""
    reason = "no permission to write there"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if os.access(folder, os.W_OK | os.X_OK):
            return True
    except OSError as error:
        reason = error.strerror or type(error).__name__
    LOG.warning(
        "%s cannot be written: %s; the program goes on without a recording: set "
        "OTEL_QUANT_RECORD to a folder that can be written",
        f"the recording {folder}" if names_paths else "the recording",
        reason,
    )
    return False


def open_events(folder: Path) -> tuple[str, EventFile]:
    """Makes the file of this process's events."""
    pid = os.getpid()
    for number in itertools.count():
        process = f"{pid}-{number}" if number else str(pid)
        try:
            return process, EventFile(layout.events_path(folder, process))
        except FileExistsError:
            continue
    raise AssertionError("unreachable")


def _is_another(folder: Path, rank: int | None) -> bool:
    """Whether there is a recording to which this process does not belong."""
    try:
        processes = layout.processes_in(folder)
    except OSError:
        return False
    if not processes:
        return (folder / layout.MANIFEST).exists()
    events = [layout.events_path(folder, process) for process in processes]
    if any(is_held(path) for path in events):
        return False
    return rank is None or not any(_is_sibling(path) for path in events)


def _is_sibling(path: Path) -> bool:
    """Whether a process had the parent that this one has."""
    try:
        first = next(read_events(path), {})
    except (OSError, ValueError):
        return False
    return first.get("parent_pid") == os.getppid()
