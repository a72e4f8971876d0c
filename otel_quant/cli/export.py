"""``otel-quant export``: recordings as tables for DuckDB, Spark, Databricks and Snowflake."""

from __future__ import annotations

import argparse
import sys
from itertools import islice
from typing import Final

from otel_quant.base.secrets import masked
from otel_quant.cli.command import Command, option, user_errors
from otel_quant.schema.units import counted
from otel_quant.views.text import printable

_AT_ONCE: Final = 500  # Recordings whose rows are written together


def _run(options: argparse.Namespace) -> int:
    from otel_quant.recordings.runs import Unreadable, recordings_in
    from otel_quant.sending.tables import Row, add, rows_of

    added = 0
    with user_errors(ValueError, exit_code=1, expected="expected folders with recordings"):
        found = recordings_in(options.folders)
        while some := list(islice(found, _AT_ONCE)):
            rows: dict[str, dict[str, list[Row]]] = {}  # By run
            for each in some:
                if isinstance(each, Unreadable):
                    why = f"{each.path}: {each.problem}"
                elif each.state == "running":
                    why = f"{each.place}: still running; export it when it has ended"
                else:
                    of_run = rows_of(each)
                    rows.setdefault(of_run["runs"][0]["run_id"], of_run)
                    continue
                print(printable(f"otel-quant: {why}"), file=sys.stderr)
            added += add(options.url, list(rows.values()))
    print(printable(f"{masked(options.url)}: {counted(added, 'run')} added"))
    return 0


COMMAND: Final = Command(
    brief="add runs to tables that DuckDB, Spark, Databricks and Snowflake read",
    description="Adds recordings and quark_profile.yaml files below folders to four Delta Lake tables at a URL: runs, steps, kernels, layers. A run that the tables have is not added again. Recordings that cannot be read or are still running are left out and named on standard error; the exit code is 0. Needs pip install 'otel-quant[tables]'. Exits with 1 if the tables cannot be written.",
    examples=("runs s3://bucket/tables", "s3://bucket/runs tables"),
    arguments=(
        option("folders", nargs="+", metavar="DIR", help="a folder, or a URL of `otel-quant upload`; recordings and profiles below it are read"),
        option("url", metavar="URL", help="where the tables are: s3://BUCKET/PATH, gs://, az://, or a folder"),
    ),
    run=_run,
)  # fmt: skip
