"""What is shown as text: safe where it comes from elsewhere, numbers with units and as many digits as they deserve."""

from __future__ import annotations

import os
import re
import sys
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest
from math import isnan
from typing import Any, Final, TextIO

from otel_quant.schema.units import (
    BY_UNIT,
    count_text,
    digits_text,
    moment_text,
    size_unit,
    types_text,
)
from otel_quant.views.document import Cell, Column, Table, UnitCell

# Characters that move the cursor, change colours or reverse the text.
_UNSAFE: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)


def printable(text: str) -> str:
    """Returns a text whose control characters are replaced by visible escapes."""
    return _UNSAFE.sub(lambda match: match.group().encode("unicode_escape").decode(), text)


# A line of code in a text: the folder, and the file with the number of the line.
_PLACE: Final = re.compile(r"([^\s()]*/)?([^\s()/]+(?:\.\w{1,4}|>):\d+)")


def shortened(text: str, longest: int) -> str:
    """Returns a text in so many columns at most, as long as its file and line, which are never cut, allow."""
    if width_of(text) <= longest:
        return text
    place = _PLACE.search(text)
    if place is None:
        if " " not in text and ("/" in text or "." in text):  # a name: its end tells it from others
            return f"…{_begun(text[::-1], longest - 1)[::-1]}"
        return f"{_begun(text, longest - 1)}…"
    first, file = (place[1] or "").partition("/")[0], place[2]
    before, after = text[: place.start()], text[place.end() :]
    folders = [folder for folder in (f"{first}/…/", "…/") if place[1]]
    for folder in (*folders, ""):
        if width_of(found := f"{before}{folder}{file}{after}") <= longest:
            return found
    left = longest - width_of(file) - width_of(after)
    if left < _LEAST_HEAD or not before.endswith(" ("):
        return f"…{file}{_begun(after, longest - width_of(file) - 1)}"
    return f"{_begun(before, left - 3)}… ({file}{after}"


_LEAST_HEAD: Final = 6  # Columns from which on the beginning of a function's name is shown


def least_width(text: str) -> int:
    """Returns in how many columns a text can be shown: all of a file and line, and an ellipsis before it."""
    place = _PLACE.search(text)
    return 1 if place is None else min(width_of(text), width_of(place[2]) + 1)


def _begun(text: str, longest: int) -> str:
    """Returns as much of the beginning of a text as fits into so many columns."""
    end = max(0, longest)
    while width_of(text[:end]) > max(0, longest):  # of wide letters
        end -= 1
    return text[:end]


NO_BREAK: Final = "\u00a0"  # A blank at which no line ends

_BEFORE_UNIT: Final = re.compile(
    r"(?<=\d) (?=(?:[KMGTP]?i?B|[kKMGT]|%|[mnu]?s|min|h|x|dB|GMAC/s)(?!\w))"
)


def unbroken(text: str) -> str:
    """Returns a text in which no line ends between a number and its unit."""
    return _BEFORE_UNIT.sub(NO_BREAK, text)


def listed(value: object) -> str:
    """Returns a value as a text; the items of a list with commas between them."""
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def phrase(template: str, value: Any, text: Callable[[Any], object] = str) -> str:
    """Returns a template with the text of a value; nothing for one that is not known, empty or 0."""
    return template.format(text(value)) if value else ""


def share_of(part: float | None, whole: float | None) -> float | None:
    """Returns what share of a figure another one is; None where that is not known."""
    return part / whole if part is not None and whole else None


NO_KERNEL: Final = "no kernel"
"""Stands for the type that contractions run in whose type a runtime has no kernel for."""


def precision_text(
    stored: Mapping[str, float], asked: Mapping[str, float], expected: Mapping[str, float],
    runtime: str, reasons: Sequence[str],
) -> str:  # fmt: skip
    """Returns what weights are stored in, contractions ask for, and a runtime is to run these in, and why."""
    why = f", because {'; '.join(reasons)}" if reasons else ""
    ran = f"expected to run in {types_text(expected)} by {runtime}"
    if NO_KERNEL in expected:
        ran = f"and {runtime} cannot load the model: it has no kernel for these"
    parts = phrase("weights stored in {}; ", stored, types_text), types_text(asked)
    return f"{parts[0]}contractions ask for {parts[1]}, {ran}{why}"


def width_of(text: str) -> int:
    """Returns a text's width in a terminal: 2 for each wide letter, 0 for each accent."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(letter) else 2 if unicodedata.east_asian_width(letter) in "WF" else 1
        for letter in text
    )  # fmt: skip


def terminal_width(file: TextIO | None) -> int | None:
    """Returns the columns of a terminal; None if it is none, or closed."""
    if file is None:
        return None
    try:
        return os.get_terminal_size(file.fileno()).columns or None
    except (OSError, ValueError):
        return None


# --- cells: numbers with units ------------------------------------------------------------

_IN: Final[Mapping[str, float]] = {
    "kB": 1e3, "MB": 1e6, "GB": 1e9, "MiB": 1 << 20, "ms": 1e-3, "us": 1e-6, "%": 0.01,
    "M": 1e6, "G": 1e9, "GMAC/s": 1e9,
}  # fmt: skip
"""What one of a unit in a heading is; of any other one it is 1."""

_DIGITS: Final[Mapping[str, int]] = {"s": 2, "%": 1, "/s": 2}
_ONE: Final[Mapping[str, str]] = {"By": "", "s": "s", "J": "J", "1": "%", "{sample}/s": "/s"}
"""The unit that fits the largest; of bytes their size decides."""

_LARGEST: Final = 1 << 64
"""A larger integer, as a hostile file may have it, does not fit into a float."""

_EACH: Final[Mapping[str, Callable[[float], str]]] = {
    **BY_UNIT,
    "time": lambda value: moment_text(value, "minutes"),
    "M": count_text,
}
"""What writes a number with its unit. ``M``: a large number of things, as ``25.6 M``."""


def number_text(value: float, unit: str = "", digits: int | None = None) -> str:
    """Returns a number with its own unit."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value < 0:
        return f"-{number_text(-value, unit, digits)}"
    if value >= _LARGEST:
        return f"{value:,}"
    if digits is None and unit in _EACH and not isnan(value):
        return _EACH[unit](value)
    if unit == "x":
        return f"x {value:.{2 if digits is None else digits}f}"
    shown_in = "%" if unit == "1" else unit
    plain = _plain_text(value, digits, _IN.get(shown_in, 1))
    return plain if unit[:1] in ("", "{") else f"{plain} {shown_in}"


def _plain_text(value: float, digits: int | None, scale: float = 1) -> str:
    """Returns a number without a unit: ``1,024``, ``7.52``, ``0.0213``."""
    if not abs(value) < _LARGEST:  # nor is what is no number
        return f"{value:,}"
    if scale != 1:  # a division would make a number of things a number with decimals
        value /= scale
    if digits is not None:
        return f"{value:,.{digits}f}"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.3g}" if 0 < abs(value) < 1 else digits_text(value)


def cell_text(cell: Cell, unit: str = "") -> str:
    """Returns a cell by itself; an empty text for what is not known."""
    if cell is None:
        return ""
    if isinstance(cell, str):
        return cell
    if isinstance(cell, int | float):
        return number_text(cell, unit)
    if not isinstance(cell, UnitCell):
        return ", ".join(map(str, cell))
    if cell.value is None:
        return f"{cell.before}{cell.after}"
    return f"{cell.before}{number_text(cell.value, cell.unit or unit, cell.digits)}{cell.after}"


class Texts:
    """The cells of a table as texts, and the headings that go with them."""

    def __init__(self, table: Table, *, one_unit: bool = False) -> None:
        """Chooses the units; with ``one_unit`` every column of numbers has one."""
        self.columns: Sequence[Column[object]] = table.columns
        made = [_writer(table, at, one_unit) for at in range(len(self.columns))]
        self._writers = [write for _, _, write in made]
        self.headings = tuple(heading for heading, _, _ in made)
        self.units = tuple(unit for _, unit, _ in made)

    @property
    def headings_with_units(self) -> list[str]:
        """Headings, each with its unit behind it."""
        pairs = zip(self.headings, self.units, strict=True)
        return [f"{name} {unit}".rstrip() for name, unit in pairs]

    def of(self, cells: Sequence[Cell]) -> tuple[str, ...]:
        """Returns the texts of a row, or of its first cells; empty ones for what is not known."""
        return tuple(write(cell) for cell, write in zip(cells, self._writers, strict=False))

    def whole(self, cells: Sequence[Cell]) -> tuple[str, ...]:
        """Returns the texts of a row, with what stands for cells that are not known or not there."""
        return tuple(
            column.absent if cell is None else write(cell)
            for cell, write, column in zip_longest(cells, self._writers, self.columns)
        )


def _writer(table: Table, at: int, one_unit: bool) -> tuple[str, str, Callable[[Cell], str]]:
    """Returns the heading of a column, the unit behind it, and what writes its cells."""
    column: Column[object] = table.columns[at]
    unit, digits = column.unit, column.digits
    if unit is None:
        longest = column.longest or sys.maxsize
        return column.heading, "", lambda cell: shortened(cell_text(cell), longest)
    if column.shown_in is None and not (one_unit and unit in _ONE):
        each = _numbers(column, unit, lambda value: number_text(value, unit, digits))
        return column.heading, "", each
    shown_in, scale, usual = _one_unit(unit, column.shown_in or _ONE.get(unit, ""), table, at)
    digits = usual if digits is None else digits
    write = _numbers(column, unit, lambda value: _plain_text(value, digits, scale))
    # A column without a name has the name of its unit.
    names = (column.heading, shown_in) if column.heading else (shown_in, "")
    return *names, write


def _one_unit(unit: str, shown_in: str, table: Table, at: int) -> tuple[str, float, int | None]:
    """Returns the unit of all numbers of a column: its name, what one of it is, digits."""
    if shown_in or unit != "By":
        return shown_in, _IN.get(shown_in, 1), _DIGITS.get(shown_in)
    cells = (plain(cell) for row in table.full_rows for cell in row.cells[at : at + 1])
    known = (abs(each) for each in cells if isinstance(each, int | float))
    return size_unit(max(known, default=0.0))


def _numbers(
    column: Column[object], unit: str, text: Callable[[float], str]
) -> Callable[[Cell], str]:
    """Returns what writes the cells of a column of numbers, of which one may have a unit of its own."""

    def write(cell: Cell) -> str:
        if isinstance(cell, int | float):
            sign = "+" if column.is_signed and cell > 0 else ""
            return f"{sign}{text(cell)}"
        if not isinstance(cell, UnitCell) or (cell.unit, cell.digits) != (None, None):
            return cell_text(cell, unit)
        value = "" if cell.value is None else text(cell.value)
        return f"{cell.before}{value}{cell.after}"

    return write


def plain(cell: Cell) -> Any:
    """Returns a cell without words."""
    return cell.value if isinstance(cell, UnitCell) else cell
