"""``otel-quant runs``: many runs as a list, or as a table of two of their names."""

from __future__ import annotations

import argparse
import sys
from functools import partial
from typing import TYPE_CHECKING, Final

from otel_quant.cli.command import Command, add_format, option, print_document, user_errors
from otel_quant.schema import semconv

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_quant.recordings.runs import Row

_TABLE: Final = {
    "rows": "model",
    "columns": semconv.short(semconv.CALIBRATION_METHOD),
    "value": semconv.short(semconv.MEMORY_PEAK),
}
"""The names of a table that are not given."""
_WHEN: Final = "when"
_PARQUET: Final = "parquet"
_EXPECTED: Final = "expected a folder with recordings or quark_profile.yaml files below it"


def _run(options: argparse.Namespace) -> int:
    from otel_quant.recordings import runs
    from otel_quant.schema.units import BINARY, binary_sizes
    from otel_quant.views.runs import document, unreadable_lines
    from otel_quant.views.text import printable

    with user_errors(runs.ConditionError):
        conditions = [runs.parse(text) for text in options.where]
        asked = {
            f"--{option} {text}": runs.name_of(text)
            for option in ("sort", *_TABLE)
            if (text := getattr(options, option)) is not None
        }
        named = [condition.name for condition in conditions]
        names = list(dict.fromkeys((*named, *asked.values())))
        columns: Sequence[str] = ()
        if options.format == _PARQUET:
            from otel_quant.sending import tables

            columns = tables.NAMES
        with user_errors(ValueError, exit_code=1, expected=_EXPECTED):
            rows, unreadable = runs.read_all(options.folders, [*names, *columns, runs.LIBRARY])
        for text, name in asked.items():
            runs.require_name(rows, name, text)
        rows = runs.select(rows, conditions)
        is_page, table = options.format == "html", None
        given = [getattr(options, option) for option in _TABLE]
        if is_page or any(given):
            every = zip(given, _TABLE.values(), strict=True)
            cells = [runs.name_of(text or known) for text, known in every]
            table = runs.pivot(rows, *cells, any_status=runs.STATUS in named)
    rows = _sorted(rows, runs.name_of(options.sort or _WHEN), options)
    chosen = f"below {', '.join(options.folders)}"
    chosen += f" with {' and '.join(options.where)}" if options.where else ""
    with binary_sizes(any(condition.value.endswith(BINARY) for condition in conditions)):
        shown = document(rows, names, table, unreadable, chosen, is_page=is_page)
        if columns:
            with user_errors(ValueError, f"--format {_PARQUET}: ", exit_code=1):
                sys.stdout.buffer.write(tables.parquet(rows))
        else:
            print_document(shown, options.format)
    if unreadable:
        sys.stdout.flush()
        for number, line in enumerate(unreadable_lines(unreadable)):
            print(f"otel-quant: {'  ' if number else ''}{printable(line)}", file=sys.stderr)
    return 0


def _sorted(rows: Sequence[Row], name: str, options: argparse.Namespace) -> list[Row]:
    """Returns runs in order; those that do not have the value come last."""
    known = [row for row in rows if name in row]
    try:
        known.sort(key=lambda row: row[name])
    except TypeError:
        known.sort(key=lambda row: str(row[name]))
    if options.reverse != (options.sort is None):
        known.reverse()
    return known + [row for row in rows if name not in row]


COMMAND: Final = Command(
    brief="list the runs below folders, or make a table of them",
    description="Finds recordings and quark_profile.yaml files below folders and prints a row for each. --rows, --columns or --value make a table instead: `--rows model --columns calibration.method --value memory.peak`. A name is a column of the list in lower case (model, model.size, status, duration, when, ...) or an attribute of the telemetry without `quant.`. What cannot be read is named on standard error and is no error.",
    examples=("runs", "runs --rows model --columns calibration.method --value memory.peak"),
    arguments=(
        option("folders", nargs="+", metavar="DIR", help="a folder; recordings and profiles below it are read"),
        option("--where", action="append", default=[], metavar="NAME=VALUE", help="only these runs: calibration.method=MinMax, 'memory.peak>12 GiB'; also !=, <, <=, >=; all of several hold"),
        option("--sort", metavar="NAME", help="smallest first; the newest run first by default"),
        option("--reverse", action="store_true", help="the other way round"),
        option("--rows", metavar="NAME", help=f"a table with these rows (default: {_TABLE['rows']})"),
        option("--columns", metavar="NAME", help=f"its columns (default: {_TABLE['columns']})"),
        option("--value", metavar="NAME", help=f"the figure in its cells (default: {_TABLE['value']})"),
        partial(add_format, for_tools=(_PARQUET,), note=f"; {_PARQUET} has the runs with every column"),
    ),
    run=_run,
)  # fmt: skip
