"""``otel-quant report``: a recording as one HTML page."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Final

from otel_quant.cli.command import Command, option, read_recording, user_errors
from otel_quant.views.text import printable


def _run(options: argparse.Namespace) -> int:
    from otel_quant.format.event_file import REPORT
    from otel_quant.views.html import write_page
    from otel_quant.views.report import render

    html = render(read_recording(options.recording))
    if options.output == "-":
        sys.stdout.write(html)
        return 0
    source = Path(options.recording)
    beside = source / REPORT if source.is_dir() else source.with_suffix(".html")
    if "://" in options.recording:
        beside = Path(f"{source.name}.html")
    target = beside if options.output is None else Path(options.output)
    expected = "expected a file that can be written: -o FILE names another"
    with user_errors(ValueError, exit_code=1, path=target, expected=expected):
        size = write_page(target, html)
    print(f"{printable(str(target))}: {size / 1000:.0f} kB")
    return 0


COMMAND: Final = Command(
    brief="make an HTML page of a recording",
    description="Makes one HTML page of a recording: how the run ended and what peaked where, its curves with the steps, its models, and what made it. The page opens offline and asks the network for nothing. Reads recordings that are still being made or were killed, and the local files of otel-quant and of Quark's own profiler. Exits with 1 if the recording cannot be read or the page cannot be written.",
    examples=("runs/first", "runs/first -o first.html"),
    arguments=(
        option("recording", metavar="DIR", help="a recording (the folder that `otel-quant run` made), or a quark_profile.yaml"),
        option("-o", "--output", metavar="FILE", help="where the page goes, `-` for standard output (default: report.html in the folder, or the profile's name with .html beside it)"),
    ),
    run=_run,
)  # fmt: skip
