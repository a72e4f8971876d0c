"""``otel-quant runs``: many runs as a list, or as a table of two of their names."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Final

from otel_quant.cli.command import MISUSED, Command, UserError, add_format
from otel_quant.views.text import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_quant.recordings.runs.fields import Row
    from otel_quant.recordings.runs.reading import Unreadable
    from otel_quant.views.document import Document

_ROWS: Final = "model"
_COLUMNS: Final = "calibration.method"
_VALUE: Final = "memory.peak"
_WHEN: Final = "when"


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "folders", nargs="+", metavar="DIR", help="a folder; recordings and profiles below it are read"
    )  # fmt: skip
    parser.add_argument(
        "--where",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="only these runs: calibration.method=MinMax, 'memory.peak>12 GiB'; also !=, <, <=, >=; "
        "all of several hold",
    )
    parser.add_argument(
        "--sort", metavar="NAME", help="smallest first; the newest run first by default"
    )
    parser.add_argument("--reverse", action="store_true", help="the other way round")
    parser.add_argument(
        "--rows", metavar="NAME", help=f"a table with these rows (default: {_ROWS})"
    )
    parser.add_argument("--columns", metavar="NAME", help=f"its columns (default: {_COLUMNS})")
    parser.add_argument(
        "--value", metavar="NAME", help=f"the figure in its cells (default: {_VALUE})"
    )
    add_format(parser)


def _run(options: argparse.Namespace) -> int:
    # Only now: the other commands are not to wait for these.
    from otel_quant.recordings.runs.fields import (
        LIBRARY,
        STATUS,
        ConditionError,
        name_of,
        parse,
        require_name,
        select,
    )
    from otel_quant.recordings.runs.reading import read_all
    from otel_quant.schema.units import BINARY, binary_sizes
    from otel_quant.views.runs import unreadable_lines
    from otel_quant.views.text import terminal_width
    from otel_quant.views.writers import written

    try:
        conditions = [parse(text) for text in options.where]
        asked = {
            f"--{option} {text}": name_of(text)
            for option in ("sort", "rows", "columns", "value")
            if (text := getattr(options, option)) is not None
        }
        named = [condition.name for condition in conditions]
        names = list(dict.fromkeys((*named, *asked.values())))
        rows, unreadable = read_all(options.folders, [*names, LIBRARY])
        for text, name in asked.items():
            require_name(rows, name, text)
        chosen = _sorted(select(rows, conditions), options)
        any_status = any(condition.name == STATUS for condition in conditions)
        with binary_sizes(any(condition.value.endswith(BINARY) for condition in conditions)):
            shown = _document(chosen, unreadable, names, any_status, options)
            text = "".join(written(shown, options.format, terminal_width(sys.stdout)))
    except ConditionError as error:
        raise UserError(printable(str(error)), MISUSED) from error
    except OSError as error:
        raise UserError(
            f"{printable(str(error.filename))}: cannot be opened: {error.strerror}; expected a "
            "folder with recordings or quark_profile.yaml files below it"
        ) from error
    sys.stdout.write(text)
    if unreadable:
        sys.stdout.flush()
        for number, line in enumerate(unreadable_lines(unreadable)):
            print(f"otel-quant: {'  ' if number else ''}{printable(line)}", file=sys.stderr)
    return 0


def _sorted(rows: Sequence[Row], options: argparse.Namespace) -> list[Row]:
    """Returns runs in order; those that do not have the value come last."""
    from otel_quant.recordings.runs.fields import name_of

    name = name_of(options.sort or _WHEN)
    known = [row for row in rows if name in row]
    try:
        known.sort(key=lambda row: row[name])
    except TypeError:
        known.sort(key=lambda row: str(row[name]))
    if options.reverse != (options.sort is None):
        known.reverse()
    return known + [row for row in rows if name not in row]


def _document(
    rows: Sequence[Row],
    unreadable: Sequence[Unreadable],
    names: Sequence[str],
    any_status: bool,
    options: argparse.Namespace,
) -> Document:
    from otel_quant.recordings.runs.fields import name_of, pivot
    from otel_quant.views.runs import document

    is_page = options.format == "html"
    table = None
    if is_page or any((options.rows, options.columns, options.value)):
        asked = (options.rows or _ROWS, options.columns or _COLUMNS, options.value or _VALUE)
        table = pivot(rows, *map(name_of, asked), any_status=any_status)
    chosen = f"below {', '.join(options.folders)}"
    chosen += f" with {' and '.join(options.where)}" if options.where else ""
    return document(rows, names, table, unreadable, chosen, is_page=is_page)


COMMAND: Final = Command(
    name="runs",
    brief="list the runs below folders, or make a table of them",
    description=(
        "Finds recordings and quark_profile.yaml files below folders and prints a row for each. "
        "--rows, --columns or --value make a table instead: `--rows model --columns "
        "calibration.method --value memory.peak`. A name is a column of the list in lower case "
        "(model, model.size, status, duration, when, ...) or an attribute of the telemetry without "
        "`quant.`. What cannot be read is named on standard error and is no error."
    ),
    examples=("runs", "runs --rows model --columns calibration.method --value memory.peak"),
    add_arguments=_add_arguments,
    run=_run,
)
