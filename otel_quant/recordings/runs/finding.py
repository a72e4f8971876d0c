"""Finds recordings and profiles below folders."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from otel_quant.export.recording import layout, manifest
from otel_quant.export.recording.event_file import NewerSchemaError
from otel_quant.recordings.quark_yaml import HEADER

_HEADER: Final = HEADER.encode()
_YAML: Final = (".yaml", ".yml")
_PROFILE: Final = Path(layout.PROFILE).stem


class Unreadable(NamedTuple):
    """What could not be read."""

    path: str  # The recording, the profile or the folder
    problem: str  # What is wrong


def find(tops: Sequence[str]) -> Iterator[str | Unreadable]:
    """Yields the recordings and profiles below folders, each once.

    A profile in a recording is the recording's. Links to folders are not followed.
    """
    seen: set[str] = set()
    for top in tops:
        whole = os.fspath(Path(top).resolve(strict=True))
        for each in _below(top) if Path(top).is_dir() else (top,):
            below = each.path if isinstance(each, Unreadable) else each
            key = whole + below.removeprefix(top)
            if key not in seen:
                seen.add(key)
                yield each


def _below(top: str) -> Iterator[str | Unreadable]:
    folders = [top]
    while folders:
        folder = folders.pop()
        try:
            with os.scandir(folder) as listed:
                entries = sorted(listed, key=lambda entry: entry.name)
        except OSError as error:
            yield Unreadable(folder, error.strerror or str(error))
            continue
        if _is_recording(folder, {entry.name for entry in entries}):
            yield folder
            continue
        for entry in entries:
            if entry.name.endswith(_YAML) and entry.is_file() and _is_profile(entry):
                yield entry.path
        folders += [
            entry.path for entry in reversed(entries) if entry.is_dir(follow_symlinks=False)
        ]


def _is_recording(folder: str, names: set[str]) -> bool:
    if any(map(layout.is_of_process, names)):
        return True
    if layout.MANIFEST not in names:
        return False
    try:
        made = manifest.load(Path(folder))
    except NewerSchemaError:
        return True
    return not made or "made_by" in made  # other programs have manifests, too


def _is_profile(entry: os.DirEntry[str]) -> bool:
    if entry.name.startswith(_PROFILE):
        return True
    try:
        with Path(entry.path).open("rb") as file:
            return file.read(len(_HEADER)) == _HEADER
    except OSError:
        return False
