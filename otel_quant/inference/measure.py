"""Measures models beside each other in processes of their own: ``inference`` in detail, ``bench`` side by side."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any, Final

from otel_quant.cost.graph import printable
from otel_quant.inference.accuracy import compared_outputs, tensor_errors
from otel_quant.inference.model_process import ModelError, ModelProcess, with_huge_pages
from otel_quant.inference.onnx_findings import FINDINGS, Evidence
from otel_quant.inference.onnx_kernels import ran
from otel_quant.inference.results import (
    Accuracy,
    InferenceResult,
    MemoryUse,
    ModelResult,
    OutputError,
    runtime_of,
)
from otel_quant.inference.rounds import (
    ROUNDS,
    latency,
    latency_of_processes,
    planned,
    take_turns,
    until_settled,
)
from otel_quant.inference.subjects import (
    InProcess,
    OnnxInputs,
    OnnxModel,
    OnnxVariant,
    Options,
    TorchVariant,
    UnreadableError,
    script_process,
)
from otel_quant.inference.variants import VariantsError

ROUND: Final = 0.2
"""Seconds of a variant in a round; torch's own default of a range."""

PROCESSES: Final = 5
"""Processes of a variant, unless the user asks for more or fewer: single ones of the same model differ
by up to 5 %, the means of the middle ones of five by less than 3 %."""

LONG: Final = 60.0
"""Seconds to make a variant beyond which it has only one process, unless the user asks for more."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What ``otel-quant inference`` has measured."""

    result: InferenceResult | None  # None where no file could be read
    unreadable: Mapping[str, str] = field(default_factory=dict)  # Files that could not, and why
    # The profiler's events by model, if they are wanted
    traces: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)


def measure_files(paths: Sequence[str], given: OnnxInputs, options: Options) -> Measured:
    """Measures ONNX files beside each other, and looks at what ran and what went wrong."""
    models: list[OnnxModel] = []
    unreadable: dict[str, str] = {}
    for path in paths:
        model = OnnxModel(path, given, options)
        try:
            model.read()
        except UnreadableError as error:
            unreadable[path] = printable(str(error).removeprefix(f"{path}: "))
        else:
            models.append(model)
    if not models:
        return Measured(None, unreadable)
    load = os.getloadavg()[0]
    with ExitStack() as kept:
        for model in models:
            kept.callback(model.process.close)
            model.prepare()
        loaded = [model for model in models if not model.problem]
        take_turns(loaded, planned(loaded, options.runs, options.seconds))
        for model in models:
            if not model.problem:
                model.finish()
        for model in models[1:]:
            if not model.problem:
                _compare(model, models[0])
    result = InferenceResult(
        tuple(_result(model, None if model is models[0] else models[0]) for model in models),
        next((each.loaded["version"] for each in models if each.loaded), ""),
        _settings(options),
        load,
        len(os.sched_getaffinity(0)),
    )
    return Measured(result, unreadable, {each.path: each.trace for each in models})


def _compare(model: OnnxModel, first: OnnxModel) -> None:
    found = model.accuracy = _accuracy(model, first, "the first model")
    if not model.options.layers or first.problem or model.fed != first.fed:
        return
    try:
        layers = model.process.ask("layers", first=first.path)
    except ModelError as error:  # what was measured before stands
        model.accuracy = replace(found, problem=f"--layers: {error}")
        return
    if layers:
        model.accuracy = replace(found, layers=tensor_errors(layers))
    else:
        why = "--layers: no tensor of the model is quantized and dequantized again"
        model.accuracy = replace(found, problem=why)


def _accuracy(own: InProcess, base: InProcess, called: str) -> Accuracy:
    """Compares the outputs of a model with those of the one that it is compared with."""
    if base.problem:
        return Accuracy(problem=f"{called} was not measured")
    if own.fed != base.fed:
        return Accuracy(problem=f"its inputs are not those of {called}")
    for each in (base, own):
        if each.outputs is None:
            return Accuracy(problem=f"there are no outputs of {each.name}: {each.no_outputs}")
    assert base.outputs is not None
    assert own.outputs is not None
    return compared_outputs(base.outputs, own.outputs)


def _result(model: OnnxModel, first: OnnxModel | None) -> ModelResult:
    result = ModelResult(model.path, model.problem, assumed=model.assumed)
    if model.problem or model.profile is None:
        return result
    profile, kernels = model.profile, [each.ran for each in model.kernels]
    asked = [name for name, _ in model.options.providers]
    evidence = Evidence(model.file, model.kernels, asked, model.options.level)
    what_ran = ran(len(profile.runs), profile.run_micros, kernels)
    return replace(
        result,
        inputs=model.inputs,
        providers=tuple(model.loaded["providers"]),
        assigned=model.assigned,
        latency=latency(model, None if first is None or first.problem else first, model.profiled),
        memory=MemoryUse(
            model.marks[1]["process"],
            model.marks[0]["process"],
            model.loaded["grown"],
            profile.arena_held,
            profile.arena_used,
            model.disk,
            model.weights_in_memory,
        ),
        ran=what_ran,
        findings=FINDINGS.of(evidence, what_ran.kernel_micros),
        accuracy=model.accuracy,
        is_quantized=model.is_quantized,
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


def bench(
    references: Sequence[str], given: OnnxInputs, options: Options, command: str
) -> InferenceResult:
    """Measures variants side by side: makes them, has them run in turn, compares with the baseline."""
    load = os.getloadavg()[0]
    with ExitStack() as kept:
        variants = _variants(references, given, options, kept)
        base = _baseline(variants, options.baseline)
        for together in [[each] for each in variants] if options.one_by_one else [variants]:
            _measure(together, options)
    settings = _variant_settings(variants, options)
    runtime, version = runtime_of(settings)
    return InferenceResult(
        tuple(_variant_result(variant, base) for variant in variants),
        version,
        settings,
        load,
        len(os.sched_getaffinity(0)),
        runtime,
        base.name,
        command,
    )


def _variants(
    references: Sequence[str],
    given: OnnxInputs,
    options: Options,
    kept: ExitStack,
) -> Sequence[InProcess]:
    """Returns the variants; the process of a script becomes that of its first one."""
    paths = {each: each for each in references if each.endswith(".onnx")}
    scripts = [each for each in references if each not in paths]
    if len(scripts) > 1:
        raise VariantsError(f"{scripts[1]} is a second script; expected one")
    found: Mapping[str, str | None] = {}
    fed: Sequence[str] = ()
    script: ModelProcess | None = None
    loading = 0.0
    for reference in scripts:
        script = script_process()
        kept.callback(script.close)
        began = time.perf_counter()
        try:
            loaded = script.ask("load", reference=reference)
        except ModelError as error:
            raise VariantsError(str(error)) from error
        loading = time.perf_counter() - began
        found, fed = loaded["onnx"], loaded["fed"]
    names = Counter([*found, *(each for each in references if each in paths)])
    if twice := [name for name, count in names.items() if count > 1]:
        raise VariantsError(f"{twice[0]!r} stands for two variants; expected each name once")
    variants: list[InProcess] = []
    free = script
    for name, path in {**found, **paths}.items():
        if path is None:
            variant: InProcess = TorchVariant(name, scripts[0], options.threads, free, fed)
            if free is not None:
                variant.loading, free = loading, None
        else:
            variant = OnnxVariant(name, path, given, options)
        variants.append(variant)
        kept.callback(variant.process.close)
        if script is not None and isinstance(variant, OnnxVariant):
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


def _measure(variants: Sequence[InProcess], options: Options) -> None:
    """Measures variants in turn, in one process of each after another."""
    wanted: dict[InProcess, int] = {}
    for variant in variants:
        began = time.perf_counter()
        variant.prepare()
        took = variant.loading + time.perf_counter() - began
        if not variant.problem:
            wanted[variant] = options.processes or (1 if took > LONG else PROCESSES)

    def run(those: Sequence[InProcess], processes: int) -> None:
        each = min(ROUND, options.seconds / ROUNDS)
        take_turns(those, until_settled(those, each, options.seconds, processes))

    run(list(wanted), min(wanted.values(), default=1))
    for variant in wanted:
        if not variant.problem:
            variant.finish()
        if wanted[variant] == 1:
            variant.process.close()
    for number in range(1, max(wanted.values(), default=1)):
        others = [each for each in wanted if wanted[each] > number and not each.problem]
        for variant in others:
            variant.repeat()
        run(others, max(wanted.values()))
    for variant in variants:
        variant.process.close()


def _variant_result(variant: InProcess, base: InProcess) -> ModelResult:
    result = ModelResult(variant.name, variant.problem, kind=variant.kind)
    if variant.problem:
        return result
    beside = None if variant is base or base.problem else base
    usual = median(variant.medians()[0])
    return replace(
        result,
        is_quantized=variant.is_quantized,
        providers=(variant.provider,) if variant.provider else (),
        latency=latency_of_processes(variant, beside),
        memory=_memory(variant, beside),
        quantize=variant.quantize,
        compile=variant.compile + sum(max(0.0, each - usual) for each in variant.first),
        accuracy=None if variant is base else _worst(_accuracy(variant, base, base.name)),
    )


def _memory(variant: InProcess, beside: InProcess | None) -> MemoryUse:
    before, timed = variant.marks
    gpu, process = timed.get("gpu"), timed["process"]
    ratio = None
    if beside is not None:
        other = beside.marks[1]
        on_gpu = gpu or other.get("gpu")
        pair = (gpu, other.get("gpu")) if on_gpu else (process, other["process"])
        ratio = pair[0] / pair[1] if pair[0] and pair[1] else None
    return MemoryUse(process, before["process"], weights_on_disk=variant.disk, gpu=gpu, ratio=ratio)


def _worst(accuracy: Accuracy) -> Accuracy | None:
    """Returns the error of the worst output alone, and why it could not be told."""

    def quality(error: OutputError) -> float:  # above all others where it is equal
        if error.max_abs is None:
            return float("-inf")
        return float("inf") if error.sqnr is None else error.sqnr

    worst = min(accuracy.outputs, key=quality, default=None)
    outputs = () if worst is None or worst.max_abs is None else (worst,)
    found = replace(accuracy, outputs=outputs)
    return None if found == Accuracy() else found


def _variant_settings(variants: Sequence[InProcess], options: Options) -> Mapping[str, str]:
    measured = [each for each in variants if not each.problem]
    found: dict[str, str] = {}
    for name in dict.fromkeys(key for each in measured for key in each.facts):
        texts = {each.name: each.facts[name] for each in measured if each.facts.get(name)}
        if len(set(texts.values())) == 1:
            found[name] = next(iter(texts.values()))
        else:
            found |= {f"{name} of {each}": text for each, text in texts.items()}
    rounds = max((len(each.rounds()) for each in measured), default=0)
    order = "one variant after the other" if options.one_by_one else "the variants in turn"
    inputs = measured[0].fed if measured else ()
    most = max((len(each.processes) for each in measured), default=0)
    fewer = [
        f"{len(each.processes)} of {each.name}" for each in measured if len(each.processes) < most
    ]
    return {
        **found,
        "inputs": ", ".join(each.partition(" (")[0] for each in inputs),
        "memory": "in huge pages where there are any"
        if with_huge_pages(os.environ)
        else "in pages as the system gives them",
        "rounds": f"{rounds} of {min(ROUND, options.seconds / ROUNDS):g} s or longer, {order}",
        "processes": ", ".join((f"{most} of each variant", *fewer)) if most else "",
    }
