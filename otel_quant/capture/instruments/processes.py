"""Child processes: links them to the trace, and has them send their telemetry before they end; options that are secrets.

A child finds the trace context in its own environment or in its process object; the environment of this
process is never changed. Loaded in every instrumented Python program, since nearly all of them import
``subprocess``: it must load nothing heavy. Until a quantization library (or otel-quant's own API) has loaded
:mod:`otel_quant.capture.runtime`, it only passes on the trace context of the current span.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from otel_quant.base.fault_boundary import FAULTS
from otel_quant.base.machine import note_for_launcher
from otel_quant.base.waited import WAITED
from otel_quant.capture.instruments.hooks import Arguments, Call, Function, Hook, Library, wraps
from otel_quant.export.otel.automatic_providers import AUTOMATIC_PROVIDERS
from otel_quant.schema.dataclass import dataclass, field

_PROCESS: Final = "multiprocessing.process"

PROCESSES: Final = Library(
    name="processes",
    distribution="python",
    hooks=(
        Hook("subprocess", "Popen.__init__", "processes:popen"),
        Hook(_PROCESS, "BaseProcess.start", "processes:start"),
        Hook(_PROCESS, "BaseProcess._bootstrap", "processes:bootstrap"),
        Hook("multiprocessing.util", "_exit_function", "processes:leave"),
        Hook("concurrent.futures.process", "_process_worker", "processes:initialized"),
        Hook("joblib.externals.loky.process_executor", "_process_worker", "processes:initialized"),
        Hook("os", "_exit", "processes:exit_at_once"),
        Hook("argparse", "_ActionsContainer.add_argument", "processes:add_argument"),
    ),
)


@dataclass(slots=True)
class ParentProcess:
    """Data that a measured parent process has passed to this process."""

    # Whether a measured process forked or spawned this process. A worker can be terminated at any
    # time between two tasks, so its root span ends, and its telemetry is sent, after each
    # outermost operation or step.
    is_worker: bool = False
    # W3C trace context, by header name; it is used instead of the environment's
    carrier: Mapping[str, str] = field(default_factory=dict)
    error: BaseException | None = None  # The exception that ends this process, a worker


PARENT: Final = ParentProcess()  # The data of this process
_CARRIER: Final = "_otel_quant_carrier"
_WAITED: Final = "_otel_quant_waited"
_SHARING: Final = "time that a program waits"

_MODULE: Final = "otel_quant.capture.runtime"
LAUNCHED: Final = "otel_quant.program.launched"
"""Loaded where ``otel-quant run`` has started the program."""


def popen(original: Function, hook: Hook, library: Library) -> Function:
    """Wraps ``Popen.__init__``: puts the trace context into the child's environment."""
    arguments = Arguments(original)

    @wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        call: Call = (args, kwargs)
        with FAULTS.kept_in("linking a child process"):
            command = arguments.bound(args, kwargs).get("args")
            change = functools.partial(_child_environment, command)
            call = arguments.replaced(args, kwargs, "env", change)
        return original(*call[0], **call[1])

    return wrapper


def start(original: Function, hook: Hook, library: Library) -> Function:
    """Wraps ``Process.start``: the process object takes the trace context along."""

    @wraps(original)
    def wrapper(self: Any) -> Any:
        with FAULTS.kept_in("linking a child process"):
            target = getattr(getattr(self, "_target", None), "__module__", None) or ""
            # A data loader's workers do not quantize: no run is begun for them.
            carrier = _carrier(begin=not target.startswith("torch."))
            if carrier:
                setattr(self, _CARRIER, carrier)
        with FAULTS.kept_in(_SHARING):
            if AUTOMATIC_PROVIDERS:
                setattr(self, _WAITED, WAITED.share())
        return original(self)

    return wrapper


def bootstrap(original: Function, hook: Hook, library: Library) -> Function:
    """Wraps ``Process._bootstrap``, after which a forked child calls ``os._exit``: what it has not sent is lost."""

    @wraps(original)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        PARENT.is_worker = True
        PARENT.carrier = getattr(self, _CARRIER, None) or PARENT.carrier
        with FAULTS.kept_in(_SHARING):
            WAITED.join(getattr(self, _WAITED, ""))
        try:
            return original(self, *args, **kwargs)
        finally:
            with FAULTS.kept_in("end of a child process"):
                is_recorded = PARENT.error is not None and LAUNCHED in sys.modules
                runtime = import_module(_MODULE).RUNTIME if is_recorded else _runtime()
                if is_recorded:
                    runtime.record_failure(PARENT.error)
                elif runtime is not None:
                    runtime.at_process_end(PARENT.error)

    return wrapper


def add_argument(original: Function, hook: Hook, library: Library) -> Function:
    """Wraps the method by which a program declares its options: of ``-p``, ``--password`` both are hidden then."""

    @wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        action = original(*args, **kwargs)
        with FAULTS.kept_in("options of the program"):
            # Here: its patterns take 3 ms, and most programs have no options.
            from otel_quant.base.secrets import OPTIONS, names_secret

            if any(map(names_secret, (*action.option_strings, action.dest))):
                OPTIONS.update(action.option_strings)
                note_for_launcher("hides", action.option_strings)
        return action

    return wrapper


def leave(original: Function, hook: Hook, library: Library) -> Function:
    """Wraps what ``_bootstrap`` calls while an exception ends the child, which it then prints and forgets."""

    @wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        error = sys.exception()
        is_text = isinstance(getattr(error, "code", None), str)  # of sys.exit("text")
        if PARENT.is_worker and (is_text or isinstance(error, Exception)):
            PARENT.error = error
        return original(*args, **kwargs)

    return wrapper


def initialized(original: Function, hook: Hook, library: Library) -> Function:
    """Wraps the work of an executor's process, which logs what its initializer raises, and exits with 0."""

    def noting(initializer: Function | None) -> Function | None:
        def noted(*args: Any) -> Any:
            try:
                return initializer(*args) if initializer is not None else None
            except BaseException as error:
                PARENT.error = error
                raise

        return None if initializer is None else noted

    return Arguments(original).replacing(original, "initializer", noting)


def exit_at_once(original: Function, hook: Hook, library: Library) -> Function:
    """Wraps ``os._exit``, with which children of ``os.fork`` end: nothing of ours is called after it."""

    @wraps(original)
    def wrapper(status: int) -> None:
        with FAULTS.kept_in("end of a process"):
            runtime = _runtime()
            run = runtime.latest_run if runtime is not None else None
            # Of one that failed, the open steps tell where.
            if run is not None and (run.idle or not status):
                runtime.at_process_end(sys.exception() if status else None)
        original(status)

    return wrapper


def _child_environment(command: Any, passed: Mapping[Any, Any] | None) -> Mapping[Any, Any] | None:
    """Returns the environment for a child."""
    inherited = os.environ.get("TRACEPARENT")
    if passed is not None and passed.get("TRACEPARENT", inherited) != inherited:
        return passed  # the program has set a trace context for the child
    carrier = _carrier(begin=_is_python(command))
    if not carrier:
        return passed
    env = dict(os.environ if passed is None else passed)
    env.update({header.upper(): value for header, value in carrier.items()})
    return env


def _carrier(begin: bool) -> dict[str, str]:
    """Returns the trace context of the run, or else of the current span, by header name."""
    runtime = _runtime()
    carrier = runtime.child_carrier(begin) if runtime is not None else {}
    return carrier or _of_current_span()


def _of_current_span() -> dict[str, str]:
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None or not trace.get_current_span().get_span_context().is_valid:
        return {}
    # Imported here: it loads the propagators, which a program without spans does not need.
    from opentelemetry import propagate

    headers: dict[str, str] = {}
    propagate.inject(headers)
    return headers


def _is_python(command: Any) -> bool:
    """Whether a command runs this interpreter: only such a child can be instrumented."""
    program = command[0] if isinstance(command, list | tuple) and command else command
    try:
        return Path(program).samefile(sys.executable)
    except (TypeError, OSError, ValueError):
        return False


def _runtime() -> Any:
    """Returns the runtime, if it is loaded; not of its type, which it imports this module for."""
    module = sys.modules.get(_MODULE)
    return getattr(module, "RUNTIME", None)
