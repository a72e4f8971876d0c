"""What is printed of a run, as parts that each format lays out in its own way."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Final, TypeAlias

from otel_quant.views.former_table import markdown_lines, markdown_text, table
from otel_quant.views.text import printable


@dataclass(frozen=True, slots=True)
class Table:
    """A table; its first columns and its last one are texts, the others numbers."""

    header: tuple[str, ...]  # Names of the columns
    units: tuple[str, ...]  # Their units; empty for a column without one
    rows: tuple[tuple[str, ...], ...]  # Cells, as many in each row as in the header
    left: int = 1  # How many first columns are texts
    # Columns that a narrow terminal does without, those that are left out first before others
    spare: tuple[str, ...] = ()

    def without(self, name: str) -> Table:
        """Returns the table without a column."""
        at = self.header.index(name)
        header, units, *rows = (
            row[:at] + row[at + 1 :] for row in (self.header, self.units, *self.rows)
        )
        left = self.left - (at < self.left)
        return replace(self, header=header, units=units, rows=tuple(rows), left=left)

    @property
    def header_with_units(self) -> list[str]:
        """Names of the columns, each with its unit behind it."""
        pairs = zip(self.header, self.units, strict=True)
        return [f"{name} {unit}".rstrip() for name, unit in pairs]


@dataclass(frozen=True, slots=True)
class Facts:
    """Names with their values."""

    rows: tuple[tuple[str, str], ...]  # Pairs of name and value
    title: str = ""  # What they are about; may be empty


@dataclass(frozen=True, slots=True)
class Lines:
    """Lines of text."""

    lines: tuple[str, ...]


Part: TypeAlias = Table | Facts | Lines


def as_text(parts: Iterable[Part], width: int | None = None) -> str:
    """Lays out parts for a terminal, with an empty line between two."""
    return "\n".join(_text(part, width) for part in parts)


def _fitting(part: Table, width: int) -> str:
    """Returns a table as text, without as many of its spare columns as a width needs."""
    text = _text(part, None)
    rule = next(line for line in text.splitlines() if line.startswith("--"))
    widths = dict(zip(part.header, map(len, rule.split("  ")), strict=False))
    left_out = []
    taken = len(rule)
    for name in part.spare:
        if taken <= width:
            break
        if name in widths:
            left_out.append(name)
            taken -= widths[name] + 2
    if not left_out:
        return text
    for name in left_out:
        part = part.without(name)
    return f"{_text(part, None)}({', '.join(left_out)}: in a wider terminal)\n"


def _text(part: Part, width: int | None) -> str:
    match part:
        case Table() if width is not None:
            return _fitting(part, width)
        case Table():
            units = part.units if any(part.units) else ()
            return table(part.header, part.rows, units=units, left=part.left)
        case Facts():
            width = max((len(name) for name, _ in part.rows), default=0)
            lines = [part.title] if part.title else []
            lines += [f"{name:{width}}  {value}" for name, value in part.rows]
        case Lines():
            lines = list(part.lines)
    return "".join(f"{printable(line)}\n" for line in lines)


def as_markdown(parts: Iterable[Part]) -> str:
    """Lays out parts as GitHub's Markdown, with an empty line between two."""
    return "\n".join(map(_markdown, parts))


def _markdown(part: Part) -> str:
    match part:
        case Table():
            rows = [(_indented(first), *others) for first, *others in part.rows]
            return "".join(markdown_lines(part.header_with_units, rows, left=part.left))
        case Facts():
            title = f"**{markdown_text(part.title)}**\n\n" if part.title else ""
            return title + "".join(markdown_lines(("", ""), part.rows, left=2))
        case Lines():
            return _markdown_lines(part.lines)


def _indented(text: str) -> str:
    """Returns a text whose blanks at the beginning are shown in a cell of Markdown."""
    rest = text.lstrip(" ")
    return "\u00a0" * (len(text) - len(rest)) + rest


def _markdown_lines(lines: Sequence[str]) -> str:
    # A backslash at the end of a line is a line break.
    return "\\\n".join(markdown_text(line.strip()) for line in lines) + "\n"


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
