"""PyTorch models measured beside each other, in the process that has made them and in a forked copy of it."""

from __future__ import annotations

import ctypes
import faulthandler
import gc
import io
import json
import os
import re
import select
import signal
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, redirect_stdout, suppress
from dataclasses import dataclass, field, replace
from statistics import median_high
from typing import Any, Final, NoReturn, TypeVar

from otel_quant.base import machine
from otel_quant.base.fault_boundary import LastResort
from otel_quant.cost.graph import printable
from otel_quant.inference import results, torch_parts, torch_session
from otel_quant.inference.arrays import arrays_in
from otel_quant.inference.child import growth, reset_mark, status, timed, timed_round
from otel_quant.inference.findings import with_slower
from otel_quant.inference.results import BackendKernel, InferenceResult, MemoryUse, ModelResult
from otel_quant.inference.rounds import MeasuredModel, beside, take_turns
from otel_quant.inference.subjects import Options
from otel_quant.inference.torch_findings import FINDINGS, Flow, TorchEvidence
from otel_quant.inference.torch_profile import (
    MODULE,
    conversions_of,
    kernels_on_gpu,
    profile,
    ran_of,
    read_verbose,
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
    buffers = []
    for module in modules:
        for name, buffer in module.named_buffers(recurse=False):
            # Torch counts the changes of a tensor, unless it was made in inference mode.
            version = None if buffer.is_inference() else buffer._version
            buffers.append((module, name, buffer, version, buffer.detach().clone()))
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


_OF_INTEGERS: Final = re.compile(r"quantize|int[248]|_int_mm")
"""Operators that only quantized models run, whose weights may be float (fake quantization) or unknown."""

_LONGEST: Final = 600
_LONGEST_NAME: Final = 120
_MOST_INPUTS: Final = 8

_Result = TypeVar("_Result")


class TorchModel(MeasuredModel):
    """One model while it is measured."""

    def __init__(self, name: str, model: object, inputs: object) -> None:
        super().__init__(name)
        self.result = ModelResult(printable(name, _LONGEST_NAME))
        self._model: Any = None
        self._given = model, inputs
        self._args: tuple[Any, ...] = ()
        self._kwargs: dict[str, Any] = {}
        self._on_gpu = False
        self._engine = ""

    def begin(self, kept: ExitStack, warmup: int) -> None:
        """Makes the model, and runs it for the first times."""
        import torch

        model, given = self._given
        if (path := torch_session.onnx_path(model)) is not None:
            raise torch_session.VariantsError(
                f"{path} is an ONNX file; expected a PyTorch model (otel-quant inference measures "
                "ONNX files by themselves)"
            )
        with torch.random.fork_rng(devices=[]):  # so that random weights are the same in all
            self._model, given = torch_session.made(model, given)
        self._engine = str(torch.backends.quantized.engine)
        self._args, self._kwargs = torch_session.arguments(given)
        tensors = [*self._args, *self._kwargs.values()]
        if isinstance(self._model, torch.nn.Module):
            tensors += [*self._model.parameters(), *self._model.buffers()]
        self.result = replace(self.result, inputs=dict(self._shown_inputs()))
        self._on_gpu = any(isinstance(each, torch.Tensor) and each.is_cuda for each in tensors)
        kept.enter_context(left_unchanged(self._model))
        self.is_on_one_thread = torch.get_num_threads() == 1 and not self._on_gpu
        self.first = timed(self.call, 1)
        self.warm = median_high(timed(self.call, max(1, warmup)))

    def _shown_inputs(self) -> Iterator[tuple[str, str]]:
        many = len(self._args) > 1
        named = {f"input {i}" if many else "input": each for i, each in enumerate(self._args)}
        for name, value in list({**named, **self._kwargs}.items())[:_MOST_INPUTS]:
            if hasattr(value, "dtype") and hasattr(value, "shape"):
                dtype = torch_parts.type_of(str(value.dtype).removeprefix("torch."))
                yield printable(name), results.tensor_text(dtype, value.shape)

    def time(self, seconds: float, runs: int | None) -> None:
        """Adds a round; one run before it does not count."""
        self.attempt(self.call)
        if found := self.attempt(timed_round, self.call, runs or self.runs_in(seconds)):
            self.take_round(found)

    def call(self) -> Any:
        """Runs the model once, to the end of what it has started on a GPU."""
        result = self._model(*self._args, **self._kwargs)
        if self._on_gpu:
            import torch

            torch.cuda.synchronize()
        return result

    def look_at(self, seconds: float) -> None:
        """Sees what runs, in how much memory, and what comes out."""
        import torch

        on_gpu, seed = self._on_gpu, torch_session.SEED  # what a model draws is the same in each
        if on_gpu:
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            self.call()
            peak = torch.cuda.max_memory_allocated()
            copied = Copied(peak, peak - before)
            torch.cuda.manual_seed(seed)
        torch.default_generator.manual_seed(seed)
        self.outputs = dict(arrays_in(self.call(), "output"))
        seen = profile(self._model, self.call, int(seconds / max(self.warm, 1e-9)), on_gpu)
        if not on_gpu:
            copied = run_in_copy(self._model, self.call, self.warm)
        facts = {"quantized engine": self._engine, **copied.facts}
        if copied.problem:
            why = f"not known: {copied.problem}"
            facts["memory of a run and kernels below the operators"] = why
        backend = kernels_on_gpu(seen) if on_gpu else copied.kernels
        modules = torch_parts.module_paths(self._model).items()
        observers = {path for path, module in modules if hasattr(module, "calculate_qparams")}
        evidence = TorchEvidence(seen.kernels, backend, self._engine, Flow(seen.kernels), observers)
        device, saved = "cuda" if on_gpu else "cpu", torch_session.saved_bytes(self._model)
        memory = MemoryUse(copied.peak, None, weights_on_disk=saved, run_growth=copied.growth)
        self.result = replace(
            self.result, providers=(device,),
            memory=replace(memory, allocated=seen.allocated, alive=seen.alive),
            ran=ran_of(seen, device), findings=FINDINGS.of(evidence, seen.kernel_micros),
            conversions=conversions_of(seen), backend=backend, facts=facts,
            is_quantized=torch_session.has_quantized_weights(self._model)
            or any(_OF_INTEGERS.search(each.name) for each in seen.kernels),
        )  # fmt: skip

    def attempt(self, function: Callable[..., _Result], *given: Any) -> _Result | None:
        """Calls a function, unless the model has failed; None if it does now."""
        if self.problem:
            return None
        with LastResort() as end:
            if self._engine:
                import torch

                torch.backends.quantized.engine = self._engine
            return function(*given)
        assert end.error is not None
        inputs = self.result.inputs
        fed = ", ".join(f"{name} {shown}" for name, shown in inputs.items())
        text = torch_session.text_of(end.error)
        self.problem = printable(f"{text} (called with {fed})" if fed else text, _LONGEST)
        self.result = ModelResult(self.result.path, self.problem, inputs=inputs)
        return None


class BusyProfilerError(RuntimeError):
    """The program runs torch's profiler, of which there can be only one."""


def measure_models(
    models: Mapping[str, object], inputs: object, options: Options
) -> InferenceResult:
    """Measures PyTorch models beside each other."""
    import torch

    if torch._C._autograd._profiler_enabled():
        why = "torch's profiler is running; expected a call outside of it, since there is only one"
        raise BusyProfilerError(why)
    load = machine.load()
    subjects = [TorchModel(name, model, inputs) for name, model in models.items()]
    with ExitStack() as kept:
        kept.enter_context(torch.no_grad())
        devices = [torch.cuda.current_device()] if torch.cuda.is_available() else []
        engines = torch.backends.quantized
        kept.callback(setattr, engines, "engine", engines.engine)
        kept.enter_context(torch.random.fork_rng(devices=devices))
        for subject in subjects:
            subject.attempt(subject.begin, kept, options.warmup)
        take_turns(subjects, options.seconds, options.runs, joules=options.joules)
        for subject in subjects:
            subject.attempt(subject.look_at, options.seconds)
    settings = {
        "threads": str(torch.get_num_threads()),
        "vector instructions": torch.backends.cpu.get_cpu_capability(),
        "runs": options.runs_text,
    }
    found = with_slower([beside(each.result, each, subjects[0]) for each in subjects])
    version, cores = str(torch.__version__), machine.processors()
    return InferenceResult(found, version, settings, load, cores, "torch")


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
        models, inputs = torch_session.load_variants(reference)
        if options.threads is not None:
            import torch

            torch.set_num_threads(options.threads)
        return measure_models(models, inputs, options)


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


# --- in a copy of the process ---------------------------------------------------------------------

# oneDNN writes what it runs to the standard output, which belongs to the program and its other threads; the
# kernel's mark of memory is the program's too. Without the copy nobody would know how much memory a run needs on
# a CPU, nor whether int8 runs on vector instructions made for it. The copy runs the model in a thread of its own:
# OpenMP's threads are not copied, and a new thread gets new ones.

_LEAST_SECONDS: Final = 30.0
_RUNS_AT_MOST: Final = 50
"""Time that the copy has, in runs of the model; it makes four, and shares the cores."""

_M_MMAP_THRESHOLD: Final = -3
_SMALL: Final = 1 << 14  # Bytes from which the copy's allocator gives memory back at once
_PR_SET_PDEATHSIG: Final = 1  # Has a process end with the one that has started it (prctl(2))


@dataclass(frozen=True, slots=True)
class Copied:
    """What was seen in the copy."""

    peak: int | None = None  # The kernel's mark while the model ran, in bytes
    growth: int | None = None  # How far it was above what was held before
    kernels: tuple[BackendKernel, ...] = ()  # What libraries report to have run
    facts: Mapping[str, str] = field(default_factory=dict)  # Instruction sets by library
    problem: str = ""  # Why nothing was seen; empty if something was


def run_in_copy(model: Any, run: Callable[[], object], seconds: float) -> Copied:
    """Runs a model in a copy of this process."""
    if sys.platform != "linux":
        return Copied(problem="a copy of the process can be made on Linux alone")
    limit = max(_LEAST_SECONDS, _RUNS_AT_MOST * seconds)
    read, write = os.pipe()
    with tempfile.TemporaryFile("w+b") as output, os.fdopen(read, "rb") as answers:
        with warnings.catch_warnings():
            # Python 3.12 warns that a copy has no other threads; it needs none.
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
        if pid == 0:
            _be_the_copy(model, run, output.fileno(), write)
        os.close(write)
        try:
            waiting = select.poll()  # a program may have more descriptors than select takes
            waiting.register(read)
            ready = waiting.poll(1000 * limit)
            answer = answers.readline() if ready else b""  # the last thing that the copy does
        finally:
            with suppress(ProcessLookupError, ChildProcessError):
                # The program may wait for any child, or for none.
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
        if not ready:
            return Copied(problem=f"a copy of the process did not end within {limit:.0f} s")
        if not answer:
            return Copied(problem="a copy of the process could not run the model")
        output.seek(0)
        text = output.read().decode("utf-8", "replace")
    peak, growth = json.loads(answer)
    return Copied(peak, growth, *read_verbose(text))


def _be_the_copy(model: Any, run: Callable[[], object], output: int, write: int) -> NoReturn:
    """Is the copy: nothing of it reaches the program's output, its handlers or its exit."""
    import resource  # Windows has none

    import torch

    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))
        faulthandler.disable()
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        nothing = os.open(os.devnull, os.O_RDWR)
        for number, target in ((0, nothing), (1, output), (2, nothing)):
            os.dup2(target, number)
        sys.stdout = sys.stderr = io.TextIOWrapper(io.FileIO(nothing, "w"))
        threads = torch.get_num_threads()  # OpenMP's number is one of each thread
        thread = threading.Thread(target=_look, args=(model, run, write, threads))
        thread.start()
        thread.join()
    finally:
        os._exit(0)


def _look(model: Any, run: Callable[[], object], write: int, threads: int) -> None:
    import torch

    gc.disable()  # it would write to every page
    torch.set_num_threads(threads)
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):  # what is given back is not kept, so that the mark shows the need
        libc.mallopt(_M_MMAP_THRESHOLD, _SMALL)
    with LastResort(), torch.no_grad():
        run()  # its memory and its files are mapped again, page by page
        run()
        is_set = reset_mark()
        before = status("VmRSS")
        run()
        peak = status("VmHWM") if is_set else None
        _listen(model, run)
        os.write(write, json.dumps([peak, growth(before, peak)]).encode() + b"\n")


def _listen(model: Any, run: Callable[[], object]) -> None:
    """Has libraries write what they run, with the modules in between."""
    import torch

    at: list[str] = [""]

    def tell() -> None:
        os.write(1, f"{MODULE}{torch_parts.in_quotes(at[-1])}\n".encode())

    def enter(path: str) -> Callable[[], object]:
        at.append(path)
        tell()

        def leave() -> None:
            at.pop()
            tell()

        return leave

    library: Any = torch.backends.mkldnn  # not all of it has types
    if library.is_available():
        with library.verbose(library.VERBOSE_ON), torch_parts.module_ranges(model, enter):
            run()
