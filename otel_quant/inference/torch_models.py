"""PyTorch models measured beside each other, in the process that has made them."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, redirect_stdout
from dataclasses import replace
from statistics import median
from typing import Any, Final, TypeVar

from otel_quant.base.fault_boundary import LastResort
from otel_quant.cost.graph import printable
from otel_quant.inference.accuracy import arrays_in, compared_outputs
from otel_quant.inference.child import timed
from otel_quant.inference.results import (
    Accuracy,
    InferenceResult,
    MemoryUse,
    ModelResult,
    is_of_few_bits,
    tensor_text,
)
from otel_quant.inference.rounds import Subject, latency, planned, take_turns, usual
from otel_quant.inference.subjects import Options
from otel_quant.inference.torch_copy import Copied, run_in_copy
from otel_quant.inference.torch_findings import FINDINGS, Evidence, flow_of
from otel_quant.inference.torch_modules import observers_of
from otel_quant.inference.torch_operators import type_of
from otel_quant.inference.torch_profile import Profile, conversions_of, on_gpu, profile, ran_of
from otel_quant.inference.variants import (
    SEED,
    VariantsError,
    arguments,
    error_text,
    load_variants,
    made,
    onnx_path,
)


@contextmanager
def left_unchanged(model: Any) -> Iterator[None]:
    """Has a model infer in the block, and sets back afterwards what that has changed in it.

    Modules are in eval mode meanwhile, without a call of their ``eval()``, which may be the
    program's own. Buffers that a run changes, as observers and caches do, get their values again.
    """
    import torch

    modules = list(model.modules()) if isinstance(model, torch.nn.Module) else []
    training = [module for module in modules if getattr(module, "training", False)]
    buffers = [
        (module, name, buffer, _version(buffer), buffer.detach().clone())
        for module in modules
        for name, buffer in module.named_buffers(recurse=False)
    ]
    for module in training:
        module.training = False
    try:
        yield
    finally:
        for module in training:
            module.training = True
        with torch.no_grad():
            for module, name, buffer, version, copy in buffers:
                if getattr(module, name, None) is not buffer:
                    setattr(module, name, buffer)
                if version is None or buffer._version != version:
                    if buffer.shape != copy.shape:
                        buffer.resize_(copy.shape)
                    buffer.copy_(copy)


def _version(tensor: Any) -> int | None:
    """Returns how often a tensor was changed; None where torch does not count."""
    return None if tensor.is_inference() else tensor._version


_PACKED: Final = ("qweight", "weight_packed")
"""Names of weights that GPTQ and AWQ, and compressed-tensors, pack into numbers of 32 bits."""


def weight_bytes(model: Any) -> int | None:
    """Returns the bytes of a module's parameters and buffers, packed and quantized ones included.

    Memory that two of them share counts once. None for what is no module.
    """
    import torch

    if not isinstance(model, torch.nn.Module):
        return None
    tensors = list(_plain(model.state_dict()))  # all at once: unpacked ones are made for it
    storages = [tensor.untyped_storage() for tensor in tensors]
    sizes: dict[int, int] = {each.data_ptr(): each.nbytes() for each in storages}
    return sum(sizes.values())


def has_quantized_weights(model: Any) -> bool | None:
    """Returns whether a module has weights of eight bits or fewer; None for what is no module."""
    import torch

    if not isinstance(model, torch.nn.Module):
        return None
    weights = model.state_dict()
    if any(type(each).__module__.startswith("torchao.") for each in weights.values()):
        return True  # its tensors may pack several numbers into 32 bits
    if any(name.rpartition(".")[2] in _PACKED for name in weights):
        return True
    return any(
        tensor.is_quantized or is_of_few_bits(str(tensor.dtype).removeprefix("torch."))
        for tensor in _plain(weights)
    )


def _plain(value: Any) -> Iterator[Any]:
    """Yields the tensors of which something consists."""
    import torch

    by_channel = (torch.per_channel_affine, torch.per_channel_affine_float_qparams)
    if isinstance(value, Mapping):
        for each in value.values():
            yield from _plain(each)
    elif isinstance(value, tuple | list):
        for each in value:
            yield from _plain(each)
    elif isinstance(value, torch.Tensor):
        if hasattr(value, "__tensor_flatten__"):
            for name in value.__tensor_flatten__()[0]:
                yield from _plain(getattr(value, name))
        else:
            yield value
            if value.is_quantized and value.qscheme() in by_channel:
                yield value.q_per_channel_scales()
                yield value.q_per_channel_zero_points()


_LONGEST: Final = 600
_LONGEST_NAME: Final = 120
_MOST_INPUTS: Final = 8

_Result = TypeVar("_Result")


class TorchModel(Subject):
    """One model while it is measured."""

    def __init__(self, name: str, model: object, inputs: object) -> None:
        super().__init__(name)
        self.model: Any = None
        self.inputs: Mapping[str, str] = {}
        self.outputs: Mapping[str, Any] = {}
        self.profile: Profile | None = None
        self.copied = Copied()
        self.on_gpu = False
        self.engine = ""
        self.gpu_memory: tuple[int, int] | None = None
        self.facts: dict[str, str] = {}
        self._given = model, inputs
        self._args: tuple[Any, ...] = ()
        self._kwargs: dict[str, Any] = {}

    def begin(self, kept: ExitStack, warmup: int) -> None:
        """Makes the model, and runs it for the first times."""
        self._attempt(lambda: self._begin(kept, warmup))

    def _begin(self, kept: ExitStack, warmup: int) -> None:
        import torch

        model, given = self._given
        if (path := onnx_path(model)) is not None:
            raise VariantsError(
                f"{path} is an ONNX file; expected a PyTorch model (otel-quant inference measures "
                "ONNX files by themselves)"
            )
        with torch.random.fork_rng(devices=[]):  # so that random weights are the same in all
            self.model, given = made(model, given)
        self.engine = str(torch.backends.quantized.engine)
        self._args, self._kwargs = arguments(given)
        tensors = [*self._args, *self._kwargs.values()]
        if isinstance(self.model, torch.nn.Module):
            tensors += [*self.model.parameters(), *self.model.buffers()]
        self.inputs = dict(self._shown_inputs())
        self.on_gpu = any(isinstance(each, torch.Tensor) and each.is_cuda for each in tensors)
        kept.enter_context(left_unchanged(self.model))
        if self.on_gpu:
            torch.cuda.reset_peak_memory_stats()
        self.first = timed(self.call, 1)
        warm = sorted(timed(self.call, max(1, warmup)))
        self.warm = warm[len(warm) // 2]

    def _shown_inputs(self) -> Iterator[tuple[str, str]]:
        many = len(self._args) > 1
        named = {f"input {i}" if many else "input": each for i, each in enumerate(self._args)}
        named |= self._kwargs
        for name, value in list(named.items())[:_MOST_INPUTS]:
            if hasattr(value, "dtype") and hasattr(value, "shape"):
                dtype = type_of(str(value.dtype).removeprefix("torch."))
                yield printable(name), tensor_text(dtype, value.shape)

    def time(self, amount: float) -> None:
        """Adds a round of so many runs; one before them does not count."""
        found = self._attempt(lambda: timed(self.call, int(amount) + 1)[1:])
        if found is not None:
            self.processes[-1].append(found)

    def call(self) -> Any:
        """Runs the model once, to the end of what it has started on a GPU."""
        result = self.model(*self._args, **self._kwargs)
        if self.on_gpu:
            import torch

            torch.cuda.synchronize()
        return result

    def look_at(self, seconds: float) -> None:
        """Sees what runs, in how much memory, and what comes out."""
        self._attempt(lambda: self._look_at(seconds))

    def _look_at(self, seconds: float) -> None:
        import torch

        fitting = int(seconds / max(self.warm, 1e-9))
        if self.on_gpu:
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            self.call()
            self.gpu_memory = torch.cuda.max_memory_allocated(), before
        torch.default_generator.manual_seed(SEED)  # what a model draws is the same in each
        if self.on_gpu:
            torch.cuda.manual_seed(SEED)
        self.outputs = dict(arrays_in(self.call(), "output"))
        self.profile = profile(self.model, self.call, fitting, self.on_gpu)
        if not self.on_gpu:
            self.copied = run_in_copy(self.model, self.call, self.warm)
        self.facts = {"quantized engine": self.engine, **self.copied.facts}
        if self.copied.problem:
            self.facts["memory of a run and kernels below the operators"] = (
                f"not known: {self.copied.problem}"
            )

    def _attempt(self, function: Callable[[], _Result]) -> _Result | None:
        """Calls a function, unless the model has failed; None if it does now."""
        if self.problem:
            return None
        with LastResort() as end:
            if self.engine:
                import torch

                torch.backends.quantized.engine = self.engine
            return function()
        assert end.error is not None
        fed = ", ".join(f"{name} {shown}" for name, shown in self.inputs.items())
        text = str(end.error) if isinstance(end.error, VariantsError) else error_text(end.error)
        self.problem = printable(f"{text} (called with {fed})" if fed else text, _LONGEST)
        return None


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
    subjects = [TorchModel(name, model, inputs) for name, model in models.items()]
    with ExitStack() as kept:
        kept.enter_context(torch.no_grad())
        devices = [torch.cuda.current_device()] if torch.cuda.is_available() else []
        engines = torch.backends.quantized
        kept.callback(setattr, engines, "engine", engines.engine)
        kept.enter_context(torch.random.fork_rng(devices=devices))
        for subject in subjects:
            subject.begin(kept, options.warmup)
        made = [subject for subject in subjects if not subject.problem]
        take_turns(made, planned(made, options.runs, options.seconds))
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


def _result(subject: TorchModel, first: TorchModel | None) -> ModelResult:
    result = ModelResult(
        printable(subject.name, _LONGEST_NAME), subject.problem, inputs=subject.inputs
    )
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
            else compared_outputs(beside.outputs, subject.outputs)
        )
    said = on_gpu(profile) if subject.on_gpu else subject.copied.kernels
    evidence = Evidence(
        profile.kernels, said, subject.engine, flow_of(profile.kernels), observers_of(subject.model)
    )
    plain = median([time for times in subject.rounds() for time in times])
    profiled = usual(profile.lengths) * 1e-9 / plain if profile.lengths else None
    return replace(
        result,
        providers=(device,),
        latency=latency(subject, beside, profiled),
        memory=_memory(subject),
        ran=ran_of(profile, device),
        findings=FINDINGS.of(evidence, profile.kernel_micros),
        accuracy=accuracy,
        conversions=conversions_of(profile),
        backend=said,
        facts=subject.facts,
        is_quantized=has_quantized_weights(subject.model),
    )


def _memory(subject: TorchModel) -> MemoryUse:
    assert subject.profile is not None
    peak, growth = subject.copied.peak, subject.copied.growth
    if subject.gpu_memory is not None:
        peak, before = subject.gpu_memory
        growth = peak - before
    return MemoryUse(
        peak,
        None,
        weights_in_memory=weight_bytes(subject.model),
        run_growth=growth,
        allocated=subject.profile.allocated,
        alive=subject.profile.alive,
    )


def _settings(options: Options) -> Mapping[str, str]:
    import torch

    return {
        "threads": str(torch.get_num_threads()),
        "vector instructions": torch.backends.cpu.get_cpu_capability(),
        "runs": f"{options.seconds:g} s each" if options.runs is None else str(options.runs),
    }


_QUIET: Final[Mapping[str, str]] = {"KINETO_LOG_LEVEL": "99", "TORCH_CPP_LOG_LEVEL": "ERROR"}
"""Keeps torch's profiler from writing when it starts and stops. Torch reads it when it is imported."""


def measure_script(reference: str, options: Options) -> InferenceResult:
    """Measures variants of a model.

    What the script, libraries and other programs print goes to standard error: standard output
    is for the result.
    """
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    with _output_to_errors():
        variants = load_variants(reference)
        if options.threads is not None:
            import torch

            torch.set_num_threads(options.threads)
        return measure_models(variants.models, variants.inputs, options)


@contextmanager
def _output_to_errors() -> Iterator[None]:
    sys.stdout.flush()
    output = os.dup(1)
    os.dup2(2, 1)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        if sys.platform == "linux":
            ctypes.CDLL(None).fflush(None)  # what C has printed
        os.dup2(output, 1)
        os.close(output)
