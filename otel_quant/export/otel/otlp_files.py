"""OpenTelemetry's own JSON-lines exporters, with files in the recording.

Their names for automatic instrumentation write to standard output, which is the program's. Here each
process has a file for each signal: ``traces.<pid>.jsonl``, ``metrics.<pid>.jsonl`` and
``logs.<pid>.jsonl``. A process that exports nothing has none.
"""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

from opentelemetry.exporter.otlp.json.file import FileMetricExporter, FileSpanExporter
from opentelemetry.exporter.otlp.json.file._log_exporter import FileLogExporter

from otel_quant.schema.settings import OTEL_QUANT_RECORD


class _ProcessFile(io.TextIOBase):
    """The file of the process that writes: a forked child has its parent's exporters, which only write and flush."""

    def __init__(self, signal: str) -> None:
        self._folder = Path(os.environ.get(OTEL_QUANT_RECORD, "")).absolute()
        self._signal = signal

    def write(self, text: str) -> int:
        path = self._folder / f"{self._signal}.{os.getpid()}.jsonl"
        with path.open("ab", buffering=0) as file:
            file.write(text.encode())
        return len(text)


def _to_files(base: Any, signal: str) -> Any:
    """Returns a class of exporters, as automatic instrumentation wants one."""
    made = {"__init__": lambda self: base.__init__(self, stream=_ProcessFile(signal))}
    return type(base.__name__, (base,), made)


SpanFiles = _to_files(FileSpanExporter, "traces")
MetricFiles = _to_files(FileMetricExporter, "metrics")
LogFiles = _to_files(FileLogExporter, "logs")
