"""``otel-quant report``: a recording as one HTML page."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Final

from otel_quant.cli.command import Command, UserError
from otel_quant.rendering.table import printable


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "recording",
        metavar="DIR",
        help="a recording (the folder that `otel-quant run` made), or a quark_profile.yaml",
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help="where the page goes, `-` for standard output (default: report.html in the folder, or "
        "the profile's name with .html beside it)",
    )


def _run(options: argparse.Namespace) -> int:
    # Only now: the other commands are not to wait for these.
    from otel_quant.recordings.event_file import NewerSchemaError, NotARecordingError
    from otel_quant.recordings.layout import REPORT
    from otel_quant.recordings.reader import read
    from otel_quant.report.render import render

    source = Path(options.recording)
    try:
        recording = read(source)
    except (NotARecordingError, NewerSchemaError) as error:
        raise UserError(printable(str(error))) from error
    except OSError as error:
        raise UserError(f"{printable(options.recording)}: {error.strerror}") from error
    html = render(recording)
    if options.output == "-":
        sys.stdout.write(html)
        return 0
    if options.output is not None:
        target = Path(options.output)
    else:
        target = source / REPORT if source.is_dir() else source.with_suffix(".html")
    write(target, html)
    print(f"{printable(str(target))}: {len(html.encode()) / 1000:.0f} kB")
    return 0


def write(target: Path, html: str) -> None:
    """Writes a page, whole or not at all.

    Args:
        target: Its path; what is there is replaced.
        html: The page.

    Raises:
        UserError: It could not be written.
    """
    beside = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        try:
            beside.write_text(html, encoding="utf-8")
            beside.replace(target)
        finally:
            beside.unlink(missing_ok=True)
    except OSError as error:
        raise UserError(
            f"{printable(str(target))}: {error.strerror}; expected a place to write, which -o FILE names"
        ) from error


COMMAND: Final = Command(
    name="report",
    brief="make an HTML page of a recording",
    description=(
        "Makes one HTML page of a recording: how the run ended and what peaked where, its curves "
        "with the steps, its models, and what made it. The page opens offline and asks the network "
        "for nothing. Reads recordings that are still being made or were killed, and the local files "
        "of otel-quant and of Quark's own profiler. Exits with 1 if the recording cannot be read or "
        "the page cannot be written."
    ),
    add_arguments=_add_arguments,
    run=_run,
)
