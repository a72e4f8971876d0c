"""``otel-quant show``: the steps of a recording or a profile as a table, Markdown, JSON or CSV."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Final

from otel_quant.cli.command import Command, add_format

if TYPE_CHECKING:
    from pathlib import Path

    from otel_quant.recordings.model import Recording
    from otel_quant.recordings.quark_yaml import Profile


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "files", nargs="+", metavar="PATH", help="a recording or a quark_profile.yaml"
    )
    add_format(parser, "table", "markdown", "json", "csv")


def _run(options: argparse.Namespace) -> int:
    # Only now: the other commands are not to wait for these.
    from pathlib import Path

    from otel_quant.cli.command import user_errors
    from otel_quant.recordings.reader import read
    from otel_quant.views.profile_report import report
    from otel_quant.views.text import terminal_width

    shown: dict[str, Profile | Recording] = {}
    for name in options.files:
        with user_errors(name):
            shown[name] = read(Path(name)) if Path(name).is_dir() else _profile(Path(name))
    sys.stdout.write(report(shown, options.format, width=terminal_width(sys.stdout)))
    return 0


def _profile(path: Path) -> Profile:
    """Reads a profile, with the last reading that is beside it."""
    from otel_quant.export.quark_yaml.last_reading import last_reading_of
    from otel_quant.export.recording.event_file import EXPECTED
    from otel_quant.recordings.quark_yaml import NotAProfileError, parse

    text = path.read_bytes().decode("utf-8", "replace")
    try:
        profile = parse(text)
    except NotAProfileError as error:
        raise ValueError(f"{path}: {error}; {EXPECTED}") from error
    if not profile.records:
        found = "is empty" if not text.strip() else "ends before its first checkpoint"
        raise ValueError(
            f"{path}: the file {found}; expected the records of a run, which writes the first as "
            "it begins"
        )
    profile.last_reading = last_reading_of(path, profile)
    return profile


COMMAND: Final = Command(
    name="show",
    brief="print the steps of a recording or a quark_profile.yaml",
    description=(
        "Prints the steps of recordings and profiles with their time, memory and disk I/O, and how "
        "a recording ended. Reads the folders of otel-quant, its files and those of Quark's own "
        "profiler, including those of killed runs, with their last reading. Exits with 1 if a file "
        "is empty or cannot be read."
    ),
    add_arguments=_add_arguments,
    run=_run,
)
