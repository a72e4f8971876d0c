"""What ``otel-quant inference`` and ``otel-quant bench`` share: options of models, and where results go."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from otel_quant.cli.command import MISUSED, UserError, add_format, add_model_shapes, whole_number
from otel_quant.views.text import printable, terminal_width

if TYPE_CHECKING:
    from otel_quant.inference.results import InferenceResult
    from otel_quant.inference.subjects import Options

FAILED: Final = 1
"""A model could not be measured."""

MOST_RUNS: Final = 1_000_000
MOST_SECONDS: Final = 86_400.0

_LEVELS: Final = ("disable", "basic", "extended", "all")


def add_model_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds how sessions of ONNX models are made, what they are fed, and where a result goes."""
    add_format(parser, "table", "json", "csv", "markdown", "html")
    add_model_shapes(
        parser,
        of_inputs=", as in image=1x3x224x224, or with type and values, mask:i64:1x2:1x1",
        of_dims="; what is not given is 1",
    )
    parser.add_argument(
        "--data",
        metavar="FILE.npz",
        help="take the inputs from arrays of numpy.savez by the names of the inputs, instead of "
        "random ones",
    )
    parser.add_argument(
        "--provider",
        action="append",
        default=[],
        metavar="NAME[:KEY=VALUE,...]",
        dest="providers",
        help="execution provider with its options, in order of preference (CUDA is short for "
        "CUDAExecutionProvider); may be repeated (default: CPU)",
    )
    parser.add_argument(
        "--threads",
        type=whole_number("threads", MOST_RUNS),
        metavar="N",
        help="threads within a kernel (default: what the runtime takes)",
    )
    parser.add_argument(
        "--level",
        choices=_LEVELS,
        default="all",
        help="level of onnxruntime's graph optimization (default: %(default)s)",
    )
    parser.add_argument(
        "--custom-ops",
        action="append",
        default=[],
        metavar="LIBRARY",
        help="library of custom operators, or `quark` for AMD Quark's; may be repeated",
    )
    parser.add_argument(
        "--record",
        metavar="DIR",
        help="add the result to a recording of `otel-quant run`; its report shows it",
    )


def session_options(options: argparse.Namespace) -> Options:
    """Returns how sessions are made, of the options of :func:`add_model_arguments`."""
    from otel_quant.inference.subjects import Options

    return Options(
        providers=tuple(_provider(text) for text in options.providers),
        threads=options.threads,
        level=options.level,
        custom_ops=tuple(options.custom_ops),
    )


def _provider(text: str) -> tuple[str, Mapping[str, str]]:
    """Reads a provider with its options: ``CUDA:device_id=0,arena=1``."""
    name, _, more = text.partition(":")
    full = name if name.endswith("ExecutionProvider") else f"{name}ExecutionProvider"
    found: dict[str, str] = {}
    for pair in filter(None, more.split(",")):
        key, equals, value = pair.partition("=")
        if not (key and equals):
            raise UserError(
                f"--provider: {printable(text)} has an option {printable(pair)!r}; expected "
                "NAME:KEY=VALUE,KEY=VALUE",
                MISUSED,
            )
        found[key] = value
    return full, found


def path_in_recording(path: str, name: str) -> Path:
    """Returns where a result goes in a recording."""
    from otel_quant.export.recording.layout import MANIFEST

    folder = Path(path)
    if not (folder / MANIFEST).is_file():
        raise UserError(
            f"--record: {printable(path)} is no recording; expected a folder that `otel-quant run` made",
            MISUSED,
        )
    return folder / name


def write_for(path: Path, text: str, option: str) -> None:
    """Writes a file that an option asks for."""
    from otel_quant.views.html import write_page

    try:
        write_page(path, text)
    except OSError as error:
        raise UserError(f"{option}: {printable(str(path))}: {error.strerror}") from error


def print_result(result: InferenceResult, form: str, top: int = 0) -> None:
    """Prints a result in the form that is asked for, with so many nodes of each model."""
    from otel_quant.views.inference import document
    from otel_quant.views.writers import written

    if form == "json":  # of at most a megabyte, as a recording has it
        sys.stdout.write(result.to_json())
        return
    shown = document(result, None if form == "html" else top)
    sys.stdout.writelines(written(shown, form, terminal_width(sys.stdout)))


def send(result: InferenceResult, began_ns: int, ended_ns: int, recording: Path | None) -> None:
    """Sends a result as telemetry; the last thing that a command does."""
    from otel_quant.recordings.sending.inference import send_inference

    sys.stdout.flush()
    send_inference(result, began_ns, ended_ns, None if recording is None else recording.parent)
