"""The writer for browsers: a page in one file, or a piece of HTML for a notebook.

A page has style, scripts and data in it, and no way to the network: its policy names the digests of its
own scripts and forbids everything else. Every value that a template shows is escaped.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import re
from collections.abc import Sequence
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from otel_quant.base.files import replace_whole
from otel_quant.schema.units import share_text, size
from otel_quant.version import VERSION
from otel_quant.views.document import Cell, Charts, Column, Document, Row, Table, UnitCell
from otel_quant.views.text import Texts, cell_text, plain, printable, unbroken

if TYPE_CHECKING:
    from jinja2 import Environment

    from otel_quant.views.charts import Chart, Outline

_HERE: Final = Path(__file__).parent
_STYLES: Final = ("uplot/uPlot.min.css", "style.css")
_SCRIPTS: Final = ("uplot/uPlot.iife.min.js", "plots.js", "flames.js", "sort.js")
_LICENSE: Final = "uplot/LICENSE"


def page_text(document: Document) -> str:
    """Returns a document as a page."""
    style = "".join(map(_asset, _STYLES))
    scripts = [_asset(name) for name in _SCRIPTS]
    allowed = f"style-src {_digest(style)}; script-src {' '.join(map(_digest, scripts))}"
    return _rendered(
        "document.html.j2",
        policy=f"default-src 'none'; {allowed}; base-uri 'none'; form-action 'none'",
        style=style, scripts=scripts, license=_asset(_LICENSE), version=VERSION,
        document=document, page=_Page(),
    )  # fmt: skip


def fragment(document: Document) -> str:
    """Returns a document as HTML without scripts, colours or links, for a notebook."""
    return _rendered("fragment.html.j2", document=document, whole=_whole)


def write_page(target: Path, html: str) -> int:
    """Writes a page and returns its bytes; a reader never sees an unfinished one."""
    data = html.encode("utf-8", "backslashreplace")
    replace_whole(target, data)
    return len(data)


def _rendered(template: str, **values: object) -> str:
    return _environment().get_template(template).render(**values)


@functools.cache
def _environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # takes 50 ms

    made = Environment(
        loader=FileSystemLoader(_HERE / "templates"), autoescape=True,
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
        # No terminal, yet marks that turn the direction of a text deceive here too.
        finalize=lambda value: _on_page(value) if type(value) is str else value,
    )  # fmt: skip
    kind = {"kind": lambda part: type(part).__name__}
    made.filters |= kind | {it.__name__: it for it in (cell_text, _of_limit, plain, size, _parts)}
    return made


def _on_page(text: str) -> str:
    """Returns a text without marks that deceive, in which no line ends within an arrow or before a unit."""
    return unbroken(printable(text)).replace("-> ", "-\u2060>\u00a0")


def _parts(name: str) -> list[str]:
    """Returns the parts of a name behind each of which a line may end: at points and underscores."""
    return re.split(r"(?<=\w[._])(?=[^\W\d])", name)


@functools.cache
def _asset(name: str) -> str:
    text = (_HERE / "assets" / name).read_text(encoding="utf-8")
    return re.sub(r"^ +", "", text, flags=re.MULTILINE)  # a tenth of a page


def _of_limit(value: float, limit: float | None) -> str:
    """Returns how much of its limit a size is: ``94.0 % of 8.00 GB``."""
    return f"{share_text(value / limit)} of {size(limit)}" if limit else "limit not known"


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


class _Page:
    """What the templates of a page ask for, in the order of its parts."""

    def __init__(self) -> None:
        self._charts: list[Charts] = []
        self._numbers = count()

    def name(self, given: str, kind: str) -> str:
        """Returns the identifier of a part."""
        return given or f"{kind}-{next(self._numbers)}"

    def outlines(self, part: Charts) -> list[tuple[Chart, Outline]]:
        """Returns charts with what is shown of them without the page's script."""
        from otel_quant.views.charts import outline_of

        self._charts.append(part)
        return [(each, outline_of(each, part.bands, part.until)) for each in part.charts]

    def data(self) -> dict[str, object] | None:
        """Returns what the page's script draws: the charts that were shown."""
        if not self._charts:
            return None
        from otel_quant.views.charts import band_data, chart_data

        first = self._charts[0]
        return {
            "until": first.until,
            "bands": band_data(first.bands),
            "charts": [chart_data(chart) for part in self._charts for chart in part.charts],
        }

    @staticmethod
    def table(table: Table) -> dict[str, Any]:
        """Returns the columns and rows of a table; one that can be sorted has units in its headings."""
        texts = Texts(table, one_unit=table.is_sortable)
        is_text = [each.is_text or each.unit == "time" for each in texts.columns]
        headings = zip(texts.headings, texts.units, texts.columns, strict=True)
        given = list(table.full_rows)
        bars = [
            [
                None if row.is_rest else _bar(*each)
                for each in zip(row.cells, texts.columns, strict=False)
            ]
            for row in given
        ]
        known = (length for length in chain.from_iterable(bars) if length is not None)
        longest = max(known, default=0.0)
        rows = []
        for row, lengths in zip(given, bars, strict=True):
            cells = list(texts.of(row.cells))
            missing = len(texts.columns) - len(cells)
            if row.remark and not missing:
                cells[0] = f"{cells[0]} ({row.remark})"
            titles = [cell.title if isinstance(cell, UnitCell) else "" for cell in row.cells]
            # In percent of the longest
            shares = [
                100 * bar / longest if longest and bar is not None else None for bar in lengths
            ]
            rows.append((row, [*zip(cells, is_text, titles, shares, strict=False)], missing))
        return {"columns": list(zip(headings, is_text, strict=True)), "rows": rows}


def _bar(cell: Cell, column: Column[Any]) -> float | None:
    """Returns how long the bar of a cell is, in the column's unit; None without one."""
    return cell if column.is_bar and isinstance(cell, int | float) else None


def _whole(table: Table) -> tuple[Texts, list[tuple[Row, Sequence[str]]]]:
    """Returns the texts of a table, each row with what stands for cells that are not known."""
    texts = Texts(table)
    return texts, [(row, texts.whole(row.cells)) for row in table.full_rows]
