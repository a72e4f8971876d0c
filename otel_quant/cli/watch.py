"""``otel-quant watch``: a recording as it is being made."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Final

from otel_quant.cli.command import Command, UserError, option, user_errors


def _run(options: argparse.Namespace) -> int:
    from otel_quant.format.event_file import EXPECTED, newest_in
    from otel_quant.views.watch import LiveView

    path = Path(options.recording) if options.recording else newest_in(Path())
    if path is None:
        raise UserError(
            "no recording here; expected a folder otel-quant-*, as `otel-quant run -- PROGRAM` makes one, or its path"
        )
    with user_errors(ValueError, exit_code=1, path=path, expected=EXPECTED):
        LiveView(path, sys.stdout, once=options.once).show()
    return 0


COMMAND: Final = Command(
    brief="show a recording while it is being made",
    description="Shows the open steps of a recording, how far they have come, memory, GPUs and disk, once a second until it is over or Ctrl-C; of one that is over, its last state. It only reads files. Without a terminal it prints a line for each step, and one every 30 s.",
    examples=("", "runs/first --once"),
    arguments=(
        option("recording", metavar="DIR", nargs="?", help="default: the newest one here"),
        option("--once", action="store_true", help="show what there is now, and end"),
    ),
    run=_run,
)  # fmt: skip
