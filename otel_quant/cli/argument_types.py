"""Arguments and types of arguments that several commands have."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Final

_MOST_DIGITS: Final = 18
"""Of a whole number without a limit of its own: it fits into 64 bits."""


def whole_number(what: str, most: int | None = None) -> Callable[[str], int]:
    """Returns what reads a whole number from 1 on, for ``type`` of an argument."""

    def read(text: str) -> int:
        longest = len(str(most)) if most is not None else _MOST_DIGITS
        digits = text.isascii() and text.isdecimal() and len(text) <= longest
        if not (digits and int(text) and (most is None or int(text) <= most)):
            limit = f" to {most}" if most is not None else ""
            raise argparse.ArgumentTypeError(f"{text!r} is not a number of {what} from 1{limit}")
        return int(text)

    return read


def seconds(most: float) -> Callable[[str], float]:
    """Returns what reads a time above 0, for ``type`` of an argument."""

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


def add_format(parser: argparse.ArgumentParser, *formats: str) -> None:
    """Adds ``--format``, for what is printed."""
    parser.add_argument(
        "--format", choices=formats, default=formats[0], help="default: %(default)s"
    )
