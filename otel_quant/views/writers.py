"""The writers, by the names of ``--format``: for terminals, Markdown, CSV, JSON and programs; ``html.py`` has the one of pages.

`csv` and `json` are loaded when asked for, as pages are: a table in a terminal needs none of them.
"""

from __future__ import annotations

import io
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, lru_cache
from itertools import chain, islice
from operator import call
from types import GeneratorType
from typing import Any, Final

from otel_quant.schema import units
from otel_quant.schema.units import moment_text
from otel_quant.views import document as doc
from otel_quant.views.text import (
    NO_BREAK,
    Texts,
    cell_text,
    least_width,
    listed,
    phrase,
    plain,
    printable,
    shortened,
    unbroken,
    width_of,
)

FORMATS: Final = ("table", "markdown", "json", "csv", "html", "brief")  # What `--format` takes


def written(document: doc.Document, form: str, width: int | None = None) -> Iterator[str]:
    """Yields a document in a format, piece by piece; ``width`` is the terminal's."""
    match form:
        case "table":
            return _parted(_begun(document), width)
        case "markdown":
            parts = (part for part in _begun(document) if not isinstance(part, doc.Bars))
            return _markdown_parts(parts, 2)
        case "csv":
            return csv_lines(document)
        case "json":
            return json_lines(document)
        case "brief":
            return iter((f"{brief_line(document)}\n",))
        case "html":
            from otel_quant.views.html import page_text

            return iter((page_text(document),))
    raise ValueError(f"{form!r} is no format; expected one of {', '.join(FORMATS)}")


def _begun(document: doc.Document) -> Iterator[doc.Part]:
    """Yields the parts, the answer first where a page has it as its title."""
    if document.is_answer:
        yield doc.Lines((f"{document.title}.",))
    yield from document.parts


def _separated(
    parts: Iterable[doc.Part], write: Callable[[doc.Part], Iterator[str]]
) -> Iterator[str]:
    """Yields parts with an empty line between them."""
    for number, part in enumerate(parts):
        if number:
            yield "\n"
        yield from write(part)


# --- Markdown, for pull requests ----------------------------------------------------------

# Characters that end a cell, begin markup or HTML, or mention a person.
_SPECIAL: Final = re.compile(r"([\\`*_{}\[\]<>|~#@!&$])")


def _escaped(text: str) -> str:
    """Returns a text that Markdown shows unchanged, on one line."""
    return _SPECIAL.sub(r"\\\1", printable(text))


def _markdown_parts(parts: Iterable[doc.Part], level: int) -> Iterator[str]:
    return _separated(parts, lambda part: _markdown(part, level))


def _markdown(part: doc.Part, level: int) -> Iterator[str]:
    heading = f"{'#' * level} {{}}\n\n"
    match part:
        case doc.Table():
            yield phrase("{}\n\n", part.title, _escaped)
            yield phrase(heading, part.caption, _escaped)
            yield from _markdown_table(part)
            if part.note:
                yield "\n" + _markdown_lines(part.note.split("\n"))
        case doc.Facts():
            title = phrase("**{}**\n\n", part.title, _escaped)
            yield title or phrase(heading, part.caption, _escaped)
            yield "|  |  |\n| --- | --- |\n"
            for name, value in part.rows:
                yield f"| {_escaped(name.strip())} | {_escaped(cell_text(value))} |\n"
        case doc.Lines(lines, is_list=True):
            yield from (f"- {_escaped(line.strip())}\n" for line in lines)
        case doc.Lines(lines):
            yield _markdown_lines(line.strip() for line in lines)
        case doc.Section():
            yield heading.format(_escaped(part.title))
            yield from _markdown_parts(part.parts, level + 1)


def _markdown_lines(lines: Iterable[str]) -> str:
    # A backslash at the end of a line is a line break.
    return "\\\n".join(map(_escaped, lines)) + "\n"


def _markdown_table(table: doc.Table) -> Iterator[str]:
    texts = Texts(table)
    has_remarks = any(row.remark for row in table.full_rows)
    columns = (*texts.columns, _REMARKS) if has_remarks else texts.columns

    def line(cells: Iterable[str]) -> str:  # with the remarks last, where there are any
        return f"| {' | '.join(islice(cells, len(columns)))} |\n"

    yield line(map(_escaped, (*texts.headings_with_units, "")))
    yield line("---" if each.is_text else "---:" for each in columns)
    for row in table.full_rows:
        first, *others = map(_escaped, (*texts.whole(row.cells), row.remark))
        yield line((f"{_INDENT * row.depth}{first}", *others))


_INDENT: Final = "\u00a0" * 2

# --- Terminals ----------------------------------------------------------------------------

_REMARKS: Final = doc.Column[Any]("")  # The column behind the last one of a table
_READABLE: Final = 24
_SHORTEST: Final = 12
"""Characters to which texts are cut rather than leave out a column; a spare one goes before."""


def terminal_text(document: doc.Document, width: int | None = None) -> str:
    """Returns a document for a terminal of that width; None: as wide as the tables are."""
    return "".join(_parted(_begun(document), width))


def _parted(parts: Iterable[doc.Part], width: int | None) -> Iterator[str]:
    return _separated(parts, lambda part: _part(part, width))


def _part(part: doc.Part, width: int | None) -> Iterator[str]:
    match part:
        case doc.Table():
            yield phrase("{}\n\n", part.title, printable)
            yield from _table(part, width)
            for line in filter(None, part.note.split("\n")):
                yield from _wrapped(line, width)
        case doc.Facts():
            yield phrase("{}\n", part.title, printable)
            names = max((len(name) for name, _ in part.rows), default=0)
            for name, value in part.rows:
                yield from _wrapped(cell_text(value), width, printable(f"{name:{names}}  "))
        case doc.Lines():
            for line in part.lines:
                yield from _wrapped(line, width, "- " * part.is_list)
        case doc.Bars():
            yield from _bars(part, width)
        case doc.Section():
            yield f"{printable(part.title)}\n"
            own = iter(part.parts)
            for first in own:
                if not isinstance(first, doc.Lines):  # lines belong to their heading
                    yield "\n"
                yield from _parted(chain((first,), own), width)


_USUAL: Final = 80  # Columns of a terminal that is none
_WIDEST: Final = 60  # Columns of the longest bar, at most


def _bars(part: doc.Bars, width: int | None) -> Iterator[str]:
    """Draws bars, and where the limit is a line through all of them."""
    width = width or _USUAL
    names = [shortened(printable(name), width * 2 // 5) for name, *_ in part.rows]
    texts = [cell_text(amount, "By") for _, amount, _ in part.rows]
    before = max(map(width_of, names)) + max(map(len, texts)) + 4
    scale = min(_WIDEST, max(_SHORTEST, width - before)) / part.longest
    limit = None if part.limit is None else round(part.limit * scale)
    for name, text, (_, amount, most) in zip(names, texts, part.rows, strict=True):
        bar = f"{'█' * max(1, round(min(plain(amount), part.longest) * scale)):░<{round(most * scale)}}"
        if limit is not None:
            bar = f"{bar:{limit}}"
            bar = f"{bar[: limit - 1]}│{bar[limit:]}"
        room = before - 4 - width_of(name)
        yield f"{name}  {text:>{room}}  {bar}".rstrip() + "\n"
    if limit is not None:
        yield f"{'limit ' + cell_text(part.limit, 'By'):>{before + limit}}\n"
    if any(most for *_, most in part.rows):
        yield f"{'':{before}}░ at most\n"


def _table(table: doc.Table, width: int | None) -> Iterator[str]:
    """Lays out a table, a line at a time."""
    texts = Texts(table)
    columns = (*texts.columns, _REMARKS)
    head = [(*map(printable, texts.headings), "")]
    if any(texts.units):
        head.append((*texts.units, ""))
    first, *others = (max(map(width_of, column)) for column in zip(*head, strict=True))
    # A model has many nodes, most of them alike but for their names: what is alike is kept once.
    shown: dict[tuple[Sequence[doc.Cell], str], tuple[str, ...]] = {}
    rows: list[tuple[str, tuple[str, ...]]] = []
    for row in table.full_rows:
        alike = (tuple(row.cells[1:]), row.remark)
        if alike not in shown:
            known = (*texts.whole((None, *row.cells[1:]))[1:], row.remark)
            shown[alike] = rest = tuple(map(printable, known))
            others = list(map(max, others, map(width_of, rest)))
        name = "  " * row.depth + printable(texts.of(row.cells[:1])[0])
        first = max(first, width_of(name))
        rows.append((name, shown[alike]))
    widths = [first, *others]
    if width is not None:
        names = [name for name, _ in rows]
        cells = [names, *zip(*shown.values(), strict=True)] if rows else [[] for _ in columns]
        widths = _fitting(columns, widths, cells, width)
    kept = [at for at, each in enumerate(widths) if each] or [0]

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


def _fitting(
    columns: Sequence[doc.Column[Any]],
    widths: list[int],
    cells: Sequence[Sequence[str]],
    width: int,
) -> list[int]:
    """Returns the widths that columns have in a terminal; 0 for those that are left out.

    Columns of nothing but 0 are left out first, then spare ones, then texts are cut, but for their
    files and lines, then the last columns are left out.
    """
    kept = [at for at, each in enumerate(widths) if each or not at]
    # Of a text the columns that it cannot do without; of a number all
    least = [
        max(map(least_width, of), default=1) if column.is_text else full
        for column, of, full in zip(columns, cells, widths, strict=True)
    ]
    spare = {at: columns[at].spare for at in kept if columns[at].spare}
    numbers = [at for at in kept[1:] if not columns[at].is_text]
    spare |= {at: 0 for at in numbers if not any(cell.strip("-?0. ") for cell in cells[at])}

    def shown(longest: int) -> dict[int, int]:
        return {at: min(widths[at], max(longest, least[at])) for at in kept}

    def fits(longest: int) -> bool:
        return sum(shown(longest).values()) + 2 * (len(kept) - 1) <= width

    for at in (*sorted(spare, key=spare.__getitem__), *kept[:0:-1]):
        if at in kept and not fits(_READABLE if at in spare else _SHORTEST):
            kept.remove(at)
    fitting = shown(next(filter(fits, range(width, 1, -1)), 1))
    return [fitting.get(at, 0) for at in range(len(widths))]


def _padded(text: str, width: int, is_left: bool) -> str:
    text = shortened(text, width)
    blanks = " " * (width - width_of(text))
    return text + blanks if is_left else blanks + text


def _wrapped(text: str, width: int | None, mark: str = "") -> Iterator[str]:
    """Yields the lines of a sentence, which break between words; a command, which is copied, is one."""
    text = f"{mark}{printable(text)}"
    if width is None or width_of(text) <= width or _COMMAND.search(text):
        yield f"{text.rstrip()}\n"
        return
    from textwrap import wrap

    behind = " " * (len(mark) or len(text) - len(text.lstrip()))
    lines = wrap(
        unbroken(text), width, subsequent_indent=behind, break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip
    yield from (f"{line.replace(NO_BREAK, ' ')}\n" for line in lines)


_COMMAND: Final = re.compile(r"(?<![\w/.])(otel-quant|python3?|pip|ulimit) [\w./-]")


# --- CSV and JSON, for programs: in bytes and seconds --------------------------------------

# The start of a cell (after a comma, or a semicolon in some countries) and a character that makes
# a spreadsheet read it as a formula; Japanese settings also accept the wide forms.
_FORMULA: Final = re.compile("(^|[,;|])(?=[\\s\"']*[=+\\-@\uff1d\uff0b\uff0d\uff20])")


def csv_lines(document: doc.Document) -> Iterator[str]:
    """Yields a document's table as CSV, a row at a time.

    Texts may come from untrusted files: control characters are escaped, and an apostrophe is put
    before a text that a spreadsheet would run as a formula.
    """
    import csv

    if document.sheet is None:
        return
    table = document.sheet()
    columns = [_csv_moment if each.unit == "time" else _csv_cell for each in table.columns]
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    names = [_csv_cell(column.name) for column in table.columns]
    rows = (map(call, columns, row.cells) for row in table.full_rows)
    for texts in chain((names,), rows):
        writer.writerow(texts)
        yield stream.getvalue()
        stream.seek(0)
        stream.truncate()


def moment_json(seconds: float) -> str:
    """Returns a moment in UTC as programs read it: ``2026-11-22T06:59:00Z``."""
    return f"{moment_text(seconds).replace(' ', 'T')}Z"


@lru_cache(1 << 12, typed=True)  # shapes and names of types recur
def _csv_cell(cell: doc.Cell) -> str | int:
    value = plain(cell)
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:.12g}"
    if isinstance(value, int):
        return value
    return _FORMULA.sub(r"\1'", printable(listed(value)))


def _csv_moment(cell: doc.Cell) -> str | int:
    return moment_json(cell) if isinstance(cell, int | float) else _csv_cell(cell)


_DEEPEST: Final = 4
"""How deep objects and lists have a line for each item: a line for a number would be thousands."""


def json_lines(document: doc.Document) -> Iterator[str]:
    """Yields a document's data as JSON; an item of a list or an object of the fourth level on a line."""
    data = document.data() if document.data is not None else dict(_named(document.parts))
    yield from _laid_out(data, 0)
    yield "\n"


def _named(parts: Iterable[doc.Part]) -> Iterator[tuple[str, Any]]:
    for part in parts:
        match part:
            case doc.Table():
                names = [column.name for column in part.columns]
                rows = (zip(names, row.cells, strict=False) for row in part.full_rows)
                cells = [{name: plain(it) for name, it in row if it is not None} for row in rows]
                yield part.id or "rows", cells
            case doc.Facts():
                yield part.title or "facts", {name: plain(value) for name, value in part.rows}
            case doc.Section():
                yield part.title, dict(_named(part.parts))


def _laid_out(value: Any, depth: int) -> Iterator[str]:
    if depth == _DEEPEST or not value or not _is_deep(value):
        yield _dumped(value)
        return
    items = value.items() if isinstance(value, dict) else ((None, item) for item in value)
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    separator = opening
    for key, item in items:
        yield separator + "\n" + "  " * (depth + 1)
        if key is not None:
            yield f"{_dumped(str(key))}: "
        is_row = key is None and isinstance(item, dict) and not any(map(_is_deep, item.values()))
        yield from (_dumped(item),) if is_row else _laid_out(item, depth + 1)
        separator = ","
    yield f"\n{'  ' * depth}{closing}" if separator == "," else "[]"


def _is_deep(value: object) -> bool:
    return isinstance(value, dict | list | tuple | map | GeneratorType)


def _dumped(value: object) -> str:
    import json

    try:
        return json.dumps(value, default=str, allow_nan=False)
    except ValueError:
        from otel_quant.format.event_file import finite

        return json.dumps(finite(value), default=str)


# --- for programs that act on it ----------------------------------------------------------

BRIEF_BYTES: Final = 2000
"""What a brief answer takes at most: agents read every byte."""

_SENTENCES: Final = 3
_LEAST_SENTENCE: Final = 20  # Characters of a sentence below which commands go before it


def brief_line(document: doc.Document) -> str:
    """Returns what a document says at first as one JSON object: sentences of its own, and commands to go on with."""
    brief = _first_sentences(document) if document.brief is None else document.brief()
    commands = [shlex.join(("otel-quant", *arguments, "--brief")) for arguments in brief.next]
    longest = BRIEF_BYTES
    while True:
        then = commands if longest > _LEAST_SENTENCE else []  # paths may be of any length
        sentences = [units.cut(each, longest) for each in brief.evidence[:_SENTENCES]]
        helps = [units.cut(each, longest) for each in brief.help[:_SENTENCES]]
        line = _dumped({
            "subject": units.cut(document.over or document.title, longest),
            "verdict": units.cut(brief.verdict, longest),
            "is_bad": document.is_bad, "certainty": "known" if brief.is_certain else "probable",
            "evidence": sentences, "help": helps, "next": then,
        })  # fmt: skip
        if len(line) <= BRIEF_BYTES:
            return line
        longest = longest * 2 // 3


def _first_sentences(document: doc.Document) -> doc.Brief:
    """Returns the title, where it is an answer, and the first lines of a document."""
    lines = (line for part in document.parts if isinstance(part, doc.Lines) for line in part.lines)
    title = [f"{document.title}."] if document.is_answer else []
    verdict, *others = [*title, *islice(lines, _SENTENCES + 1)] or [document.title]
    return doc.Brief(verdict, others)
