"""What is shown as text: safe where it comes from elsewhere, numbers with units and as many digits as they deserve."""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TextIO

from otel_quant.schema.units import BY_UNIT, count_text, digits_text, moment_text, size_unit
from otel_quant.views.document import ONE, Cell, Column, Quantity, Row, Table

# Characters that move the cursor, change colours or reverse the text.
_UNSAFE: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)


def printable(text: str) -> str:
    """Returns a text whose control characters are replaced by visible escapes."""
    if text.isascii() and text.isprintable():
        return text
    return _UNSAFE.sub(lambda match: match.group().encode("unicode_escape").decode(), text)


def shortened(text: str, longest: int) -> str:
    """Returns a text, or its beginning and an ellipsis if it has more than so many characters."""
    return text if len(text) <= longest else text[: longest - 1] + "…"


def listed(value: object) -> str:
    """Returns a value as a text; the items of a list with commas between them."""
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def types_text(shares: Mapping[str, float]) -> str:
    """Returns the shares of some types, the largest first: ``int8 98.20 %, float32 1.80 %``."""
    return ", ".join(f"{name} {100 * share:.2f} %" for name, share in shares.items())


def precision_text(
    stored: Mapping[str, float], expected: Mapping[str, float], runtime: str, reasons: Sequence[str]
) -> str:
    """Returns what contractions are stored in, what a runtime is expected to run them in, and why."""
    why = f", because {'; '.join(reasons)}" if reasons else ""
    ran = f"expected to run in {types_text(expected)} by {runtime}"
    return f"stored in {types_text(stored)}, {ran}{why}"


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
_ONE: Final[Mapping[str, str]] = {"s": "s", "1": "%", "{sample}/s": "/s"}
"""The unit that fits the largest, of all but bytes."""

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
    if unit == "x" and value < _LARGEST:
        return f"x {value:.{2 if digits is None else digits}f}"
    if digits is None and unit in _EACH and value < _LARGEST:
        return _EACH[unit](value)
    shown_in = "%" if unit == "1" else unit
    plain = _plain_text(value, digits, _IN.get(shown_in, 1))
    return plain if unit[:1] in ("", "{") or value >= _LARGEST else f"{plain} {shown_in}"


def _plain_text(value: float, digits: int | None, scale: float = 1) -> str:
    """Returns a number without a unit: ``1,024``, ``7.52``, ``0.0213``."""
    if abs(value) >= _LARGEST or value != value:  # not a number
        return f"{value:,}"
    if scale != 1:  # a division would make a number of things a number with decimals
        value /= scale
    if digits is not None:
        return f"{value:,.{digits}f}"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.3g}" if 0 < abs(value) < 1 else digits_text(value)


def cell_text(cell: Cell, unit: str | None = None) -> str:
    """Returns a cell by itself; an empty text for what is not known."""
    if cell is None:
        return ""
    if isinstance(cell, str):
        return cell
    if isinstance(cell, Quantity):
        number = (
            ""
            if cell.value is None
            else number_text(cell.value, cell.unit or unit or "", cell.digits)
        )
        return f"{cell.before}{number}{cell.after}"
    if isinstance(cell, int | float):
        return number_text(cell, unit or "")
    return ", ".join(map(str, cell))


class Texts:
    """The cells of a table as texts, and the headings that go with them."""

    def __init__(self, table: Table, *, one_unit: bool = False) -> None:
        """Chooses the units; with ``one_unit`` every column of numbers has one."""
        self.columns: Sequence[Column[object]] = table.columns
        made = [_writer(table, at, one_unit) for at in range(len(self.columns))]
        self._writers = [write for _, write in made]
        units = [(each.heading, unit) for each, (unit, _) in zip(self.columns, made, strict=True)]
        # A column without a name has the name of its unit.
        self.headings = tuple(heading or unit for heading, unit in units)
        self.units = tuple(unit if heading else "" for heading, unit in units)

    @property
    def headings_with_units(self) -> list[str]:
        """Headings, each with its unit behind it."""
        pairs = zip(self.headings, self.units, strict=True)
        return [f"{name} {unit}".rstrip() for name, unit in pairs]

    def of(self, cells: Sequence[Cell]) -> tuple[str, ...]:
        """Returns the texts of a row, or of its first cells; empty ones for what is not known."""
        return tuple(
            "" if cell is None else write(cell)
            for cell, write in zip(cells, self._writers, strict=False)
        )

    def whole(self, cells: Sequence[Cell]) -> tuple[str, ...]:
        """Returns the texts of a row, with what stands for cells that are not known or not there."""
        known = (*cells, *(None for _ in self.columns[len(cells) :]))
        return tuple(
            column.absent if cell is None else write(cell)
            for cell, write, column in zip(known, self._writers, self.columns, strict=True)
        )


def row_of(row: Row | Sequence[Cell]) -> Row:
    """Returns a row with what belongs to it."""
    return row if isinstance(row, Row) else Row(row)


def cells_of(row: Row | Sequence[Cell]) -> Sequence[Cell]:
    """Returns the cells of a row."""
    return row.cells if isinstance(row, Row) else row


def _writer(table: Table, at: int, one_unit: bool) -> tuple[str, Callable[[Cell], str]]:
    """Returns the unit in the heading of a column, and what writes its cells."""
    column: Column[object] = table.columns[at]
    unit, shown_in, digits = column.unit, column.shown_in, column.digits
    if unit is None:
        longest = column.longest
        return "", lambda cell: shortened(cell_text(cell), longest) if longest else cell_text(cell)
    if shown_in is None and one_unit and unit in ("By", *_ONE):
        shown_in = ONE
    if shown_in is None:
        return "", _numbers(column, lambda value: number_text(value, unit, digits))
    if shown_in == ONE and unit == "By":
        rows = (cells_of(row) for row in table.rows)
        cells = (plain(row[at]) for row in rows if len(row) > at)
        largest = max((abs(each) for each in cells if isinstance(each, int | float)), default=0.0)
        shown_in, scale, of_unit = size_unit(largest)
        digits = of_unit if digits is None else digits
    else:
        shown_in = shown_in or _ONE.get(unit, "")
        scale = _IN.get(shown_in, 1)
        digits = _DIGITS.get(shown_in) if digits is None else digits
    return shown_in, _numbers(column, lambda value: _plain_text(value, digits, scale))


def _numbers(column: Column[object], text: Callable[[float], str]) -> Callable[[Cell], str]:
    """Returns what writes the cells of a column of numbers, of which one may have a unit of its own."""
    sign, unit = "+" if column.is_signed else "", column.unit

    def write(cell: Cell) -> str:
        if isinstance(cell, int | float):
            return f"{sign if cell > 0 else ''}{text(cell)}"
        if not isinstance(cell, Quantity):
            return cell_text(cell)
        if cell.value is not None and (cell.unit, cell.digits) == (None, None):
            return f"{cell.before}{text(cell.value)}{cell.after}"
        return cell_text(cell, unit)

    return write


def plain(cell: Cell) -> Any:
    """Returns a cell without words."""
    return cell.value if isinstance(cell, Quantity) else cell
