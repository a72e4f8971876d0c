"""The writer for browsers: a page in one file, or a piece of HTML for a notebook."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from html import escape
from itertools import chain, count
from typing import Any, Final

from otel_quant.version import VERSION
from otel_quant.views.cells import Texts, cell_text, row_of, value_of, values_like
from otel_quant.views.document import (
    Cell,
    Charts,
    Document,
    Facts,
    Lines,
    Part,
    Quantity,
    Row,
    Section,
    Table,
)
from otel_quant.views.report.page import page
from otel_quant.views.report.tables import Column, FactList, PageTable
from otel_quant.views.report.tables import Row as PageRow
from otel_quant.views.text import printable

# No colours: the page's own are readable on its background, light or dark.
_RULE: Final = "border-bottom: 1px solid"
_LEFT: Final = "text-align: left; white-space: pre-wrap"
_RIGHT: Final = "text-align: right; font-variant-numeric: tabular-nums"


def page_text(document: Document) -> str:
    """Returns a document as a page that needs no network."""
    numbers = count()
    charts: list[Charts] = []
    parts = [_for_page(part, numbers, charts) for part in document.parts]
    return page(
        "document.html.j2",
        version=VERSION,
        title=document.title,
        over=document.over,
        is_bad=document.is_bad,
        parts=parts,
        data=_data(charts),
    )


def parts_for_page(parts: Iterable[Part]) -> list[tuple[str, Any]]:
    """Returns parts without charts as the template of another page shows them."""
    numbers = count()
    return [_for_page(part, numbers, []) for part in parts]


def _for_page(part: Part, numbers: Iterator[int], charts: list[Charts]) -> tuple[str, Any]:
    """Returns the kind of a part, and what the template of that kind shows."""
    match part:
        case Table():
            return "table", page_table(part, f"table-{next(numbers)}")
        case Facts():
            rows = tuple((name, cell_text(value)) for name, value in part.rows)
            return "facts", FactList(part.title or part.caption, rows)
        case Lines():
            return "lines", part
        case Charts():
            from otel_quant.views.report.outline import outline_of

            charts.append(part)
            shown = [(each, outline_of(each, part.bands, part.until)) for each in part.charts]
            return "charts", shown
        case Section():
            inner = [_for_page(each, numbers, charts) for each in part.parts]
            return "section", {
                "id": f"section-{next(numbers)}",
                "title": part.title,
                "parts": inner,
            }


def _data(charts: Sequence[Charts]) -> dict[str, object] | None:
    """Returns what the page's script draws."""
    if not charts:
        return None
    from otel_quant.views.report.charts import band_data, chart_data

    return {
        "until": charts[0].until,
        "bands": band_data(charts[0].bands),
        "charts": [chart_data(chart) for part in charts for chart in part.charts],
    }


def page_table(table: Table, name: str = "") -> PageTable:
    """Returns a table as the template shows it: with units in the headings, so that it sorts."""
    texts = Texts(table, one_unit=table.is_sortable)
    heat = [_heat(table, at) if column.is_heat else None for at, column in enumerate(table.columns)]
    rows = []
    for each in table.rows:
        row = row_of(each)
        cells = texts.of(row.cells)
        said = row.said if len(cells) < len(texts.columns) else ""
        if row.said and not said:
            cells = (f"{cells[0]} ({row.said})", *cells[1:])
        more = tuple(_marks(cell, shade) for cell, shade in zip(row.cells, heat, strict=False))
        rows.append(PageRow(cells, row.depth, row.state, said, more))
    columns = tuple(
        Column(_heading(heading), unit, column.is_text or column.unit == "time", column.title)
        for heading, unit, column in zip(texts.headings, texts.units, texts.columns, strict=True)
    )
    caption = table.caption or table.title
    return PageTable(table.id or name, caption, columns, tuple(rows), table.note, table.is_sortable)


def _heat(table: Table, at: int) -> Callable[[float], int]:
    """Returns what chooses a class of the style sheet for a value, ``heat-0`` for the least."""
    values = values_like(table, at)
    least, most = min(values, default=0.0), max(values, default=0.0)

    def shade(value: float) -> int:
        share = (value - least) / (most - least) if most > least else 0.0
        return min(_SHADES - 1, int(share * _SHADES))

    return shade


def _marks(cell: Cell, shade: Callable[[float], int] | None) -> tuple[str, str]:
    """Returns the class of a cell and its title."""
    value = value_of(cell)
    name = "" if shade is None or value is None else f"heat-{shade(value)}"
    return name, cell.title if isinstance(cell, Quantity) else ""


def _heading(text: str) -> str:
    """Returns a heading as a page has it: ``GPU peak`` for ``GPU PEAK``."""
    if not text.isupper():
        return text
    words = (word if word in _ACRONYMS else word.lower() for word in text.split())
    shown = " ".join(words).replace("macs", "MACs")
    return shown[:1].upper() + shown[1:]


_SHADES: Final = 5
_ACRONYMS: Final = frozenset({"CPU", "GPU"})


def fragment(document: Document) -> str:
    """Returns a document as HTML without scripts, colours or links; texts are escaped."""
    return f"<div>{''.join(chain.from_iterable(map(_fragment, document.parts)))}</div>"


def _fragment(part: Part) -> Iterable[str]:
    match part:
        case Table():
            yield _table(part)
        case Facts():
            title = f"<caption>{_escaped(part.title)}</caption>" if part.title else ""
            rows = "".join(
                f'<tr><th scope="row" style="{_LEFT}">{_escaped(name)}</th>'
                f'<td style="{_LEFT}">{_escaped(cell_text(value))}</td></tr>'
                for name, value in part.rows
            )
            yield f"<table>{title}<tbody>{rows}</tbody></table>"
        case Lines():
            yield f"<p>{'<br>'.join(map(_escaped, part.lines))}</p>"
        case Charts():
            lines = (_escaped(f"{each.title}: {each.summary}") for each in part.charts)
            yield f"<p>{'<br>'.join(lines)}</p>"
        case Section():
            yield f"<p><strong>{_escaped(part.title)}</strong></p>"
            yield from chain.from_iterable(map(_fragment, part.parts))


def _table(table: Table) -> str:
    texts = Texts(table)
    said = any(isinstance(row, Row) and row.said for row in table.rows)
    styles = [_LEFT if column.is_text else _RIGHT for column in texts.columns]
    headings = zip(texts.headings_with_units, styles, strict=True)
    head = "".join(
        f'<th scope="col" style="{style}; {_RULE}">{_escaped(name)}</th>'
        for name, style in headings
    )
    rows = []
    for each in table.rows:
        row = row_of(each)
        cells = list(texts.whole(row.cells))
        cells[0] = "  " * row.depth + cells[0]
        pairs = [*zip(cells, styles, strict=True), *([(row.said, _LEFT)] if said else [])]
        inner = "".join(f'<td style="{style}">{_escaped(text)}</td>' for text, style in pairs)
        rows.append(f"<tr>{inner}</tr>")
    more = f'<th style="{_LEFT}; {_RULE}"></th>' if said else ""
    note = f"<p>{_escaped(table.note)}</p>" if table.note else ""
    body = f"<thead><tr>{head}{more}</tr></thead><tbody>{''.join(rows)}</tbody>"
    return f"<table>{body}</table>{note}"


def _escaped(text: str) -> str:
    return escape(printable(text))
