"""Keeps the exporters that nobody asked for from sending, where a local file was asked for.

Without a setting, OpenTelemetry's distribution sends to a Collector on this machine. A user who
asks for a file and has no Collector would wait for it at exit, and read about each attempt. The
distribution has no hook that comes before it makes its exporters, so they are there already.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, MutableMapping
from typing import Any, Final

from otel_quant.base.log import LOG

_EXPORTERS: Final = frozenset(
    {"OTEL_TRACES_EXPORTER", "OTEL_METRICS_EXPORTER", "OTEL_LOGS_EXPORTER"}
)
_OTHER_CONFIGURATION: Final = frozenset(
    {"OTEL_CONFIG_FILE", "OTEL_PYTHON_CONFIGURATOR", "OTEL_PYTHON_DISTRO"}
)
"""A file, or another distribution, that may know where to send without another variable."""

_DEFAULTS: Final = {**dict.fromkeys(_EXPORTERS, "otlp"), "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}
"""What OpenTelemetry's distribution adds to the environment."""

_SENDS_NOTHING: Final = frozenset({"", "none", "quark_yaml"})
"""Names of exporters that reach no endpoint."""


def defaults_in(environ: Mapping[str, str], at_start: Mapping[str, str]) -> frozenset[str] | None:
    """Returns the variables that the distribution has set, if nothing else is configured."""
    defaults = frozenset(
        name
        for name, value in _DEFAULTS.items()
        if environ.get(name) == value and not at_start.get(name)
    )
    for name, value in environ.items():
        is_setting = (
            name in _EXPORTERS
            or name in _OTHER_CONFIGURATION
            or name.startswith("OTEL_EXPORTER_OTLP_")
        )
        if is_setting and name not in defaults and value.strip() not in _SENDS_NOTHING:
            return None
    return defaults


def keep_from_sending(
    providers: Iterable[Any], environ: MutableMapping[str, str], defaults: Iterable[str]
) -> None:
    """Has the exporters of providers drop what they get, here and in child processes."""
    # Here, because it loads wrapt, which the launcher has no need of.
    from otel_quant.export.otel.sdk_workarounds import objects_within

    for item in objects_within(providers):
        if type(item).__module__.startswith("opentelemetry.exporter.") and hasattr(item, "export"):
            item.export = _drop
    for name in defaults:
        environ.pop(name, None)
    LOG.info(
        "only the local file is written: it was asked for, and no exporter or endpoint was; "
        "set OTEL_EXPORTER_OTLP_ENDPOINT to send telemetry too"
    )


def _drop(*_: object, **__: object) -> None:
    """Takes the place of an exporter's method; the SDK's processors ignore its result."""
