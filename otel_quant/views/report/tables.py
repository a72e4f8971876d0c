"""Tables of a page, as data; the page can sort them by any column."""

from __future__ import annotations

from dataclasses import dataclass, field

from otel_quant.recordings.model import State


@dataclass(frozen=True, slots=True)
class Column:
    """A column."""

    heading: str  # Its name
    unit: str = ""  # Unit of its numbers; empty for none
    is_text: bool = False  # Whether its cells are texts; else they are numbers
    title: str = ""  # What it means, where the name does not say it


@dataclass(frozen=True, slots=True)
class Row:
    """A row."""

    cells: tuple[str, ...]  # As many as there are columns; empty for what is not known
    depth: int = 0  # How far its first cell is indented
    # How the thing stands that the row is about; it marks the row unless it is ``ended``
    state: State = "ended"
    # What stands in place of the cells behind the first, of which there are none then
    said: str = ""
    marks: tuple[tuple[str, str], ...] = ()  # Class and title of each cell


@dataclass(frozen=True, slots=True)
class PageTable:
    """A table."""

    id: str  # Identifier in the page
    caption: str  # What it shows
    columns: tuple[Column, ...]  # Its columns; the first one names the rows
    rows: tuple[Row, ...]  # Its rows
    note: str = ""  # What is left out, and what has to be known to read it
    is_sortable: bool = True  # Whether the cells of a column can be compared with each other


@dataclass(frozen=True, slots=True)
class FactList:
    """Names with their values."""

    title: str  # What they are about; may be empty
    rows: tuple[tuple[str, str], ...] = field(default_factory=tuple)  # Pairs of name and value
