"""``otel-quant show``: the steps of a recording or a profile as a table, Markdown, JSON or CSV."""

from __future__ import annotations

import argparse
import gc
import sys
from typing import Final

from otel_quant.cli.command import MISUSED, Command, UserError, add_format, read_recording
from otel_quant.cli.stacks import add_choice, print_stacks

_MOST_STEPS: Final = 1000
"""Steps of a run that are shown to people; programs get all."""


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "files", nargs="+", metavar="PATH", help="a recording or a quark_profile.yaml"
    )
    parser.add_argument(
        "--stacks", action="store_true",
        help="the lines of code that took the time and the memory, as `otel-quant stacks` prints them",
    )  # fmt: skip
    add_choice(parser)
    add_format(parser)


def _run(options: argparse.Namespace) -> int:
    if options.stacks:
        if len(options.files) > 1:
            raise UserError("--stacks: expected one recording", MISUSED)
        print_stacks(options.files[0], options.step, options.by, options.format)
        return 0
    if options.step is not None:
        raise UserError("--step: expected --stacks beside it", MISUSED)
    # Only now: the other commands are not to wait for these.
    from itertools import islice

    from otel_quant.views.show import document
    from otel_quant.views.text import terminal_width
    from otel_quant.views.writers import written

    gc.disable()  # all that is read stays to the end: to look through it for garbage took a fifth
    try:
        shown = document({name: read_recording(name) for name in options.files}, _MOST_STEPS)
        lines = iter(written(shown, options.format, terminal_width(sys.stdout)))
        while text := "".join(islice(lines, 1000)):  # standard output may be unbuffered
            sys.stdout.write(text)
    finally:
        gc.freeze()  # the process ends now: what is left is not taken apart
        gc.enable()
    return 0


COMMAND: Final = Command(
    name="show",
    brief="print the steps of a recording or a quark_profile.yaml",
    description=(
        "Prints the steps of recordings and profiles with their time, memory and disk I/O, and how "
        "a recording ended. Reads the folders and files of otel-quant and the files of Quark's "
        "own profiler; of killed runs, too, with their last reading. Exits with 1 if a file "
        "is empty or cannot be read."
    ),
    examples=("quark_profile.yaml --format csv", "runs/first --stacks --step Calibration"),
    add_arguments=_add_arguments,
    run=_run,
)
