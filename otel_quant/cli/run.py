"""``otel-quant run``: records a program from its start to its end."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from otel_quant.cli.command import Command, UserError
from otel_quant.fault_boundary import FAULTS
from otel_quant.rendering.table import printable

_OWN_FAILURE: Final = 125
"""Exit code where the program was not started because of us, as env and timeout have it."""

_NOT_EXECUTABLE: Final = 126
_NOT_FOUND: Final = 127
"""Exit codes of shells."""

_EXPECTED: Final = "expected otel-quant run [options] -- PROGRAM ARGS..., as python quantize.py"


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "%(prog)s [options] -- PROGRAM ARGS..."
    parser.add_argument(
        "--out",
        metavar="DIR",
        help="folder of the recording, new or empty (default: otel-quant-<script>-<date>-<time>)",
    )
    parser.add_argument("--quiet", action="store_true", help="print nothing at the end")
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
        type=_milliseconds,
        metavar="MS",
        help="milliseconds between readings (default: 50)",
    )
    parser.add_argument("program", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)


def _milliseconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 1 <= value <= 3_600_000:
        raise argparse.ArgumentTypeError(f"{text!r}; expected milliseconds from 1 to 3600000")
    return value


def _run(options: argparse.Namespace) -> int:
    arguments: list[str] = options.program[options.program[:1] == ["--"] :]
    if not arguments:
        raise UserError(f"no program is given; {_EXPECTED}", 2)
    if options.otlp_files:
        _require_exporter()
    # What follows is imported as late as can be: the program waits for it.
    from otel_quant.launcher.program import Program, end_as
    from otel_quant.launcher.program_environment import program_environment

    folder = _make_folder(options.out, arguments)
    environ = program_environment(folder, otlp_files=options.otlp_files, interval=options.interval)
    began_ns = time.time_ns()
    try:
        program = Program(arguments, environ)
    except OSError as error:
        _remove(folder)
        raise _not_started(arguments[0], error) from error
    from otel_quant.launcher.launched_recording import LaunchedRecording

    recording = LaunchedRecording(folder, began_ns, program.pid, environ, options.interval)
    ending = program.wait()
    with FAULTS.kept_in("end of the recording"):
        try:
            recording.finish(ending)
            _report(folder, options)
        except KeyboardInterrupt:
            pass  # the program is over: what is left to do is ours, and can be done later
    return end_as(ending)


def _report(folder: Path, options: argparse.Namespace) -> None:
    from otel_quant.launcher.python_notes import take_notes, why_no_step
    from otel_quant.recordings.reader import read

    notes = take_notes(folder)
    recording = read(folder)
    steps = sum(len(run.steps) for run in recording.runs)
    lines = []
    if steps and not options.quiet:
        lines.append(f"{steps} steps")
    elif not options.quiet:
        lines.append(f"otel-quant: no step was recorded: {printable(why_no_step(notes))}")
    if not options.quiet:
        lines.append(f"recording: {printable(os.path.relpath(folder))}")
        print(*lines, sep="\n", file=sys.stderr)


def _require_exporter() -> None:
    from importlib.util import find_spec

    try:
        found = find_spec("opentelemetry.exporter.otlp.json.file")
    except ModuleNotFoundError:
        found = None
    if found is None:
        raise UserError(
            "--otlp-files: the package opentelemetry-exporter-otlp-json-file is missing; "
            "pip install 'otel-quant[otlp-files]'",
            _OWN_FAILURE,
        )


def _make_folder(chosen: str | None, arguments: Sequence[str]) -> Path:
    from otel_quant.launcher.recording_folder import make_folder

    try:
        return make_folder(chosen, arguments)
    except OSError as error:
        where = printable(os.fspath(error.filename or chosen or "."))
        raise UserError(
            f"{where}: {error.strerror}; expected a place for a new folder; choose one with --out DIR",
            _OWN_FAILURE,
        ) from error


def _remove(folder: Path) -> None:
    """Removes the recording of a program that was not started."""
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()


def _not_started(name: str, error: OSError) -> UserError:
    """Returns what to say, with the exit code that a shell has for it."""
    path = Path(name)
    code = _NOT_FOUND if isinstance(error, FileNotFoundError) else _NOT_EXECUTABLE
    problem = error.strerror or "cannot be run"
    if path.is_dir() and os.sep in name:
        problem = "is a folder; expected a program"
    elif path.is_file() and path.suffix == ".py":
        problem = f"is no program by itself; write otel-quant run -- python {name}"
    elif isinstance(error, FileNotFoundError) and os.sep in name and path.exists():
        code, problem = _NOT_EXECUTABLE, "the interpreter in its first line (#!) does not exist"
    elif isinstance(error, FileNotFoundError):
        problem = f"no such program; {_EXPECTED}"
    elif isinstance(error, PermissionError):
        problem = "is not executable; name the program that runs it, or chmod +x it"
    return UserError(printable(f"{name}: {problem}"), code)


COMMAND: Final = Command(
    name="run",
    brief="record a program that quantizes, and print its steps",
    description=(
        "Records a program in a folder: its steps with their figures, its memory over time, how it "
        "ended. The program's output, input, signals and exit code are its own. Exits with 125 if "
        "the recording cannot be made, 126 if the program cannot be run, 127 if it does not exist."
    ),
    add_arguments=_add_arguments,
    run=_run,
    prints=False,
)
