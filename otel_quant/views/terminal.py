"""The writer for a terminal: tables as wide as it, facts and lines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import chain
from typing import Final

from otel_quant.views.cells import Texts, as_text, cell_text, cells_of
from otel_quant.views.document import (
    Cell,
    Document,
    Facts,
    Lines,
    Part,
    Row,
    Section,
    Table,
)
from otel_quant.views.text import printable, width_of

_ALIKE: Final = 1 << 14
"""Different rows that are kept; the others are laid out again wherever they recur. A model may have
many nodes, most of them alike but for their names."""


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
    match as_text(part):
        case Table() as part:
            if part.title:
                yield f"{printable(part.title)}\n\n"
            yield from _table(part, width)
            yield from (f"{printable(line)}\n" for line in part.note.split("\n") if line)
        case Facts() as part:
            names = max((len(name) for name, _ in part.rows), default=0)
            lines = [part.title] if part.title else []
            lines += [f"{name:{names}}  {cell_text(value)}".rstrip() for name, value in part.rows]
            yield from (f"{printable(line)}\n" for line in lines)
        case Lines() as part:
            mark = "- " if part.is_list else ""
            yield from (f"{mark}{printable(line)}\n" for line in part.lines)
        case Section() as part:
            yield f"{printable(part.title)}\n"
            own = iter(part.parts)
            for first in own:
                if not isinstance(first, Lines):  # lines belong to their heading
                    yield "\n"
                yield from _parted(chain((first,), own), width)


def _table(table: Table, width: int | None) -> Iterator[str]:
    """Lays out a table, a line at a time."""
    texts = Texts(table)
    head = [texts.headings]
    if any(texts.units):
        head.append(texts.units)
    widths = [max(map(width_of, map(printable, column))) for column in zip(*head, strict=True)]
    first, others, said = widths[0], widths[1:], False
    seen: dict[tuple[Cell, ...], tuple[str, ...]] = {}
    for row in table.rows:
        if isinstance(row, Row):
            said = said or bool(row.said)
            cells, indent = row.cells, 2 * row.depth
        else:
            cells, indent = row, 0
        first = max(first, indent + width_of(printable(texts.of(cells[:1])[0])))
        alike = tuple(cells[1:])
        if alike not in seen:
            shown = tuple(map(printable, texts.whole((None, *alike))[1:]))
            others = list(map(max, others, map(width_of, shown)))
            if len(seen) < _ALIKE:
                seen[alike] = shown
    columns = list(texts.columns)
    kept = [True] * len(columns)
    left_out = list(_left_out(table, [first, *others], width))
    for at in left_out:
        kept[at] = False
    # The last column of texts is on the left, and has no rule where it has no heading: remarks.
    last = max(at for at in range(len(columns)) if kept[at])
    is_left = [column.is_text for column in columns]
    places = [at for at in range(1, len(columns)) if kept[at]]

    @lru_cache(_ALIKE)
    def laid_out(shown: tuple[str, ...]) -> str:
        return "".join(
            f"  {_pad(printable(shown[at - 1]), others[at - 1], is_left[at])}" for at in places
        )

    @lru_cache(_ALIKE)
    def of_cells(alike: tuple[Cell, ...]) -> str:
        return laid_out(seen.get(alike) or texts.whole((None, *alike))[1:])

    def line(name: str, rest: str, remark: str = "") -> str:
        text = f"{_pad(printable(name), first, is_left[0])}{rest}"
        if remark:
            text = f"{text}  {printable(remark)}"
        return f"{text.rstrip()}\n"

    for names in head:
        yield line(names[0], laid_out(tuple(names[1:])))
    ruled = [(first, *others)[at] for at in range(len(columns)) if kept[at]]
    if not columns[last].heading and not texts.headings[last]:
        ruled.pop()
    yield "  ".join("-" * each for each in ruled) + "\n"
    for row in table.rows:
        cells = cells_of(row)
        name = texts.of(cells[:1])[0]
        if isinstance(row, Row):
            yield line("  " * row.depth + name, of_cells(tuple(cells[1:])), row.said)
        else:
            yield line(name, of_cells(tuple(cells[1:])))
    if left_out:
        gone = ", ".join(columns[at].heading for at in left_out)
        yield f"({printable(gone)}: in a wider terminal)\n"


def _left_out(table: Table, widths: Sequence[int], width: int | None) -> Iterator[int]:
    """Yields the places of as many spare columns as a width needs to be left out."""
    if width is None:
        return
    taken = sum(widths) + 2 * (len(widths) - 1)
    spare = [at for at, column in enumerate(table.columns) if column.spare]
    for at in sorted(spare, key=lambda place: table.columns[place].spare):
        if taken <= width:
            return
        taken -= widths[at] + 2
        yield at


def _pad(text: str, width: int, is_left: bool) -> str:
    blanks = " " * (width - width_of(text))
    return text + blanks if is_left else blanks + text
