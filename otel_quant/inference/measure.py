"""Measures models beside each other in processes of their own: ``inference`` in detail, ``bench`` side by side."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from statistics import median
from typing import Any, Final

from otel_quant.cost.graph import runtime_here
from otel_quant.inference.accuracy import compared_outputs, tensor_errors
from otel_quant.inference.findings import with_slower
from otel_quant.inference.model_process import ModelError, ModelProcess, with_huge_pages
from otel_quant.inference.onnx_findings import FINDINGS, Evidence
from otel_quant.inference.results import (
    Accuracy,
    InferenceResult,
    MemoryUse,
    ModelResult,
    OutputError,
    Ran,
    merged_facts,
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
    OnnxModel,
    Options,
    TorchVariant,
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

STOPPED: Final = "stopped"
"""Setting of a result that has only what was finished when the command was stopped."""


def measure_files(
    paths: Sequence[str], options: Options
) -> tuple[InferenceResult, Mapping[str, Sequence[Mapping[str, Any]]]]:
    """Measures ONNX files beside each other, and looks at what ran and what went wrong.

    Returns the profiler's own events by file too, if they are wanted.
    """
    load = os.getloadavg()[0]
    with ExitStack() as kept:
        models = [OnnxModel(path, path, options, is_profiled=True) for path in paths]
        for model in models:
            kept.callback(model.process.close)
            model.prepare()
        loaded = [model for model in models if not model.problem]
        take_turns(loaded, planned(loaded, options.runs, options.seconds))
        for model in loaded:
            if not model.problem:
                model.finish()
        results = [_detailed(model, models[0]) for model in models]
    version = next((each.facts["onnxruntime"] for each in loaded), "")
    settings = {
        "providers": ", ".join(name for name, _ in options.providers) or "CPUExecutionProvider",
        "threads": "onnxruntime's choice" if options.threads is None else str(options.threads),
        "graph optimization": options.level,
        "rules of fusing": runtime_here().title,
        "runs": f"{options.seconds:g} s each" if options.runs is None else str(options.runs),
    }
    for name, more in options.providers:
        settings |= {f"{name}.{key}": value for key, value in more.items()}
    cores = len(os.sched_getaffinity(0))
    result = InferenceResult(with_slower(results), version, settings, load, cores)
    return result, {each.path: each.trace for each in models}


def _detailed(model: OnnxModel, first: OnnxModel) -> ModelResult:
    result, beside = _result(model, first)
    if model.problem or model.profile is None or result.memory is None:
        return result
    profile = model.profile
    what_ran = Ran.of(len(profile.runs), profile.run_micros, [each.ran for each in model.kernels])
    asked = [name for name, _ in model.options.providers]
    assigned = Counter(part.provider for part in model.parts for _ in part.nodes)
    evidence = Evidence(model.file, model.kernels, asked, model.options.level, model.parts)
    return replace(
        result,
        inputs=model.inputs,
        assigned=dict(assigned) or None,
        latency=latency(model, beside, model.profiled),
        memory=replace(
            result.memory,
            grown=model.loaded["grown"],
            arena_held=profile.arena_held,
            arena_used=profile.arena_used,
            weights_in_memory=model.weights_in_memory,
        ),
        ran=what_ran,
        findings=FINDINGS.of(evidence, what_ran.kernel_micros),
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
        return replace(found, layers=tensor_errors(layers))
    why = "--layers: no tensor of the model is quantized and dequantized again"
    return replace(found, problem=why)


def _result(model: InProcess, base: InProcess) -> tuple[ModelResult, InProcess | None]:
    """Returns what is known of any model, and the one that its times are compared with."""
    beside = None if model is base or base.problem else base
    assumed = model.assumed if isinstance(model, OnnxModel) else ()
    result = ModelResult(model.name, model.problem, assumed=assumed, kind=model.kind)
    if model.problem:
        return result, beside
    usual = median(model.medians()[0])
    return replace(
        result,
        is_quantized=model.is_quantized,
        providers=tuple(model.providers),
        memory=_memory(model, beside),
        quantize=model.quantize,
        compile=model.compile + sum(max(0.0, each - usual) for each in model.first),
        accuracy=None if model is base else _accuracy(model, base),
    ), beside


def _memory(model: InProcess, beside: InProcess | None) -> MemoryUse:
    before, timed = model.marks
    gpu, process = timed.get("gpu"), timed["process"]
    ratio = None
    if beside is not None:
        other = beside.marks[1]
        on_gpu = gpu or other.get("gpu")
        pair = (gpu, other.get("gpu")) if on_gpu else (process, other["process"])
        ratio = pair[0] / pair[1] if pair[0] and pair[1] else None
    return MemoryUse(process, before["process"], weights_on_disk=model.disk, gpu=gpu, ratio=ratio)


def _accuracy(own: InProcess, base: InProcess) -> Accuracy:
    """Compares the outputs of a model with those of the one that it is compared with."""
    if base.problem:
        return Accuracy(problem=f"{base.name} was not measured")
    if own.fed != base.fed:
        return Accuracy(problem=f"its inputs are not those of {base.name}")
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
    """Measures variants side by side: makes them, has them run in turn, compares with the baseline.

    ``tell`` gets a line for each thing that is begun and finished. After Ctrl-C the result has what
    was finished until then.
    """
    load = os.getloadavg()[0]
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
    settings = {**_settings(variants, options), **stopped}
    runtime, version = runtime_of(settings)
    return InferenceResult(
        tuple(_side_by_side(variant, base) for variant in variants),
        version,
        settings,
        load,
        len(os.sched_getaffinity(0)),
        runtime,
        base.name,
        command,
    )


def _is_finished(variant: InProcess) -> bool:
    """Whether all is known of a variant but the times of its later processes."""
    return not variant.problem and (variant.outputs is not None or variant.no_outputs != "")


def _variants(
    references: Sequence[str],
    options: Options,
    kept: ExitStack,
    tell: Callable[[str], object],
) -> Sequence[InProcess]:
    """Returns the variants; the process of a script becomes that of its first one."""
    paths = {each: each for each in references if each.endswith(".onnx")}
    scripts = [each for each in references if each not in paths]
    if len(scripts) > 1:
        raise VariantsError(f"{scripts[1]} is a second script; expected one")
    found: Mapping[str, str | None] = {}
    fed: Sequence[str] = ()
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
        each = min(ROUND, options.seconds / ROUNDS)
        take_turns(those, until_settled(those, each, options.seconds, processes))
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


def _side_by_side(variant: InProcess, base: InProcess) -> ModelResult:
    result, beside = _result(variant, base)
    if variant.problem:
        return result
    accuracy = None if result.accuracy is None else _worst(result.accuracy)
    return replace(result, latency=latency_of_processes(variant, beside), accuracy=accuracy)


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


def _settings(variants: Sequence[InProcess], options: Options) -> Mapping[str, str]:
    measured = [each for each in variants if not each.problem]
    rounds = max((len(each.rounds()) for each in measured), default=0)
    order = "one variant after the other" if options.one_by_one else "the variants in turn"
    inputs = measured[0].fed if measured else ()
    counts = {each.name: len(each.processes) for each in measured}
    most = max(counts.values(), default=0)
    fewer = [f"{count} of {name}" for name, count in counts.items() if count < most]
    pages = (
        "huge pages where there are any"
        if with_huge_pages(os.environ)
        else ("pages as the system gives them")
    )
    return {
        **merged_facts({each.name: each.facts for each in measured}),
        "inputs": ", ".join(each.partition(" (")[0] for each in inputs),
        "memory": f"in {pages}",
        "rounds": f"{rounds} of {min(ROUND, options.seconds / ROUNDS):g} s or longer, {order}",
        "processes": ", ".join((f"{most} of each variant", *fewer)) if most else "",
    }
