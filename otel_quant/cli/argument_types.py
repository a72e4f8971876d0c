"""Types of arguments that several commands have."""

from __future__ import annotations

import argparse
from collections.abc import Callable


def whole_number(what: str, most: int) -> Callable[[str], int]:
    """Returns what reads a whole number from 1 on, for ``type`` of an argument.

    Args:
        what: What it is a number of, for the error.
        most: The largest.
    """

    def read(text: str) -> int:
        digits = text.isascii() and text.isdecimal() and len(text) <= len(str(most))
        if not (digits and 0 < int(text) <= most):
            raise argparse.ArgumentTypeError(f"{text!r} is not a number of {what} from 1 to {most}")
        return int(text)

    return read


def seconds(most: float) -> Callable[[str], float]:
    """Returns what reads a time above 0, for ``type`` of an argument.

    Args:
        most: The longest, in seconds.
    """

    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = 0.0
        if not 0 < value <= most:  # not a number fails as well
            raise argparse.ArgumentTypeError(
                f"{text!r} is not a number of seconds above 0, at most {most:.0f}"
            )
        return value

    return read
