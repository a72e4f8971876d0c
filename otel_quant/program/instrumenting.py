"""Sets the hooks that wait for quantization libraries, for the instrumentor and for what does without OpenTelemetry's."""

from __future__ import annotations

import os
from typing import Any, Final

from otel_quant.base.environment import settings_from
from otel_quant.base.fault_boundary import FAULTS
from otel_quant.base.log import LOG
from otel_quant.capture.early_stacks import EARLY_STACKS
from otel_quant.capture.instruments import PACKAGES
from otel_quant.capture.instruments.hooks import HOOKS
from otel_quant.capture.instruments.processes import PROCESSES
from otel_quant.export.otel.automatic_providers import PROVIDERS, Providers
from otel_quant.schema.settings import OTEL_QUANT_LIBRARIES

_PROVIDERS: Final = ("tracer_provider", "meter_provider", "logger_provider")
"""Arguments of ``instrument()``, in the order of :class:`Providers`."""
_IGNORED: Final = "instrument() is given %s=%r, which is ignored; expected %s; all settings are environment variables (OTEL_QUANT_...)"
_UNKNOWN: Final = "environment variable %s names %r; expected names out of %s"


def hook_libraries(**given: Any) -> None:
    """Has quantization libraries report their steps, once they are imported, unless they do."""
    if HOOKS.active:
        return
    with FAULTS.kept_in("instrumentation"):
        # Settings of a configuration file (OTEL_CONFIG_FILE) arrive here too.
        for name in sorted(given.keys() - set(_PROVIDERS)):
            LOG.warning(_IGNORED, name, given[name], ", ".join(_PROVIDERS))
        settings = settings_from(os.environ)
        if settings.record is not None:
            EARLY_STACKS.begin()
        FAULTS.names_paths = settings.paths
        wanted = PACKAGES.keys() if settings.libraries is None else settings.libraries
        for name in sorted(wanted - PACKAGES.keys()):
            LOG.warning(_UNKNOWN, OTEL_QUANT_LIBRARIES, name, ", ".join(sorted(PACKAGES)))
        chosen = [name for name in PACKAGES if name in wanted]
        PROVIDERS.use(Providers(*map(given.get, _PROVIDERS)))
        HOOKS.set([PROCESSES], chosen)
