"""Measures PyTorch models beside each other, in the process that has made them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from statistics import median

from otel_quant.cost.graph import printable
from otel_quant.inference.accuracy import compared_arrays
from otel_quant.inference.options import Options
from otel_quant.inference.pytorch.findings import Evidence, findings
from otel_quant.inference.pytorch.flow import flow_of
from otel_quant.inference.pytorch.ranges import observers_of
from otel_quant.inference.pytorch.subject import Subject
from otel_quant.inference.pytorch.weights import has_quantized_weights, weight_bytes
from otel_quant.inference.pytorch.what_ran import conversions_of, on_gpu, ran_of
from otel_quant.inference.results import Accuracy, InferenceResult, MemoryUse, ModelResult
from otel_quant.inference.rounds import in_turn, latency, usual

_LONGEST = 120


class BusyProfilerError(RuntimeError):
    """The program runs torch's profiler, of which there can be only one."""


def measure_models(
    models: Mapping[str, object], inputs: object, options: Options
) -> InferenceResult:
    """Measures PyTorch models beside each other."""
    import torch

    if torch._C._autograd._profiler_enabled():
        raise BusyProfilerError(
            "torch's profiler is running; expected a call outside of it, since there is only one"
        )
    load = os.getloadavg()[0]
    subjects = [Subject(name, model, inputs) for name, model in models.items()]
    with ExitStack() as kept:
        kept.enter_context(torch.no_grad())
        devices = [torch.cuda.current_device()] if torch.cuda.is_available() else []
        kept.enter_context(_engine_set_back())
        kept.enter_context(torch.random.fork_rng(devices=devices))
        for subject in subjects:
            subject.begin(kept, options.warmup)
        warm = {i: each.warm for i, each in enumerate(subjects) if not each.problem}
        for i, count in in_turn(options, warm):
            subjects[i].run(count)
        for subject in subjects:
            subject.look_at(options.seconds)
        first = subjects[0]
        results = [_result(each, None if each is first else first) for each in subjects]
    return InferenceResult(
        tuple(results),
        str(torch.__version__),
        _settings(options),
        load,
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        "torch",
    )


@contextmanager
def _engine_set_back() -> Iterator[None]:
    import torch

    before = torch.backends.quantized.engine
    try:
        yield
    finally:
        torch.backends.quantized.engine = before


def _result(subject: Subject, first: Subject | None) -> ModelResult:
    result = ModelResult(printable(subject.name, _LONGEST), subject.problem, inputs=subject.inputs)
    profile = subject.profile
    if subject.problem or profile is None:
        return result
    device = "cuda" if subject.on_gpu else "cpu"
    beside = first if first is not None and not first.problem else None
    accuracy = None
    if first is not None:
        accuracy = (
            Accuracy(problem="the first model was not measured")
            if beside is None
            else compared_arrays(beside.outputs, subject.outputs)
        )
    said = on_gpu(profile) if subject.on_gpu else subject.copied.said.kernels
    evidence = Evidence(
        profile.kernels, said, subject.engine, flow_of(profile.kernels), observers_of(subject.model)
    )
    plain = median([time for times in subject.rounds for time in times])
    profiled = usual(profile.lengths) / plain if profile.lengths else None
    return replace(
        result,
        providers=(device,),
        latency=latency(subject.timed, None if beside is None else beside.timed, profiled),
        memory=_memory(subject),
        ran=ran_of(profile, device),
        findings=tuple(findings(evidence)),
        accuracy=accuracy,
        conversions=conversions_of(profile),
        backend=said,
        facts=subject.facts,
        is_quantized=has_quantized_weights(subject.model),
    )


def _memory(subject: Subject) -> MemoryUse:
    assert subject.profile is not None
    peak, growth = subject.copied.peak, subject.copied.growth
    if subject.gpu_memory is not None:
        peak, before = subject.gpu_memory
        growth = peak - before
    return MemoryUse(
        peak, None, None, None, None, None, weight_bytes(subject.model),
        growth, subject.profile.allocated, subject.profile.alive,
    )  # fmt: skip


def _settings(options: Options) -> Mapping[str, str]:
    import torch

    return {
        "threads": str(torch.get_num_threads()),
        "vector instructions": torch.backends.cpu.get_cpu_capability(),
        "runs": f"{options.seconds:g} s each" if options.runs is None else str(options.runs),
    }
