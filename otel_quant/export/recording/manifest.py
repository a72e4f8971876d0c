"""``manifest.json``: when a recording began, what made it, and how it ended.

Whoever is first makes it, the launcher or the first process, and completes it at the end. Its
fields: ``schema``, ``began`` (wall clock, nanoseconds since the epoch), ``made_by`` (``launcher`` or
``process``), ``pid``, ``origin`` (attributes, as on the run's span), ``ended`` (nanoseconds since the
epoch), and by the launcher alone ``ending`` (:class:`~otel_quant.recordings.model.Ending`) and
``summary`` (of its curve: the highest value of each level, the last of each total, by name).
"""

from __future__ import annotations

import dataclasses
import errno
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal

from otel_quant.base.files import PAGE, replace_whole
from otel_quant.export.recording.event_file import as_json, mapping_in
from otel_quant.export.recording.layout import MANIFEST, SCHEMA

_FLAGS: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0)


def create(
    folder: Path,
    began_ns: int,
    made_by: Literal["launcher", "process"],
    origin: Mapping[str, Any] | None = None,
) -> bool:
    """Makes the manifest, unless there is one. Missing folders are made."""
    folder.mkdir(parents=True, exist_ok=True)
    manifest = {
        "schema": SCHEMA,
        "began": began_ns,
        "made_by": made_by,
        "pid": os.getpid(),
        "origin": dict(origin or {}),
    }
    try:
        descriptor = os.open(folder / MANIFEST, _FLAGS, 0o666)
    except FileExistsError:
        return False
    try:
        os.write(descriptor, as_json(manifest).encode() + b"\n")
    finally:
        os.close(descriptor)
    return True


def complete(folder: Path, **fields: Any) -> None:
    """Adds fields to the manifest and replaces it whole."""
    known = load(folder)
    for name, value in fields.items():
        if name == "origin":
            known[name] = {**known.get(name, {}), **value}
        else:
            is_record = dataclasses.is_dataclass(value) and not isinstance(value, type)
            known[name] = dataclasses.asdict(value) if is_record else value
    path, data = folder / MANIFEST, as_json(known).encode() + b"\n"
    try:
        replace_whole(path, data)
    except OSError as error:
        if error.errno != errno.ENOSPC or len(data) > PAGE:
            raise
        with path.open("r+b") as file:  # the page that it has is room enough
            file.write(data)


def load(folder: Path) -> dict[str, Any]:
    """Returns the manifest; an empty one if it is missing or has been cut."""
    return mapping_in(folder / MANIFEST) or {}
