"""In a Python program that ``otel-quant run`` has started: instruments it before its own code runs.

Where telemetry is to be sent, or written to files, this is what ``opentelemetry-instrument`` does.
Where not, only the libraries are instrumented, for the recording: no provider is made, no exporter
and no thread.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from typing import Final

from otel_quant.environment import settings_from
from otel_quant.fault_boundary import FAULTS

_SIGNALS: Final = ("TRACES", "METRICS", "LOGS")

_CONFIGURED_ELSEWHERE: Final = (
    "OTEL_CONFIG_FILE",
    "OTEL_PYTHON_CONFIGURATOR",
    "OTEL_PYTHON_DISTRO",
)
"""Variables that name what knows where to send, without any other variable."""

_SENDS_NOTHING: Final = frozenset({"quark_yaml"})

_FILES: Final = "otel_quant_files"
"""Name of our entry point for OpenTelemetry's exporters to files."""

_INTERVAL: Final = "OTEL_METRIC_EXPORT_INTERVAL"
_LIVE: Final = "10000"
"""Milliseconds; of a run that ends within the SDK's own 60 s nothing could be seen while it lasts."""


def instrument() -> str:
    """Instruments the libraries of this process; called once, by its sitecustomize.

    Returns:
        What has become of it, in one word, for the launcher.
    """
    with FAULTS.kept_in("automatic instrumentation"):
        settings = exporter_settings(os.environ)
        if settings:
            from opentelemetry.instrumentation.auto_instrumentation import initialize

            with _changed(os.environ, settings):
                initialize()
        from otel_quant.instrumentor import QuantInstrumentor

        instrumentor = QuantInstrumentor()
        if not instrumentor.is_instrumented_by_opentelemetry:  # no SDK, or it could not be set up
            instrumentor.instrument()
        return "instrumented"
    return "failed"


def exporter_settings(environ: Mapping[str, str]) -> dict[str, str]:
    """Returns the settings with which automatic instrumentation sends what was asked for.

    The distribution takes an exporter that is not set for one to this machine; here it sends
    nothing.

    Args:
        environ: The environment.

    Returns:
        Environment variables and their values; none if nothing is to be sent.
    """
    settings = {_INTERVAL: environ.get(_INTERVAL) or _LIVE}
    if any(environ.get(name) for name in _CONFIGURED_ELSEWHERE):
        return settings
    files = settings_from(environ).otlp_files
    sends = False
    for signal in _SIGNALS:
        endpoints = ("OTEL_EXPORTER_OTLP_ENDPOINT", f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT")
        default = "otlp" if any(environ.get(name) for name in endpoints) else "none"
        exporter = f"OTEL_{signal}_EXPORTER"
        names = {name.strip() for name in (environ.get(exporter) or default).split(",")} - {"none"}
        names |= {_FILES} if files else set()
        sends = sends or not names <= _SENDS_NOTHING
        settings[exporter] = ",".join(sorted(names)) or "none"
    return settings if sends else {}


@contextmanager
def _changed(environ: MutableMapping[str, str], settings: Mapping[str, str]) -> Iterator[None]:
    """Has settings in the environment for a block; what else the block sets is taken back too."""
    before = dict(environ)
    environ.update(settings)
    try:
        yield
    finally:
        for name in environ.keys() - before.keys():
            del environ[name]
        environ.update(before)
