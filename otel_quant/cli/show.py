"""``otel-quant show``: the steps of a recording or a profile as a table, Markdown, JSON or CSV."""

from __future__ import annotations

import argparse
from itertools import chain
from pathlib import Path
from typing import Final

from otel_quant.cli import command as cmd

_MOST_STEPS: Final = 1000  # Steps of a run that are shown to people; programs get all


def _run(options: argparse.Namespace) -> int:
    from otel_quant.views.show import devices, document

    names = chain.from_iterable(map(_nodes_in, options.files))
    recordings = {name: cmd.read_recording(name) for name in names}
    if options.by == "device":
        cmd.print_document(devices(recordings), options.format)
    else:
        cmd.print_document(document(recordings, _MOST_STEPS), options.format)
    return 0


def _nodes_in(name: str) -> list[str]:
    """Returns the recordings of a job's nodes that are in a folder; else what was named."""
    from otel_quant.recordings.runs import find

    found = find([name]) if Path(name).is_dir() else ()
    return [each for each in found if isinstance(each, str)] or [name]


COMMAND: Final = cmd.Command(
    brief="print the steps of a recording or a quark_profile.yaml",
    description="Prints the steps of recordings and profiles with their time, memory and disk I/O, and how a recording ended. Of the recordings of a job's nodes, or a folder that holds them: its ranks, which of them failed first, or kept the others waiting. Reads the folders and files of otel-quant and the files of Quark's own profiler; of killed runs, too, with their last reading. Exits with 1 if a file is empty or cannot be read.",
    examples=("quark_profile.yaml --format csv", "runs/first --by device"),
    arguments=(
        cmd.option("files", nargs="+", metavar="PATH", help="a recording or a quark_profile.yaml"),
        cmd.option("--by", choices=("device",), help="what steps used of each GPU"),
        cmd.add_format,
    ),
    run=_run,
)  # fmt: skip
