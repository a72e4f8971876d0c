"""Runs a model under torch's profiler, and makes of its events what ran, for how long and in what memory."""

from __future__ import annotations

import json
import re
import tempfile
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from otel_quant.base.fault_boundary import LastResort
from otel_quant.cost.graph import printable
from otel_quant.inference.onnx_kernels import ran
from otel_quant.inference.results import BackendKernel, Conversion, Ran, RanKernel, tensor_text
from otel_quant.inference.torch_modules import in_quotes, module_ranges, path_in
from otel_quant.inference.torch_operators import (
    CONVERT,
    COPY,
    SCALES,
    allocates,
    copies,
    is_operator,
    kind_of,
    place_name,
    shown,
    type_of,
)

_TENSOR: Final = re.compile(r"Tensor\(([^)]*)\)")


class Operand(NamedTuple):
    """A tensor that an operator takes or returns."""

    dtype: str
    shape: tuple[int, ...]
    storage: int  # Number of its memory; the same for views of it

    def __str__(self) -> str:
        return tensor_text(self.dtype, self.shape)


Operands: TypeAlias = tuple[tuple[Operand, ...], tuple[Operand, ...]]
"""What an operator took and returned."""


def read_operands(path: Path, names: Sequence[str]) -> Sequence[Operands] | None:
    """Returns the operands of operators."""
    try:
        nodes = json.loads(path.read_text(encoding="utf-8", errors="replace")).get("nodes", ())
    except (OSError, ValueError):
        return None
    began = sorted(nodes, key=lambda node: int(node["id"]))
    seen = [node for node in began if is_operator(node["name"])]
    if [node["name"] for node in seen] != list(names):
        return None
    return [(tuple(_operands(node["inputs"])), tuple(_operands(node["outputs"]))) for node in seen]


def _operands(side: Mapping[str, Sequence[Any]]) -> Iterator[Operand]:
    for value, shape, kind in zip(side["values"], side["shapes"], side["types"], strict=False):
        types = _TENSOR.findall(kind)
        if kind.startswith("Tensor("):
            yield _operand(value, shape, types[0])
        elif types and isinstance(value, list) and len(value) == len(shape) == len(types):
            yield from map(_operand, value, shape, types)


def _operand(value: Sequence[Any], shape: Sequence[int], dtype: str) -> Operand:
    return Operand(type_of(dtype), tuple(shape), value[1])


RUN: Final = "otel-quant run"
"""Name of the range around a run."""

MODULE: Final = "otel-quant module:"
"""Begin of the name of the range around a module of the model; its path follows."""

_MEMORY: Final = "[memory]"

MOST_EVENTS: Final = 100_000
"""Events of the profiler that are read."""

_MOST_RUNS: Final = 20
_FEWEST_RUNS: Final = 3
_LONGEST: Final = 120
_MOST_TENSORS: Final = 16
_MICRO: Final = 1e-3
"""Microseconds of a nanosecond."""


class Event(NamedTuple):
    """An event of the profiler; times in nanoseconds."""

    begin: int  # When it began
    length: int  # How long it took
    name: str  # Its name
    thread: int  # The thread that it ran on
    number: int  # The profiler's number of it
    is_range: bool  # Whether it is a range that a program has named


class Allocation(NamedTuple):
    """Bytes that were allocated, or given back if less than 0."""

    begin: int
    thread: int
    size: int


_Timed = TypeVar("_Timed", Event, Allocation)


@dataclass(frozen=True, slots=True)
class Events:
    """What a session of the profiler has seen."""

    ranges: Sequence[Event]  # Operators and ranges, in order
    allocations: Sequence[Allocation]  # In order
    # Nanoseconds of kernels of a GPU with their names, by the number of the operator that has
    # started them
    on_device: dict[int, list[tuple[str, int]]]


@dataclass(slots=True)
class Kernel:
    """An operator as it ran, in one run or in the mean of several; times in nanoseconds."""

    name: str  # Its name
    module: str  # Path of the module that it belongs to; empty for the model itself
    parent: int | None  # Place of the operator within which it ran; None for an outermost one
    own: float  # Its time without that of what ran within it
    total: float  # Its time
    allocated: int = 0  # Bytes that it has allocated itself
    number: int = 0  # The profiler's number of it
    inputs: tuple[Operand, ...] = ()  # What it takes
    outputs: tuple[Operand, ...] = ()  # What it returns
    on_device: tuple[str, ...] = ()  # Kernels of a GPU that it starts

    @property
    def micros(self) -> float:
        """Its time without that of what ran within it, in microseconds."""
        return _MICRO * self.own

    @property
    def time(self) -> float:
        """Its time in microseconds."""
        return _MICRO * self.total

    @property
    def title(self) -> str:
        """Its name and its module as results have them."""
        return f"{place_name(self.module)}: {shown(self.name)}"


@dataclass(slots=True)
class RunTree:
    """One run."""

    length: int  # Its time in nanoseconds
    operators: list[Kernel] = field(default_factory=list)  # In the order in which they began
    allocated: int = 0  # Bytes that were allocated
    alive: int = 0  # The most of them that was held at once

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the operators, in order."""
        return tuple(each.name for each in self.operators)


def events_of(results: Any) -> Events:
    """Reads what a session of the profiler has left."""
    from torch._C._autograd import DeviceType

    ranges: list[Event] = []
    allocations: list[Allocation] = []
    on_device: dict[int, list[tuple[str, int]]] = {}
    cpu = DeviceType.CPU
    for event in results.events():
        name = event.name()
        if event.device_type() != cpu:
            started_by = event.linked_correlation_id()
            if started_by > 0 and not event.is_user_annotation():
                on_device.setdefault(started_by, []).append((name, event.duration_ns()))
        elif name == _MEMORY:
            allocations.append(
                Allocation(event.start_ns(), event.start_thread_id(), event.nbytes())
            )
        else:
            ranges.append(
                Event(
                    event.start_ns(),
                    event.duration_ns(),
                    name,
                    event.start_thread_id(),
                    event.correlation_id(),
                    event.is_user_annotation(),
                )
            )
    return Events(sorted(ranges), sorted(allocations), on_device)


def runs_of(events: Events) -> list[RunTree]:
    """Returns the runs of a session, in order; on a GPU with the times of its kernels."""
    return [_run(event, events) for event in events.ranges if event.name == RUN]


def _run(bound: Event, events: Events) -> RunTree:
    found = RunTree(bound.length)
    threads: dict[int, list[Event | Allocation]] = {bound.thread: []}
    until = bound.begin + bound.length
    for event in _between(events.ranges, bound.begin, until):
        if event.name != RUN:
            threads.setdefault(event.thread, []).append(event)
    alive = 0
    for each in _between(events.allocations, bound.begin, until):
        threads.setdefault(each.thread, []).append(each)
        alive += each.size
        found.alive = max(found.alive, alive)
        found.allocated += max(0, each.size)
    for within in threads.values():
        _add_thread(found.operators, within)
    if events.on_device:
        for operator in found.operators:
            operator.own = sum(length for _, length in events.on_device.get(operator.number, ()))
        _add_up(found.operators)
    return found


def _between(events: Sequence[_Timed], first: int, last: int) -> Sequence[_Timed]:
    """Returns the events that began in a stretch of time."""
    begin = bisect_left(events, first, key=lambda each: each.begin)
    return events[begin : bisect_left(events, last, begin, key=lambda each: each.begin)]


class _Open(NamedTuple):
    """A range that has not ended: its end, its module, and the operator that it is or is within."""

    end: int
    module: str
    operator: int | None
    is_operator: bool


def _add_thread(operators: list[Kernel], events: Sequence[Event | Allocation]) -> None:
    """Adds the operators of a thread, each with what ran within it and what it has allocated."""
    outermost = _Open(0, "", None, False)
    stack: list[_Open] = []
    for event in sorted(events, key=_nested):
        while stack and stack[-1].end <= event.begin:
            stack.pop()
        outer = stack[-1] if stack else outermost
        at = outer.operator
        if isinstance(event, Allocation):
            if at is not None:
                operators[at].allocated += max(0, event.size)
            continue
        if outer.is_operator and at is not None:
            operators[at].own -= event.length
        end = event.begin + event.length
        if event.is_range and event.name.startswith(MODULE):
            stack.append(_Open(end, path_in(event.name[len(MODULE) :]), at, False))
        elif not is_operator(event.name):
            stack.append(_Open(end, outer.module, at, False))
        else:
            stack.append(_Open(end, outer.module, len(operators), True))
            length, number = event.length, event.number
            operators.append(Kernel(event.name, outer.module, at, length, length, number=number))


def _nested(event: Event | Allocation) -> tuple[int, bool, int]:
    """Sorts what holds others before them; what is allocated as a range begins is within it."""
    if isinstance(event, Allocation):
        return event.begin, True, 0
    return event.begin, False, -event.length


def _add_up(operators: Sequence[Kernel]) -> None:
    """Sets the time of each operator to its own and that of those within it."""
    for operator in operators:
        operator.total = operator.own
    for operator in reversed(operators):
        if operator.parent is not None:
            operators[operator.parent].total += operator.total


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
        _MICRO * _mean([tree.length for tree in counted]),
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
) -> Iterator[Kernel]:
    for place, operator in enumerate(what_ran.operators):
        inputs, outputs = operands.get(operator.number, ((), ()))
        yield replace(
            operator,
            own=_mean([tree.operators[place].own for tree in counted]),
            total=_mean([tree.operators[place].total for tree in counted]),
            inputs=inputs,
            outputs=outputs,
            on_device=tuple(name for name, _ in seen.on_device.get(operator.number, ())),
        )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def ran_of(profile: Profile, device: str) -> Ran:
    """Returns what ran, as other runtimes have it: operators of one kind in a module together."""
    kernels = profile.kernels
    own_bytes = _allocated(kernels)
    groups: dict[tuple[str, ...], list[int]] = {}
    for place, kernel in enumerate(kernels):
        groups.setdefault(_alike(kernel), []).append(place)
    whole = profile.kernel_micros or 1.0
    found = [
        _row(
            [kernels[place] for place in places],
            sum(own_bytes[place] for place in places),
            whole,
            device,
        )
        for places in groups.values()
    ]
    return ran(profile.runs, profile.run_micros, list(_named_apart(found)), counts_calls=True)


def _alike(kernel: Kernel) -> tuple[str, ...]:
    inputs = (str(each) for each in kernel.inputs)
    outputs = (str(each) for each in kernel.outputs)
    return (kernel.module, kernel.name, *inputs, "->", *outputs)


def _allocated(kernels: Sequence[Kernel]) -> list[int]:
    """Returns the bytes that each allocates, or that are allocated for it."""
    found = [kernel.allocated for kernel in kernels]
    for place in reversed(range(len(kernels))):
        parent = kernels[place].parent
        if parent is not None and allocates(kernels[place].name):
            found[parent] += found[place]
            found[place] = 0
    return found


def _row(alike: Sequence[Kernel], allocated: int, whole: float, device: str) -> RanKernel:
    first, micros = alike[0], sum(kernel.micros for kernel in alike)
    return RanKernel(
        name=first.title,
        op_type=shown(first.name),
        node=place_name(first.module),
        nodes=1,
        provider=device,
        micros=micros,
        share=micros / whole,
        calls=float(len(alike)),
        inputs=tuple(str(each) for each in first.inputs[:_MOST_TENSORS]),
        outputs=tuple(str(each) for each in first.outputs[:_MOST_TENSORS]),
        macs=None,
        macs_per_second=None,
        allocated=allocated,
    )


def _named_apart(rows: Sequence[RanKernel]) -> Iterator[RanKernel]:
    known: dict[str, int] = {}
    for row in rows:
        count = known[row.name] = known.get(row.name, 0) + 1
        yield row if count == 1 else replace(row, name=f"{row.name} #{count}")


def on_gpu(profile: Profile) -> tuple[BackendKernel, ...]:
    """Returns the kernels of a GPU that operators have started, the most frequent first."""
    modules: dict[str, list[str]] = {}
    for kernel in profile.kernels:
        for name in kernel.on_device:
            modules.setdefault(name, []).append(kernel.module)
    found = [
        BackendKernel("GPU", printable(name, _LONGEST), "", "", len(each), each[0], len(set(each)))
        for name, each in modules.items()
    ]
    return tuple(sorted(found, key=lambda each: -each.calls))


def conversions_of(profile: Profile) -> tuple[Conversion, ...]:
    """Counts and times what quantizes, dequantizes, observes and converts, the slowest first."""
    groups: dict[tuple[str, str], list[Kernel]] = {}
    for kind, types, kernel in changes_of_type(profile.kernels):
        groups.setdefault((kind, types), []).append(kernel)
    whole = profile.kernel_micros or 1.0
    found = [
        Conversion(
            kind,
            types,
            len(group),
            sum(kernel.time for kernel in group),
            sum(kernel.time for kernel in group) / whole,
        )
        for (kind, types), group in groups.items()
    ]
    return tuple(sorted(found, key=lambda each: -each.micros))


def changes_of_type(kernels: Sequence[Kernel]) -> Iterator[tuple[str, str, Kernel]]:
    """Yields what changes how numbers are stored: what it does, the types, and the operator.

    What runs within such an operator belongs to it. A copy of a scalar is none.
    """
    within: list[bool] = []
    for kernel in kernels:
        kind = kind_of(kernel.name)
        inside = kernel.parent is not None and within[kernel.parent]
        within.append(inside or kind is not None)
        if inside:
            continue
        if kind is not None:
            yield kind, _types_of(kernel), kernel
        elif (types := converted(kernel)) is not None:
            outermost = kernel
            while outermost.parent is not None and copies(kernels[outermost.parent].name):
                outermost = kernels[outermost.parent]
            yield CONVERT, " -> ".join(types), outermost


def converted(kernel: Kernel) -> tuple[str, str] | None:
    """Returns from which type to which a copy converts; None for anything else."""
    if kernel.name != COPY or len(kernel.inputs) < 2 or not kernel.inputs[0].shape:
        return None
    written, read = (operand.dtype for operand in kernel.inputs[:2])
    return None if written == read else (read, written)


def _types_of(kernel: Kernel) -> str:
    result = () if kind_of(kernel.name) == SCALES else kernel.outputs[:1]
    sides = (kernel.inputs[:1], result)
    return " -> ".join(each.dtype for side in sides for each in side)
