"""Reads the file that onnxruntime's profiler leaves.

It has an event a line, a kilobyte each. Of each event only the beginning is looked at, and of each
kernel one event is read whole: its types and shapes are the same in every run.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from otel_quant.inference.results import RanKernel, tensor_text

_HEAD: Final = re.compile(
    rb'\{"cat" ?: ?"\w+","pid" ?: ?\d+,"tid" ?: ?\d+,"dur" ?: ?(?P<dur>\d+),'
    rb'"ts" ?: ?(?P<ts>\d+),"ph" ?: ?"X","name" ?: ?(?P<name>"(?:[^"\\]|\\.)*")'
)
_KERNEL: Final = b'_kernel_time"'
_RUN: Final = b'"model_run"'
_INDEX: Final = re.compile(rb'"node_index" ?: ?"(\d+)"')
_BODIES: Final = frozenset({"If", "Loop", "Scan"})
"""Operators whose kernels contain those of other nodes."""

_NAMES: Final = {"float": "float32", "double": "float64"}
"""Types that the profile has under C++'s names."""

_MOST_TRACED: Final = 2000
"""Events in a trace: it stays below 2 MB."""


@dataclass(frozen=True, slots=True)
class Profile:
    """What the profiler has seen in the faster half of the runs.

    Of the others something else on the machine has made many slower, by a single kernel each.
    """

    # In order of their first execution, each with all nodes of the file still unknown
    kernels: tuple[RanKernel, ...]
    # Their numbers in the graph that was run; None where they are not told
    numbers: tuple[int | None, ...]
    runs: tuple[tuple[int, int], ...]  # Begin and length of each of these runs, in microseconds
    # Bytes that the arena had taken from the system at the end; None where there is no arena
    arena_held: int | None = None
    arena_used: int | None = None  # The most of it that was in use

    @property
    def run_micros(self) -> float:
        """Mean time of a run."""
        return sum(length for _, length in self.runs) / len(self.runs)


def read_profile(path: Path, warmup: int = 1) -> Profile:
    """Reads a profile."""
    names: list[str] = []
    seen: list[Mapping[str, Any]] = []
    known: dict[tuple[bytes, bytes], int] = {}
    events: list[tuple[int, int, int]] = []  # begin, end, kernel
    all_runs: list[tuple[int, int]] = []
    last = b""
    for line in path.read_bytes().splitlines():
        head = _HEAD.match(line)
        if head is None:
            continue
        name, begin, length = head["name"], int(head["ts"]), int(head["dur"])
        if name.endswith(_KERNEL):
            index = _INDEX.search(line)  # nodes need not have different names
            key = (name, b"" if index is None else index[1])
            if key not in known:
                known[key] = len(names)
                names.append(json.loads(name).removesuffix("_kernel_time"))
                seen.append(_arguments(line))
            events.append((begin, begin + length, known[key]))
            last = line
        elif name == _RUN:
            all_runs.append((begin, length))
    counted = sorted(all_runs)[warmup:]
    faster = sorted(counted, key=lambda run: run[1])[: (len(counted) + 1) // 2]
    runs = sorted(faster)
    holders = {i for i, args in enumerate(seen) if args.get("op_name") in _BODIES}
    calls, micros = _calls_and_times(len(names), events, runs, holders)
    count, total = len(runs) or 1, sum(micros) or 1
    kernels = tuple(
        RanKernel(
            name,
            str(args.get("op_name", "")),
            None,
            0,
            str(args.get("provider", "")),
            micros[i] / count,
            micros[i] / total,
            calls[i] / count,
            _tensors(args.get("input_type_shape", ())),
            _tensors(args.get("output_type_shape", ())),
        )
        for i, (name, args) in enumerate(zip(names, seen, strict=True))
    )
    at_end = _arguments(last)
    return Profile(
        kernels,
        tuple(_number(args.get("node_index")) for args in seen),
        tuple(runs),
        _number(at_end.get("mem_arena_held")),
        _number(at_end.get("mem_in_use_peak")),
    )


def _calls_and_times(
    count: int,
    events: Iterable[tuple[int, int, int]],
    runs: Sequence[tuple[int, int]],
    holders: Collection[int],
) -> tuple[list[int], list[int]]:
    """Returns how often each kernel ran in some runs, and its time without that of its bodies."""
    calls, micros = [0] * count, [0] * count
    open_: list[tuple[int, int]] = []  # end and kernel of those with bodies
    begins = [begin for begin, _ in runs]
    # Of two that begin at once the longer one holds the other.
    for begin, end, kernel in sorted(events, key=lambda each: (each[0], -each[1])):
        at = bisect_right(begins, begin) - 1
        if at < 0 or begin > sum(runs[at]):
            continue
        calls[kernel] += 1
        micros[kernel] += end - begin
        while open_ and open_[-1][0] < end:
            open_.pop()
        if open_:
            micros[open_[-1][1]] -= end - begin
        if kernel in holders:
            open_.append((end, kernel))
    return calls, [max(0, each) for each in micros]


def _arguments(line: bytes) -> Mapping[str, Any]:
    try:
        event = json.loads(line.rstrip().rstrip(b","))
    except ValueError:  # the last line of a process that died
        return {}
    return event.get("args", {}) if isinstance(event, dict) else {}


def _number(text: object) -> int | None:
    return int(text) if isinstance(text, str) and text.isdecimal() else None


def _tensors(listed: Sequence[Mapping[str, Sequence[int]]]) -> tuple[str, ...]:
    return tuple(
        tensor_text(_NAMES.get(dtype, dtype), shape)
        for each in listed
        for dtype, shape in each.items()
    )


def traced(path: Path, profile: Profile) -> list[Mapping[str, Any]]:
    """Returns the profiler's own events of the last runs that count."""
    begins = [begin for begin, _ in profile.runs]
    found: list[Mapping[str, Any]] = []
    for line in path.read_bytes().splitlines():
        head = _HEAD.match(line)
        at = -1 if head is None else bisect_right(begins, int(head["ts"])) - 1
        if head is not None and at >= 0 and int(head["ts"]) <= sum(profile.runs[at]):
            found.append(json.loads(line.rstrip().rstrip(b",")))
    return found[-_MOST_TRACED:]


def chrome_trace(traces: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """Returns the events of models as a trace for Perfetto or Chrome, each model a process."""
    events: list[Mapping[str, Any]] = []
    for process, (name, trace) in enumerate(traces.items(), 1):
        named = {"ph": "M", "name": "process_name", "pid": process, "args": {"name": name}}
        events += [named, *({**event, "pid": process} for event in trace)]
    return json.dumps({"displayTimeUnit": "ms", "traceEvents": events}) + "\n"
