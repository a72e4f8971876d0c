"""Wraps AMD Quark's own profiler: its decorator and its scopes become steps.

Quark marks its steps with a decorator that is applied as its modules are imported. If it is
hooked before that, each call of a decorated function is seen with its arguments. If it is
hooked later, only the scope is seen that the decorator opens at each call. In the first
case both are seen, and only the decorator's wrapper may open the step.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from contextvars import ContextVar
from types import FrameType
from typing import Any, Final

from otel_quant.environment import QUARK_PROFILING
from otel_quant.fault_boundary import FAULTS
from otel_quant.instruments.shared.library import Hook, Library
from otel_quant.instruments.shared.library_steps import as_library_step, open_library_step
from otel_quant.instruments.shared.samples import with_counted_loader
from otel_quant.profile.path import DEFAULT_PATH
from otel_quant.recording.recorder import OpenStep
from otel_quant.runtime import RUNTIME
from otel_quant.scope import OPENING_A_STEP, Activation, as_step, qualified_name
from otel_quant.steps import ALL_STEPS, ProfileStep
from otel_quant.uncounted_frames import wraps

_DECORATORS_MODULE: Final = "quark.common.profiler.profiler"

# Labels of scopes for which the wrapped decorator has opened a step, innermost last.
_DECORATED: Final[ContextVar[tuple[str, ...]]] = ContextVar("otel_quant_decorated", default=())
# The label that ``scope()`` was called with, and the function of Quark's that its decorator
# opens the scope for, until the ``with`` statement enters it.
_PENDING: Final[ContextVar[tuple[str, Callable[..., Any] | None] | None]] = ContextVar(
    "otel_quant_pending", default=None
)
# What the scopes entered in this context have opened, innermost last.
_ENTERED: Final[ContextVar[tuple[Activation, ...]]] = ContextVar("otel_quant_entered", default=())

# Whether Quark takes a checkpoint itself, at the start or the end of a scope.
_IN_OWN_CHECKPOINT: Final[ContextVar[bool]] = ContextVar("otel_quant_boundary", default=False)


def profile_scope(original: Callable[..., Any], hook: Hook, library: Library) -> Callable[..., Any]:
    """Wraps the decorator factory: calls of what it decorates become steps with their arguments."""

    @wraps(original)
    def factory(step: str, user_msg: str | None = None) -> Callable[..., Any]:
        decorate = original(step, user_msg)

        def decorator(function: Callable[..., Any]) -> Callable[..., Any]:
            label = user_msg if user_msg is not None else step
            decorated = decorate(function)

            @wraps(decorated)
            def without_scope_step(*args: Any, **kwargs: Any) -> Any:
                token = _DECORATED.set((*_DECORATED.get(), label))
                try:
                    return decorated(*args, **kwargs)
                finally:
                    _DECORATED.reset(token)

            if function.__module__.partition(".")[0] != "quark":
                # The decorator is public, and this is a function of the program.
                return as_step(
                    without_scope_step,
                    lambda args, kwargs: RUNTIME.recorder.open(step, label=label),
                )
            body: Callable[..., Any] = without_scope_step
            if step == ProfileStep.CALIBRATION:
                body = _with_counted_passes(body, library)
            return as_library_step(body, step, library, user_msg)

        return decorator

    return factory


def _with_counted_passes(function: Callable[..., Any], library: Library) -> Callable[..., Any]:
    """Has each pass over a function's ``dataloader`` be the ``Calibration (Forward)`` step.

    That step is no function of Quark's.
    """
    open_pass = functools.partial(
        open_library_step, ProfileStep.CALIBRATION_FORWARD, library, filled_in=True
    )
    return with_counted_loader(function, "dataloader", open_pass)


def scope(original: Callable[..., Any], hook: Hook, library: Library) -> Callable[..., Any]:
    """Wraps ``GlobalProfiler.scope``: remembers the label for the ``with`` that follows."""

    @wraps(original)
    def wrapper(self: Any, step_name: str, user_msg: str | None = None) -> Any:
        result = original(self, step_name, user_msg)
        label = user_msg if user_msg is not None else step_name
        decorated = _DECORATED.get()
        if decorated and decorated[-1] == label:
            _DECORATED.set((*decorated[:-1], ""))  # the decorator's own scope: its step is open
            _PENDING.set(None)
        else:
            _PENDING.set((label, None))
            with FAULTS.kept_in("owner of a scope"):
                _PENDING.set((label, _decorated_by_quark(sys._getframe(1))))
        return result

    return wrapper


def _decorated_by_quark(caller: FrameType) -> Callable[..., Any] | None:
    """Returns the function whose call opens a scope, if it is Quark's and was decorated early.

    Args:
        caller: Frame that called ``scope``: the decorator's wrapper, or the program.
    """
    if caller.f_globals.get("__name__") != _DECORATORS_MODULE:
        return None
    function = caller.f_locals.get("func")
    module = getattr(function, "__module__", None) or ""
    return function if module.partition(".")[0] == "quark" else None


def _open(label: str, function: Callable[..., Any] | None, library: Library) -> OpenStep | None:
    kind = label if label in ALL_STEPS else ProfileStep.USER_DEFINED
    if function is None:
        return RUNTIME.recorder.open(kind, label=label)
    return open_library_step(kind, library, label=label, function=qualified_name(function))


def enter_scope(original: Callable[..., Any], hook: Hook, library: Library) -> Callable[..., Any]:
    """Wraps ``GlobalProfiler.__enter__``: opens the step."""

    @wraps(original)
    def wrapper(self: Any) -> Any:
        activation = Activation(None)
        with FAULTS.kept_in(OPENING_A_STEP):
            RUNTIME.metrics.adopt(self)
            pending = _PENDING.get()
            _PENDING.set(None)
            if pending is not None:
                activation = Activation(_open(*pending, library))
        activation.__enter__()
        _ENTERED.set((*_ENTERED.get(), activation))
        token = _IN_OWN_CHECKPOINT.set(True)
        try:
            return original(self)
        finally:
            _IN_OWN_CHECKPOINT.reset(token)

    return wrapper


def exit_scope(original: Callable[..., Any], hook: Hook, library: Library) -> Callable[..., Any]:
    """Wraps ``GlobalProfiler.__exit__``: closes the step."""

    @wraps(original)
    def wrapper(self: Any, kind: Any, error: Any, traceback: Any) -> Any:
        token = _IN_OWN_CHECKPOINT.set(True)
        try:
            result = original(self, kind, error, traceback)
        finally:
            _IN_OWN_CHECKPOINT.reset(token)
        entered = _ENTERED.get()
        if entered:
            _ENTERED.set(entered[:-1])
            entered[-1].__exit__(kind, error, traceback)
        return result

    return wrapper


def initialize(original: Callable[..., Any], hook: Hook, library: Library) -> Callable[..., Any]:
    """Wraps ``GlobalProfiler.__init__``: our run begins with Quark's and shows its metrics.

    Quark's file keeps its path: ours goes elsewhere before Quark opens it.
    """

    @wraps(original)
    def wrapper(self: Any, output_path: str = DEFAULT_PATH) -> None:
        is_new = not self._initialized
        if is_new and os.environ.get(QUARK_PROFILING) == "1":
            RUNTIME.move_profile_off(output_path)
        original(self, output_path)
        RUNTIME.metrics.adopt(self)
        if is_new and self.enabled:
            with FAULTS.kept_in("Quark's profiler"):
                RUNTIME.recorder.start()

    return wrapper


def checkpoint(original: Callable[..., Any], hook: Hook, library: Library) -> Callable[..., Any]:
    """Wraps ``GlobalProfiler._checkpoint``: one that the program asks for is ours as well."""

    @wraps(original)
    def wrapper(self: Any, step_name: str) -> None:
        original(self, step_name)
        ends_of_the_run = (ProfileStep.START, ProfileStep.END)
        if not _IN_OWN_CHECKPOINT.get() and step_name not in ends_of_the_run:
            RUNTIME.metrics.adopt(self)
            RUNTIME.recorder.point(step_name)

    return wrapper


def watch_cache_dir(
    original: Callable[..., Any], hook: Hook, library: Library
) -> Callable[..., Any]:
    """Wraps ``start_cache_dir_monitoring``, which Quark calls for each cache directory."""

    @wraps(original)
    def wrapper(self: Any, path: str) -> None:
        original(self, path)
        RUNTIME.watch_cache_directory(path)

    return wrapper
