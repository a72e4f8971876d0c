"""The providers that the program gave to the instrumentor, and those that automatic instrumentation made.

Where the program gave none, the global ones are used. Only providers of automatic instrumentation are flushed
and shut down by us: it (``opentelemetry-instrument``) calls the entry points of the group
``opentelemetry_pre_instrument`` when it has made its providers and before the program's own code
runs. Ours notes the providers of that moment. What is set later was made by the program, which
flushes and shuts it down itself.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Providers:
    """Providers to use instead of the global ones."""

    tracer: Any = None  # Of spans; None for the global one
    meter: Any = None  # Of metrics; None for the global one
    logger: Any = None  # Of log records; None for the global one


class ProvidersInUse:
    """The providers of this process."""

    def __init__(self) -> None:
        self.current = Providers()
        self.changed: Callable[[], None] = lambda: None

    def use(self, providers: Providers) -> None:
        """Uses these from now on. A run that is under way ends."""
        if providers != self.current:
            self.current = providers
            self.changed()


PROVIDERS: Final = ProvidersInUse()
"""The providers of this process."""

AUTOMATIC_PROVIDERS: Final[dict[str, Any]] = {}
"""By signal; empty in a program that configures OpenTelemetry itself, and where none sends. A run that is to send
profiles adds what stands for a provider of them."""


def note_automatic_providers() -> None:
    """Notes the global providers as made by automatic instrumentation, if they send anything."""
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
