"""The providers that automatic instrumentation made: the only ones that are flushed and shut down.

Automatic instrumentation (``opentelemetry-instrument``) calls the entry points of the group
``opentelemetry_pre_instrument`` when it has made its providers and before the program's own code
runs. Ours notes the providers of that moment. What is set later was made by the program, which
flushes and shuts it down itself.
"""

from __future__ import annotations

from typing import Any, Final

from opentelemetry import metrics, trace
from opentelemetry._logs import get_logger_provider

from otel_quant.fault_boundary import FAULTS

AUTOMATIC_PROVIDERS: Final[dict[str, Any]] = {}
"""By signal; empty in a program that configures OpenTelemetry itself."""


def note_automatic_providers() -> None:
    """Notes the global providers, as those of automatic instrumentation."""
    with FAULTS.kept_in("providers of automatic instrumentation"):
        AUTOMATIC_PROVIDERS.update(
            logs=get_logger_provider(),
            traces=trace.get_tracer_provider(),
            metrics=metrics.get_meter_provider(),
        )
