"""``otel-quant run``: records a program from its start to its end.

The program waits for what is imported here; what is needed once it runs is imported then.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress

from otel_quant.base.fault_boundary import FAULTS
from otel_quant.cli.command import Command, UserError, number
from otel_quant.launcher.program import Program, ProgramElsewhere, end_as
from otel_quant.launcher.start import (
    let_it_start,
    make_folder,
    missing_script,
    program_environment,
    take_notes,
)

TYPE_CHECKING = False  # not typing's, which takes a tenth of the time until the program starts
if TYPE_CHECKING:
    import logging
    from pathlib import Path
    from typing import Final

    from otel_quant.recordings.model import Ending, Recording

_OWN_FAILURE: Final = 125
"""Exit code where the program was not started because of us, as env and timeout have it."""

_NOT_EXECUTABLE: Final = 126
_NOT_FOUND: Final = 127
"""Exit codes of shells."""

_VIEW_ENDS: Final = 10.0
"""Seconds that the live view has for its last look."""

_MOST_STEPS: Final = 50
"""Steps that are printed at the end, of all processes together."""

_FEWEST_STEPS: Final = 5
"""Steps that are printed of each of many processes."""

_OUTPUT: Final = "output.log"
"""As in otel_quant/format/event_file.py, which loads too much for the program to wait for."""

_EXPECTED: Final = "expected otel-quant run [options] -- PROGRAM ARGS..., as python quantize.py"


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "%(prog)s [options] -- PROGRAM ARGS..."
    parser.add_argument(
        "--out",
        metavar="DIR",
        help="folder of the recording, new or empty (default: otel-quant-<script>-<date>-<time>)",
    )
    parser.add_argument("--quiet", action="store_true", help="print nothing at the end")
    parser.add_argument(
        "--watch",
        action="store_true",
        help="show the live view; the program's output goes to output.log in the recording",
    )
    parser.add_argument("--no-report", action="store_true", help="make no report.html")
    parser.add_argument(
        "--no-command",
        action="store_true",
        help="leave the program's arguments out of the recording",
    )
    parser.add_argument(
        "--otlp-files",
        action="store_true",
        help="add traces, metrics and log records in files of OpenTelemetry's JSON-lines exporter",
    )
    parser.add_argument(
        "--interval",
        type=number("milliseconds", 3_600_000, of=float),
        metavar="MS",
        help="milliseconds between readings (default: 50)",
    )
    parser.add_argument("program", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)


def _run(options: argparse.Namespace) -> int:
    arguments: list[str] = options.program[options.program[:1] == ["--"] :]
    if not arguments:
        raise UserError(f"no program is given; {_EXPECTED}", 2)
    if options.otlp_files:
        _require_exporter()
    try:
        made = make_folder(options.out, arguments)
    except OSError as error:
        where = os.fspath(error.filename or options.out or ".")
        raise UserError(
            f"{where}: {error.strerror}; expected a new or empty folder to write to; choose one with --out DIR",
            _OWN_FAILURE,
        ) from error
    environ = program_environment(made, arguments, _settings(options))
    began_ns = time.time_ns()
    output = f"{made}/{_OUTPUT}" if options.watch else None
    try:
        kind = Program if sys.platform == "linux" else ProgramElsewhere
        program = kind(arguments, environ, output)
    except OSError as error:
        take_notes(made)
        if output is not None:
            with suppress(OSError):
                os.unlink(output)  # noqa: PTH108 - the program waits for pathlib
        if options.out is None:
            os.rmdir(made)  # noqa: PTH106 - likewise
        raise _not_started(arguments[0], error) from error
    let_it_start(made)
    from pathlib import Path

    from otel_quant.base.log import LOG
    from otel_quant.launcher.ending import LaunchedRecording

    folder = Path(made)
    # Our messages wait for the end, not to stand within the program's output.
    held: list[logging.LogRecord] = []

    def hold(record: logging.LogRecord) -> bool:
        held.append(record)
        return False  # it goes no further

    LOG.addFilter(hold)
    recording = LaunchedRecording(folder, began_ns, program.pid, arguments, environ)
    ended: Ending | None = None
    with _shown(folder, options.watch) as while_stopped:
        how = program.wait(while_stopped, recording.look_last)
        with FAULTS.kept_in("end of the recording"), suppress(KeyboardInterrupt):
            ended = recording.finish(how)
    with FAULTS.kept_in("end of the recording"):
        import gc

        from otel_quant.format.event_file import processes_in
        from otel_quant.recordings.reader import read
        from otel_quant.views.answer import ending_lines
        from otel_quant.views.text import printable

        gc.disable()  # of many steps it would look through all objects again and again; we end soon
        try:
            notes = take_notes(made)
            # Short where it is below the current folder
            near = folder.relative_to(Path.cwd()) if folder.is_relative_to(Path.cwd()) else folder
            script = missing_script(arguments, how[0])
            if script is not None and not processes_in(folder):
                for each in folder.iterdir():
                    each.unlink()
                if options.out is None:
                    folder.rmdir()
                text = printable(f"otel-quant: {script} does not exist: nothing was recorded")
            elif folder.is_dir():
                recorded = read(near, ended)
                text = "" if options.quiet else _text(recorded, notes)
                if not options.no_report:
                    text += _report(recorded)
            else:
                lines = [
                    f"otel-quant: {near} was removed while the program ran: there is no recording"
                ]
                text = "\n".join(map(printable, [*lines, *ending_lines(ended)]))
            if not options.quiet:
                LOG.removeFilter(hold)
                for record in held:
                    LOG.handle(record)
                print(text, file=sys.stderr)
        except (KeyboardInterrupt, BrokenPipeError):
            pass  # the program is over; what is missing can be had from the recording later
    return end_as(how[0])


@contextmanager
def _shown(folder: Path, is_watched: bool) -> Iterator[Callable[[], AbstractContextManager[None]]]:
    """Shows the recording during a block; gives what makes room on the screen meanwhile."""
    if not is_watched:
        yield nullcontext
        return
    from otel_quant.base.fault_boundary import start_thread
    from otel_quant.views.watch import LiveView

    view = LiveView(folder, sys.stderr)

    def show() -> None:
        with FAULTS.kept_in("live view"):
            view.show()

    thread = start_thread(show, "otel-quant view")
    try:
        yield view.paused
    finally:
        view.end()
        if thread is not None:
            with suppress(KeyboardInterrupt):
                thread.join(_VIEW_ENDS)


def _settings(options: argparse.Namespace) -> dict[str, str]:
    settings = {}
    if options.otlp_files:
        settings["OTEL_QUANT_OTLP_FILES"] = "true"
    if options.no_command:
        settings["OTEL_QUANT_ARGUMENTS"] = "false"
    if options.interval is not None:
        settings["OTEL_QUANT_SAMPLE_INTERVAL"] = f"{options.interval:g}"
    return settings


def _text(recording: Recording, notes: Sequence[str]) -> str:
    """Returns what is printed at the end: the steps, what went wrong, and where the recording is."""
    import dataclasses
    import shlex

    from otel_quant.format.event_file import processes_in
    from otel_quant.launcher.start import why_no_step, why_nothing_sent
    from otel_quant.views.answer import ending_lines
    from otel_quant.views.show import document
    from otel_quant.views.text import printable, terminal_width
    from otel_quant.views.writers import terminal_text

    where = printable(shlex.quote(os.fspath(recording.path)))
    # What models cost is in the report: it would take the steps off the screen.
    runs = tuple(dataclasses.replace(run, models=()) for run in recording.runs)
    most = max(_FEWEST_STEPS, _MOST_STEPS // max(1, len(runs)))
    shown = document({where: dataclasses.replace(recording, runs=runs)}, most)
    lines = []
    has_steps = any(run.steps for run in runs)
    has_failed = any(run.error for run in runs)
    if has_steps or has_failed or ending_lines(recording.ending):
        lines += ["", terminal_text(shown, terminal_width(sys.stderr))]
    if any(len(run.steps) > most for run in runs):
        lines.append(f"more steps: otel-quant show {where}")
    if not has_steps and not has_failed:
        # A process that has begun a run makes its file before it writes the first event.
        is_lost = not runs and bool(processes_in(recording.path))
        why = "the recording could not be written" if is_lost else printable(why_no_step(notes))
        code = recording.ending.exit_code if recording.ending is not None else None
        failed = f"the program failed with exit code {code}, and " if code else ""
        lines.append(f"otel-quant: {failed}no step was recorded: {why}")
    if unsent := why_nothing_sent(notes):
        lines.append(f"otel-quant: {printable(unsent)}")
    lines.append(f"recording: {where}")
    if has_steps and recording.state == "ended":
        lines.append(f"compare:   otel-quant compare {where} OTHER")
    return "\n".join(lines)


def _report(recording: Recording) -> str:
    """Makes the report; returns a line with its place, or why there is none."""
    from otel_quant.format.event_file import REPORT
    from otel_quant.views.html import write_page
    from otel_quant.views.report import render
    from otel_quant.views.text import printable

    path = recording.path / REPORT
    try:
        write_page(path, render(recording))
    except OSError as error:
        return f"\nreport:    none, {error}"
    return f"\nreport:    {printable(os.fspath(path))}"


def _require_exporter() -> None:
    from importlib.util import find_spec

    found = None
    with suppress(ModuleNotFoundError):
        found = find_spec("opentelemetry.exporter.otlp.json.file")
    if found is None:
        raise UserError(
            "--otlp-files: the package opentelemetry-exporter-otlp-json-file is missing; "
            "pip install 'otel-quant[otlp-files]'",
            _OWN_FAILURE,
        )


def _not_started(name: str, error: OSError) -> UserError:
    """Returns the error for the user, with the exit code that a shell has for it."""
    from pathlib import Path

    path = Path(name)
    is_there = os.sep in name and path.exists()
    is_missing = isinstance(error, FileNotFoundError)
    problem = f"{'no such program' if is_missing else error.strerror}; {_EXPECTED}"
    if path.is_file() and path.suffix == ".py":
        problem = f"is no program by itself; write otel-quant run -- python {name}"
    elif is_missing and is_there:
        problem = "the interpreter in its first line (#!) does not exist"
    code = _NOT_FOUND if is_missing and not is_there else _NOT_EXECUTABLE
    return UserError(f"{name}: {problem}", code)


COMMAND: Final = Command(
    name="run",
    brief="record a program that quantizes, and print its steps",
    description=(
        "Records a program in a folder: its steps with their figures, its memory over time, how it "
        "ended. The program's output, input, signals and exit code are its own. Exits with 125 if "
        "the recording cannot be made, 126 if the program cannot be run, 127 if it does not exist."
    ),
    examples=(
        "-- python quantize.py",
        "--out runs/first --watch -- python quantize.py --samples 128",
    ),
    add_arguments=_add_arguments,
    run=_run,
    prints=False,
)
