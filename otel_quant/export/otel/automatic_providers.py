"""The providers that the program gave to the instrumentor, and those that automatic instrumentation made.

Where the program gave none, the global ones are used. Only providers of automatic instrumentation are flushed
and shut down by us: it (``opentelemetry-instrument``) calls the entry points of the group
``opentelemetry_pre_instrument`` when it has made its providers and before the program's own code
runs. Ours notes the providers of that moment. What is set later was made by the program, which
flushes and shuts it down itself.

Without a setting, OpenTelemetry's distribution sends to a Collector on this machine. A user who asks for a local
file and has no Collector would wait for it at exit, and read about each attempt. The distribution has no hook
that comes before it makes its exporters, so these are kept from sending.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from otel_quant.base.destinations import EXPORTERS, sends
from otel_quant.base.environment import settings_from
from otel_quant.base.fault_boundary import FAULTS
from otel_quant.base.log import LOG
from otel_quant.base.machine import environment_at_start
from otel_quant.export.otel.sdk_workarounds import exporters_within
from otel_quant.schema.dataclass import dataclass

_DEFAULTS: Final = {**dict.fromkeys(EXPORTERS, "otlp"), "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}
"""What OpenTelemetry's distribution adds to the environment."""


def defaults_in(environ: Mapping[str, str], at_start: Mapping[str, str]) -> frozenset[str]:
    """Returns the variables that the distribution has set."""
    added = (name for name in _DEFAULTS if not at_start.get(name))
    return frozenset(name for name in added if environ.get(name) == _DEFAULTS[name])


def _drop(*_: object, **__: object) -> None:
    """Takes the place of an exporter's method; the SDK's processors ignore its result."""


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


PROVIDERS: Final = ProvidersInUse()  # The providers of this process

AUTOMATIC_PROVIDERS: Final[dict[str, Any]] = {}
"""By signal; empty in a program that configures OpenTelemetry itself, and where none sends. A run that is to send
profiles adds what stands for a provider of them."""

LEFT_OUT_AT_EXIT: Final[set[str]] = set()
"""Signals that were not delivered in time. At exit their providers would wait for the same once more."""


NOT_INSTALLED: Final[set[str]] = set()
"""The package without which automatic instrumentation has made no providers; empty where it has, or need not."""


def _missing_package() -> Iterator[str]:
    from importlib.metadata import entry_points
    from importlib.util import find_spec

    if find_spec("opentelemetry.sdk") is None:
        yield "opentelemetry-sdk"
    elif not entry_points(group="opentelemetry_configurator"):
        yield "opentelemetry-distro"


def has_providers_of_program() -> bool:
    """Whether the program has made providers itself, which registered at exit when it did."""
    from opentelemetry import metrics, trace
    from opentelemetry._logs import get_logger_provider

    known = (trace.get_tracer_provider(), metrics.get_meter_provider(), get_logger_provider())
    every = (*known, *vars(PROVIDERS.current).values())
    automatic = set(map(id, AUTOMATIC_PROVIDERS.values()))
    return any(hasattr(each, "shutdown") and id(each) not in automatic for each in every)


def note_automatic_providers() -> None:
    """Notes the global providers as made by automatic instrumentation, if they send anything."""
    with FAULTS.kept_in("providers of automatic instrumentation"):
        settings = settings_from(os.environ)
        if settings.sdk_disabled:
            return
        from opentelemetry import metrics, trace
        from opentelemetry._logs import get_logger_provider

        if not hasattr(trace.get_tracer_provider(), "force_flush"):
            NOT_INSTALLED.update(_missing_package())
        providers = {
            "logs": get_logger_provider(),
            "traces": trace.get_tracer_provider(),
            "metrics": metrics.get_meter_provider(),
        }
        if settings.file_wanted:
            defaults = defaults_in(os.environ, environment_at_start(os.environ))
            asked = {name: os.environ[name] for name in os.environ if name not in defaults}
            if not sends(asked):
                for exporter in exporters_within(providers.values()):
                    exporter.export = _drop
                for name in defaults:
                    del os.environ[name]  # so that nothing is sent by child processes either
                LOG.info(
                    "only the local file is written: it was asked for, and no exporter or endpoint "
                    "was; set OTEL_EXPORTER_OTLP_ENDPOINT to send telemetry too"
                )
                return
        AUTOMATIC_PROVIDERS.update(
            # Without an SDK there are the API's own providers, which have nothing to flush.
            {name: each for name, each in providers.items() if hasattr(each, "force_flush")}
        )
        for signal, provider in AUTOMATIC_PROVIDERS.items():
            _take_over_exit(signal, provider)


def _take_over_exit(signal: str, provider: Any) -> None:
    """Has the exit leave out a provider that is given up: Python 3.14 calls what is unregistered by then."""

    def shut_down() -> None:
        if signal not in LEFT_OUT_AT_EXIT:
            provider.shutdown()

    for name, registered in list(vars(provider).items()):
        if registered == provider.shutdown:  # kept to be unregistered if the program calls it
            atexit.unregister(registered)
            setattr(provider, name, atexit.register(shut_down))
