"""Measures models beside each other in processes of their own: ``inference`` in detail, ``bench`` side by side."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from statistics import median
from typing import Final

from otel_quant.base import machine
from otel_quant.cost.graph import runtime_here
from otel_quant.inference.findings import with_slower
from otel_quant.inference.onnx_findings import FINDINGS, OnnxEvidence
from otel_quant.inference.outputs import compared_outputs, tensor_errors
from otel_quant.inference.results import (
    Accuracy,
    InferenceResult,
    MemoryUse,
    ModelResult,
    Ran,
    runtime_of,
)
from otel_quant.inference.rounds import latency, take_turns
from otel_quant.inference.subjects import (
    InProcess,
    ModelError,
    ModelProcess,
    OnnxModel,
    Options,
    TorchVariant,
    script_process,
    with_huge_pages,
)
from otel_quant.inference.torch_session import VariantsError

PROCESSES: Final = 5
"""Processes of a variant, unless the user asks for more or fewer: single ones of the same model differ
by up to 5 %, the means of the middle ones of five by less than 3 %."""

LONG: Final = 60.0
"""Seconds to make a variant beyond which it has only one process, unless the user asks for more."""

STOPPED: Final = "stopped"
"""Setting of a result that has only what was finished when the command was stopped."""


def measure_files(paths: Sequence[str], options: Options) -> InferenceResult:
    """Measures ONNX files beside each other, and finds what ran and what is slow or wrong."""
    load = machine.load()
    with ExitStack() as kept:
        models = [OnnxModel(path, path, options, is_profiled=True) for path in paths]
        for model in models:
            kept.callback(model.process.close)
            model.prepare()
        take_turns(models, options.seconds, options.runs)
        for model in models:
            if not model.problem:
                model.finish()
        results = [_detailed(model, models[0]) for model in models]
    version = next((facts["onnxruntime"] for each in results if (facts := each.facts)), "")
    settings = {
        "graph optimization": options.level,
        "rules of fusing": runtime_here().title,
        "runs": f"{options.seconds:g} s each" if options.runs is None else str(options.runs),
    }
    for name, more in options.providers:
        settings |= {f"{name}.{key}": value for key, value in more.items()}
    return InferenceResult(with_slower(results), version, settings, load, machine.processors())


def _detailed(model: OnnxModel, first: OnnxModel) -> ModelResult:
    """Adds what the profiler has seen of a model."""
    result, profile = _result(model, first), model.profile
    if model.problem or profile is None or result.memory is None:
        return result
    kernels = sorted((each.ran for each in model.kernels), key=lambda each: -each.micros)
    ran = Ran(len(profile.runs), profile.run_micros, tuple(kernels))
    asked = [name for name, _ in model.options.providers]
    assigned = Counter(part.provider for part in model.parts for _ in part.nodes)
    evidence = OnnxEvidence(model.file, model.kernels, asked, model.options.level, model.parts)
    return replace(
        result,
        assigned=dict(assigned) or None,
        memory=replace(
            result.memory,
            grown=model.grown,
            arena_used=profile.arena_used,
            weights_in_memory=model.weights_in_memory,
        ),
        ran=ran,
        findings=FINDINGS.of(evidence, ran.kernel_micros),
        accuracy=_with_layers(model, first, result.accuracy),
    )


def _with_layers(model: OnnxModel, first: OnnxModel, found: Accuracy | None) -> Accuracy | None:
    """Adds how far each tensor is off, where that is asked for and the inputs are the same."""
    if not model.options.layers or found is None or first.problem or model.fed != first.fed:
        return found
    try:
        layers = model.process.ask("layers", first=first.path)
    except ModelError as error:  # what was measured before stands
        return replace(found, problem=f"--layers: {error}")
    if layers:
        nodes = {name: op.name for name in layers if (op := model.file.computed_by(name))}
        return replace(found, layers=tensor_errors(layers, nodes))
    why = "--layers: no tensor of the model is quantized and dequantized again"
    return replace(found, problem=why)


def _result(model: InProcess, base: InProcess) -> ModelResult:
    """Returns what is known of any model, with its time and outputs compared with another's."""
    beside = None if model is base or base.problem else base
    result = ModelResult(model.name, model.problem, assumed=model.assumed, kind=model.kind)
    if model.problem:
        return result
    usual = median(model.medians()[0])
    before, timed = model.marks
    return replace(
        result,
        inputs={name: text.partition(" (")[0] for name, text in model.fed.items()},
        facts=model.facts,
        is_quantized=model.is_quantized,
        providers=tuple(model.providers),
        latency=latency(model, beside),
        memory=MemoryUse(
            timed["process"], before["process"], weights_on_disk=model.disk, gpu=timed.get("gpu")
        ),
        quantize=model.quantize,
        compile=model.compile + sum(max(0.0, each - usual) for each in model.first),
        accuracy=None if model is base else _accuracy(model, base),
    )


def _accuracy(own: InProcess, base: InProcess) -> Accuracy:
    """Compares the outputs of a model with the outputs of its base."""
    if base.problem:
        return Accuracy(problem=f"{base.name} was not measured")
    if own.fed != base.fed:
        return Accuracy(problem=f"it has other inputs than {base.name}")
    for each in (base, own):
        if each.outputs is None:
            return Accuracy(problem=f"there are no outputs of {each.name}: {each.no_outputs}")
    assert base.outputs is not None
    assert own.outputs is not None
    return compared_outputs(base.outputs, own.outputs)


def bench(
    references: Sequence[str],
    options: Options,
    command: str,
    tell: Callable[[str], object] = lambda _: None,
) -> InferenceResult:
    """Measures variants side by side; ``tell`` gets a line for each thing that is begun and finished."""
    load = machine.load()
    stopped = {}
    with ExitStack() as kept:
        variants = _variants(references, options, kept, tell)
        base = _baseline(variants, options.baseline)
        try:
            for together in [[each] for each in variants] if options.one_by_one else [variants]:
                _measure(together, options, tell)
        except KeyboardInterrupt:
            if not any(map(_is_finished, variants)):
                raise
            for variant in variants:
                variant.processes = [rounds for rounds in variant.processes if rounds]
                if not (variant.problem or _is_finished(variant)):
                    variant.problem = "stopped before it was measured"
            stopped = {STOPPED: "before all was measured"}
    models = tuple(_result(variant, base) for variant in variants)
    runtime, version = runtime_of(
        {name: text for each in models for name, text in each.facts.items()}
    )
    return InferenceResult(
        models,
        version,
        {**_settings(variants, options), **stopped},
        load,
        machine.processors(),
        runtime,
        base.name,
        command,
    )


def _is_finished(variant: InProcess) -> bool:
    """Whether all is known of a variant but the times of its later processes."""
    return not variant.problem and (variant.outputs is not None or variant.no_outputs != "")


def _variants(
    references: Sequence[str], options: Options, kept: ExitStack, tell: Callable[[str], object]
) -> Sequence[InProcess]:
    """Returns the variants; the process of a script becomes its first variant's."""
    paths = {each: each for each in references if each.endswith(".onnx")}
    scripts = [each for each in references if each not in paths]
    if len(scripts) > 1:
        raise VariantsError(f"{scripts[1]} is a second script; expected one")
    found: Mapping[str, str | None] = {}
    fed: Mapping[str, str] = {}
    script: ModelProcess | None = None
    began = time.perf_counter()
    for reference in scripts:
        script = script_process(options)
        kept.callback(script.close)
        tell(f"{reference}: loading it")
        try:
            loaded = script.ask("load", reference=reference)
        except ModelError as error:
            text, script_path = str(error), reference.rpartition(":")[0] or reference
            why = text if text.startswith(script_path) else f"{reference}: {text}"
            raise VariantsError(why) from error
        found, fed = loaded["onnx"], loaded["fed"]
    loading = time.perf_counter() - began
    names = Counter([*found, *(each for each in references if each in paths)])
    if twice := [name for name, count in names.items() if count > 1]:
        raise VariantsError(f"{twice[0]!r} stands for two variants; expected each name once")
    variants: list[InProcess] = []
    free = script
    for name, path in {**found, **paths}.items():
        variant: InProcess
        if path is None:
            variant = TorchVariant(name, scripts[0], options, free)
            if free is not None:
                variant.loading, variant.fed, free = loading, fed, None
        else:
            variant = OnnxModel(name, path, options, is_profiled=False)
        variants.append(variant)
        kept.callback(variant.process.close)
        if script is not None and isinstance(variant, OnnxModel):
            variant.take_inputs(script, fed)
    if free is not None:
        free.close()
    return variants


def _baseline(variants: Sequence[InProcess], name: str | None) -> InProcess:
    found = [each for each in variants if name is None or each.name == name]
    if not found:
        names = ", ".join(each.name for each in variants)
        raise VariantsError(f"--baseline {name!r} is none of the variants; expected one of {names}")
    return found[0]


def _measure(
    variants: Sequence[InProcess], options: Options, tell: Callable[[str], object]
) -> None:
    """Measures variants in turn, in one process of each after another."""
    wanted: dict[InProcess, int] = {}
    for variant in variants:
        tell(f"{variant.name}: making it and calling it for the first times")
        began = time.perf_counter()
        variant.prepare()
        took = variant.loading + time.perf_counter() - began
        if not variant.problem:
            wanted[variant] = options.processes or (1 if took > LONG else PROCESSES)
        else:
            tell(f"{variant.name}: {variant.problem}")
    most = max(wanted.values(), default=1)

    def run(those: Sequence[InProcess], number: int, processes: int) -> None:
        take_turns(those, options.seconds, processes=processes)
        for variant in those:
            usual = (
                "" if variant.problem else f"median {1000 * median(variant.medians()[-1]):.3g} ms"
            )
            tell(
                f"{variant.name}: {variant.problem or usual} (process {number} of {wanted[variant]})"
            )

    run(list(wanted), 1, min(wanted.values(), default=1))
    for variant in wanted:
        if not variant.problem:
            variant.finish()
        if wanted[variant] == 1:
            variant.process.close()
    for number in range(2, most + 1):
        others = [each for each in wanted if wanted[each] >= number and not each.problem]
        for variant in others:
            variant.repeat()
        run(others, number, most)
    for variant in variants:
        variant.process.close()


def _settings(variants: Sequence[InProcess], options: Options) -> Mapping[str, str]:
    measured = [each for each in variants if not each.problem]
    rounds = max((sum(map(len, each.processes)) for each in measured), default=0)
    order = "one variant after the other" if options.one_by_one else "the variants in turn"
    counts = {each.name: len(each.processes) for each in measured}
    most = max(counts.values(), default=0)
    fewer = [f"{count} of {name}" for name, count in counts.items() if count < most]
    pages = "huge pages where there are any" if with_huge_pages(os.environ) else "the usual pages"
    return {
        "memory": f"in {pages}",
        "rounds": f"{rounds}, {order}",
        "processes": ", ".join((f"{most} of each variant", *fewer)) if most else "",
    }
