"""``otel-quant inference``: ONNX models as onnxruntime runs them, and PyTorch models."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from otel_quant.cli.argument_types import seconds, whole_number
from otel_quant.cli.command import Command, UserError
from otel_quant.rendering.table import printable

if TYPE_CHECKING:
    from otel_quant.cost import InputSpec
    from otel_quant.inference.measure import Measured
    from otel_quant.inference.options import Options
    from otel_quant.inference.results import InferenceResult

FAILED: Final = 1
"""A model could not be measured."""

MISUSED: Final = 2
"""The command line makes no sense; argparse exits with the same."""

_LEVELS: Final = ("disable", "basic", "extended", "all")
_MOST_RUNS: Final = 1_000_000
_MOST_SECONDS: Final = 86_400.0


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "models",
        nargs="+",
        metavar="MODEL",
        help="an ONNX file, or script.py:function of PyTorch models; others are compared with the "
        "first",
    )
    add_model_arguments(parser)
    length = parser.add_mutually_exclusive_group()
    length.add_argument(
        "--runs",
        type=whole_number("runs", _MOST_RUNS),
        metavar="N",
        help="timed runs of each model",
    )
    length.add_argument(
        "--seconds",
        type=seconds(_MOST_SECONDS),
        default=3.0,
        metavar="S",
        help="time for the timed runs of each model (default: %(default).0f)",
    )
    parser.add_argument(
        "--warmup",
        type=whole_number("runs", _MOST_RUNS),
        default=3,
        metavar="N",
        help="runs before (default: %(default)s)",
    )
    parser.add_argument(
        "--layers",
        action="store_true",
        help="also compare each quantized tensor with the first model's, by onnxruntime's debugger",
    )
    parser.add_argument(
        "--top",
        type=whole_number("nodes", _MOST_RUNS),
        default=10,
        metavar="N",
        help="nodes of each model in tables (default: %(default)s)",
    )
    parser.add_argument(
        "--chrome", metavar="FILE", help="write a trace for Perfetto (ui.perfetto.dev) or Chrome"
    )


def add_model_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds how sessions of ONNX models are made, what they are fed, and where a result goes."""
    parser.add_argument(
        "--format",
        choices=("table", "json", "csv", "markdown", "html"),
        default="table",
        help="default: %(default)s",
    )
    parser.add_argument(
        "--input",
        action="append",
        default=[],
        metavar="NAME=SHAPE",
        dest="inputs",
        help="shape of an input, as in image=1x3x224x224, or with type and values, "
        "mask:i64:1x2:1x1; may be repeated",
    )
    parser.add_argument(
        "--dim",
        action="append",
        default=[],
        metavar="NAME=LENGTH",
        dest="dims",
        help="length of a dimension that has a name; what is not given is 1; may be repeated",
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
        type=whole_number("threads", _MOST_RUNS),
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


_OF_ONNX: Final[Mapping[str, str]] = {
    "--input": "inputs",
    "--dim": "dims",
    "--data": "data",
    "--provider": "providers",
    "--level": "level",
    "--custom-ops": "custom_ops",
    "--layers": "layers",
    "--chrome": "chrome",
}
"""Options that make no sense with a script, with their names in the namespace."""

_NOT_GIVEN: Final[Sequence[object]] = ([], None, False, "all")


def _is_script(model: str) -> bool:
    return model.partition(":")[0].endswith(".py")


def _run_script(options: argparse.Namespace) -> int:
    import time
    from importlib.util import find_spec

    from otel_quant.inference.measurement import measurement_of
    from otel_quant.inference.pytorch.script import measure_script
    from otel_quant.inference.variants import VariantsError
    from otel_quant.recordings.layout import INFERENCE
    from otel_quant.sending.inference import send_inference

    [script, *others] = sorted(options.models, key=_is_script, reverse=True)
    if others:
        raise UserError(
            f"{printable(script)} with {printable(others[0])}; expected a script alone: its function "
            "returns the models that are compared",
            MISUSED,
        )
    for option, name in _OF_ONNX.items():
        if getattr(options, name) not in _NOT_GIVEN:
            raise UserError(
                f"{option} is for ONNX files; expected none of it with {printable(script)}, whose "
                "function returns models and inputs",
                MISUSED,
            )
    if find_spec("torch") is None:
        raise UserError("PyTorch is not installed; expected: pip install otel-quant[torch]")
    recording = None if options.record is None else path_in_recording(options.record, INFERENCE)
    began_ns = time.time_ns()
    try:
        result = measure_script(script, _asked(options))
    except VariantsError as error:
        raise UserError(printable(str(error)), FAILED) from error
    measurement = measurement_of(result, began_ns, time.time_ns(), library=result.runtime)
    problems = [f"{each.path}: {each.problem}" for each in result.models if each.problem]
    if len(problems) < len(result.models):
        _print(result, options)
        if recording is not None:
            write_for(recording, result.to_json(), "--record")
    sys.stdout.flush()
    send_inference(measurement, None if recording is None else recording.parent)
    if problems:
        raise UserError("\notel-quant: ".join(problems), FAILED)
    return 0


def _run(options: argparse.Namespace) -> int:
    if any(map(_is_script, options.models)):
        return _run_script(options)
    # Only now: the other commands are not to wait for these.
    import time
    from importlib.util import find_spec

    from otel_quant.inference.chrome import chrome_trace
    from otel_quant.inference.measure import measure
    from otel_quant.inference.measurement import measurement_of
    from otel_quant.recordings.layout import INFERENCE
    from otel_quant.sending.inference import send_inference

    if find_spec("onnxruntime") is None:
        raise UserError("onnxruntime is not installed; expected: pip install otel-quant[inference]")
    recording = None if options.record is None else path_in_recording(options.record, INFERENCE)
    asked = _asked(options)
    models, problems = _models(options)
    if models:
        unreadable, began_ns = dict(problems), time.time_ns()
        result = measure(models, asked)
        measurement = measurement_of(result, began_ns, time.time_ns(), unreadable)
        problems |= {each.path: each.problem for each in result.models if each.problem}
        if any(not each.problem for each in result.models):
            _print(result, options)
            if options.chrome is not None:
                write_for(Path(options.chrome), chrome_trace(models), "--chrome")
            if recording is not None:
                write_for(recording, result.to_json(), "--record")
        sys.stdout.flush()
        send_inference(measurement, None if recording is None else recording.parent)
    if problems:
        failed = [path for path in dict.fromkeys(options.models) if path in problems]
        lines = [f"{printable(path)}: {problems[path]}" for path in failed]
        raise UserError("\notel-quant: ".join(lines), FAILED)
    return 0


def _asked(options: argparse.Namespace) -> Options:
    return replace(
        session_options(options),
        runs=options.runs,
        seconds=options.seconds,
        warmup=options.warmup,
        layers=options.layers,
    )


def session_options(options: argparse.Namespace) -> Options:
    """Returns how sessions are made, of the options of :func:`add_model_arguments`.

    Raises:
        UserError: A provider has an option without a value.
    """
    from otel_quant.inference.options import Options

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


def _models(options: argparse.Namespace) -> tuple[list[Measured], dict[str, str]]:
    """Returns the models that can be read, and what is wrong with the others."""
    from otel_quant.inference.subjects import UnreadableError, measured_model

    inputs, dims = shapes_of(options)
    models: list[Measured] = []
    problems: dict[str, str] = {}
    for path in options.models:
        try:
            models.append(measured_model(path, inputs, dims, options.data))
        except UnreadableError as error:
            problems[path] = printable(str(error).removeprefix(f"{path}: "))
    return models, problems


def shapes_of(
    options: argparse.Namespace,
) -> tuple[Mapping[str, InputSpec], Mapping[str, int]]:
    """Returns the shapes of inputs and the lengths of dimensions that the user gives.

    Raises:
        UserError: One of them makes no sense.
    """
    from otel_quant.cost import CostError, parse_dims, parse_inputs

    try:
        return parse_inputs(options.inputs, option="--input"), parse_dims(options.dims)
    except CostError as error:
        wanted = f"; expected {error.expected}" if error.expected else ""
        raise UserError(printable(error.problem + wanted), MISUSED) from error


def _print(result: InferenceResult, options: argparse.Namespace) -> None:
    if options.format == "html":
        from otel_quant.report.inference_page import render

        sys.stdout.write(render(result))
        return
    from otel_quant.rendering.inference_report import report

    sys.stdout.writelines(report(result, options.format, options.top))


def path_in_recording(path: str, name: str) -> Path:
    """Returns where a result goes in a recording.

    Args:
        path: The recording, as the user gave it.
        name: Of the file.

    Raises:
        UserError: It is no recording.
    """
    from otel_quant.recordings.layout import MANIFEST

    folder = Path(path)
    if not (folder / MANIFEST).is_file():
        raise UserError(
            f"--record: {printable(path)} is no recording; expected a folder that `otel-quant run` made",
            MISUSED,
        )
    return folder / name


def write_for(path: Path, text: str, option: str) -> None:
    """Writes a file that an option asks for.

    Raises:
        UserError: It cannot be written.
    """
    from otel_quant.report.file import write

    try:
        write(path, text)
    except OSError as error:
        raise UserError(f"{option}: {printable(str(path))}: {error.strerror}") from error


COMMAND: Final = Command(
    name="inference",
    brief="measure models at work: latency, memory, kernels, what went wrong",
    description=(
        "Runs ONNX models with onnxruntime, each in a process of its own, and says side by side how "
        "fast they are, in how much memory, which kernels ran, what went wrong, and how far off "
        "their outputs are from the first model's. script.py:function does the same for the PyTorch "
        "models that a function of a script returns with their inputs. Exit codes: 0 all were "
        f"measured, {FAILED} one could not be, {MISUSED} the command line makes no sense."
    ),
    add_arguments=_add_arguments,
    run=_run,
)
