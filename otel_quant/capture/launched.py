"""In a Python program that ``otel-quant run`` has started: instruments it before its own code runs.

Where telemetry is to be sent, or written to files, this is what ``opentelemetry-instrument`` does.
Where not, only the libraries are instrumented, for the recording: no provider is made, no exporter
and no thread.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from otel_quant.base.environment import settings_from
from otel_quant.base.fault_boundary import FAULTS

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from types import ModuleType

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
    """Instruments this process; called once, by its sitecustomize."""
    with FAULTS.kept_in("automatic instrumentation"):
        settings = exporter_settings(os.environ)
        if settings:
            from opentelemetry.instrumentation.auto_instrumentation import initialize

            with _changed(os.environ, settings):
                initialize()
            _instrument_libraries()
            from importlib.metadata import entry_points

            if not entry_points(group="opentelemetry_configurator"):
                return "unsent"  # nothing is here that makes providers
        else:
            sys.meta_path.insert(0, _FirstImport())
        return "instrumented"
    return "failed"


def _instrument_libraries() -> None:
    from otel_quant.instrumentor import QuantInstrumentor

    instrumentor = QuantInstrumentor()
    if not instrumentor.is_instrumented_by_opentelemetry:
        instrumentor.instrument()


class _FirstImport:
    """Instruments the libraries when the first of them is imported, before it is.

    A finder of the import system. What instruments takes 60 ms to load, which a program without them is not to wait for.
    """

    def __init__(self) -> None:
        from otel_quant.capture.instruments import LIBRARIES

        hooks = [hook for library in LIBRARIES for hook in library.hooks]
        # A spawned process takes its parent's trace context before it imports a library.
        self._names = {hook.module.partition(".")[0] for hook in hooks} | {"multiprocessing"}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Returns where a module is, as the finders after this one say."""
        if fullname.partition(".")[0] not in self._names and fullname != "otel_quant.capture.scope":
            return None
        if self in sys.meta_path:  # else another thread does it
            sys.meta_path.remove(self)
            with FAULTS.kept_in("automatic instrumentation"):
                _instrument_libraries()
        # Python goes on with the finder after this one, and has passed those that were added.
        for finder in list(sys.meta_path):
            spec = finder.find_spec(fullname, path, target)
            if spec is not None:
                return spec
        return None


def exporter_settings(environ: Mapping[str, str]) -> dict[str, str]:
    """Returns the settings with which automatic instrumentation sends what was asked for.

    The distribution takes an exporter that is not set for one to this machine; here it sends
    nothing.
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
