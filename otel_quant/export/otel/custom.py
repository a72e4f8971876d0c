"""Metrics that the program has added: as attributes, and as gauges of their own."""

from __future__ import annotations

import functools
import math
import re
import threading
from collections.abc import Mapping
from itertools import islice
from numbers import Integral, Real
from typing import Any, Final

from opentelemetry.metrics import Meter

from otel_quant.base.fault_boundary import FAULTS
from otel_quant.base.log import LOG
from otel_quant.schema import semconv
from otel_quant.schema.events import Attributes, present

MOST_CUSTOM: Final = 32
"""Custom metrics that a span or a checkpoint record shows. With the step's attributes and all of
ours they stay below the 128 that the SDK keeps by default; it drops those that were set first,
which are the ones that identify the span."""

_LONGEST: Final = 255
_NOT_ALLOWED: Final = re.compile(r"[^A-Za-z0-9_./-]")


def custom_of(values: Mapping[str, object]) -> Attributes:
    """Returns the values of custom metrics that an attribute can hold, as many as are shown."""
    if not values:
        return {}
    found = present(
        {
            semconv.CUSTOM_PREFIX + _encodable(name): custom_value(value)
            for name, value in values.items()
        }
    )
    if len(found) <= MOST_CUSTOM:
        return found
    _warn_of_many()
    return dict(islice(found.items(), MOST_CUSTOM))


@functools.cache  # once
def _warn_of_many() -> None:
    LOG.warning(
        "only the first %d custom metrics are on spans and log records; add fewer to choose them",
        MOST_CUSTOM,
    )


def custom_value(value: object) -> str | bool | int | float | None:
    """Returns what OpenTelemetry can send of the value of a custom metric; None for nothing.

    An integer of more than 64 bits would make an exporter fail with all that is sent with it.
    """
    if isinstance(value, str):
        return _encodable(value)
    if isinstance(value, bool):
        return value
    if isinstance(value, Integral) and abs(int(value)) < 1 << 63:
        return int(value)
    if isinstance(value, Real):
        try:
            return float(value)
        except OverflowError:
            return None
    return None


def _encodable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()


class CustomGauges:
    """One gauge for each custom metric that has had a number as its value."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._gauges: dict[str, Any] = {}  # in lower case: OpenTelemetry ignores the case of names
        self._lock = threading.RLock()

    def set(self, values: Mapping[str, object], labels: Mapping[str, str]) -> None:
        """Sets the gauges. A metric that fails does not prevent those after it."""
        for name, given in values.items():
            with FAULTS.kept_in(f"custom metric {name!r}"):
                value = custom_value(given)
                if isinstance(value, bool | str) or value is None or not math.isfinite(value):
                    continue
                self._gauge(name).set(value, labels)

    def forget(self) -> None:
        """In a forked child: another thread may have held the lock."""
        self._lock = threading.RLock()

    def _gauge(self, name: str) -> Any:
        """Returns the gauge of a metric; names that OpenTelemetry takes for the same share one."""
        wanted = semconv.CUSTOM_PREFIX + name
        valid = _NOT_ALLOWED.sub("_", wanted)[:_LONGEST]
        with self._lock:
            if valid.lower() not in self._gauges:
                self._gauges[valid.lower()] = self._meter.create_gauge(
                    valid, description="A custom metric of the program."
                )
                if valid != wanted:
                    LOG.warning(
                        "custom metric %r is sent as the metric %r: OpenTelemetry accepts at most %d "
                        "ASCII letters, digits, '_', '.', '-' and '/'; give it such a name to choose it",
                        name,
                        valid,
                        _LONGEST,
                    )
            return self._gauges[valid.lower()]
