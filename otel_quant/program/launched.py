"""In a Python program that ``otel-quant run`` has started: instruments it before its own code runs.

Where telemetry is to be sent, or written to files, this is what ``opentelemetry-instrument`` does.
Where not, only the libraries are instrumented, for the recording: no provider is made, no exporter
and no thread.

Python imports this before every program that is launched: it loads as little as can be. :mod:`threading`, which the thread
of the early stacks needs, takes a third of Python's own start: it is loaded where the program names this package, when it
imports more than the standard library, or has loaded it itself.
"""

from __future__ import annotations

import atexit
import os
import sys

from otel_quant.base.destinations import exporter_variables, sends
from otel_quant.base.fault_boundary import FAULTS
from otel_quant.capture.early_stacks import EARLY_STACKS
from otel_quant.capture.exits import LAST_ERRORS
from otel_quant.capture.instruments import PACKAGES, WithoutImportLock, found_by_others

TYPE_CHECKING = False  # not typing's, which takes a third of Python's own start to load
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any, Final

_SET_BY_LAUNCHER: Final = ("OTEL_QUANT_RECORD", "OTEL_QUANT_LAUNCHER_PID")

_RUNTIME: Final = "otel_quant.capture.runtime"

_THREADING: Final = "threading"

_TRACKER: Final = "from multiprocessing.resource_tracker import main"
"""The code of multiprocessing's resource tracker. It calls no library; instrumented it takes 17 MB more."""

_INTERVAL: Final = "OTEL_METRIC_EXPORT_INTERVAL"
_LIVE: Final = "10000"
"""Milliseconds; of a run that ends within the SDK's own 60 s nothing could be seen while it lasts."""


def instrument() -> str:
    """Instruments this process; called once, by its sitecustomize."""
    if any(_TRACKER in argument for argument in sys.orig_argv):
        return "instrumented"  # No code of the program runs in it
    with FAULTS.kept_in("automatic instrumentation"):
        LAST_ERRORS.watch()
        settings, finder = exporter_settings(os.environ), _FirstImport()
        if settings or _THREADING in sys.modules or _mentions_otel_quant():
            EARLY_STACKS.begin()
        if settings:
            _initialize(settings)
        atexit.register(_end_run)  # it is called before what providers have registered
        if settings or finder.names & sys.modules.keys():
            _instrument_libraries()
        else:
            sys.meta_path.insert(0, finder)
        if not settings:
            return "instrumented"
        from importlib.metadata import entry_points

        # Else nothing is here that makes providers.
        return "instrumented" if entry_points(group="opentelemetry_configurator") else "unsent"
    return "failed"


def _mentions_otel_quant() -> bool:
    """Whether the program's text mentions otel_quant: it is imported already, so no import hook sees the program import it."""
    texts = [each.encode(errors="replace") for each in sys.orig_argv]
    script = next((each for each in sys.orig_argv if each.endswith(".py")), "")
    if os.path.isfile(script) and os.access(script, os.R_OK):
        with open(script, "rb") as file:
            texts.append(file.read())
    return any(b"otel_quant" in each for each in texts)


def _initialize(settings: Mapping[str, str]) -> None:
    """Does what ``opentelemetry-instrument`` does, with settings in the environment meanwhile."""
    from opentelemetry.instrumentation.auto_instrumentation import initialize

    before = dict(os.environ)
    os.environ.update(settings)
    try:
        initialize()
    finally:
        for name in os.environ.keys() - before.keys():
            del os.environ[name]
        os.environ.update(before)


def _end_run() -> None:
    """Ends the run after all that the program does at exit; records an exception that ended it without one."""
    is_failed = LAST_ERRORS.error or isinstance(getattr(sys, "last_value", None), Exception)
    if is_failed or _RUNTIME in sys.modules:  # else nothing is loaded
        with FAULTS.kept_in("end of the run"):
            from otel_quant.capture.runtime import RUNTIME

            RUNTIME.record_failure()
            RUNTIME.at_process_end()


def _instrument_libraries() -> None:
    from otel_quant.program.instrumenting import hook_libraries

    hook_libraries()


_begin: Final = FAULTS.kept_in("automatic instrumentation").around(EARLY_STACKS.begin)


def _begin_after_import(spec: ModuleSpec) -> ModuleSpec:
    loader: Any = spec.loader
    run = loader.exec_module
    loader.exec_module = lambda module: run(module) or _begin()
    return spec


class _FirstImport:
    """Instruments the libraries before the first of them is imported: that takes 60 ms, not for every program."""

    def __init__(self) -> None:
        # A spawned process takes its parent's trace context before it imports a library, and parsers tell which options
        # are secrets.
        self.names = {*" ".join(PACKAGES.values()).split(), "multiprocessing", "argparse"}
        self.names.add("otel_quant.capture.scope")

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Instruments at the first of the names, and leaves the rest to the other finders."""
        if fullname == _THREADING:
            spec = found_by_others(self, fullname, path, target)
            return spec and _begin_after_import(spec)
        if fullname.partition(".")[0] not in sys.stdlib_module_names:
            _begin()
        if fullname not in self.names:
            return None
        if self in sys.meta_path:  # else another thread does it
            sys.meta_path.remove(self)
            with WithoutImportLock(), FAULTS.kept_in("automatic instrumentation"):
                _instrument_libraries()
        return found_by_others(self, fullname, path, target)


def exporter_settings(environ: Mapping[str, str]) -> dict[str, str]:
    """Returns the settings to send what was asked for: what is not set is off, not sent to this machine."""
    if not any(name.startswith("OTEL_") and name not in _SET_BY_LAUNCHER for name in environ):
        return {}
    from otel_quant.base.environment import settings_from

    files = settings_from(environ).otlp_files
    if not files and not sends(environ):
        return {}
    interval = environ.get(_INTERVAL, "")
    # With 0 the SDK fails, and sends neither metrics nor log records.
    interval = interval if interval.strip("0.") else _LIVE
    return {_INTERVAL: interval, **exporter_variables(environ, has_files=files)}
