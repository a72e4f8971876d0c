"""Measures models: starts their processes, has them run in turn, and reads what they leave."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

from otel_quant.cost.graph import printable
from otel_quant.inference.accuracy import compared, tensor_errors
from otel_quant.inference.feeds import tensor_text
from otel_quant.inference.file_graph import FileGraph, contents_of
from otel_quant.inference.findings.record import Evidence
from otel_quant.inference.findings.table import findings
from otel_quant.inference.join import Kernel, joined
from otel_quant.inference.measurement import is_quantized
from otel_quant.inference.options import Options, Subject
from otel_quant.inference.profile_json import Profile, read_profile
from otel_quant.inference.ran_graph import ran_graph
from otel_quant.inference.results import (
    Accuracy,
    InferenceResult,
    MemoryUse,
    ModelResult,
    OperatorTime,
    Ran,
    RanKernel,
)
from otel_quant.inference.rounds import Timed, in_turn, latency, usual
from otel_quant.inference.worker import ModelProcess

_FEWEST_RUNS: Final = 2
"""Runs of the profiled session after its first one."""

_LONGEST: Final = 120
"""Characters of a name in a result."""

_MOST_TENSORS: Final = 16
"""Operands or results of a kernel in a result."""


class Measured(ModelProcess):
    """One model while it is measured."""

    def __init__(self, subject: Subject, file: FileGraph) -> None:
        super().__init__()
        self.subject, self.file = subject, file
        self.profile: Profile | None = None
        self.kernels: list[Kernel] = []
        self.loaded: Mapping[str, Any] = {}
        self.rounds: list[list[int]] = []
        self.peak: int | None = None
        self.outputs: tuple[list[str], Path] | None = None
        self.profiled: float | None = None
        self.assigned: Mapping[str, int] | None = None
        self.weights_in_memory: int | None = None
        self.accuracy: Accuracy | None = None


def measure(models: Sequence[Measured], options: Options) -> InferenceResult:
    """Measures models beside each other."""
    load = os.getloadavg()[0]
    try:
        for model in models:
            model.loaded = (
                model.ask(
                    "load",
                    path=model.subject.path,
                    options=asdict(options_of(model, options)),
                    subject=asdict(model.subject),
                )
                or {}
            )
        _run(models, options)
        for model in models:
            _look_at(model, options)
        _compare(models, options)
    finally:
        for model in models:
            model.close()
    first = models[0]
    version = next((each.loaded["version"] for each in models if each.loaded), "")
    return InferenceResult(
        tuple(_result(model, None if model is first else first, options) for model in models),
        version,
        _settings(options),
        load,
        len(os.sched_getaffinity(0)),
    )


def options_of(model: Measured, options: Options) -> Options:
    """Returns a model's options: Quark's library takes 700 MB, which others need not have."""
    if any(op.kind.startswith("com.amd.quark:") for op in model.file.ops):
        return options
    return replace(
        options, custom_ops=tuple(each for each in options.custom_ops if each != "quark")
    )


def _run(models: Sequence[Measured], options: Options) -> None:
    """Runs all models in rounds."""
    warm = {i: each.loaded["warm"] for i, each in enumerate(models) if not each.problem}
    for i, count in in_turn(options, warm):
        if not models[i].problem and (times := models[i].ask("run", times=count)):
            models[i].rounds.append(times)
    for model in models:
        found = model.ask("memory")
        if found is not None and model.loaded["mark_reset"]:
            model.peak = found["peak"]


def _look_at(model: Measured, options: Options) -> None:
    """Has a model's profiled session run, and joins what it leaves."""
    path = model.folder / "outputs.npz" if not model.problem else Path()
    names = model.ask("outputs", path=str(path))
    found = model.ask(
        "profile", runs=_profiled_runs(model, options), saves_graph=model.subject.saves_graph
    )
    if names is None or found is None:
        return
    model.outputs = names, path
    profile = read_profile(Path(found["file"]))
    if not profile.runs:
        model.problem = "onnxruntime left no profile of its runs"
        model.close()
        return
    ran = ran_graph(found["graph"])
    model.weights_in_memory = None if ran is None else ran.weight_bytes
    model.profile, model.kernels = profile, joined(profile, model.file, ran)
    model.profiled = usual(found["profiled"]) / usual(found["plain"])
    if found["assigned"] is not None:
        model.assigned = dict(Counter(provider for provider, _, _ in found["assigned"]))


def _profiled_runs(model: Measured, options: Options) -> int:
    fitting = int(options.seconds * 1e9 / model.loaded["warm"]) if model.loaded else 0
    return max(_FEWEST_RUNS, min(model.subject.profiled_runs, fitting))


def _compare(models: Sequence[Measured], options: Options) -> None:
    first, *others = models
    for other in others:
        if other.outputs is None:
            continue
        if first.outputs is None:
            other.accuracy = Accuracy(problem="the first model was not measured")
            continue
        if first.loaded["inputs"] != other.loaded["inputs"]:
            other.accuracy = Accuracy(problem="its inputs are not those of the first model")
            continue
        other.accuracy = compared(first.outputs, other.outputs)
        if options.layers:
            _compare_layers(first, other, other.accuracy)


def _compare_layers(first: Measured, other: Measured, outputs: Accuracy) -> None:
    found = other.ask("layers", first=first.subject.path)
    if found is None:  # what was measured before stands
        problem, other.problem = other.problem, ""
        other.accuracy = replace(outputs, problem=f"--layers: {problem}")
    elif not found:
        why = "--layers: no tensor of the model is quantized and dequantized again"
        other.accuracy = replace(outputs, problem=why)
    else:
        other.accuracy = replace(outputs, layers=tensor_errors(found))


def _result(model: Measured, first: Measured | None, options: Options) -> ModelResult:
    result = ModelResult(model.subject.path, model.problem, assumed=model.subject.assumed)
    if model.problem or model.profile is None:
        return result
    evidence = Evidence(
        model.file,
        model.kernels,
        [name for name, _ in options.providers],
        options.level,
        bool(_open_lengths(model.file)),
    )
    beside = first if first is not None and not first.problem else None
    loaded = model.loaded
    return replace(
        result,
        inputs={
            printable(name, _LONGEST): tensor_text(dtype, shape)
            for name, (dtype, *shape) in loaded["inputs"].items()
        },
        providers=tuple(loaded["providers"]),
        assigned=model.assigned,
        latency=latency(_timed(model), None if beside is None else _timed(beside), model.profiled),
        memory=MemoryUse(
            model.peak,
            loaded["load_peak"],
            loaded["grown"],
            model.profile.arena_held,
            model.profile.arena_used,
            contents_of(model.file)[0],
            model.weights_in_memory,
        ),
        ran=_ran(model.profile, model.kernels),
        findings=tuple(findings(evidence)),
        accuracy=model.accuracy,
        is_quantized=is_quantized(model.file),
    )


def _timed(model: Measured) -> Timed:
    return Timed(model.loaded["first"] * 1e-9, model.rounds)


def _open_lengths(file: FileGraph) -> list[str]:
    return [
        info.name
        for info in file.model.graph.inputs
        if info.name in file.bound.values
        and (info.type.shape is None or not all(isinstance(each, int) for each in info.type.shape))
    ]


def _ran(profile: Profile, kernels: Sequence[Kernel]) -> Ran:
    runs = len(profile.runs)
    groups: dict[tuple[str, str], list[Kernel]] = {}
    for kernel in kernels:
        key = kernel.profiled.op_type, kernel.profiled.provider
        groups.setdefault(key, []).append(kernel)
    operators = [_operator(*key, found) for key, found in groups.items()]
    return Ran(
        runs,
        profile.run_micros,
        profile.kernel_micros,
        max(0.0, profile.run_micros - profile.kernel_micros),
        tuple(
            _ran_kernel(kernel, runs) for kernel in sorted(kernels, key=lambda each: -each.micros)
        ),
        0,
        0.0,
        tuple(sorted(operators, key=lambda each: -each.micros)),
    )


def _operator(op_type: str, provider: str, kernels: Sequence[Kernel]) -> OperatorTime:
    micros = sum(kernel.micros for kernel in kernels)
    known = [kernel.macs for kernel in kernels if kernel.macs is not None]
    macs = sum(known) if known else None
    rate = 1e6 * macs / micros if macs and micros else None
    share = sum(kernel.share for kernel in kernels)
    return OperatorTime(op_type, provider, len(kernels), micros, share, macs, rate)


def _ran_kernel(kernel: Kernel, runs: int) -> RanKernel:
    profiled, node = kernel.profiled, kernel.node
    return RanKernel(
        name=printable(profiled.name, _LONGEST),
        op_type=profiled.op_type,
        node=None if node is None else printable(node.name, _LONGEST),
        nodes=len(kernel.nodes),
        provider=profiled.provider,
        micros=kernel.micros,
        share=kernel.share,
        calls=profiled.calls / runs,
        inputs=tuple(map(str, profiled.inputs[:_MOST_TENSORS])),
        outputs=tuple(map(str, profiled.outputs[:_MOST_TENSORS])),
        macs=kernel.macs,
        macs_per_second=kernel.macs_per_second,
    )


def _settings(options: Options) -> Mapping[str, str]:
    found = {
        "providers": ", ".join(name for name, _ in options.providers) or "CPUExecutionProvider",
        "threads": "onnxruntime's choice" if options.threads is None else str(options.threads),
        "graph optimization": options.level,
        "runs": f"{options.seconds:g} s each" if options.runs is None else str(options.runs),
    }
    for name, more in options.providers:
        found |= {f"{name}.{key}": value for key, value in more.items()}
    return found
