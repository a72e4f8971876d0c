"""Names the service after the program, where the user has given it no name.

The SDK calls such a service ``unknown_service:python``. Its own way to another name is a resource
detector, which is used only if an environment variable lists it; the program and its children would
see that variable. So the resource that automatic instrumentation has made gets the name, before
the program's own code runs.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Final

from opentelemetry import trace

from otel_quant.base.fault_boundary import FAULTS
from otel_quant.export.otel.providers import PROVIDERS

_KEY: Final = "service.name"
_UNNAMED: Final = "unknown_service"


def name_service(tracers: Any = None) -> None:
    """Names the service of the providers that automatic instrumentation has made.

    Called by automatic instrumentation, and by a run that begins: a process that
    :mod:`multiprocessing` has spawned learns only after its start which program it belongs to.
    """
    with FAULTS.kept_in("name of the service"):
        # All providers of automatic instrumentation share one resource.
        resource = getattr(tracers or trace.get_tracer_provider(), "resource", None)
        if resource is None or not str(resource.attributes.get(_KEY)).startswith(_UNNAMED):
            return
        name = name_of_program()
        if name:
            named = resource.merge(type(resource)({_KEY: name}))
            # Exporters read it when they send, so what has been recorded before has the name too.
            resource._attributes = named._attributes


def service_name() -> str:
    """Returns the name of the service that reports the run, or else of the program."""
    provider = PROVIDERS.current.tracer or trace.get_tracer_provider()
    resource = getattr(provider, "resource", None)
    name = str(resource.attributes.get(_KEY) or _UNNAMED) if resource is not None else _UNNAMED
    return (name_of_program() or name) if name.startswith(_UNNAMED) else name


def name_of_program() -> str | None:
    """Returns the module of ``python -m``, or else the script's name without folder and `.py`.

    None for code that is in no file: ``python -c``, standard input, an interactive session.
    """
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    if spec is not None and spec.name != "__main__":  # a folder or an archive has that name
        return str(spec.name).removesuffix(".__main__")
    first = sys.argv[0] if getattr(sys, "argv", None) else ""
    if first == "-m":  # Python has not looked for the module yet
        option = sys.orig_argv[-len(sys.argv)]  # the module, or `-mMODULE`
        return option.partition("m")[2] if option.startswith("-") else option
    if first in ("-", "-c"):
        return None
    return Path(first).name.removesuffix(".py") or None
