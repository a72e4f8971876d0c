"""Measures models beside each other in processes of their own: ``inference`` in detail, ``bench`` side by side."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from statistics import median
from typing import Final

from otel_quant.base import machine
from otel_quant.cost.graph import runtime_here
from otel_quant.inference.findings import with_slower
from otel_quant.inference.model_process import with_huge_pages
from otel_quant.inference.results import InferenceResult, MemoryUse, ModelResult, runtime_of
from otel_quant.inference.rounds import ROUND, beside, take_turns
from otel_quant.inference.subjects import InProcess, OnnxModel, Options, Script, with_ranges
from otel_quant.inference.torch_session import VariantsError

PROCESSES: Final = 5
"""Processes of a variant, unless the user asks for more or fewer: single ones of the same model differ
by up to 5 %, the means of the middle ones of five by less than 3 %."""

LONG: Final = 60.0
"""Seconds to make a variant beyond which it has only one process, unless the user asks for more."""

STOPPED: Final = "stopped"
"""Setting of a result that has only what was finished when the command was stopped."""


def measure_files(
    paths: Sequence[str], options: Options, *, profiled: bool = True
) -> InferenceResult:
    """Measures ONNX files beside each other: time by the clock and of CPU, error, and what ran if profiled.

    With one thread, CPU time decides where a busy machine hides a difference from the clock.
    """
    load = machine.load()
    options = with_ranges(options, paths)
    with ExitStack() as kept:
        models = [OnnxModel(path, path, options, is_profiled=profiled) for path in paths]
        run_in_turns(models, options, kept)
        return files_result(models, options, load)


def run_in_turns(
    models: Sequence[OnnxModel], options: Options, kept: ExitStack, *, is_timed: bool = True
) -> None:
    """Measures models beside each other, or only takes their outputs; their processes end with ``kept``."""
    for model in models:
        kept.callback(model.process.close)
        model.prepare()
        model.base = models[0]
    if is_timed:
        take_turns(models, options.seconds, options.runs, joules=options.joules)
    for model in models:
        model.finish()


def files_result(
    models: Sequence[OnnxModel], options: Options, load: float | None
) -> InferenceResult:
    """Returns what is known of models that were measured, compared with the first."""
    results = [_result(model, models[0]) for model in models]
    version = next((facts["onnxruntime"] for each in results if (facts := each.facts)), "")
    settings = {
        "graph optimization": options.level,
        "rules of fusing": runtime_here().title,
        "runs": options.runs_text,
        **{f"{name}.{key}": text for name, more in options.providers for key, text in more.items()},
    }
    return InferenceResult(with_slower(results), version, settings, load, machine.processors())


def _result(model: InProcess, base: InProcess) -> ModelResult:
    """Returns what is known of any model, with its time and outputs compared with another's."""
    result = ModelResult(model.name, model.problem, assumed=model.assumed, kind=model.kind)
    result = beside(result, model, base)
    if result.latency is None:
        return result
    usual = result.latency.processes[0]
    before, timed = model.marks[0], model.marks[-1]
    gpu, disk = timed.get("gpu"), model.disk
    memory = MemoryUse(timed["process"], before["process"], weights_on_disk=disk, gpu=gpu)
    return replace(
        result,
        inputs={name: text.partition(" (")[0] for name, text in model.fed.items()},
        facts=model.facts,
        is_quantized=model.is_quantized,
        providers=tuple(model.providers),
        memory=replace(memory, **model.memory),
        quantize=model.quantize,
        compile=model.compile + sum(max(0.0, each - usual) for each in model.first),
        **model.detail,
    )


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
        named = (each for each in variants if options.baseline in (None, each.name))
        if (base := next(named, None)) is None:
            why = f"expected one of {', '.join(each.name for each in variants)}"
            raise VariantsError(f"--baseline {options.baseline!r} is none of the variants; {why}")
        try:
            for together in [[each] for each in variants] if options.one_by_one else [variants]:
                _measure(together, options, tell)
        except KeyboardInterrupt:
            if not any(each.is_finished and not each.problem for each in variants):
                raise
            for variant in variants:
                variant.stop()
            stopped = {STOPPED: "before all was measured"}
    models = tuple(_result(variant, base) for variant in variants)
    facts: dict[str, str] = {}
    for each in models:
        facts |= each.facts
    runtime, version = runtime_of(facts)
    settings, cores = {**_settings(variants, options), **stopped}, machine.processors()
    return InferenceResult(models, version, settings, load, cores, runtime, base.name, command)


def _variants(
    references: Sequence[str], options: Options, kept: ExitStack, tell: Callable[[str], object]
) -> Sequence[InProcess]:
    """Returns the variants of a script, if there is one, and of files."""
    files = [each for each in references if each.endswith(".onnx")]
    options = with_ranges(options, files)
    scripts = [Script(each, options) for each in references if each not in files]
    if len(scripts) > 1:
        raise VariantsError(f"{scripts[1].reference} is a second script; expected one")
    variants: list[InProcess] = []
    for script in scripts:
        kept.callback(script.process.close)
        tell(f"{script.reference}: loading it")
        variants += script.load()
    variants += [OnnxModel(path, path, options, is_profiled=False) for path in files]
    names = [each.name for each in variants]
    for variant in variants:
        kept.callback(variant.process.close)
        if names.count(variant.name) > 1:
            problem = f"{variant.name!r} stands for two variants; expected each name once"
            raise VariantsError(problem)
    for script in scripts:
        script.hand_over(variants)
    return variants


def _measure(
    variants: Sequence[InProcess], options: Options, tell: Callable[[str], object]
) -> None:
    """Measures variants in turn, in one process of each after another."""
    wanted: dict[InProcess, int] = {}  # number of processes
    for variant in variants:
        tell(f"{variant.name}: making it and calling it for the first times")
        began = time.perf_counter()
        variant.prepare()
        took = variant.loading + time.perf_counter() - began
        variant.time_early(ROUND)
        if variant.problem:
            tell(f"{variant.name}: {variant.problem}")
        else:
            wanted[variant] = options.processes or (1 if took > LONG else PROCESSES)
    _time(wanted, 1, options, tell)
    for variant, count in wanted.items():
        variant.finish()
        if count == 1:
            variant.process.close()
    for number in range(2, max(wanted.values(), default=1) + 1):
        others = {it: count for it, count in wanted.items() if count >= number and not it.problem}
        for variant in others:
            variant.repeat()
        _time(others, number, options, tell)
    for variant in variants:
        variant.process.close()


def _time(
    wanted: Mapping[InProcess, int], number: int, options: Options, tell: Callable[[str], object]
) -> None:
    """Times variants in a process of each, by the number of it; each with the number of its processes."""
    fewest = min(wanted.values(), default=1)
    take_turns(list(wanted), options.seconds, processes=fewest, joules=options.joules)
    for variant, count in wanted.items():
        found = variant.problem or f"median {1000 * median(variant.medians()[-1]):.3g} ms"
        tell(f"{variant.name}: {found} (process {number} of {count})")


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
