"""Functions that a program calls for one layer after another, outside of any step: such calls in a row are one step.

The step opens at the first call. It ends with the last: another step begins, its thread ends, or there is none for a while.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from otel_quant.base.fault_boundary import FAULTS
from otel_quant.capture.instruments.configuration import SHOWN, Part, agreed, completed, described
from otel_quant.capture.instruments.hooks import (
    LAYER,
    Arguments,
    Function,
    Hook,
    Library,
    load,
    wraps,
)
from otel_quant.capture.instruments.samples import count_layer, step_counting
from otel_quant.capture.instruments.steps import (
    attributes_of,
    is_reported_already,
    open_library_step,
    owners_of,
    step,
)
from otel_quant.capture.recorder.ongoing import OpenStep
from otel_quant.capture.runtime import RUNTIME
from otel_quant.capture.scope import OPENING_A_STEP, Activation, is_failure
from otel_quant.schema import semconv

_LONGEST_PAUSE: Final = 5.0
"""Seconds without a call after which a series has ended."""


class _Series(Activation):
    """Makes each call a part of an open step."""

    def __init__(self, step: OpenStep, name: str) -> None:
        super().__init__(step)
        self.opened, self._name, self._parts = step, name, list[Part]()
        self._ended_at = time.monotonic()
        step.ends_with_parent = True
        threading.Thread(
            target=self._end_when_idle, args=(threading.current_thread(),), daemon=True
        ).start()

    def takes(self, name: str) -> bool:
        """Whether a call of a function belongs to it."""
        is_open = not self.opened.closed and self.opened.recorder is RUNTIME.recorder
        return is_open and self._name == name

    def add(self, attributes: Part) -> None:
        """Counts a call, which may have another configuration than those before."""
        self.opened.between = None
        self.opened.recorder.count(self.opened, "layer")
        if attributes not in self._parts:
            self._parts.append(attributes)
            found = agreed(self._parts)
            if len(self._parts) > 1:
                hashes = sorted(str(part.get(semconv.CONFIG_HASH)) for part in self._parts)
                found[semconv.CONFIG_HASH] = described(hashes)[semconv.CONFIG_HASH]
            kept = {key: each for key, each in self.opened.attributes.items() if key not in SHOWN}
            self.opened.attributes = kept | found

    def finish(self, error: BaseException | None = None) -> None:
        """Waits for the next call; a failure ends it."""
        if is_failure(error):
            super().finish(error)
        else:
            self.opened.between = self.opened.recorder.reading_now()
            self._ended_at = time.monotonic()

    def _end_when_idle(self, caller: threading.Thread) -> None:
        while not self.opened.closed and caller.is_alive():
            idle = time.monotonic() - self._ended_at if self.opened.between is not None else 0.0
            if idle >= _LONGEST_PAUSE:
                break
            time.sleep(min(_LONGEST_PAUSE - idle, 0.5))
        super().finish()


_OF_THREAD: Final = threading.local()


def layers(function: Function, hook: Hook, library: Library) -> Function:
    """One layer of the step around it; outside of one, such calls in a row are together step **{step}**."""
    arguments, name = Arguments(function, hook.parameters), f"{hook.module}.{hook.target}"
    describe = load(hook.describe) if hook.describe else None

    @wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        series: Activation | None = None
        with FAULTS.kept_in(OPENING_A_STEP):
            if is_reported_already(hook.step, library):
                current = getattr(_OF_THREAD, "series", None)
                if hook.before == LAYER and step_counting(owners_of(library)) is not getattr(
                    current, "opened", 0
                ):
                    count_layer(owners_of(library))
            else:
                call = arguments.bound(args, kwargs)
                known = attributes_of(call, hook.sources, hook.config) | (
                    describe(call) if describe else {}
                )
                series = _series_of(name, hook, library, completed(known))
        if series is None:
            return function(*args, **kwargs)
        with series:
            return function(*args, **kwargs)

    return wrapper


def _series_of(name: str, hook: Hook, library: Library, known: Part) -> Activation | None:
    series = getattr(_OF_THREAD, "series", None)
    if series is None or not series.takes(name):
        opened = open_library_step(hook.step, library, known, SHOWN, function=name)
        if opened is None:
            return None
        _OF_THREAD.series = series = _Series(opened, name)
    known.pop(semconv.MODEL_NAME, None)
    series.add(known)
    return series


def layers_or_step(function: Function, hook: Hook, library: Library) -> Function:
    """One layer where its model is one, with others in a row; else step **{step}**."""
    one, whole = (
        layers(function, replace(hook, before=LAYER), library),
        step(function, hook, library),
    )

    @wraps(function)
    def wrapper(model: Any, *args: Any, **kwargs: Any) -> Any:
        return (whole if _has_parts(model, args, kwargs) else one)(model, *args, **kwargs)

    return wrapper


def _has_parts(model: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    """Whether a model consists of modules, or is quantized in two steps."""
    config = kwargs.get("config", args[0] if args else None)
    return hasattr(config, "step") or next(iter(model.children()), None) is not None
