"""Numbers of bytes as a person reads them."""

from __future__ import annotations

from typing import Final

_UNITS: Final = ("B", "kB", "MB", "GB", "TB", "PB")


def size(number: float) -> str:
    """Returns bytes with a decimal unit and three digits: ``7.53 GB``.

    Args:
        number: Bytes; may be negative.
    """
    position, left = 0, abs(float(number))
    while left >= 999.5 and position < len(_UNITS) - 1:
        left, position = left / 1000, position + 1
    digits = 0 if position == 0 or left >= 99.95 else 1 if left >= 9.995 else 2
    return f"{'-' if number < 0 else ''}{left:.{digits}f} {_UNITS[position]}"
