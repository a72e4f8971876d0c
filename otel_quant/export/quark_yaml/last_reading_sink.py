"""Keeps the newest reading of a run on disk, beside its local file, until the run has ended.

A local file has what was read at checkpoints. A step may last for hours: of a run that is killed in
it, this file says what the run was doing and using a second before. It is one JSON object with the
columns of the local file, the peaks so far, the memory limit and the open steps.

The file is removed when the run ends. Its name has the run's id, so that a later run at the same path
leaves it alone.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from otel_quant.base.files import PAGE, PageFile
from otel_quant.export.quark_yaml.program_metrics import ProgramMetrics, checkpoint_columns
from otel_quant.export.recording.layout import LAST_READING
from otel_quant.schema.events import Event
from otel_quant.schema.records import RunInfo
from otel_quant.schema.sink import Sink

_SCHEMA: Final = 1
_MIB: Final = 1 << 20
_MOST_STEPS: Final = 20
_LONGEST_LABEL: Final = 200  # characters, each of up to 12 bytes


class LastReadingSink(Sink):
    """Writes the file. It is made before the sink of the local file, and so ends after it."""

    name = "last_reading"

    def __init__(self, profile_path: Callable[[], Path], metrics: ProgramMetrics) -> None:
        self._profile_path = profile_path
        self._metrics = metrics
        self._run: RunInfo | None = None
        self._file: PageFile | None = None
        # Held by the sampler's thread while it writes, and while the run ends.
        self._lock = threading.RLock()

    def run_started(self, event: Event) -> None:
        """Notes the run. The file is made with the first reading."""
        self._run = event.run

    def reading_taken(self, event: Event) -> None:
        """Writes the reading over the one before."""
        run, profile = self._run, self._profile_path()
        if run is None or not profile.is_file():
            return  # the local file could not be made, or it is a device
        path = profile.with_name(f"{profile.stem}.{run.id}{LAST_READING}")
        text = _text(self._content(event), _open_steps(event))
        with self._lock:
            if self._run is None:
                return  # the run has ended meanwhile
            if self._file is None or self._file.path != path:  # the local file has been moved
                self._remove()
                self._file = PageFile(path)
            self._file.write(text)

    def run_ended(self, event: Event) -> None:
        """Removes the file: the local file is complete."""
        with self._lock:
            self._run = None
            self._remove()

    def forget(self) -> None:
        """Drops the parent's run, and leaves its file alone."""
        self._lock = threading.RLock()
        self._run = None
        if self._file is not None:
            self._file.forget()
            self._file = None

    def _remove(self) -> None:
        if self._file is not None:
            self._file.remove()
            self._file = None

    def _content(self, event: Event) -> dict[str, object]:
        run, peaks = event.run, event.peaks
        assert peaks is not None
        assert event.baseline is not None
        columns = checkpoint_columns(self._metrics, event)
        columns.pop("step", None)
        memory, gpu = (peaks.figures.get(name) for name in ("memory", "gpu.memory"))
        megabytes = {
            "peak_memory_mb": memory,
            "peak_gpu_memory_mb": gpu,
            "memory_limit_mb": run.limits.memory,
        }
        return {
            "schema": _SCHEMA,
            "run_id": run.id,
            "pid": run.pid,
            "run_started": event.baseline.time_ns / 1_000_000_000,
            **columns,
            **{key: round(value / _MIB, 2) for key, value in megabytes.items() if value},
        }


def _open_steps(event: Event) -> list[dict[str, object]]:
    return [
        {
            key: value
            for key, value in (
                ("step", step.info.label[:_LONGEST_LABEL]),
                ("samples", step.samples),
                ("expected_samples", step.expected_samples),
            )
            if value is not None
        }
        for step in event.steps
    ]


def _text(content: Mapping[str, object], steps: Sequence[object]) -> str:
    """Returns the object with as many of the steps that opened last as fit into a page."""
    for cut in range(max(0, len(steps) - _MOST_STEPS), len(steps) + 1):
        more = {"more_open_steps": cut} if cut else {}
        text = json.dumps({**content, **more, "open_steps": steps[cut:]}, default=str)
        if len(text) < PAGE:  # all of it is ASCII
            return text
    return json.dumps({"run_started": content["run_started"]})
