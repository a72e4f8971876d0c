"""The providers that automatic instrumentation made: the only ones that are flushed and shut down.

Automatic instrumentation (``opentelemetry-instrument``) calls the entry points of the group
``opentelemetry_pre_instrument`` when it has made its providers and before the program's own code
runs. Ours notes the providers of that moment. What is set later was made by the program, which
flushes and shuts it down itself.
"""

from __future__ import annotations

import os
from typing import Any, Final

from opentelemetry import metrics, trace
from opentelemetry._logs import get_logger_provider

from otel_quant.base.environment import settings_from
from otel_quant.base.fault_boundary import FAULTS
from otel_quant.base.initial_environment import environment_at_start
from otel_quant.export.otel.default_exporters import (
    defaults_in,
    keep_from_sending,
)

AUTOMATIC_PROVIDERS: Final[dict[str, Any]] = {}
"""By signal; empty in a program that configures OpenTelemetry itself, and where none sends."""


def note_automatic_providers() -> None:
    """Notes the global providers, as those of automatic instrumentation, if they send anything."""
    with FAULTS.kept_in("providers of automatic instrumentation"):
        settings = settings_from(os.environ)
        if settings.sdk_disabled:
            return
        providers = {
            "logs": get_logger_provider(),
            "traces": trace.get_tracer_provider(),
            "metrics": metrics.get_meter_provider(),
        }
        if settings.profile_wanted or settings.record is not None:
            defaults = defaults_in(os.environ, environment_at_start(os.environ))
            if defaults is not None:
                keep_from_sending(providers.values(), os.environ, defaults)
                return
        AUTOMATIC_PROVIDERS.update(
            # Without an SDK there are the API's own providers, which have nothing to flush.
            {name: each for name, each in providers.items() if hasattr(each, "force_flush")}
        )
