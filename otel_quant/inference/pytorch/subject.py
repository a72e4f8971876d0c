"""One PyTorch model while it is measured."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from typing import Any, TypeVar

from otel_quant.base.fault_boundary import LastResort
from otel_quant.cost.graph import printable
from otel_quant.inference.profile_json import Tensor
from otel_quant.inference.pytorch.forked import Copied, run_in_copy
from otel_quant.inference.pytorch.operators import type_of
from otel_quant.inference.pytorch.profile import Profile, profile
from otel_quant.inference.pytorch.unchanged import left_unchanged
from otel_quant.inference.rounds import Timed
from otel_quant.inference.torch_tensors import arrays_in
from otel_quant.inference.variants import (
    SEED,
    VariantsError,
    arguments,
    error_text,
    made,
    onnx_path,
)

_NANO = 1e-9
_LONGEST = 600
_MOST_INPUTS = 8

_Result = TypeVar("_Result")


class Subject:
    """One model while it is measured."""

    def __init__(self, name: str, model: object, inputs: object) -> None:
        self.name = name
        self.model: Any = None
        self.problem = ""
        self.inputs: Mapping[str, str] = {}
        self.warm = 0
        self.rounds: list[list[int]] = []
        self.outputs: Mapping[str, Any] = {}
        self.profile: Profile | None = None
        self.copied = Copied()
        self.on_gpu = False
        self.engine = ""
        self.gpu_memory: tuple[int, int] | None = None
        self.facts: dict[str, str] = {}
        self._given = model, inputs
        self._first = 0
        self._args: tuple[Any, ...] = ()
        self._kwargs: dict[str, Any] = {}

    @property
    def timed(self) -> Timed:
        """Its times."""
        return Timed(self._first * _NANO, self.rounds)

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
        self._first = self._times(1)[0]
        warm = sorted(self._times(max(1, warmup)))
        self.warm = warm[len(warm) // 2]

    def _shown_inputs(self) -> Iterator[tuple[str, str]]:
        many = len(self._args) > 1
        named = {f"input {i}" if many else "input": each for i, each in enumerate(self._args)}
        named |= self._kwargs
        for name, value in list(named.items())[:_MOST_INPUTS]:
            if hasattr(value, "dtype") and hasattr(value, "shape"):
                dtype = type_of(str(value.dtype).removeprefix("torch."))
                yield printable(name), str(Tensor(dtype, tuple(value.shape)))

    def run(self, times: int) -> None:
        """Adds a round of timed runs; one before them does not count."""
        found = self._attempt(lambda: self._times(times + 1)[1:])
        if found is not None:
            self.rounds.append(found)

    def _times(self, count: int) -> list[int]:
        call, clock = self.call, time.perf_counter_ns
        found = []
        for _ in range(count):
            began = clock()
            call()
            found.append(clock() - began)
        return found

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

        fitting = int(seconds / max(self.warm * _NANO, _NANO))
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
            self.copied = run_in_copy(self.model, self.call, self.warm * _NANO)
        self.facts = {"quantized engine": self.engine}
        self.facts |= self.copied.said.facts
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
