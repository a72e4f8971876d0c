"""``OTEL_TRACES_EXPORTER=quark_yaml``: asks for the local file where exporters are chosen.

The SDK loads this module, and nothing else of the package does: it is the one place that
may import the SDK.
"""

from __future__ import annotations

from collections.abc import Sequence

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from otel_quant.profile.request import PROGRAM_REQUEST


class QuarkYamlSpanExporter(SpanExporter):
    """Asks for the local file, and takes spans without looking at them.

    The file is written from the run's checkpoints, at the moment they are taken, by
    :class:`otel_quant.profile.sink.QuarkYamlSink`. It cannot be written from spans:
    those come when a step is over, and none come from a trace that is sampled out, while
    the file must hold every step, that in which the process was killed included.

    Args:
        path: Where to write it; None leaves that to ``OTEL_QUANT_PROFILE``.
    """

    def __init__(self, path: str | None = None) -> None:
        PROGRAM_REQUEST.ask(path)

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Does nothing, successfully."""
        return SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        """Does nothing: the file ends with the run."""

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Does nothing: a checkpoint is on disk when it has been taken."""
        return True
