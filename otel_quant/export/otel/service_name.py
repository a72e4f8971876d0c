"""Names where telemetry comes from: service, process and machine; and names the run for people.

The SDK calls a service without a name ``unknown_service:python``; it is named after the program. The SDK's own
way to a name, or to the machine, is a resource detector, which is used only if an environment variable
lists it; the program and its children would see that variable. So the resource that automatic
instrumentation has made is completed, before the program's own code runs.

A run is named by service, model and start time, or as OTEL_QUANT_RUN_NAME has it. The name is given
when the run begins and does not change, because log records have it from the first on, and a metric
whose labels change is another series.
"""

from __future__ import annotations

import os
import platform
import re
import sys
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from opentelemetry import trace

from otel_quant.base.fault_boundary import FAULTS
from otel_quant.export.otel.automatic_providers import PROVIDERS
from otel_quant.schema import semconv
from otel_quant.schema.readings import AttributeValue, RunInfo

_KEY: Final = "service.name"
_UNNAMED: Final = "unknown_service"


def name_service(providers: Iterable[Any] = ()) -> None:
    """Completes the resources of the providers that automatic instrumentation has made.

    Called by automatic instrumentation, and by a run that begins: a process that
    :mod:`multiprocessing` has spawned learns only after its start which program it belongs to, and
    a forked one has its parent's resource.
    """
    with FAULTS.kept_in("resource of the process"):
        for provider in providers or (trace.get_tracer_provider(),):
            # All providers of automatic instrumentation share one resource, until the process forks.
            inner = getattr(provider, "_sdk_config", provider)  # of a meter provider
            resource = getattr(inner, "resource", None)
            if resource is not None:
                # Exporters read it when they send, so what has been recorded before has it too.
                resource._attributes = of_this_process(resource)._attributes


def of_this_process(resource: Any) -> Any:
    """Returns a resource with the service, the process and its machine; what is given of these is kept."""
    known, process = resource.attributes, process_attributes()
    own = {
        _KEY: _service_in(known),
        semconv.SERVICE_INSTANCE: _instance(known.get(semconv.SERVICE_INSTANCE), type(resource)),
        semconv.PROCESS_PID: process[semconv.PROCESS_PID],  # not the id of a forked child's parent
    }
    return type(resource)({**process, **known, **own}, resource.schema_url)


def process_attributes() -> dict[str, AttributeValue]:
    """Returns the attributes of a resource that are of this process and its machine."""
    machine = platform.uname()
    return {
        semconv.PROCESS_PID: os.getpid(), semconv.PYTHON_NAME: sys.implementation.name,
        semconv.PYTHON_VERSION: platform.python_version(), semconv.HOST_NAME: machine.node,
        semconv.HOST_ARCH: machine.machine, semconv.OS_TYPE: machine.system.lower(),
        semconv.OS_DESCRIPTION: f"{machine.system} {machine.release} {machine.machine}",
    }  # fmt: skip


def resource_without_sdk() -> dict[str, AttributeValue]:
    """Returns what telemetry comes from where no SDK has made a resource."""
    name = name_of_program()
    return {**process_attributes(), **({} if name is None else {_KEY: name})}


_INSTANCES: Final[dict[int, str]] = {}
"""The identifier of this process, by process id; in a forked child its parents' identifiers are first."""


def _instance(known: Any, resource_class: type) -> str:
    """Returns the identifier of this process, and of no other; `known` is what the resource has.

    One that the environment gives identifies a container (as the conventions of Kubernetes have it),
    and all processes in it inherit it: ranks would be one series in Prometheus. It is kept as the
    beginning of each one's own.
    """
    pid = os.getpid()
    if pid not in _INSTANCES:
        # Newer SDKs make one too, for each process.
        module = sys.modules[resource_class.__module__]
        detector = getattr(module, "ServiceInstanceIdResourceDetector", None)
        found = detector().detect().attributes if detector else {}
        made = found.get(semconv.SERVICE_INSTANCE) or uuid.uuid4()
        unique = str(made)
        first = next(iter(_INSTANCES.values()), unique if known is None else str(known))
        given = first.rpartition(".")[0] if _INSTANCES else first.removesuffix(unique)
        _INSTANCES[pid] = f"{given}.{unique[:8]}" if given else unique
    return _INSTANCES[pid]


def service_name() -> str:
    """Returns the name of the service that reports the run, or else of the program."""
    provider = PROVIDERS.current.tracer or trace.get_tracer_provider()
    return _service_in(getattr(getattr(provider, "resource", None), "attributes", {}))


def _service_in(attributes: Mapping[str, Any]) -> str:
    name = str(attributes.get(_KEY) or _UNNAMED)
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


CARRIER_KEY = "otel_quant_run_name"
"""A child process finds the name under this key beside the trace context. In capitals it is
OTEL_QUANT_RUN_NAME."""

_FOLDERS = re.compile(r".*[/\\]")
_BLANK = re.compile(r"[\x00-\x20\x7f]+")


def described(info: RunInfo, attributes: Mapping[str, AttributeValue], time_ns: int) -> RunInfo:
    """Returns the description of a run that begins, with its name and its model."""

    def text(key: str) -> str | None:
        value = attributes.get(key)
        return value if isinstance(value, str) else None

    path = text(semconv.INPUT_PATH)
    model = model_name(path) if path is not None else text(semconv.MODEL_NAME)
    name = info.name or made_name(model, info.launched_ns or time_ns)
    return replace(
        info,
        # In one line and without backticks, which end a name in the stores' queries.
        name=_BLANK.sub(" ", name).strip().replace("`", "'"),
        model=model,
        method=text(semconv.CALIBRATION_METHOD),
        config=text(semconv.CONFIG_NAME),
    )


def made_name(model: str | None, time_ns: int, service: str | None = None) -> str:
    """Returns a name for what has none."""
    # In UTC. Milliseconds tell runs apart that a launcher begins together.
    moment = datetime.fromtimestamp(time_ns / 1e9, UTC).isoformat(timespec="milliseconds")
    words = (service or service_name(), model, moment.replace("+00:00", "Z"))
    return " ".join(filter(None, words))


def model_name(path: str) -> str | None:
    """Returns the last part of a model's path without `.onnx`; None if there is none."""
    return _FOLDERS.sub("", path.rstrip("/\\")).removesuffix(".onnx") or None
