"""``otel-quant inference``: ONNX models as onnxruntime runs them, and PyTorch models."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from otel_quant.cli.argument_types import seconds, whole_number
from otel_quant.cli.command import MISUSED, Command, UserError
from otel_quant.cli.measured_models import (
    FAILED,
    MOST_RUNS,
    MOST_SECONDS,
    add_model_arguments,
    path_in_recording,
    session_options,
    write_for,
)
from otel_quant.cli.model_shapes import model_shapes
from otel_quant.views.text import printable, terminal_width

if TYPE_CHECKING:
    from otel_quant.inference.measure import Measured
    from otel_quant.inference.options import Options
    from otel_quant.inference.results import InferenceResult


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
        type=whole_number("runs", MOST_RUNS),
        metavar="N",
        help="timed runs of each model",
    )
    length.add_argument(
        "--seconds",
        type=seconds(MOST_SECONDS),
        default=3.0,
        metavar="S",
        help="time for the timed runs of each model (default: %(default).0f)",
    )
    parser.add_argument(
        "--warmup",
        type=whole_number("runs", MOST_RUNS),
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
        type=whole_number("nodes", MOST_RUNS),
        default=10,
        metavar="N",
        help="nodes of each model in tables (default: %(default)s)",
    )
    parser.add_argument(
        "--chrome", metavar="FILE", help="write a trace for Perfetto (ui.perfetto.dev) or Chrome"
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

    from otel_quant.export.recording.layout import INFERENCE
    from otel_quant.inference.measurement import measurement_of
    from otel_quant.inference.pytorch.script import measure_script
    from otel_quant.inference.variants import VariantsError
    from otel_quant.recordings.sending.inference import send_inference

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

    from otel_quant.export.recording.layout import INFERENCE
    from otel_quant.inference.chrome import chrome_trace
    from otel_quant.inference.measure import measure
    from otel_quant.inference.measurement import measurement_of
    from otel_quant.recordings.sending.inference import send_inference

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


def _models(options: argparse.Namespace) -> tuple[list[Measured], dict[str, str]]:
    """Returns the models that can be read, and what is wrong with the others."""
    from otel_quant.inference.subjects import UnreadableError, measured_model

    inputs, dims = model_shapes(options)
    models: list[Measured] = []
    problems: dict[str, str] = {}
    for path in options.models:
        try:
            models.append(measured_model(path, inputs, dims, options.data))
        except UnreadableError as error:
            problems[path] = printable(str(error).removeprefix(f"{path}: "))
    return models, problems


def _print(result: InferenceResult, options: argparse.Namespace) -> None:
    if options.format == "html":
        from otel_quant.views.report.inference_page import render

        sys.stdout.write(render(result))
        return
    from otel_quant.views.inference_report import report

    width = terminal_width(sys.stdout)
    sys.stdout.writelines(report(result, options.format, options.top, width))


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
