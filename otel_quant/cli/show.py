"""``otel-quant show``: the steps of a profile as a table, Markdown, JSON or CSV."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Final

from otel_quant.cli.command import Command, UserError
from otel_quant.rendering.table import printable

if TYPE_CHECKING:
    from otel_quant.profile.reader import Profile

_FORMATS: Final = ("table", "markdown", "json", "csv")


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", nargs="+", metavar="FILE", help="a quark_profile.yaml")
    parser.add_argument("--format", choices=_FORMATS, default="table", help="default: %(default)s")


def _run(options: argparse.Namespace) -> int:
    # Only now: the other commands are not to wait for these.
    from pathlib import Path

    from otel_quant.profile.last_reading import last_reading_of
    from otel_quant.profile.reader import NotAProfileError, parse
    from otel_quant.rendering.profile_report import report

    profiles: dict[str, Profile] = {}
    for name in options.files:
        try:
            text = Path(name).read_bytes().decode("utf-8", "replace")
            profile = profiles[name] = parse(text)
            profile.last_reading = last_reading_of(Path(name), profile)
        except NotAProfileError as error:
            raise UserError(f"{printable(name)}: not a quark_profile.yaml: {error}") from error
        except OSError as error:
            raise UserError(f"{printable(name)}: {error.strerror}") from error
        if not profile.records:
            found = "is empty" if not text.strip() else "ends before its first checkpoint"
            raise UserError(
                f"{printable(name)}: the file {found}; expected the records of a run, which "
                "writes the first as it begins"
            )
    sys.stdout.write(report(profiles, options.format))
    return 0


COMMAND: Final = Command(
    name="show",
    brief="print the steps of a quark_profile.yaml",
    description=(
        "Prints the steps of profiles with their time, memory and disk I/O. Reads the files of "
        "otel-quant and of Quark's own profiler, including those of killed runs, with the last "
        "reading that is beside them. Exits with 1 if a file is empty or cannot be read."
    ),
    add_arguments=_add_arguments,
    run=_run,
)
