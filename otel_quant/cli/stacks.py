"""``otel-quant stacks``: where the time and the memory of a recording's steps went, by line of code."""

from __future__ import annotations

import argparse
import sys
from typing import Final

from otel_quant.cli import command as cmd


def _run(options: argparse.Namespace) -> int:
    from otel_quant.recordings.model import steps_in
    from otel_quant.recordings.reader import by_line, of_step, stacks_in, unseen_in
    from otel_quant.views import stacks as views
    from otel_quant.views.document import Document
    from otel_quant.views.text import listed

    path, step, by, form = options.recording, options.step, options.by, options.format
    recording = cmd.read_recording(path)
    found = [*stacks_in(recording), *unseen_in(recording)]
    if step is not None:
        rows = [each.step for each in found if each.step is not None]  # also of no step
        names = sorted({each.step.name for each in (*steps_in(recording), *rows)})
        found = of_step(found, step)
        if step not in names:
            expected = f"expected one of {listed(names)}" if names else "it has none"
            raise cmd.UserError(f"--step {step!r}: {path} has no such step; {expected}")
    if not found:
        raise cmd.UserError(
            f"{path}: holds no stacks that can be read{'' if step is None else f' of {step}'}; expected "
            "a recording whose sampler has seen a step (OTEL_QUANT_STACKS and OTEL_QUANT_SAMPLE_INTERVAL "
            "are not off, and the step took longer than the interval)"
        )
    if form == "speedscope":
        sys.stdout.write(views.speedscope(found, path) + "\n")
    elif form == "pprof":
        sys.stdout.buffer.write(views.pprof(found))
    elif form == "collapsed":
        sys.stdout.writelines(views.collapsed(found, by))
    else:
        seconds = recording.duration if step is None else 0.0
        made = views.page_parts(found, seconds) if form == "html" else views.parts(found, by)
        title, over = views.answer(found, by), f"Python lines of {path}"
        shown = Document(made, title, over, sheet=lambda: views.table(by_line(found), by))
        cmd.print_document(shown, form)
    return 0


COMMAND: Final = cmd.Command(
    brief="print the Python lines that took the time and the memory of steps",
    description="Prints which lines of code the steps of a recording have spent their time at, and at which ones memory has grown, as the sampler has seen them about 20 times a second.",
    examples=("runs/first", "runs/first --step Calibration --format speedscope > first.json"),
    arguments=(
        cmd.option("recording", metavar="RECORDING", help="the folder of a recording"),
        cmd.option("--step", metavar="NAME", help="only lines of steps of this name, and of those within them"),
        cmd.option("--by", choices=("time", "memory"), default="time", help="what lines are sorted by; memory: growth between two samples (default: %(default)s)"),
        lambda parser: cmd.add_format(parser, ("speedscope", "collapsed", "pprof"), "; speedscope and collapsed are for flame graphs in other tools"),
    ),
    run=_run,
)  # fmt: skip
