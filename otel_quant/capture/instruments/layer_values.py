"""How well a library has quantized its layers, where it computes that itself.

A figure is taken where it is a Python value: what a function of the library's returns or is called with. Where it
is neither, but a local variable of a function of the library's, it is read while that function calls another.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from functools import partial
from numbers import Real
from types import FrameType
from typing import Any, Final

from otel_quant.schema.readings import LayerAccuracy

Layers = Iterator[LayerAccuracy]


def value_of(value: Any, **more: Any) -> Layers:
    """Yields a value of a layer; nothing if it is no number."""
    if isinstance(value, Real) or getattr(value, "ndim", None) == 0:  # of numpy and torch
        found = float(value)
        yield LayerAccuracy(value=found if math.isfinite(found) else None, **more)


lower_is_better: Final = partial(value_of, better="lower")


def variables_of(function: str) -> dict[str, Any]:
    """Returns the variables of the innermost function of that name that is under way; none without one."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_name != function:
        frame = frame.f_back
    if frame is None:
        return {}
    found = dict(frame.f_locals)
    if sys.version_info < (3, 13):
        # There it is a copy that lasts as long as the function, and would keep alive what the function lets go.
        frame.f_locals.clear()
    return found
