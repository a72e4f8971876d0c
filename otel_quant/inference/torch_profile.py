"""Runs a model under torch's profiler, and makes of its events what ran, for how long and in what memory."""

from __future__ import annotations

import json
import re
import tempfile
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import takewhile
from math import inf
from operator import attrgetter, itemgetter
from pathlib import Path
from statistics import fmean
from typing import Any, Final, NamedTuple, TypeAlias

from otel_quant.base.fault_boundary import LastResort
from otel_quant.cost.graph import printable
from otel_quant.inference import results, torch_parts
from otel_quant.inference.results import BackendKernel, Conversion, Ran, RanKernel, grouped

_TENSOR: Final = re.compile(r"Tensor\(([^)]*)\)")
RUN: Final = "otel-quant run"  # Name of the range around a run

MODULE: Final = "otel-quant module:"
"""Begin of the name of the range around a module of the model; its path follows."""

MEMORY: Final = "[memory]"  # Name of what allocates or gives back
MOST_EVENTS: Final = 100_000  # Events of the profiler that are read
_MOST_RUNS: Final = 20
_FEWEST_RUNS: Final = 3
_LONGEST: Final = 120
_MOST_TENSORS: Final = 16
_MICRO: Final = 1e-3  # Microseconds of a nanosecond


class Operand(NamedTuple):
    """A tensor that an operator takes or returns."""

    dtype: str
    shape: tuple[int, ...]
    storage: int  # Number of its memory; the same for views of it

    def __str__(self) -> str:
        return results.tensor_text(self.dtype, self.shape)


Operands: TypeAlias = tuple[tuple[Operand, ...], tuple[Operand, ...]]
"""What an operator took and returned."""


def read_operands(path: Path, names: Sequence[str]) -> Sequence[Operands]:
    """Returns the operands of operators; of none if the file has others."""
    try:
        nodes = json.loads(path.read_text(encoding="utf-8", errors="replace")).get("nodes", ())
    except (OSError, ValueError):
        return ()
    began = sorted(nodes, key=lambda node: int(node["id"]))
    seen = [node for node in began if torch_parts.is_operator(node["name"])]
    if [node["name"] for node in seen] != list(names):
        return ()
    return [(tuple(_operands(node["inputs"])), tuple(_operands(node["outputs"]))) for node in seen]


def _operands(side: Mapping[str, Sequence[Any]]) -> Iterator[Operand]:
    for value, shape, kind in zip(side["values"], side["shapes"], side["types"], strict=False):
        types = _TENSOR.findall(kind)
        if kind.startswith("Tensor("):
            yield Operand(torch_parts.type_of(types[0]), tuple(shape), value[1])
        elif types and isinstance(value, list) and len(value) == len(shape) == len(types):
            for one, lengths, dtype in zip(value, shape, types, strict=True):
                yield Operand(torch_parts.type_of(dtype), tuple(lengths), one[1])


class ProfilerEvent(NamedTuple):
    """An event of the profiler; times in nanoseconds."""

    begin: int  # When it began
    length: int  # How long it took
    name: str  # Its name
    thread: int  # The thread that it ran on
    number: int = 0  # The profiler's number of it
    is_range: bool = False  # Whether it is a range that a program has named
    size: int = 0  # Bytes that were allocated, or given back if less than 0


class Events(NamedTuple):
    """What a session of the profiler has seen."""

    found: Sequence[ProfilerEvent]  # Operators, ranges and what allocates, in order
    # Nanoseconds of kernels of a GPU with their names, by the number of the operator that has
    # started them
    on_device: Mapping[int, Sequence[tuple[str, int]]]


@dataclass(slots=True)
class TorchOperator:
    """An operator as it ran, in one run or in the mean of several; times in nanoseconds."""

    name: str  # Its name
    module: str  # Path of the module that it belongs to; empty for the model itself
    parent: int | None  # Place of the operator within which it ran; None for an outermost one
    own: float  # Its time without the time of what ran within it
    total: float  # Its time
    allocated: int = 0  # Bytes that it has allocated itself
    number: int = 0  # The profiler's number of it
    inputs: tuple[Operand, ...] = ()  # What it takes
    outputs: tuple[Operand, ...] = ()  # What it returns
    on_device: tuple[str, ...] = ()  # Kernels of a GPU that it starts

    @property
    def micros(self) -> float:
        """Its time without the time of what ran within it, in microseconds."""
        return _MICRO * self.own

    @property
    def time(self) -> float:
        """Its time in microseconds."""
        return _MICRO * self.total

    @property
    def reads(self) -> Set[int]:
        """The memory of what it takes."""
        return {each.storage for each in self.inputs}

    @property
    def alike(self) -> tuple[str, ...]:
        """What operators that are shown as one have in common: module, name, and operands."""
        sides = (", ".join(map(str, side)) for side in (self.inputs, self.outputs))
        return (self.module, self.name, *sides)

    @property
    def title(self) -> str:
        """Its name and its module as results have them."""
        return f"{torch_parts.place_name(self.module)}: {torch_parts.shown(self.name)}"


@dataclass(slots=True)
class RunTree:
    """One run."""

    length: int  # Its time in nanoseconds
    operators: list[TorchOperator] = field(default_factory=list)  # In the order in which they began
    allocated: int = 0  # Bytes that were allocated
    alive: int = 0  # The most of them that was held at once

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the operators, in order."""
        return tuple(each.name for each in self.operators)


def around(operator: TorchOperator, operators: Sequence[TorchOperator]) -> Iterator[TorchOperator]:
    """Yields the operators within which one of them ran, from the inside out."""
    while operator.parent is not None:
        operator = operators[operator.parent]
        yield operator


def events_of(session: Any) -> Events:
    """Reads what a session of the profiler has left."""
    from torch._C._autograd import DeviceType

    found: list[ProfilerEvent] = []
    on_device: dict[int, list[tuple[str, int]]] = {}
    cpu = DeviceType.CPU
    for event in session.events():
        name, begin, thread = event.name(), event.start_ns(), event.start_thread_id()
        is_range, length = event.is_user_annotation(), event.duration_ns()
        if event.device_type() != cpu:
            started_by = event.linked_correlation_id()
            if started_by > 0 and not is_range:
                on_device.setdefault(started_by, []).append((name, length))
        elif name == MEMORY:
            found.append(ProfilerEvent(begin, 0, name, thread, size=event.nbytes()))
        else:
            number = event.correlation_id()
            found.append(ProfilerEvent(begin, length, name, thread, number, is_range))
    return Events(sorted(found), on_device)


def runs_of(events: Events) -> list[RunTree]:
    """Returns the runs of a session, in order; on a GPU with the times of its kernels."""
    return [_run(event, events) for event in events.found if event.name == RUN]


def _run(bound: ProfilerEvent, events: Events) -> RunTree:
    run = RunTree(bound.length)
    threads: dict[int, list[ProfilerEvent]] = {bound.thread: []}
    first = bisect_left(events.found, bound.begin, key=attrgetter("begin"))
    until = bisect_left(events.found, bound.begin + bound.length, key=attrgetter("begin"))
    alive = 0
    for event in events.found[first:until]:
        if event.name != RUN:
            threads.setdefault(event.thread, []).append(event)
            alive += event.size
            run.alive = max(run.alive, alive)
            run.allocated += max(0, event.size)
    for within in threads.values():
        _add_thread(run.operators, within)
    if events.on_device:
        for operator in run.operators:
            operator.own = sum(length for _, length in events.on_device.get(operator.number, ()))
            operator.total = operator.own
        for operator in reversed(run.operators):
            if operator.parent is not None:
                run.operators[operator.parent].total += operator.total
    return run


class _Open(NamedTuple):
    """A range that has not ended."""

    end: float
    module: str
    place: int | None  # Place of the operator that it is or is within
    operator: TorchOperator  # This operator
    is_operator: bool


def _add_thread(operators: list[TorchOperator], events: Sequence[ProfilerEvent]) -> None:
    """Adds the operators of a thread, each with what ran within it and what it has allocated."""
    outside = TorchOperator("", "", None, 0, 0)  # what is in no operator
    stack = [_Open(inf, "", None, outside, False)]
    # What holds others before them; what is allocated as a range begins is within it.
    for event in sorted(events, key=lambda each: (each.begin, each.name == MEMORY, -each.length)):
        while stack[-1].end <= event.begin:
            stack.pop()
        outer, length = stack[-1], event.length
        inner = outer._replace(end=event.begin + length, is_operator=False)
        if outer.is_operator:
            outer.operator.own -= length
        if event.name == MEMORY:
            outer.operator.allocated += max(0, event.size)
        elif event.is_range and event.name.startswith(MODULE):
            stack.append(inner._replace(module=torch_parts.path_in(event.name[len(MODULE) :])))
        elif torch_parts.is_operator(event.name):
            at, name = outer.place, event.name
            made = TorchOperator(name, outer.module, at, length, length, number=event.number)
            stack.append(inner._replace(place=len(operators), operator=made, is_operator=True))
            operators.append(made)
        else:
            stack.append(inner)


@dataclass(frozen=True, slots=True)
class TorchProfile:
    """What the profiler has seen of a model."""

    runs: int  # Runs whose mean this is
    run_micros: float  # Time of a run, in microseconds
    kernels: tuple[TorchOperator, ...]  # In the order in which they run
    allocated: int  # Bytes that a run allocates
    alive: int  # The most of them that is held at once

    @property
    def kernel_micros(self) -> float:
        """Time of all kernels in a run."""
        return sum(kernel.micros for kernel in self.kernels)


def profile(model: Any, run: Callable[[], object], fitting: int, on_gpu: bool) -> TorchProfile:
    """Profiles a model.

    The first session looks at operands, memory and modules, and is slow. The others only take the
    time. Of these the faster half counts, as long as they run the same operators as the first.
    """
    with LastResort() as end:
        looked = _look(model, run, on_gpu)
    if end.error is not None:
        looked = _look(None, run, on_gpu)  # a graph that does not run node by node
    seen, what_ran, operands = looked
    most = MOST_EVENTS // max(1, len(seen.found))
    count = max(_FEWEST_RUNS, min(_MOST_RUNS, fitting, most))
    trees, names = runs_of(_session(run, count, on_gpu)), what_ran.names
    alike = [tree for tree in sorted(trees, key=lambda each: each.length) if tree.names == names]
    counted = alike[: max(1, len(alike) // 2)] or [what_ran]
    for place, operator in enumerate(what_ran.operators):
        operator.own = fmean(tree.operators[place].own for tree in counted)
        operator.total = fmean(tree.operators[place].total for tree in counted)
        operator.inputs, operator.outputs = operands.get(operator.number, ((), ()))
        operator.on_device = tuple(name for name, _ in seen.on_device.get(operator.number, ()))
    micros, kernels = _MICRO * fmean(tree.length for tree in counted), tuple(what_ran.operators)
    return TorchProfile(len(counted), micros, kernels, what_ran.allocated, what_ran.alive)


def _look(
    model: Any, run: Callable[[], object], on_gpu: bool
) -> tuple[Events, RunTree, Mapping[int, Operands]]:
    """Returns what a run does, and operands of its operators by number; without a model no modules."""
    from torch.profiler import ExecutionTraceObserver, record_function

    def enter(path: str) -> Callable[[], object]:
        opened = ExitStack()
        opened.enter_context(record_function(MODULE + torch_parts.in_quotes(path)))
        return opened.close

    def observed() -> None:
        observer.start()
        try:
            with torch_parts.module_ranges(model, enter):
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
        known = read_operands(path, [each.name for each in began])
    return events, what_ran, {each.number: found for each, found in zip(began, known, strict=False)}


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


def ran_of(profile: TorchProfile, device: str) -> Ran:
    """Returns what ran, as other runtimes have it: operators of one kind in a module together."""
    kernels = profile.kernels
    own_bytes = [kernel.allocated for kernel in kernels]
    for place, kernel in reversed(list(enumerate(kernels))):
        if kernel.parent is not None and torch_parts.allocates(kernel.name):
            own_bytes[kernel.parent] += own_bytes[place]
            own_bytes[place] = 0
    groups = grouped(range(len(kernels)), lambda place: kernels[place].alike)
    whole = profile.kernel_micros or 1.0
    counts: Counter[str] = Counter()
    found = []
    for places in groups.values():
        first, micros = kernels[places[0]], sum(kernels[place].micros for place in places)
        title, means = first.title, (micros, micros / whole, float(len(places)))
        counts[title] += 1
        name = title if counts[title] == 1 else f"{title} #{counts[title]}"
        op_type, module = torch_parts.shown(first.name), torch_parts.place_name(first.module)
        inputs = tuple(map(str, first.inputs[:_MOST_TENSORS]))
        outputs = tuple(map(str, first.outputs[:_MOST_TENSORS]))
        made = RanKernel(name, op_type, module, 1, device, *means, inputs, outputs)
        found.append(replace(made, allocated=sum(own_bytes[place] for place in places)))
    slowest = sorted(found, key=lambda each: -each.micros)
    return Ran(profile.runs, profile.run_micros, tuple(slowest))


def kernels_on_gpu(profile: TorchProfile) -> tuple[BackendKernel, ...]:
    """Returns the kernels of a GPU that operators have started, the most frequent first."""
    return results.backend_kernels(
        (("GPU", printable(name, _LONGEST), "", ""), kernel.module)
        for kernel in profile.kernels
        for name in kernel.on_device
    )


def conversions_of(profile: TorchProfile) -> tuple[Conversion, ...]:
    """Counts and times what quantizes, dequantizes, observes and converts, the slowest first."""
    whole = profile.kernel_micros or 1.0
    found = []
    for (kind, types), alike in grouped(changes_of_type(profile.kernels), itemgetter(0, 1)).items():
        micros = sum(kernel.time for _, _, kernel in alike)
        found.append(Conversion(kind, types, len(alike), micros, micros / whole))
    return tuple(sorted(found, key=lambda each: -each.micros))


def changes_of_type(kernels: Sequence[TorchOperator]) -> Iterator[tuple[str, str, TorchOperator]]:
    """Yields what changes the type of tensors, with what runs within it: what it does, types, operator."""
    for kernel in kernels:
        outer = list(around(kernel, kernels))
        if any(torch_parts.kind_of(each.name) for each in outer):
            continue  # it belongs to what it is within
        kind = torch_parts.kind_of(kernel.name)
        types = [each.dtype for each in kernel.inputs[:2]]
        if kind is not None:
            made = () if kind == torch_parts.SCALES else kernel.outputs[:1]
            yield kind, " -> ".join([*types[:1], *(each.dtype for each in made)]), kernel
        elif kernel.name == torch_parts.COPY and len(set(types)) == 2 and kernel.inputs[0].shape:
            copies = takewhile(lambda each: each.name in torch_parts.COPIES, outer)
            # What is written is the first.
            yield torch_parts.CONVERT, f"{types[1]} -> {types[0]}", [kernel, *copies][-1]


_INSTRUCTIONS: Final = re.compile(r",isa:([^,]*)")


def read_verbose(text: str) -> tuple[tuple[BackendKernel, ...], Mapping[str, str]]:
    """Reads what was written in a run: kernels, the most frequent first, and instruction sets."""
    facts: dict[str, str] = {}
    ran: list[tuple[tuple[str, str, str, str], str]] = []
    module = ""
    for line in text.splitlines():
        if line.startswith(MODULE):
            module = torch_parts.path_in(line[len(MODULE) :])
        elif line.startswith("onednn_verbose,"):
            fields = line.split(",")
            for isa in _INSTRUCTIONS.findall(line):
                facts["oneDNN's instruction set"] = printable(isa, _LONGEST)
            # Behind it: engine, primitive, implementation, direction, descriptors of memory, and more.
            rest = line.partition(",exec,")[2].split(",")
            if len(rest) > 4 and "graph" not in fields:
                types = (descriptor.split(":")[:2] for descriptor in rest[4].split())
                shown = " ".join(":".join(filter(None, pair)) for pair in types)
                ran.append((("oneDNN", rest[1], rest[2], shown), module))
    return results.backend_kernels(ran), facts
