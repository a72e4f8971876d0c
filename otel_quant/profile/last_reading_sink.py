"""Keeps the newest reading of a run on disk, beside its local file, until the run has ended.

A local file has what was read at checkpoints. A step may last for hours: of a run that is killed in
it, this file says what the run was doing and using a second before. It is one JSON object with the
columns of the local file, the peaks so far, the memory limit and the open steps.

The file is replaced as a whole by a rename, so it can be read at any moment. It is removed when the
run ends. Its name has the run's id, so that a later run at the same path leaves it alone.
"""

from __future__ import annotations

import json
import os
import secrets
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

from otel_quant.profile.columns import checkpoint_columns
from otel_quant.profile.last_reading import SUFFIX
from otel_quant.profile.program_metrics import ProgramMetrics
from otel_quant.recording.sink import Sink
from otel_quant.records import Checkpoint, RunInfo, RunProgress, RunRecord

_SCHEMA: Final = 1
_MIB: Final = 1 << 20
_FLAGS: Final = (
    os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
)


class LastReadingSink(Sink):
    """Writes the file. It is made before the sink of the local file, and so ends after it.

    Args:
        profile_path: Returns the path of the local file, which may move during the run.
        metrics: The metrics of the local file.
    """

    name = "last_reading"

    def __init__(self, profile_path: Callable[[], Path], metrics: ProgramMetrics) -> None:
        self._profile_path = profile_path
        self._metrics = metrics
        self._run: RunInfo | None = None
        self._written: Path | None = None
        # Held by the sampler's thread while it renames, and while the run ends.
        self._lock = threading.RLock()

    def run_started(self, run: RunInfo, checkpoint: Checkpoint) -> None:
        """Notes the run. The file is made with the first reading."""
        self._run = run

    def run_progressed(self, progress: RunProgress) -> None:
        """Replaces the file."""
        run, profile = self._run, self._profile_path()
        if run is None or not profile.is_file():
            return  # the local file could not be made, or it is a device
        text = json.dumps(self._content(run, progress), default=str)
        path = profile.with_name(f"{profile.stem}.{run.id}{SUFFIX}")
        hidden = path.with_name(f".otel-quant-{secrets.token_hex(8)}")
        is_placed = False
        try:
            _write(hidden, text.encode() + b"\n")
            with self._lock:
                if self._run is not None:  # the run may have ended meanwhile
                    hidden.replace(path)
                    is_placed = True
                    if self._written not in (None, path):  # the local file has been moved
                        self._remove()
                    self._written = path
        finally:
            if not is_placed:
                hidden.unlink(missing_ok=True)

    def run_ended(self, record: RunRecord, checkpoint: Checkpoint) -> None:
        """Removes the file: the local file is complete."""
        with self._lock:
            self._run = None
            self._remove()

    def forget(self) -> None:
        """Drops the parent's run, and leaves its file alone."""
        self._lock = threading.RLock()
        self._run = self._written = None

    def _remove(self) -> None:
        written, self._written = self._written, None
        if written is not None:
            written.unlink(missing_ok=True)

    def _content(self, run: RunInfo, progress: RunProgress) -> dict[str, object]:
        checkpoint = Checkpoint(0, "", "point", progress.reading, progress.baseline)
        columns = checkpoint_columns(self._metrics, checkpoint)
        columns.pop("step", None)
        memory, gpu = (progress.peaks.figures.get(name) for name in ("memory", "gpu.memory"))
        megabytes = {
            "peak_memory_mb": memory,
            "peak_gpu_memory_mb": gpu,
            "memory_limit_mb": run.limits.memory,
        }
        return {
            "schema": _SCHEMA,
            "run_id": run.id,
            "pid": run.pid,
            "run_started": progress.baseline.time_ns / 1_000_000_000,
            **columns,
            **{key: round(value / _MIB, 2) for key, value in megabytes.items() if value},
            "open_steps": [
                {
                    key: value
                    for key, value in (
                        ("step", step.info.label),
                        ("samples", step.samples),
                        ("expected_samples", step.expected_samples),
                    )
                    if value is not None
                }
                for step in progress.steps
            ],
        }


def _write(path: Path, data: bytes) -> None:
    descriptor = os.open(path, _FLAGS, 0o666)
    try:
        while data:  # a disk that is nearly full takes a part
            data = data[os.write(descriptor, data) :]
    finally:
        os.close(descriptor)
