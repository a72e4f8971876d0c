"""Links child processes to the trace, and has them send what they have before they end.

Loaded in every instrumented Python program, since nearly all of them import
``subprocess``: it must not load anything, and does nothing until a quantization library
(or otel-quant's own API) has loaded :mod:`otel_quant.runtime`.
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from otel_quant.fault_boundary import FAULTS
from otel_quant.instruments.library import Hook, Library
from otel_quant.parent_process import PARENT

if TYPE_CHECKING:
    from otel_quant.runtime import Runtime

_CARRIER: Final = "_otel_quant_carrier"


def popen(original: Callable[..., Any], hook: Hook, library: Library) -> Callable[..., Any]:
    """Wraps ``Popen.__init__``: puts the trace context into the child's environment."""
    position = list(inspect.signature(original).parameters).index("env")

    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        with FAULTS.kept_in("linking a child process"):
            given = args[position] if len(args) > position else kwargs.get("env")
            command = args[1] if len(args) > 1 else kwargs.get("args")
            env = _child_environment(given, command)
            if env is not None:
                if len(args) > position:
                    args = (*args[:position], env, *args[position + 1 :])
                else:
                    kwargs["env"] = env
        return original(*args, **kwargs)

    return wrapper


def start(original: Callable[..., Any], hook: Hook, library: Library) -> Callable[..., Any]:
    """Wraps ``Process.start``: the process object takes the trace context along."""

    @functools.wraps(original)
    def wrapper(self: Any) -> Any:
        with FAULTS.kept_in("linking a child process"):
            runtime = _runtime()
            if runtime is not None:
                target = getattr(getattr(self, "_target", None), "__module__", None) or ""
                # A data loader's workers do not quantize: they are no reason to begin a run.
                carrier = runtime.child_carrier(begin=not target.startswith("torch."))
                if carrier:
                    setattr(self, _CARRIER, carrier)
        return original(self)

    return wrapper


def bootstrap(original: Callable[..., Any], hook: Hook, library: Library) -> Callable[..., Any]:
    """Wraps ``Process._bootstrap``, the child's main function.

    A forked child leaves through ``os._exit`` when this returns: no exit handler runs,
    and what it has not sent by then is lost.
    """

    @functools.wraps(original)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        PARENT.is_worker = True
        PARENT.carrier = getattr(self, _CARRIER, None) or PARENT.carrier
        try:
            return original(self, *args, **kwargs)
        finally:
            with FAULTS.kept_in("end of a child process"):
                runtime = _runtime()
                if runtime is not None:
                    runtime.at_process_end()

    return wrapper


def _child_environment(given: Mapping[Any, Any] | None, command: Any) -> dict[Any, Any] | None:
    """Returns the environment for a child, None if it is to be left as it is.

    Args:
        given: What the program wants it to be; None for a copy of this process's.
        command: What the child runs.
    """
    runtime = _runtime()
    if runtime is None:
        return None
    inherited = os.environ.get("TRACEPARENT")
    if given is not None and given.get("TRACEPARENT", inherited) != inherited:
        return None  # the program has a trace of its own in mind
    carrier = runtime.child_carrier(begin=_is_python(command))
    if not carrier:
        return None
    env = dict(os.environ if given is None else given)
    if given is not None and any(isinstance(key, bytes) for key in given):
        env.update({k.upper().encode(): v.encode() for k, v in carrier.items()})
    else:
        env.update({header.upper(): value for header, value in carrier.items()})
    return env


def _is_python(command: Any) -> bool:
    """Whether a command runs this interpreter: only such a child can be instrumented."""
    program = command[0] if isinstance(command, list | tuple) and command else command
    try:
        return Path(program).samefile(sys.executable)
    except (TypeError, OSError, ValueError):
        return False


def _runtime() -> Runtime | None:
    module = sys.modules.get("otel_quant.runtime")
    return getattr(module, "RUNTIME", None)
