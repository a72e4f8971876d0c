"""``manifest.json``: when a recording began, what made it, and how it ended.

Whoever is first makes it, the launcher or the first process, and completes it at the end. Its
fields: ``schema``, ``began`` (wall clock, nanoseconds since the epoch), ``made_by`` (``launcher`` or
``process``), ``pid``, ``origin`` (attributes, as on the run's span), ``ended`` (nanoseconds since the
epoch), and by the launcher alone ``ending`` (:class:`~otel_quant.recordings.model.Ending`) and
``summary`` (of its curve: the highest value of each level, the last of each total, by name).
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal

from otel_quant.base.files import replace_whole
from otel_quant.export.recording.curve import Curve
from otel_quant.export.recording.event_file import NewerSchemaError, as_json
from otel_quant.export.recording.layout import MANIFEST, SCHEMA
from otel_quant.recordings.model import Advice, Ending
from otel_quant.schema.series import TOTALS

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
            known[name] = dataclasses.asdict(value) if isinstance(value, Ending) else value
    replace_whole(folder / MANIFEST, as_json(known).encode() + b"\n")


def load(folder: Path) -> dict[str, Any]:
    """Returns the manifest; an empty one if it is missing or has been cut."""
    path = folder / MANIFEST
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(found, dict):
        return {}
    schema = found.get("schema")
    if isinstance(schema, int) and schema > SCHEMA:
        raise NewerSchemaError(f"{path}: schema {schema}", schema)
    return found


def ending_of(manifest: Mapping[str, Any]) -> Ending | None:
    """Returns how the program ended, as the launcher saw it."""
    found = manifest.get("ending")
    if not isinstance(found, dict) or "time" not in found:
        return None
    known = {field.name for field in dataclasses.fields(Ending)}
    values = {name: value for name, value in found.items() if name in known}
    for name in ("open_steps", "processes", "disk"):
        values[name] = tuple(
            tuple(each) if isinstance(each, list) else each for each in values.get(name, ())
        )
    values["advice"] = tuple(
        Advice(text=str(each.get("text")), source=str(each.get("source")))
        for each in values.get("advice", ())
        if isinstance(each, dict)
    )
    return Ending(**values)


def summary_of(manifest: Mapping[str, Any]) -> Curve | None:
    """Returns what the launcher's curve comes to, as a curve of one bucket."""
    found = manifest.get("summary")
    if not isinstance(found, dict):
        return None
    known = {name: value for name, value in found.items() if isinstance(value, int | float)}
    curve = Curve(1)
    levels = {name: value for name, value in known.items() if name not in TOTALS}
    curve.add(0, levels, {name: known[name] for name in TOTALS & known.keys()})
    return curve
