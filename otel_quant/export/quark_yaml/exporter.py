"""``OTEL_TRACES_EXPORTER=quark_yaml``: requests the local file by the name of an exporter.

Only the SDK loads this module, so it may import the SDK; no other module of the package may.

The file is not written from spans: a span comes when a step is over, and none comes from a trace that
is not sampled. The name only requests the file; a sink writes it.
"""

from __future__ import annotations

from collections.abc import Sequence

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from otel_quant.export.quark_yaml.request import PROGRAM_REQUEST


class QuarkYamlSpanExporter(SpanExporter):
    """Requests the local file; ignores the spans that it receives.

    :class:`otel_quant.export.quark_yaml.sink.QuarkYamlSink` writes the file from the run's checkpoints. The
    file must contain every step, including the one during which the process was killed. Spans
    cannot provide that: a span is exported after its step has ended, and not at all if its trace
    is not sampled.
    """

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
