"""The writer for browsers: a page in one file, or a piece of HTML for a notebook.

A page has style, scripts and data in it, and no way to the network: its policy names the digests of its
own scripts and forbids everything else. Every value that a template shows is escaped.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import os
from collections.abc import Callable, Iterable, Sequence
from html import escape
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from otel_quant.schema.units import size
from otel_quant.version import VERSION
from otel_quant.views.cells import (
    Texts,
    cell_text,
    meter_rows,
    of_limit,
    row_of,
    shares_text,
    value_of,
    values_like,
)
from otel_quant.views.document import (
    Cell,
    Charts,
    Document,
    Facts,
    Lines,
    Meters,
    Part,
    Quantity,
    Row,
    Section,
    Shares,
    Table,
)
from otel_quant.views.text import printable

if TYPE_CHECKING:
    from jinja2 import Environment

_HERE: Final = Path(__file__).parent
_STYLES: Final = ("uplot/uPlot.min.css", "style.css")
_SCRIPTS: Final = ("uplot/uPlot.iife.min.js", "plots.js", "sort.js")
_LICENSE: Final = "uplot/LICENSE"

# No colours: the page's own are readable on its background, light or dark.
_RULE: Final = "border-bottom: 1px solid"
_LEFT: Final = "text-align: left; white-space: pre-wrap"
_RIGHT: Final = "text-align: right; font-variant-numeric: tabular-nums"


def page_text(document: Document) -> str:
    """Returns a document as a page."""
    style = "".join(map(_asset, _STYLES))
    scripts = [_asset(name) for name in _SCRIPTS]
    policy = "; ".join(
        (
            "default-src 'none'",
            f"style-src {_digest(style)}",
            f"script-src {' '.join(map(_digest, scripts))}",
            "base-uri 'none'",
            "form-action 'none'",
        )
    )
    made = _Parts()
    parts = [made.shown(part) for part in document.parts]
    return (
        _environment()
        .get_template("document.html.j2")
        .render(
            policy=policy,
            style=style,
            scripts=scripts,
            license=_asset(_LICENSE),
            version=VERSION,
            document=document,
            parts=parts,
            data=_data(made.charts),
        )
    )


def write_page(target: Path, html: str) -> int:
    """Writes a page whole or not at all, and returns its bytes: a reader never sees a part of it."""
    beside = target.with_name(f".{target.name}.{os.getpid()}")
    data = html.encode("utf-8", "backslashreplace")
    try:
        beside.write_bytes(data)
        beside.replace(target)
    finally:
        beside.unlink(missing_ok=True)
    return len(data)


@functools.cache
def _environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # takes 50 ms

    return Environment(
        loader=FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        # No terminal, yet marks that turn the direction of a text deceive here too.
        finalize=lambda value: printable(value) if type(value) is str else value,
    )


@functools.cache
def _asset(name: str) -> str:
    return (_HERE / "assets" / name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


class _Parts:
    """Parts as the templates show them: the name of a macro, and what that takes."""

    def __init__(self) -> None:
        self.charts: list[Charts] = []
        self._numbers = count()

    def shown(self, part: Part, heading: str = "") -> tuple[str, Any]:
        """Returns a part; ``heading`` is that of the section around it."""
        match part:
            case Table():
                return "table", self._table(part, heading)
            case Facts():
                rows = [(name, cell_text(value)) for name, value in part.rows]
                return "facts", {"title": part.title or part.caption, "rows": rows}
            case Lines():
                return "lines", part
            case Charts():
                from otel_quant.views.charts import outline_of

                self.charts.append(part)
                return "charts", [
                    (each, outline_of(each, part.bands, part.until)) for each in part.charts
                ]
            case Meters():
                return "meters", [
                    {
                        "name": name,
                        "value": size(value),
                        "of_limit": of_limit(value, limit),
                        "share": value / limit if limit else None,
                    }
                    for name, value, limit in part.rows
                ]
            case Shares():
                begins = [sum(share for _, share in part.rows[:at]) for at in range(len(part.rows))]
                bars = [
                    (round(100 * begin, 2), round(100 * share, 2))
                    for begin, (_, share) in zip(begins, part.rows, strict=True)
                ]
                return "shares", {"text": shares_text(part), "bars": bars}
            case Section():
                inner = [self.shown(each, part.title) for each in part.parts]
                name = part.id or f"section-{next(self._numbers)}"
                return "section", {
                    "id": name, "title": part.title, "layout": part.layout, "parts": inner,
                }  # fmt: skip

    def _table(self, table: Table, heading: str) -> dict[str, Any]:
        """Returns a table with units in its headings, so that it can be sorted."""
        texts = Texts(table, one_unit=table.is_sortable)
        heat = [_heat(table, at) if each.is_heat else None for at, each in enumerate(table.columns)]
        columns = [
            {
                "heading": _heading(name),
                "unit": unit,
                "is_text": each.is_text or each.unit == "time",
                "title": each.title,
            }
            for name, unit, each in zip(texts.headings, texts.units, texts.columns, strict=True)
        ]
        rows = []
        for each in map(row_of, table.rows):
            cells = list(texts.of(each.cells))
            is_short = len(cells) < len(columns)
            if each.said and not is_short:
                cells[0] = f"{cells[0]} ({each.said})"
            marks = [_marks(cell, shade) for cell, shade in zip(each.cells, heat, strict=False)]
            kinds = [column["is_text"] for column in columns]
            rows.append(
                {
                    "cells": list(zip(cells, kinds, marks, strict=False)),
                    "depth": min(each.depth, 8),
                    "state": each.state,
                    "said": each.said if is_short else "",
                }
            )
        caption = table.caption or table.title
        return {
            "id": table.id or f"table-{next(self._numbers)}",
            "caption": caption,
            "is_hidden": caption == heading,
            "is_heat": any(heat),
            "columns": columns,
            "rows": rows,
            "note": table.note,
            "is_sortable": table.is_sortable,
        }


def _data(charts: Sequence[Charts]) -> dict[str, object] | None:
    """Returns what the page's script draws."""
    if not charts:
        return None
    from otel_quant.views.charts import band_data, chart_data

    return {
        "until": charts[0].until,
        "bands": band_data(charts[0].bands),
        "charts": [chart_data(chart) for part in charts for chart in part.charts],
    }


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
    shown = (
        " ".join(words)
        .replace("macs/b", "MACs/B")
        .replace("macs", "MACs")
        .replace("mem ", "memory ")
    )
    return shown[:1].upper() + shown[1:]


_SHADES: Final = 5
_ACRONYMS: Final = frozenset({"B", "CPU", "GPU", "IQR", "SQNR"})


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
        case Meters():
            yield from _fragment(Facts(meter_rows(part)))
        case Shares():
            yield f"<p>{_escaped(shares_text(part))}</p>"
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
