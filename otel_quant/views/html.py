"""What is printed of a run, as HTML for a notebook."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import Final

from otel_quant.views.document import Facts, Lines, Part, Table
from otel_quant.views.table import printable

# No colours: the page's own are readable on its background, light or dark.
_RULE: Final = "border-bottom: 1px solid"
_LEFT: Final = "text-align: left; white-space: pre-wrap"
_RIGHT: Final = "text-align: right; font-variant-numeric: tabular-nums"


def as_html(parts: Iterable[Part]) -> str:
    """Lays out parts as a piece of HTML without scripts, colours or links; texts are escaped."""
    return f"<div>{''.join(map(_html, parts))}</div>"


def _html(part: Part) -> str:
    match part:
        case Table():
            last = len(part.header) - 1
            head = "".join(
                f'<th scope="col" style="{_style(column, last)}; {_RULE}">{_escaped(name)}</th>'
                for column, name in enumerate(part.header_with_units)
            )
            rows = "".join(
                "<tr>"
                + "".join(
                    f'<td style="{_style(column, last)}">{_escaped(cell)}</td>'
                    for column, cell in enumerate(row)
                )
                + "</tr>"
                for row in part.rows
            )
            return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
        case Facts():
            title = f"<caption>{_escaped(part.title)}</caption>" if part.title else ""
            rows = "".join(
                f'<tr><th scope="row" style="{_LEFT}">{_escaped(name)}</th>'
                f'<td style="{_LEFT}">{_escaped(value)}</td></tr>'
                for name, value in part.rows
            )
            return f"<table>{title}<tbody>{rows}</tbody></table>"
        case Lines():
            return f"<p>{'<br>'.join(map(_escaped, part.lines))}</p>"


def _style(column: int, last: int) -> str:
    return _LEFT if column in (0, last) else _RIGHT


def _escaped(text: str) -> str:
    return escape(printable(text))
