"""Figures of runs and steps by the names that they have on spans."""

from __future__ import annotations

from collections.abc import Mapping

from otel_quant.schema import semconv
from otel_quant.schema.records import AttributeValue

GPU_LIMIT = semconv.GPU_MEMORY_LIMIT
CACHE_PEAK = "quant.cache.disk.peak"
MEMORY_END = "quant.memory.end"
READING_MEMORY = "quant.reading.memory"


def text(attributes: Mapping[str, AttributeValue], name: str) -> str | None:
    """Returns what attributes have under a name as a text; None if it is absent."""
    value = attributes.get(name)
    return None if value is None else value_text(value)


def value_text(value: object) -> str:
    """Returns a value as a text, the items of a list with commas between them."""
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
