"""``otel-quant inference``: ONNX models as onnxruntime runs them, and PyTorch models."""

from __future__ import annotations

import argparse
import dataclasses
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from otel_quant.cli import measured_models as models
from otel_quant.cli.command import MISUSED, Command, UserError, either, number, option, user_errors

if TYPE_CHECKING:
    from otel_quant.inference.results import InferenceResult


_OF_FILES: Final = ("input", "dim", "data", "provider", "level", "custom_ops", "session", "layers")
"""Options that make no sense with a script."""


def _run(options: argparse.Namespace) -> int:
    from otel_quant.format.event_file import INFERENCE

    needed, extra = "onnxruntime", "inference"
    if script := next((it for it in options.models if it.partition(":")[0].endswith(".py")), ""):
        if len(options.models) > 1:
            raise UserError(
                f"{script} with other models; expected a script alone: its function returns the models that are compared",
                MISUSED,
            )
        models.refuse_with_script(options, script, (*_OF_FILES, "graph"))
        needed = extra = "torch"
    models.require(needed, extra=extra)
    asked = models.measure_options(options)

    def measure() -> InferenceResult:
        if script:
            from otel_quant.inference.torch_models import measure_script

            return measure_script(script, asked)
        from otel_quant.inference.measure import measure_files

        return measure_files(options.models, asked)

    def repeatable() -> InferenceResult:
        return dataclasses.replace(measure(), command=shlex.join(("otel-quant", *sys.argv[1:])))

    graphs = list(map(_graph, options.graph))
    result = models.measured(options, repeatable, INFERENCE, options.top)
    if lines := [f"{each.path}: {each.problem}" for each in result.models if each.problem]:
        raise UserError(lines, models.FAILED)
    for figure, file in graphs:
        from otel_quant.cost import CostError
        from otel_quant.views.model_graph import graph_text

        writable = "expected a file that can be written"
        with user_errors(CostError, "--graph: ", models.FAILED, path=file, expected=writable):
            file.write_text(graph_text(result, figure, is_picture=file.suffix == ".svg"))
    return 0


def _graph(asked: str) -> tuple[str, Path]:
    """Returns what to colour a graph by, and where to write it."""
    from otel_quant.views.model_graph import FIGURES

    figure, _, file = asked.partition("=")
    if figure in FIGURES and file.endswith((".svg", ".json")):
        return figure, Path(file)
    expected = f"one of {', '.join(FIGURES)}, then =FILE.svg or =FILE.json"
    raise UserError(f"--graph {asked}; expected {expected}", MISUSED)


COMMAND: Final = Command(
    brief="benchmark models: latency, memory, kernels, findings",
    description=f"Runs ONNX models with onnxruntime, each in a process of its own, and shows side by side how fast they are, in how much memory, which kernels ran, findings, and how far off their outputs are from the first model's. script.py:function does the same for the PyTorch models that a function of a script returns with their inputs. Exit codes: 0 all were measured, {models.FAILED} one could not be, {MISUSED} the command line makes no sense.",
    examples=("float.onnx int8.onnx", "float.onnx int8.onnx --dim batch=1 --layers"),
    arguments=(
        option("models", nargs="+", metavar="MODEL", help="an ONNX file, or script.py:function of PyTorch models; others are compared with the first"),
        *models.MODEL_ARGUMENTS,
        either(
            option("--runs", type=number("runs", models.MOST_RUNS), metavar="N", help="timed runs of each model"),
            option("--seconds", type=models.SECONDS, default=3.0, metavar="S", help="time for the timed runs of each model (default: %(default).0f)"),
        ),
        option("--warmup", type=number("runs", models.MOST_RUNS), default=3, metavar="N", help="runs before (default: %(default)s)"),
        option("--session", action="store_true", help="make the session of a model with the disabled_optimizers and session_config in MODEL.session.json beside it, as `otel-quant fix` writes it"),
        option("--layers", action="store_true", help="compare the layers with the first model's also of models above 268 MB together, or of a quantized first one"),
        option("--graph", action="append", default=[], metavar="FIGURE=FILE", help="write the graph of the first model, coloured by time, change, weights, activations, error, type or verdict of the last one: FILE.svg, or FILE.json for Google's Model Explorer; may be repeated"),
        option("--top", type=number("nodes", models.MOST_RUNS), default=10, metavar="N", help="nodes of each model in tables (default: %(default)s)"),
    ),
    run=_run,
)  # fmt: skip
