"""What is sent of a forecast."""

from __future__ import annotations

from typing import Any, Final

from otel_quant.schema import semconv
from otel_quant.schema.records import GrowthForecast, StepProgress

_STEMS: Final = {"memory": "quant.forecast.memory.", "gpu": "quant.forecast.gpu.memory."}


def attributes_of(growth: GrowthForecast) -> dict[str, Any]:
    """Returns a growth as attributes of a log record or of a step's span."""
    stem = _STEMS[growth.resource]
    attributes: dict[str, Any] = {
        f"{stem}at_end": growth.at_end,
        f"{stem}per_sample": growth.per_sample,
        f"{stem}limit": growth.limit,
    }
    if growth.device is not None:
        attributes[semconv.HW_ID] = growth.device
    return attributes


def newest_of(step: StepProgress) -> dict[str, Any]:
    """Returns the forecast of a step; of several GPUs, the one that is nearest to its limit."""
    if step.forecast is None:
        return {}
    attributes: dict[str, Any] = {semconv.FORECAST_TIME_LEFT: step.forecast.time_left}
    for growth in sorted(step.forecast.growths, key=lambda growth: growth.at_end / growth.limit):
        attributes |= attributes_of(growth)
    return attributes
