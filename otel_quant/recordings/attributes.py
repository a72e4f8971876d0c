"""Numbers among attributes."""

from __future__ import annotations

from collections.abc import Iterable

from otel_quant.recordings.model import Attributes


def number(attributes: Attributes, name: str) -> float | None:
    """Returns the number that attributes have under a name; None if it is absent or no number."""
    value = attributes.get(name)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def numbers(sources: Iterable[Attributes], name: str) -> list[float]:
    """Returns the numbers that several have under a name, in their order."""
    found = (number(each, name) for each in sources)
    return [value for value in found if value is not None]
