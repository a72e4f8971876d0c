"""The writer for a terminal: tables as wide as it, facts and lines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import chain
from typing import Any, Final

from otel_quant.views.cells import Texts, cell_text, row_of
from otel_quant.views.document import Cell, Column, Document, Facts, Lines, Part, Section, Table
from otel_quant.views.text import printable, width_of

_REMARKS: Final = Column[Any]("")
"""The column behind the last one of a table."""

_READABLE: Final = 24
_SHORTEST: Final = 12
"""Characters to which texts are cut rather than leave out a column; a spare one goes before."""


def terminal_text(document: Document, width: int | None = None) -> str:
    """Returns a document for a terminal of that width; None: as wide as the tables are."""
    return "".join(terminal_lines(document, width))


def terminal_lines(document: Document, width: int | None = None) -> Iterator[str]:
    """Yields a document for a terminal piece by piece: it may have many rows."""
    return _parted(document.parts, width)


def _parted(parts: Iterable[Part], width: int | None) -> Iterator[str]:
    for number, part in enumerate(parts):
        if number:
            yield "\n"
        yield from _part(part, width)


def _part(part: Part, width: int | None) -> Iterator[str]:
    match part:
        case Table():
            if part.title:
                yield f"{printable(part.title)}\n\n"
            yield from _table(part, width)
            yield from (f"{printable(line)}\n" for line in part.note.split("\n") if line)
        case Facts():
            names = max((len(name) for name, _ in part.rows), default=0)
            lines = [part.title] if part.title else []
            lines += [f"{name:{names}}  {cell_text(value)}".rstrip() for name, value in part.rows]
            yield from (f"{printable(line)}\n" for line in lines)
        case Lines():
            mark = "- " if part.is_list else ""
            yield from (f"{mark}{printable(line)}\n" for line in part.lines)
        case Section():
            yield f"{printable(part.title)}\n"
            own = iter(part.parts)
            for first in own:
                if not isinstance(first, Lines):  # lines belong to their heading
                    yield "\n"
                yield from _parted(chain((first,), own), width)


def _table(table: Table, width: int | None) -> Iterator[str]:
    """Lays out a table, a line at a time."""
    texts = Texts(table)
    columns = (*texts.columns, _REMARKS)
    head = [(*map(printable, texts.headings), "")]
    if any(texts.units):
        head.append((*texts.units, ""))
    first, *others = (max(map(width_of, column)) for column in zip(*head, strict=True))
    # A model has many nodes, most of them alike but for their names: what is alike is kept once.
    shown: dict[tuple[Sequence[Cell], str], tuple[str, ...]] = {}
    rows: list[tuple[str, tuple[str, ...]]] = []
    for row in map(row_of, table.rows):
        alike = (tuple(row.cells[1:]), row.remark)
        if alike not in shown:
            known = (*texts.whole((None, *row.cells[1:]))[1:], row.remark)
            shown[alike] = rest = tuple(map(printable, known))
            others = list(map(max, others, map(width_of, rest)))
        name = "  " * row.depth + printable(texts.of(row.cells[:1])[0])
        first = max(first, width_of(name))
        rows.append((name, shown[alike]))
    widths = _fitting(columns, [first, *others], width)
    kept = [at for at, each in enumerate(widths) if each]

    @cache
    def behind(rest: tuple[str, ...]) -> str:
        cells = (_padded(rest[at - 1], widths[at], columns[at].is_text) for at in kept[1:])
        return "".join(f"  {cell}" for cell in cells)

    def line(name: str, rest: tuple[str, ...]) -> str:
        return f"{_padded(name, widths[0], columns[0].is_text)}{behind(rest)}".rstrip() + "\n"

    yield from (line(names[0], names[1:]) for names in head)
    # Remarks have no rule.
    ruled = kept if head[0][kept[-1]] else kept[:-1]
    yield "  ".join("-" * widths[at] for at in ruled) + "\n"
    yield from (line(*row) for row in rows)
    named = zip(texts.headings, widths, strict=False)
    if gone := ", ".join(name for name, each in named if name and not each):
        yield f"({printable(gone)}: in a wider terminal)\n"


def _fitting(columns: Sequence[Column[Any]], widths: list[int], width: int | None) -> list[int]:
    """Returns the widths that columns have in a terminal; 0 for those that are left out.

    Spare columns are left out first, then texts are cut, then the last columns are left out.
    """
    if width is None:
        return widths
    texts = {at for at, column in enumerate(columns) if column.is_text}
    kept = [at for at, each in enumerate(widths) if each or not at]

    def excess(longest: int) -> int:
        known = (min(widths[at], longest) if at in texts else widths[at] for at in kept)
        return sum(known) + 2 * (len(kept) - 1) - width

    for at in sorted(kept, key=lambda at: columns[at].spare):
        if columns[at].spare and excess(_READABLE) > 0:
            kept.remove(at)
    for at in kept[:0:-1]:
        if excess(_SHORTEST) > 0:
            kept.remove(at)
    longest = next(each for each in range(width, 0, -1) if each == 1 or excess(each) <= 0)
    return [
        0 if at not in kept else min(each, longest) if at in texts else each
        for at, each in enumerate(widths)
    ]


def _padded(text: str, width: int, is_left: bool) -> str:
    if width_of(text) > width:
        is_path = "/" in text and " " not in text  # its end tells it from others
        text = f"…{text[1 - width :]}" if is_path else f"{text[: width - 1]}…"
    while (blanks := width - width_of(text)) < 0:  # of wide letters
        text = f"{text[:-2]}…"
    return text + " " * blanks if is_left else " " * blanks + text
