"""The instrumentor that ``opentelemetry-instrument`` loads.

Loading it sets hooks that wait for imports and does nothing else: no quantization
library, no numpy, and none of otel-quant's own measuring code is imported before a
hooked library is.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from opentelemetry.instrumentation.instrumentor import BaseInstrumentor  # type: ignore[attr-defined] # untyped

from otel_quant.base.fault_boundary import FAULTS
from otel_quant.capture.instruments.hooks import HOOKS
from otel_quant.export.otel.automatic_providers import PROVIDERS, Providers
from otel_quant.export.otel.sdk_workarounds import WORKAROUNDS
from otel_quant.program.instrumenting import hook_libraries


class QuantInstrumentor(BaseInstrumentor):
    """Makes quantization libraries report their steps to OpenTelemetry.

    ``opentelemetry-instrument`` does this by itself. A program that configures
    OpenTelemetry on its own calls ``QuantInstrumentor().instrument()``, before or after
    it imports the libraries, and before or after it sets its providers.

    ``instrument(tracer_provider=..., meter_provider=..., logger_provider=...)`` uses these
    instead of the global providers, until ``uninstrument()``. A run that is under way when they
    change ends.
    """

    def instrumentation_dependencies(self) -> Collection[str]:
        """Returns none: each library is hooked if it is imported, and none has to be."""
        return ()

    @property
    def _is_instrumented_by_opentelemetry(self) -> bool:
        """Whether the hooks are set, which `otel-quant run` and `otel_quant.run()` do without this class."""
        return HOOKS.active

    @_is_instrumented_by_opentelemetry.setter
    def _is_instrumented_by_opentelemetry(self, _: bool) -> None:
        """Has no effect: the base class sets it."""

    def _instrument(self, **kwargs: Any) -> None:
        hook_libraries(**kwargs)

    def _uninstrument(self, **kwargs: Any) -> None:
        with FAULTS.kept_in("instrumentation"):
            HOOKS.remove()
            PROVIDERS.use(Providers())
            WORKAROUNDS.undo()
