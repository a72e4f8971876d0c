"""What torch's profiler has seen, as a tree for each run."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeVar

from otel_quant.inference.pytorch.operators import is_operator
from otel_quant.inference.pytorch.ranges import path_in

RUN: Final = "otel-quant run"
"""Name of the range around a run."""

MODULE: Final = "otel-quant module:"
"""Begin of the name of the range around a module of the model; its path follows."""

_MEMORY: Final = "[memory]"


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
class Operator:
    """An operator as it ran once; times in nanoseconds."""

    name: str  # Its name
    number: int  # The profiler's number of it
    module: str  # Path of the module that it belongs to; empty for the model itself
    own: int  # Its time without that of what ran within it
    total: int  # Its time
    parent: int | None  # Place of the operator within which it ran; None for an outermost one
    allocated: int = 0  # Bytes that it has allocated itself


@dataclass(slots=True)
class RunTree:
    """One run."""

    length: int  # Its time in nanoseconds
    operators: list[Operator] = field(default_factory=list)  # In the order in which they began
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
    first, last = bound.begin, bound.begin + bound.length
    found = RunTree(bound.length)
    threads: dict[int, list[Event]] = {bound.thread: []}
    for event in _between(events.ranges, first, last):
        if event.name != RUN:
            threads.setdefault(event.thread, []).append(event)
    held: dict[int, list[Allocation]] = {}
    alive = 0
    for each in _between(events.allocations, first, last):
        held.setdefault(each.thread, []).append(each)
        alive += each.size
        found.alive = max(found.alive, alive)
        found.allocated += max(0, each.size)
    for thread, within in threads.items():
        _add_thread(found.operators, within, held.get(thread, ()))
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


def _add_thread(
    operators: list[Operator], events: Iterable[Event], allocations: Sequence[Allocation]
) -> None:
    """Adds the operators of a thread, each with what ran within it."""
    left = list(reversed(allocations))
    stack: list[_Open] = []

    for event in sorted(events, key=lambda each: (each.begin, -each.length)):
        _advance(stack, left, operators, event.begin)
        outer = stack[-1] if stack else None
        module = outer.module if outer is not None else ""
        at = outer.operator if outer is not None else None
        end = event.begin + event.length
        if outer is not None and outer.is_operator and outer.operator is not None:
            operators[outer.operator].own -= event.length
        if event.is_range and event.name.startswith(MODULE):
            stack.append(_Open(end, path_in(event.name[len(MODULE) :]), at, False))
        elif not is_operator(event.name):
            stack.append(_Open(end, module, at, False))
        else:
            stack.append(_Open(end, module, len(operators), True))
            operators.append(
                Operator(event.name, event.number, module, event.length, event.length, at)
            )
    _advance(stack, left, operators, max((each.end for each in stack), default=0))


def _advance(
    stack: list[_Open], allocations: list[Allocation], operators: list[Operator], until: int
) -> None:
    """Closes what ends before a moment, and gives each allocation to what was open then."""
    while True:
        end = stack[-1].end if stack and stack[-1].end <= until else until
        while allocations and allocations[-1].begin < end:
            size = allocations.pop().size
            if size > 0 and stack and (at := stack[-1].operator) is not None:
                operators[at].allocated += size
        if not stack or stack[-1].end > until:
            return
        stack.pop()


def _add_up(operators: Sequence[Operator]) -> None:
    """Sets the time of each operator to its own and that of those within it."""
    for operator in operators:
        operator.total = operator.own
    for operator in reversed(operators):
        if operator.parent is not None:
            operators[operator.parent].total += operator.total
