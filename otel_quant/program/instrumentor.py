"""The instrumentor that ``opentelemetry-instrument`` loads.

Loading it sets hooks that wait for imports and does nothing else: no quantization
library, no numpy, and none of otel-quant's own measuring code is imported before a
hooked library is.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from typing import Any, Final

from opentelemetry.instrumentation.instrumentor import BaseInstrumentor  # type: ignore[attr-defined] # untyped

from otel_quant.base.environment import settings_from
from otel_quant.base.fault_boundary import FAULTS
from otel_quant.base.log import LOG
from otel_quant.capture.early_stacks import EARLY_STACKS
from otel_quant.capture.instruments import PACKAGES
from otel_quant.capture.instruments.hooks import HOOKS
from otel_quant.capture.instruments.processes import PROCESSES
from otel_quant.export.otel.automatic_providers import PROVIDERS, Providers
from otel_quant.export.otel.sdk_workarounds import WORKAROUNDS
from otel_quant.schema.settings import OTEL_QUANT_LIBRARIES

_PROVIDERS: Final = ("tracer_provider", "meter_provider", "logger_provider")
"""Arguments of ``instrument()``, in the order of :class:`Providers`."""


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

    def _instrument(self, **kwargs: Any) -> None:
        with FAULTS.kept_in("instrumentation"):
            # Settings of a configuration file (OTEL_CONFIG_FILE) arrive here too.
            for name in sorted(kwargs.keys() - set(_PROVIDERS)):
                LOG.warning(
                    "instrument() is given %s=%r, which is ignored; expected %s; all settings are "
                    "environment variables (OTEL_QUANT_...)",
                    name,
                    kwargs[name],
                    ", ".join(_PROVIDERS),
                )
            settings = settings_from(os.environ)
            if settings.record is not None:
                EARLY_STACKS.begin()
            FAULTS.names_paths = settings.paths
            wanted = PACKAGES.keys() if settings.libraries is None else settings.libraries
            names = ", ".join(sorted(PACKAGES))
            for name in sorted(wanted - PACKAGES.keys()):
                LOG.warning(
                    "environment variable %s names %r; expected names out of %s",
                    OTEL_QUANT_LIBRARIES,
                    name,
                    names,
                )
            chosen = [name for name in PACKAGES if name in wanted]
            PROVIDERS.use(Providers(*map(kwargs.get, _PROVIDERS)))
            HOOKS.set([PROCESSES], chosen)

    def _uninstrument(self, **kwargs: Any) -> None:
        with FAULTS.kept_in("instrumentation"):
            HOOKS.remove()
            PROVIDERS.use(Providers())
            WORKAROUNDS.undo()
