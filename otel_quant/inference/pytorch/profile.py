"""Runs a model under torch's profiler: once for what ran, and again for how long it took."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from otel_quant.base.fault_boundary import LastResort
from otel_quant.inference.pytorch.events import MODULE, RUN, Events, RunTree, events_of, runs_of
from otel_quant.inference.pytorch.operands import Operand, Operands, read_operands
from otel_quant.inference.pytorch.ranges import in_quotes, module_ranges

MOST_EVENTS: Final = 100_000
"""Events of the profiler that are read."""

_MOST_RUNS: Final = 20
_FEWEST_RUNS: Final = 3
_MICRO: Final = 1e-3
"""Microseconds of a nanosecond."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """An operator as it runs in each run; times in microseconds."""

    name: str  # Its name
    module: str  # Path of the module that it belongs to; empty for the model itself
    parent: int | None  # Place of the operator within which it runs; None for an outermost one
    micros: float  # Mean time in a run, without that of what runs within it
    total: float  # The same with that
    allocated: int  # Bytes that it allocates itself in a run
    inputs: tuple[Operand, ...]  # What it takes
    outputs: tuple[Operand, ...]  # What it returns
    on_device: tuple[str, ...] = ()  # Kernels of a GPU that it starts


@dataclass(frozen=True, slots=True)
class Profile:
    """What the profiler has seen of a model."""

    runs: int  # Runs whose mean this is
    run_micros: float  # Time of a run, in microseconds
    kernels: tuple[Kernel, ...]  # In the order in which they run
    allocated: int  # Bytes that a run allocates
    alive: int  # The most of them that is held at once
    lengths: tuple[int, ...]  # Nanoseconds of each run under the profiler

    @property
    def kernel_micros(self) -> float:
        """Time of all kernels in a run."""
        return sum(kernel.micros for kernel in self.kernels)


def profile(model: Any, run: Callable[[], object], fitting: int, on_gpu: bool) -> Profile:
    """Profiles a model.

    The first session looks at operands, memory and modules, and is slow. The others only take the
    time. Of these the faster half counts, as long as they run the same operators as the first.
    """
    with LastResort() as end:
        looked = _look(model, run, on_gpu)
    if end.error is not None:
        looked = _look(None, run, on_gpu)  # a graph that does not run node by node
    seen, what_ran, operands = looked
    most = MOST_EVENTS // max(1, len(seen.ranges))
    count = max(_FEWEST_RUNS, min(_MOST_RUNS, fitting, most))
    timed = _session(run, count, on_gpu)
    alike = sorted(
        (tree for tree in runs_of(timed) if tree.names == what_ran.names),
        key=lambda tree: tree.length,
    )
    counted = alike[: max(1, len(alike) // 2)] or [what_ran]
    return Profile(
        len(counted),
        _mean([tree.length for tree in counted]),
        tuple(_kernels(what_ran, counted, operands, seen)),
        what_ran.allocated,
        what_ran.alive,
        tuple(tree.length for tree in alike),
    )


def _look(
    model: Any, run: Callable[[], object], on_gpu: bool
) -> tuple[Events, RunTree, Mapping[int, Operands]]:
    """Returns what a run does, and the operands of its operators by their numbers.

    Without a model nothing is known of modules.
    """
    from torch.profiler import ExecutionTraceObserver, record_function

    def enter(path: str) -> Callable[[], object]:
        opened = ExitStack()
        opened.enter_context(record_function(MODULE + in_quotes(path)))
        return opened.close

    def observed() -> None:
        observer.start()
        try:
            with module_ranges(model, enter):
                run()
        finally:
            observer.stop()

    with tempfile.TemporaryDirectory(prefix="otel-quant-inference-") as folder:
        path = Path(folder) / "operands.json"
        observer = ExecutionTraceObserver()
        observer.register_callback(str(path))
        try:
            events = _session(observed, 1, on_gpu, memory=True)
        finally:
            observer.unregister_callback()
        what_ran = runs_of(events)[0]
        began = sorted(what_ran.operators, key=lambda each: each.number)
        known = read_operands(path, [each.name for each in began]) or ()
        numbers = [each.number for each in began]
        return events, what_ran, dict(zip(numbers, known, strict=False))


def _session(run: Callable[[], object], count: int, on_gpu: bool, memory: bool = False) -> Events:
    import torch
    from torch.profiler import ProfilerActivity, record_function
    from torch.profiler import profile as session_of

    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]
    with session_of(activities=activities, profile_memory=memory) as session:
        for _ in range(count):
            with record_function(RUN):
                run()
                if on_gpu:
                    torch.cuda.synchronize()
    return events_of(session.profiler.kineto_results)


def _kernels(
    what_ran: RunTree, counted: Sequence[RunTree], operands: Mapping[int, Operands], seen: Events
) -> list[Kernel]:
    found = []
    for place, operator in enumerate(what_ran.operators):
        known = operands.get(operator.number)
        found.append(
            Kernel(
                operator.name,
                operator.module,
                operator.parent,
                _mean([tree.operators[place].own for tree in counted]),
                _mean([tree.operators[place].total for tree in counted]),
                operator.allocated,
                known.inputs if known is not None else (),
                known.outputs if known is not None else (),
                tuple(name for name, _ in seen.on_device.get(operator.number, ())),
            )
        )
    return found


def _mean(nanoseconds: Sequence[int]) -> float:
    return _MICRO * sum(nanoseconds) / len(nanoseconds)
