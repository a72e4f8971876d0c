"""``OTEL_TRACES_EXPORTER=quark_yaml``: requests the local file by the name of an exporter.

Only the SDK loads this module, so it may import the SDK; no other module of the package may.

The file is not written from spans: it has every step, including the one during which the process is killed;
a span comes when a step is over, and none comes from a trace that is not sampled. A sink writes it.
"""

from __future__ import annotations

from collections.abc import Sequence

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from otel_quant.export.quark_yaml.file import PROGRAM_REQUEST


class QuarkYamlSpanExporter(SpanExporter):
    """Requests the local file; ignores the spans that it receives."""

    def __init__(self, path: str | None = None) -> None:
        PROGRAM_REQUEST.ask(path)

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Ignores the spans and reports success."""
        return SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        """Does nothing: the file ends with the run."""

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Does nothing: every checkpoint is already on disk."""
        return True
