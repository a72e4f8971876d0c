"""What is sent of a forecast."""

from __future__ import annotations

from typing import Any, Final

from otel_quant.records import GrowthForecast
from otel_quant.telemetry import semconv

_STEMS: Final = {"memory": "quant.forecast.memory.", "gpu": "quant.forecast.gpu.memory."}


def attributes_of(growth: GrowthForecast) -> dict[str, Any]:
    """Returns a growth as attributes of a log record or of a step's span.

    Args:
        growth: The growth.
    """
    stem = _STEMS[growth.resource]
    attributes: dict[str, Any] = {
        f"{stem}at_end": growth.at_end,
        f"{stem}per_sample": growth.per_sample,
        f"{stem}limit": growth.limit,
    }
    if growth.device is not None:
        attributes[semconv.HW_ID] = growth.device
    return attributes
