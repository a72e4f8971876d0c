"""Wraps AMD Quark's own profiler: its decorator and its scopes become steps.

Quark marks its steps with a decorator that is applied as its modules are imported. If it is
hooked before that, each call of a decorated function is seen with its arguments. If it is
hooked later, only the scope is seen that the decorator opens at each call.

A step is opened and closed just after Quark's own checkpoint: metrics that the program has added
to Quark's profiler are not asked a second time, their values are those of Quark's record.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from types import FrameType
from typing import Any, Final

from otel_quant.base.fault_boundary import FAULTS
from otel_quant.capture.instruments.shared.hooks import Hook, Library
from otel_quant.capture.instruments.shared.samples import with_counted_loader
from otel_quant.capture.instruments.shared.steps import (
    library_step_begin,
    open_library_step,
)
from otel_quant.capture.probes.cache_directories import CACHE_DIRECTORIES
from otel_quant.capture.recorder.ongoing import OpenStep
from otel_quant.capture.runtime import RUNTIME
from otel_quant.capture.scope import OPENING_A_STEP, Activation, Begin, qualified_name
from otel_quant.capture.uncounted_frames import wraps
from otel_quant.export.quark_yaml.request import DEFAULT_PATH
from otel_quant.schema.settings import QUARK_PROFILING
from otel_quant.schema.step_names import ALL_STEPS, ProfileStep

_DECORATORS_MODULE: Final = "quark.common.profiler.profiler"

_Open = Callable[[], OpenStep | None]

# Calls of decorated functions: the label of each one's scope, and what opens its step. Innermost
# last; without a label once its scope is made.
_DECORATED: Final[ContextVar[tuple[tuple[str | None, _Open], ...]]] = ContextVar(
    "otel_quant_decorated", default=()
)
# What opens the step of a scope, until the ``with`` statement enters it.
_PENDING: Final[ContextVar[_Open | None]] = ContextVar("otel_quant_pending", default=None)
# What the scopes entered in this context have opened, innermost last.
_ENTERED: Final[ContextVar[tuple[Activation, ...]]] = ContextVar("otel_quant_entered", default=())

# Whether Quark takes a checkpoint itself, at the start or the end of a scope.
_IN_OWN_CHECKPOINT: Final[ContextVar[bool]] = ContextVar("otel_quant_boundary", default=False)
# Name and record of the last checkpoint that Quark's profiler has taken.
_RECORD: Final[ContextVar[tuple[str, Mapping[str, object]]]] = ContextVar(
    "otel_quant_record", default=("", {})
)


def profile_scope(original: Callable[..., Any], hook: Hook, library: Library) -> Callable[..., Any]:
    """Wraps the decorator factory: calls of what it decorates become steps with their arguments."""

    @wraps(original)
    def factory(step: str, user_msg: str | None = None) -> Callable[..., Any]:
        decorate = original(step, user_msg)

        def decorator(function: Callable[..., Any]) -> Callable[..., Any]:
            label = user_msg if user_msg is not None else step
            decorated = decorate(function)
            begin = library_step_begin(function, step, library, user_msg)
            if not _is_quarks(function):  # the decorator is public
                begin = _begin_of_program(step, label)

            @wraps(decorated)
            def wrapper(*args: Any, **kwargs: Any) -> Any:
                opening = functools.partial(begin, args, kwargs)
                token = _DECORATED.set((*_DECORATED.get(), (label, opening)))
                try:
                    return decorated(*args, **kwargs)
                finally:
                    _DECORATED.reset(token)

            return wrapper

        return decorator

    return factory


def _is_quarks(function: Callable[..., Any]) -> bool:
    return (getattr(function, "__module__", None) or "").partition(".")[0] == "quark"


def _begin_of_program(step: str, label: str) -> Begin:
    return lambda args, kwargs: RUNTIME.recorder.open(step, label=label)


def scope(original: Callable[..., Any], hook: Hook, library: Library) -> Callable[..., Any]:
    """Wraps ``GlobalProfiler.scope``: remembers the step for the ``with`` that follows."""

    @wraps(original)
    def wrapper(self: Any, step_name: str, user_msg: str | None = None) -> Any:
        result = original(self, step_name, user_msg)
        label = user_msg if user_msg is not None else step_name
        decorated = _DECORATED.get()
        if decorated and decorated[-1][0] == label:  # the decorator's own scope
            opening = decorated[-1][1]
            _DECORATED.set((*decorated[:-1], (None, opening)))
            _PENDING.set(opening)
        else:
            function = None
            with FAULTS.kept_in("owner of a scope"):
                function = _decorated_by_quark(sys._getframe(1))
            _PENDING.set(functools.partial(_open, label, function, library))
        return result

    return wrapper


def _decorated_by_quark(caller: FrameType) -> Callable[..., Any] | None:
    """Returns the function whose call opens a scope, if it is Quark's and was decorated early."""
    if caller.f_globals.get("__name__") != _DECORATORS_MODULE:
        return None
    function = caller.f_locals.get("func")
    return function if function is not None and _is_quarks(function) else None


def _open(label: str, function: Callable[..., Any] | None, library: Library) -> OpenStep | None:
    kind = label if label in ALL_STEPS else ProfileStep.USER_DEFINED
    if function is None:
        return RUNTIME.recorder.open(kind, label=label)
    return open_library_step(kind, library, label=label, function=qualified_name(function))


def enter_scope(original: Callable[..., Any], hook: Hook, library: Library) -> Callable[..., Any]:
    """Wraps ``GlobalProfiler.__enter__``: opens the step."""

    @wraps(original)
    def wrapper(self: Any) -> Any:
        opening = _PENDING.get()
        _PENDING.set(None)
        token = _IN_OWN_CHECKPOINT.set(True)
        try:
            result = original(self)
        finally:
            _IN_OWN_CHECKPOINT.reset(token)
        activation = Activation(None)
        with FAULTS.kept_in(OPENING_A_STEP), RUNTIME.metrics.adopted(self, *_RECORD.get()):
            if opening is not None:
                activation = Activation(opening())
        activation.__enter__()
        _ENTERED.set((*_ENTERED.get(), activation))
        return result

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
            with RUNTIME.metrics.adopted(self, *_RECORD.get()):
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
            RUNTIME.watch_exit()  # before Quark does: at exit, its last record is made first
        original(self, output_path)
        if is_new:
            with FAULTS.kept_in("Quark's profiler"), RUNTIME.metrics.adopted(self):
                if self.enabled:
                    RUNTIME.recorder.start()

    return wrapper


def checkpoint(original: Callable[..., Any], hook: Hook, library: Library) -> Callable[..., Any]:
    """Wraps ``GlobalProfiler._checkpoint``: one that the program asks for is ours as well."""

    @wraps(original)
    def wrapper(self: Any, step_name: str) -> None:
        records: Sequence[Mapping[str, object]] = getattr(self, "records", ())
        before = len(records)
        original(self, step_name)
        _RECORD.set((step_name, records[-1] if len(records) > before else {}))
        if step_name == ProfileStep.END:
            RUNTIME.metrics.adopt_end(self, _RECORD.get()[1])
        ends_of_the_run = (ProfileStep.START, ProfileStep.END)
        if not _IN_OWN_CHECKPOINT.get() and step_name not in ends_of_the_run:
            with RUNTIME.metrics.adopted(self, *_RECORD.get()):
                RUNTIME.recorder.point(step_name)

    return wrapper


def calibration(original: Callable[..., Any], hook: Hook, library: Library) -> Callable[..., Any]:
    """Wraps what calibrates: each pass over its ``dataloader`` is a step, its items are counted.

    That step is no function of Quark's.
    """
    open_pass = functools.partial(
        open_library_step, ProfileStep.CALIBRATION_FORWARD, library, filled_in=True
    )
    return with_counted_loader(original, "dataloader", open_pass)


def watch_cache_dir(
    original: Callable[..., Any], hook: Hook, library: Library
) -> Callable[..., Any]:
    """Wraps ``start_cache_dir_monitoring``, which Quark calls for each cache directory."""

    @wraps(original)
    def wrapper(self: Any, path: str) -> None:
        original(self, path)
        with FAULTS.kept_in("watch of the cache directories"):
            CACHE_DIRECTORIES.watch(path)

    return wrapper
