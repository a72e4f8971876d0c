"""Recordings in a store, read as folders: copies of them, for as long as this process lives."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from otel_quant.base.files import try_lock
from otel_quant.base.log import LOG
from otel_quant.base.secrets import masked
from otel_quant.format.event_file import MANIFEST, NotARecordingError
from otel_quant.format.store import BrokenObjectError, RecordingStore
from otel_quant.recordings.model import COPIES

_LOCKS: Final[list[int]] = []  # Descriptors of files whose process is alive elsewhere

_SILENT: Final = timedelta(seconds=150)
"""Without an upload for as long, a process is gone: a minute between two, and three heartbeats."""


def local_copy(url: str, *, is_one: bool) -> Path:
    """Copies the recording at a URL, or all at it or below it, into a folder; returns that."""
    store = RecordingStore(url)
    found = store.recordings()
    if is_one and "" not in found:
        below = "".join(f"; below it is {store.url}/{name}" for name in sorted(found)[:1])
        raise NotARecordingError(
            f"{store.url}: no recording is there; expected what `otel-quant upload` has printed{below}"
        )
    above = tempfile.mkdtemp(prefix="otel-quant-")
    atexit.register(shutil.rmtree, above, ignore_errors=True)
    top = Path(above, "copy", Path(store.url).name)
    COPIES[os.fspath(top)] = masked(store.url)
    top.mkdir(parents=True)
    for below, objects in found.items():
        try:
            folder, files = top / below, store.read(objects)
        except BrokenObjectError as error:
            if is_one:
                raise
            LOG.warning("%s", error)  # the others are to be seen
            continue
        folder.mkdir(parents=True, exist_ok=True)
        is_over = MANIFEST in files and b'"ended":' in files[MANIFEST][0]
        for name, (data, last) in files.items():
            (folder / name).write_bytes(data)
            is_recent = datetime.now(UTC) - last["last_modified"] < _SILENT
            if name.endswith(".jsonl") and is_recent and not is_over:
                # Its process holds it where it runs, and this one in its place.
                _LOCKS.append(os.open(folder / name, os.O_RDONLY))
                try_lock(_LOCKS[-1])
    return top
