"""``otel-quant cost``: what ONNX models cost, without running them."""

from __future__ import annotations

import argparse
import gc
import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from otel_quant.cli import command as cmd

if TYPE_CHECKING:
    from otel_quant.cost import InputSpec, ModelCost

FAILED: Final = 1  # A model could not be read or costed

INCOMPLETE: Final = 3
"""With ``--strict``: costs of some node are not known, or a length or a branch was assumed."""

_MAX_NODES: Final = 100_000_000


def _run(options: argparse.Namespace) -> int:
    from otel_quant.cost import CostError, parse_dims
    from otel_quant.views.cost import Choices, all_assumptions, document

    # A graph of many nodes makes millions of objects and no garbage; looking for some would take
    # a third of the time. The process ends with the command.
    gc.disable()
    with cmd.user_errors(CostError):
        inputs, dims = _inputs(options.input, options.models), parse_dims(options.dim)
    if options.by == "comparison" and len(options.models) < 2:
        what = "--by comparison: one model is given; expected two or more"
        raise cmd.UserError(what, cmd.MISUSED)
    costs, problems = _costs(options, inputs, dims)
    problems += _of_no_model(dims, options.exclude, costs)
    if costs and not (problems and options.by == "comparison"):
        choices = Choices(options.by, options.sort, options.top, compared=not problems)
        cmd.print_document(document(costs, choices), options.format)
        sys.stdout.flush()
        if options.format == "csv" and not options.strict and sys.stderr is not None:
            # CSV has no place for them; --strict prints them anyway.
            sys.stderr.writelines(f"otel-quant: {line}\n" for line in all_assumptions(costs))
    if options.input or options.dim:
        wanted = "expected lengths that the model takes; the totals leave out what depends on it"
        problems += [f"{each.path}: {each.misfit}; {wanted}" for each in costs if each.misfit]
    if problems:
        raise cmd.UserError(problems, FAILED)
    unknown = [*all_assumptions(costs), *_unknown(costs)] if options.strict else ()
    if unknown:
        raise cmd.UserError(unknown, INCOMPLETE)
    return 0


_HANDED_ON: Final = ("rules", "view", "sparsity", "exclude", "time_limit", "max_nodes")
"""Options that mean to the analysis what they mean to the command."""


def _costs(
    options: argparse.Namespace, inputs: Mapping[str, dict[str, InputSpec]], dims: Mapping[str, int]
) -> tuple[list[ModelCost], list[str]]:
    """Returns the costs of the models that have one, and what is wrong with the others."""
    from otel_quant.cost import CostError, analyze

    costs: list[ModelCost] = []
    problems: list[str] = []
    handed_on = {name: getattr(options, name) for name in _HANDED_ON}
    for path in options.models:
        given = inputs[""] | inputs.get(path, {})
        try:
            by_tensor = options.by == "tensor"
            costs.append(analyze(path, inputs=given, dims=dims, tensors=by_tensor, **handed_on))
        except CostError as error:
            problems.append(str(error))
    return costs, problems


def _inputs(texts: Sequence[str], models: Sequence[str]) -> Mapping[str, dict[str, InputSpec]]:
    """Returns the shapes that are given for all models, under an empty name, and for one each."""
    from otel_quant.cost import parse_inputs

    files = [os.path.basename(path) for path in models]  # noqa: PTH119  # pathlib takes 2 ms to import
    pairs = zip(files, models, strict=True)
    names = dict(zip(models, models, strict=True))
    names |= {file: path for file, path in pairs if files.count(file) == 1}
    groups: dict[str, list[str]] = {"": []}
    for text in texts:
        named = [name for name in names if text.startswith(f"{name}:")]
        name = max(named, key=len, default="")
        shape = text.removeprefix(f"{name}:") if name else text
        groups.setdefault(names.get(name, ""), []).append(shape)
    return {
        path: parse_inputs(shapes, option=f"--input for {path}:" if path else "--input")
        for path, shapes in groups.items()
    }


def _of_no_model(
    dims: Mapping[str, int], operators: Sequence[str], costs: Sequence[ModelCost]
) -> list[str]:
    """Messages on dimensions and operators that no model has."""
    return [
        f"--exclude: no model has an operator {name!r}; expected one that --by op lists"
        for name in operators
        if costs and not any(cost.excluded.get(name) for cost in costs)
    ] + [
        f"--dim: no model has a dimension {name!r}; expected a name from a model's inputs or "
        "results; the report lists the dimensions that were assumed"
        for name in dims
        if costs and all(name in cost.unused_dims for cost in costs)
    ]


def _unknown(costs: Sequence[ModelCost]) -> list[str]:
    """Messages on what the totals of models leave out."""
    return [
        f"{cost.path}: nodes without known MACs: {nodes}, results of unknown size: "
        f"{cost.unsized_tensors}; the totals leave them out"
        for cost in costs
        if (nodes := sum(cost.uncosted_ops.values())) or cost.unsized_tensors
    ]


COMMAND: Final = cmd.Command(
    brief="print the MACs, parameters and memory of ONNX models",
    description=f"Prints what ONNX models cost: MACs, parameters, memory, precision. The models are not run and their weights are not read; --sparsity reads them. Exit codes: 0 all were costed, {FAILED} one could not be, {cmd.MISUSED} the command line makes no sense, {INCOMPLETE} --strict was given and something is not known or was assumed.",
    examples=("model.onnx", "float.onnx int8.onnx --dim batch=1 --by node"),
    arguments=(
        cmd.option("models", nargs="+", metavar="MODEL", help="an ONNX file; further ones, right behind it, are compared with the first"),
        cmd.add_format,
        cmd.option("--rules", choices=("corrected", "onnx_tool"), default="corrected", help="corrected, or onnx_tool for the figures of that program (default: %(default)s)"),
        *cmd.shapes_of_models(metavar="[MODEL:]NAME=SHAPE", of_inputs=" with dynamic dimensions, as in image=1x3x224x224, or as onnx_tool writes it, image:f32:1x3x224x224, with values behind a further colon; for one of several models only, int8.onnx:image=1x3x224x224; unspecified dimensions default to 1, and the report begins with it; a length that the model fixes may be overridden, and the report notes it", of_dims=", wherever any of the models has it"),
        cmd.option("--view", choices=("fused", "file"), help="bytes moved by operators as onnxruntime runs them, without the floats between DequantizeLinear and QuantizeLinear, or by every node of the file by itself (default: fused; with --rules onnx_tool file)"),
        cmd.option("--by", choices=("node", "op", "module", "tensor", "total", "comparison"), help="one line per node, per operator, per module that the names of nodes give, per tensor that a node makes or per model, or only what differs between models (default: a summary, and what differs; for csv node)"),
        cmd.option("--sort", choices=("macs", "memory", "params", "order"), help="largest first, or order of execution (default: macs; for json order)"),
        cmd.option("--top", type=cmd.number("lines", _MAX_NODES), metavar="N", help="only the first N lines of each table; of a summary, the N largest nodes (default: 3)"),
        cmd.option("--exclude", action="append", default=[], metavar="OP", help="leave out the nodes of an operator, with its domain outside ONNX's own: com.microsoft:Gelu; may be repeated"),
        cmd.option("--sparsity", action="store_true", help="read the weights and look for zeros"),
        cmd.option("--time-limit", type=cmd.number("seconds", 86400, least=0.001, of=float), default=300.0, metavar="SECONDS", help="give up on a model after this time (default: %(default).0f)"),
        cmd.option("--max-nodes", type=cmd.number("nodes", _MAX_NODES), default=200000, metavar="N", help="give up on a model with more nodes, functions and bodies included (default: %(default)s)"),
        cmd.option("--strict", action="store_true", help=f"exit with {INCOMPLETE} if the costs of some node are not known, or a length of an input or the branch of an If was assumed"),
    ),
    run=_run,
)  # fmt: skip
