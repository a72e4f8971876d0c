"""Wraps the reader in which AMD Quark keeps what the program's reader gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from otel_quant.base.fault_boundary import FAULTS
from otel_quant.capture.instruments.shared.library import Hook, Library
from otel_quant.capture.instruments.shared.library_steps import step
from otel_quant.capture.instruments.shared.samples import note_shapes
from otel_quant.capture.uncounted_frames import wraps


def cached_samples(
    function: Callable[..., Any], hook: Hook, library: Library
) -> Callable[..., Any]:
    """Makes each call a step, and keeps the shapes of the first sample.

    For bfloat16 and block formats Quark does not calibrate: nothing reads the samples afterwards.
    """
    read = step(function, hook, library)

    @wraps(function)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> None:
        read(self, *args, **kwargs)
        with FAULTS.kept_in("shapes of calibration samples"):
            samples = getattr(self, "_data_cache", None)
            if samples:
                note_shapes(samples[0])

    return wrapper
