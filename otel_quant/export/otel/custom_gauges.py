"""Gauges of the metrics that the program has added, whatever their names and values are."""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Mapping
from typing import Any, Final

from opentelemetry.metrics import Meter

from otel_quant.base.fault_boundary import FAULTS
from otel_quant.base.log import LOG
from otel_quant.export.otel.attributes import custom_value
from otel_quant.schema import semconv

_LONGEST: Final = 255
_NOT_ALLOWED: Final = re.compile(r"[^A-Za-z0-9_./-]")


class CustomGauges:
    """One gauge for each custom metric that has had a number as its value."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._gauges: dict[str, Any] = {}
        self._taken: set[str] = set()  # in lower case: OpenTelemetry ignores the case of names
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
        with self._lock:
            if name not in self._gauges:
                self._gauges[name] = self._meter.create_gauge(
                    self._valid(name), description="A custom metric of the program."
                )
            return self._gauges[name]

    def _valid(self, name: str) -> str:
        """Returns a name that OpenTelemetry accepts and no other metric has."""
        wanted = semconv.CUSTOM_PREFIX + name
        allowed = _NOT_ALLOWED.sub("_", wanted)[:_LONGEST]
        valid, number = allowed, 1
        while valid.lower() in self._taken:
            number += 1
            suffix = f"_{number}"
            valid = allowed[: _LONGEST - len(suffix)] + suffix
        self._taken.add(valid.lower())
        if valid != wanted:
            LOG.warning(
                "custom metric %r is sent as the metric %r: OpenTelemetry accepts at most %d ASCII "
                "letters, digits, '_', '.', '-' and '/', in upper or lower case the same, and "
                "each name once; give the metric such a name to choose it",
                name,
                valid,
                _LONGEST,
            )
        return valid
