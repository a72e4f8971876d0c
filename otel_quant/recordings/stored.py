"""Recordings in a store, read as folders: copies of them, for as long as this process lives."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

from otel_quant.base.files import try_lock
from otel_quant.format.event_file import (
    NewerSchemaError,
    NotARecordingError,
    is_of_process,
    load_manifest,
)
from otel_quant.format.store import RecordingStore, StoreError
from otel_quant.recordings.model import COPIES

if TYPE_CHECKING:
    from obstore import ObjectMeta

_LOCKS: Final[list[int]] = []  # Descriptors of files whose process is alive elsewhere

_SILENT: Final = timedelta(seconds=150)
"""Without an upload for as long, a process is gone: a minute between two, and three heartbeats."""


def local_copy(url: str, *, is_one: bool) -> Path:
    """Copies the recording at a URL, or all at it or below it, into a folder; returns that."""
    place = RecordingStore(url)
    found = place.recordings()
    if is_one and "" not in found:
        below = "".join(f"; below it is {place.url}/{name}" for name in sorted(found)[:1])
        raise NotARecordingError(
            f"{place.url}: no recording is there; expected what `otel-quant upload` has printed{below}"
        )
    above = tempfile.mkdtemp(prefix="otel-quant-")
    atexit.register(shutil.rmtree, above, True)
    top = Path(above, place.url.rpartition("/")[2].lstrip(".") or "recordings")
    top.mkdir()
    COPIES[os.fspath(top)] = place.url
    for below, objects in found.items():
        if ".." in below.split("/"):
            raise StoreError(f"{place.url}: {below!r} is no name of a recording")
        _write(top / below, place.read(objects))
    return top


def _write(folder: Path, files: Mapping[str, tuple[bytearray, ObjectMeta]]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, (data, _) in files.items():
        (folder / name).write_bytes(data)
    is_over = False
    with suppress(NewerSchemaError):  # its reader says so
        is_over = "ended" in load_manifest(folder)
    for name, (_, last) in files.items():
        is_recent = datetime.now(UTC) - last["last_modified"] < _SILENT
        if is_of_process(name) and is_recent and not is_over:
            # Its process holds it where it runs, and this one in its place.
            _LOCKS.append(os.open(folder / name, os.O_RDONLY))
            try_lock(_LOCKS[-1])
