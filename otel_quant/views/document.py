"""One document for every command, which five writers print.

A command makes a :class:`Document` of parts and formats nothing. The parts are for people:

- :class:`Table`: raw values (bytes, seconds, shares from 0 to 1) in rows, each :class:`Column` with the
  unit of its values and how they are shown;
- :class:`Facts`: names with values; :class:`Lines`: sentences, or the points of a list;
- :class:`Bars`: amounts beside each other; a terminal draws them too, Markdown does not;
- :class:`Charts`, :class:`Meters`, :class:`Flame`: what a page alone draws;
- :class:`Section`: parts under a heading.

Programs get ``Document.sheet`` as CSV (one table) and ``Document.data`` as JSON (what the command
documents). The writers:

- ``writers.written``, which chooses one by the name of a format: a terminal of a width, Markdown, CSV, JSON
- ``html.page_text``, a page, and ``html.fragment``, for notebooks

A table of objects is made from columns that compute their cells::

    COLUMNS = (
        Column("model", value=lambda each: each.path),
        Column("median", "s", lambda each: each.median, key="median_seconds", shown_in="ms"),
        Column("peak", "By", lambda each: each.peak, key="peak_bytes", spare=1),
    )
    Table.of(COLUMNS, models, caption="Latency")  # for people, and as CSV by the keys
    records(COLUMNS, models)  # the same in JSON

A cell is a text, a number in its column's unit, or a :class:`UnitCell` where it has a unit or words of
its own: ``UnitCell(855e6, "By", before="≥ ")``. What is not known is None, never 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeAlias, TypeVar

if TYPE_CHECKING:
    from otel_quant.recordings.model import State
    from otel_quant.views.charts import Band, Chart

ONE: Final = ""  # `Column.shown_in`: one unit for the column, that fits its largest value
Item_contra = TypeVar("Item_contra", contravariant=True)
Item = TypeVar("Item")


class UnitCell(NamedTuple):
    """A number with a unit of its own, or with words around it."""

    value: float | None  # In the unit; None where only the words are known
    unit: str | None = None  # As of a column; None for the unit of its column
    before: str = ""  # What stands before the number: ``≥ ``
    after: str = ""  # What stands behind it: `` ± 2 %``
    digits: int | None = None  # As of a column
    title: str = ""  # What a page shows when it is pointed at


Cell: TypeAlias = str | float | tuple[str | float, ...] | UnitCell | None
"""Raw: bytes, seconds, a share from 0 to 1, a number of things, a text or texts. None: not known."""


def _unknown(item: object) -> None:
    """Computes the cells of a column whose table has its cells in rows."""


class Column(NamedTuple, Generic[Item_contra]):
    """One column of a table."""

    heading: str  # Its name; empty for one of remarks, or of shares beside their figure
    # UCUM unit of its numbers: ``By``, ``s``, ``1`` for shares, ``{sample}/s``; ``x`` for ratios,
    # ``time`` for moments in seconds since the epoch, empty for numbers of things; None: texts
    unit: str | None = None
    value: Callable[[Item_contra], Cell] = _unknown  # Computes a cell, for :meth:`Table.of`
    key: str = ""  # Its name in CSV and JSON; the heading if empty
    # Unit of all its cells, which stands in the heading: ``MB``, ``ms``, ``%``; :data:`ONE`: that
    # which fits the largest; None: each cell has its own (but on a page that can be sorted)
    shown_in: str | None = None
    digits: int | None = None  # Digits after the point; None: as many as the number deserves
    is_signed: bool = False  # Whether a positive number has a plus
    absent: str = ""  # What stands in a terminal and in Markdown for what is not known
    longest: int = 0  # Characters of a text that are shown; 0: all
    spare: int = 0  # A narrow terminal leaves out those with 1 first, then 2, ..; 0: never
    is_bar: bool = False  # Whether a page draws a bar in its cells, of one scale for the table
    title: str = ""  # What it means, where the heading does not explain it

    @property
    def is_text(self) -> bool:
        """Whether its cells are texts."""
        return self.unit is None

    @property
    def name(self) -> str:
        """Its name for programs."""
        return self.key or self.heading


class Row(NamedTuple):
    """A row that has more to it than its cells."""

    cells: Sequence[Cell]  # As many as there are columns, or only the first, with ``remark``
    depth: int = 0  # How far its first cell is indented
    state: State = "ended"  # How the thing stands that it is about; a page marks what is not ended
    remark: str = ""  # A text behind the cells; on a page instead of those that are missing
    link: str = ""  # Where its first cell leads to on a page
    is_rest: bool = False  # Whether it stands for all that have no row: it has no bars


Rows: TypeAlias = Iterable[Row | Sequence[Cell]]
"""Gone through more than once; made anew each time where they are many."""


class Table(NamedTuple):
    """A table of raw values."""

    columns: Sequence[Column[Any]]  # The first one names the rows
    rows: Rows = ()
    id: str = ""  # Identifier in a page, and name in JSON
    title: str = ""  # A line above it, in every format
    caption: str = ""  # What it shows, for the headings of Markdown and pages; the title if empty
    note: str = ""  # What is left out, and what has to be known to read it
    is_sortable: bool = True  # Whether the cells of a column can be compared with each other

    @property
    def full_rows(self) -> Iterator[Row]:
        """Its rows, each with what belongs to it."""
        return (row if isinstance(row, Row) else Row(row) for row in self.rows)

    @classmethod
    def of(
        cls, columns: Sequence[Column[Item]], items: Iterable[Item], *,
        row: Callable[[Item, Sequence[Cell]], Row] | None = None, known_only: bool = False,
        **fields: Any,
    ) -> Table:  # fmt: skip
        """Returns a table with a row for each item; ``row`` adds depth, state and remarks.

        With ``known_only`` columns are left out of which no cell is known.
        """
        own = list(items)
        if known_only:
            columns = known(columns, own)
        cells = [tuple(column.value(item) for column in columns) for item in own]
        rows: Rows = cells if row is None else list(map(row, own, cells))
        return cls(columns, rows, **fields)

    def first(self, most: int, thing: str, things: str = "") -> Table:
        """Returns the table with so many rows at most, and a note of how many more there are."""
        rows = list(self.rows)
        left_out = len(rows) - most
        if left_out <= 0:
            return self
        note = f"{left_out:,} {thing if left_out == 1 else things or f'{thing}s'} left out."
        return self._replace(rows=rows[:most], note=f"{self.note} {note}".lstrip())


def known(columns: Iterable[Column[Item]], items: Sequence[Item]) -> list[Column[Item]]:
    """Returns the columns of which some cell is known."""
    return [each for each in columns if any(each.value(item) is not None for item in items)]


def records(columns: Iterable[Column[Item]], items: Iterable[Item]) -> Iterator[dict[str, Cell]]:
    """Yields what JSON has of each item: its cells by the names of the columns."""
    names = [(column.name, column.value) for column in columns]
    return ({name: value(item) for name, value in names} for item in items)


def of_attributes(*paths: str) -> Iterator[Column[Any]]:
    """Yields columns of attributes, each called as the last part of its path."""
    return (Column(path.rpartition(".")[2], "", attrgetter(path)) for path in paths)


class Facts(NamedTuple):
    """Names with their values."""

    rows: Sequence[tuple[str, Cell]]
    title: str = ""  # What they are about
    caption: str = ""  # The same, for the headings of Markdown and pages alone


class Lines(NamedTuple):
    """Lines of text."""

    lines: Sequence[str]
    is_list: bool = False  # Whether they are the points of a list
    is_bad: bool = False  # Whether a page marks them as what went wrong

    @classmethod
    def of(cls, lines: Iterable[str], most: int | None = None, **fields: bool) -> Iterator[Lines]:
        """Yields lines as a part, with ``most`` no more than so many; nothing where there are none."""
        if known := list(lines):
            yield cls(known, **fields).first(most or len(known))

    def first(self, most: int) -> Lines:
        """Returns so many lines at most, and a last one with how many more there are."""
        left_out = len(self.lines) - most
        more = [f"and {left_out:,} more"] if left_out > 0 else []
        return self._replace(lines=[*self.lines[:most], *more])


class Charts(NamedTuple):
    """Charts on one axis of time."""

    charts: Sequence[Chart]
    bands: Sequence[Band]  # The steps behind them
    until: float  # Where the axis ends, in seconds


class Meters(NamedTuple):
    """Figures beside their limits, each drawn as a bar on a page."""

    # Name, figure in bytes, and its limit; None if that is not known
    rows: Sequence[tuple[str, float, float | None]]


class Bars(NamedTuple):
    """Amounts, each drawn as a bar of one scale, with the limit that they are held against."""

    # Name, bytes, and how many they may be at most where that is more
    rows: Sequence[tuple[str, float | UnitCell, float]]
    limit: float | None = None  # In bytes

    @property
    def longest(self) -> float:
        """What the whole width stands for."""
        amounts = (each.value if isinstance(each, UnitCell) else each for _, each, _ in self.rows)
        known = (*filter(None, amounts), *(most for *_, most in self.rows), self.limit or 0, 1)
        return min(max(known), 1 << 64)  # a hostile file may have any


class Flame(NamedTuple):
    """What was seen at lines of code, below their callers; a page draws it, beside the tables of it."""

    title: str
    places: Sequence[tuple[str, str]]  # Text of a line, and its library
    # Row of the caller, -1 for none; place; microseconds and bytes of growth of the line itself. Of two sides these
    # are of the new one, then follow the base's, and which differ clearly with all below: 1 time, 2 growth
    rows: Sequence[Sequence[int]]
    sides: Sequence[str] = ()  # Names of the base and the new side, where it shows their difference


class Section(NamedTuple):
    """Parts under a heading."""

    title: str
    parts: Iterable[Part]
    id: str = ""  # Identifier in a page
    # How a page lays its parts out: ``answer``, first of all, or ``facts``, side by side without a
    # heading; else a class of the style sheet
    layout: str = ""


Part: TypeAlias = Table | Facts | Lines | Bars | Charts | Flame | Meters | Section


class Brief(NamedTuple):
    """An answer that a program can act on: some sentences of the document, and commands that run as they are."""

    verdict: str
    evidence: Sequence[str] = ()  # The most telling first
    is_certain: bool = True  # Whether the verdict is known rather than probable
    help: Sequence[str] = ()  # What would help
    next: Sequence[Sequence[str]] = ()  # Arguments of otel-quant


class Document(NamedTuple):
    """What a command prints."""

    parts: Iterable[Part]
    title: str = ""  # The page's heading; the other formats have it only within parts
    over: str = ""  # What stands above that heading
    is_bad: bool = False  # Whether something went wrong
    is_answer: bool = False  # Whether the title is a sentence: the other formats begin with it
    sheet: Callable[[], Table] | None = None  # What CSV has; None: nothing
    data: Callable[[], object] | None = None  # What JSON has; None: tables and facts of the parts
    brief: Callable[[], Brief] | None = None  # What a program acts on; None: its first sentences
