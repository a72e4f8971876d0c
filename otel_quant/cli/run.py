"""``otel-quant run``: records a program from its start to its end.

The program waits for what is imported here; what is needed once it runs is imported then.
"""

from __future__ import annotations

import os
import sys
from types import SimpleNamespace

from otel_quant.cli.command import Command, UserError, number, option, user_errors
from otel_quant.launcher import start
from otel_quant.launcher.program import Program, ProgramElsewhere, end_as

TYPE_CHECKING = False  # not typing's, which takes a tenth of the time until the program starts
if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence
    from typing import Any, Final

_OWN_FAILURE: Final = 125
"""Exit code where the program was not started because of us, as env and timeout have it."""

_PRINTING: Final = "llama-quantize"
_LAYERS: Final = ("-P", "-m", "otel_quant.program.printed_progress")
"""A program that is no Python and prints which layer it begins, and what starts it and counts them."""

_TRACKERS: Final = ("mlflow", "wandb")
"""Trackers of experiments: the names of their options, and of their packages."""

_NOT_EXECUTABLE: Final = 126
_NOT_FOUND: Final = 127  # Exit codes of shells

_OUTPUT: Final = "output.log"
"""As in otel_quant/format/event_file.py, which loads too much for the program to wait for."""

_EXPECTED: Final = "expected otel-quant run [options] -- PROGRAM ARGS..., as python quantize.py"

_OPTIONS: Final[Mapping[str, Mapping[str, Any]]] = {
    "--out": {"metavar": "DIR", "help": "folder of the recording, new or empty (default: otel-quant-<script>-<date>-<time>)"},
    "--quiet": {"action": "store_true", "help": "print nothing at the end, unless an upload has failed"},
    "--watch": {"action": "store_true", "help": "show the live view; the program's output goes to output.log in the recording"},
    "--no-report": {"action": "store_true", "help": "make no report.html"},
    "--no-command": {"action": "store_true", "help": "leave the program's arguments out of the recording"},
    "--otlp-files": {"action": "store_true", "help": "add traces, metrics and log records in files of OpenTelemetry's JSON-lines exporter"},
    "--on-warning": {"metavar": "COMMAND", "help": "run this in a shell, with JSON on its standard input, when memory will not suffice, a step stalls, or the program has ended"},
    "--continues": {"metavar": "RECORDING", "help": "recording of an earlier run of this program, which was killed and which this run continues: their times are added up (default: the recording beside this one that names the checkpoint folder from which the library continues)"},
    "--fix": {"action": "store_true", "help": "after it, rewrite the quantized ONNX models that it has written, as `otel-quant fix` does; what pays is written beside them, as NAME.fixed.onnx"},
    "--mlflow": {"action": "store_true", "help": "log the run's figures and its report to the MLflow run MLFLOW_RUN_ID"},
    "--wandb": {"action": "store_true", "help": "log the run's figures and its report to the Weights & Biases run WANDB_RUN_ID"},
    "--brief": {"metavar": "FILE", "nargs": "?", "const": "-", "help": "the answer for programs, a JSON object of at most 2 kB, as the last line of standard error or in a file"},
    "--upload": {"metavar": "URL", "help": "upload the recording while it is made, into a folder of its own at s3://BUCKET/PATH, gs://BUCKET/PATH, az://CONTAINER/PATH or file:///PATH; if the store fails, the program goes on"},
    "--interval": {"metavar": "MS", "type": number("milliseconds", 3_600_000, of=float), "help": "milliseconds between readings (default: 50)"},
}  # fmt: skip


def _add_program(parser: argparse.ArgumentParser) -> None:
    from argparse import REMAINDER, SUPPRESS

    parser.usage = "%(prog)s [options] -- PROGRAM ARGS..."
    parser.add_argument("program", nargs=REMAINDER, help=SUPPRESS)


def plain_options(words: Sequence[str]) -> SimpleNamespace | None:
    """Returns what argparse makes of ``--out DIR``, switches, and a program after ``--``; None for anything else.

    With what :mod:`argparse` loads, a program would start a third later.
    """
    options: dict[str, str | bool | None] = {
        name: None if "metavar" in each else False for name, each in _OPTIONS.items()
    }
    given = iter(words)
    for word in given:
        if word == "--":
            values = {name[2:].replace("-", "_"): value for name, value in options.items()}
            common = {"run": _run, "prints": COMMAND.prints, "traceback": False}
            return SimpleNamespace(**values, **common, program=["--", *given])
        if options.get(word) is False:
            options[word] = True
        elif word != "--out" or (folder := next(given, "-")).startswith("-"):
            return None
        else:
            options[word] = folder
    return None


def _run(options: argparse.Namespace | SimpleNamespace) -> int:
    arguments: list[str] = options.program[options.program[:1] == ["--"] :]
    if not arguments:
        raise UserError(f"no program is given; {_EXPECTED}", 2)
    if options.otlp_files:
        _require_exporter()
    if options.continues is not None:
        from otel_quant.cli.command import read_recording

        read_recording(options.continues, "--continues: ", _OWN_FAILURE)
    if options.upload is not None:
        from otel_quant.format.store import StoreError, require_store

        with user_errors(StoreError, "--upload: ", _OWN_FAILURE):
            require_store(options.upload)
    options.trackers = [name for name in _TRACKERS if getattr(options, name)]
    for name in options.trackers:
        _require_tracker(name)
    try:
        folder = start.make_folder(options.out, arguments)
    except OSError as error:
        where = os.fspath(error.filename or options.out or ".")
        raise UserError(
            f"{where}: {error.strerror}; expected a new or empty folder to write to; choose one with --out DIR",
            _OWN_FAILURE,
        ) from error
    command = arguments
    if arguments[0].rpartition(os.sep)[2] == _PRINTING:
        from shutil import which

        command = [sys.executable, *_LAYERS, *arguments] if which(arguments[0]) else arguments
    environ = start.program_environment(folder, command, _settings(options))
    began_ns = start.now_ns()
    program = _started(options, folder, command, environ)
    start.let_it_start(folder)
    # What is loaded from here on does not keep the program waiting.
    from otel_quant.cli.running_program import recorded_to_its_end

    code = recorded_to_its_end(program, folder, began_ns, arguments, environ, options)
    return end_as(code)


def _started(
    options: argparse.Namespace | SimpleNamespace,
    folder: str,
    arguments: Sequence[str],
    environ: Mapping[str, str],
) -> Program | ProgramElsewhere:
    """Starts the program; where there is none, nothing is left of its recording."""
    output = f"{folder}/{_OUTPUT}" if options.watch else None
    try:
        kind = Program if sys.platform == "linux" else ProgramElsewhere
        return kind(arguments, environ, output)
    except OSError as error:
        start.take_notes(folder)
        if output is not None and os.path.exists(output):  # noqa: PTH110 - the program waits for pathlib
            os.unlink(output)  # noqa: PTH108 - likewise
        if options.out is None:
            os.rmdir(folder)  # noqa: PTH106 - likewise
        raise _not_started(arguments[0], error) from error


def _require_tracker(name: str) -> None:
    from importlib.util import find_spec

    if not os.environ.get(run := f"{name.upper()}_RUN_ID"):
        raise UserError(f"--{name}: {run} is not set; expected the id of the run to log to", 2)
    if find_spec(name) is None:
        raise UserError(f"--{name}: {name} is not installed; expected pip install {name}", 2)


def _settings(options: argparse.Namespace | SimpleNamespace) -> dict[str, str]:
    settings = {}
    if options.otlp_files:
        settings["OTEL_QUANT_OTLP_FILES"] = "true"
    if options.no_command:
        settings["OTEL_QUANT_ARGUMENTS"] = "false"
    if options.interval is not None:
        settings["OTEL_QUANT_SAMPLE_INTERVAL"] = f"{options.interval:g}"
    return settings


def _require_exporter() -> None:
    from importlib.util import find_spec

    try:
        found = find_spec("opentelemetry.exporter.otlp.json.file")
    except ModuleNotFoundError:
        found = None
    if found is None:
        raise UserError(
            "--otlp-files: the package opentelemetry-exporter-otlp-json-file is missing; pip install 'otel-quant[otlp-files]'",
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
    brief="record a program that quantizes, and print its steps",
    description="Records a program in a folder: its steps with their figures, its memory over time, how it ended. The program's output, input, signals and exit code are its own. Exits with 125 if the recording cannot be made, 126 if the program cannot be run, 127 if it does not exist.",
    examples=(
        "-- python quantize.py",
        "--out runs/first --watch -- python quantize.py --samples 128",
    ),
    arguments=(*(option(name, **how) for name, how in _OPTIONS.items()), _add_program),
    run=_run,
    prints=False,
)
