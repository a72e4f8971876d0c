"""Tables of a page, as data; the page can sort them by any column."""

from __future__ import annotations

from dataclasses import dataclass, field

from otel_quant.recordings.model import State


@dataclass(frozen=True, slots=True)
class Column:
    """A column.

    Attributes:
        heading: Its name.
        unit: Unit of its numbers; empty for none.
        is_text: Whether its cells are texts; else they are numbers.
        title: What it means, where the name does not say it.
    """

    heading: str
    unit: str = ""
    is_text: bool = False
    title: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """A row.

    Attributes:
        cells: As many as there are columns; empty for what is not known.
        depth: How far its first cell is indented.
        state: How the thing stands that the row is about; it marks the row unless it is ``ended``.
        said: What stands in place of the cells behind the first, of which there are none then.
    """

    cells: tuple[str, ...]
    depth: int = 0
    state: State = "ended"
    said: str = ""


@dataclass(frozen=True, slots=True)
class PageTable:
    """A table.

    Attributes:
        id: Identifier in the page.
        caption: What it shows.
        columns: Its columns; the first one names the rows.
        rows: Its rows.
        note: What is left out, and what has to be known to read it.
        is_sortable: Whether the cells of a column can be compared with each other.
    """

    id: str
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    note: str = ""
    is_sortable: bool = True


@dataclass(frozen=True, slots=True)
class FactList:
    """Names with their values.

    Attributes:
        title: What they are about; may be empty.
        rows: Pairs of name and value.
    """

    title: str
    rows: tuple[tuple[str, str], ...] = field(default_factory=tuple)
