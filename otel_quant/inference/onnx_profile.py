"""Reads the file that onnxruntime's profiler leaves: an event a line, a kilobyte each."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

from otel_quant.inference.results import RanKernel, tensor_text

_KERNEL: Final = "_kernel_time"
_RUN: Final = "model_run"

_Key: TypeAlias = tuple[str, object]
"""Name and number of a kernel, since nodes need not have different names."""

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


def _events(path: Path) -> Iterator[Mapping[str, Any]]:
    """Yields the events of a profile; onnxruntime 1.22 writes names with quotes as no JSON has them."""
    for line in path.read_bytes().splitlines():
        if line.startswith(b"{"):
            with suppress(ValueError):
                yield json.loads(line.rstrip(b","))


def read_profile(path: Path, warmup: int = 1) -> Profile:
    """Reads a profile."""
    first: dict[_Key, Mapping[str, Any]] = {}
    events: list[tuple[int, int, _Key]] = []  # begin, end, kernel
    all_runs: list[tuple[int, int]] = []
    last: Mapping[str, Any] = {}
    for event in _events(path):
        name, begin, length = event["name"], event["ts"], event["dur"]
        if name.endswith(_KERNEL):
            last = event["args"]
            key = (name.removesuffix(_KERNEL), last.get("node_index"))
            first.setdefault(key, last)
            events.append((begin, begin + length, key))
        elif name == _RUN:
            all_runs.append((begin, length))
    counted = sorted(all_runs)[warmup:]
    faster = sorted(counted, key=lambda run: run[1])[: (len(counted) + 1) // 2]
    runs = sorted(faster)
    holders = {key for key, args in first.items() if args.get("op_name") in _BODIES}
    calls, micros = _calls_and_times(events, runs, holders)
    count, total = len(runs) or 1, sum(micros.values()) or 1
    kernels = tuple(
        RanKernel(
            key[0],
            args.get("op_name", ""),
            None,
            0,
            args.get("provider", ""),
            micros[key] / count,
            micros[key] / total,
            calls[key] / count,
            _tensors(args.get("input_type_shape", ())),
            _tensors(args.get("output_type_shape", ())),
        )
        for key, args in first.items()
    )
    return Profile(
        kernels,
        tuple(_number(index) for _, index in first),
        tuple(runs),
        _number(last.get("mem_arena_held")),
        _number(last.get("mem_in_use_peak")),
    )


def _calls_and_times(
    events: Sequence[tuple[int, int, _Key]], runs: Sequence[tuple[int, int]], holders: set[_Key]
) -> tuple[Counter[_Key], Mapping[_Key, int]]:
    """Returns how often each kernel ran in some runs, and its time without that of its bodies."""
    calls, micros = Counter[_Key](), Counter[_Key]()
    open_: list[tuple[int, _Key]] = []  # end and kernel of those with bodies
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
    return calls, +micros  # none below zero


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
    found = []
    for event in _events(path):
        at = bisect_right(begins, event["ts"]) - 1
        if at >= 0 and event["ts"] <= sum(profile.runs[at]):
            found.append(event)
    return found[-_MOST_TRACED:]


def chrome_trace(traces: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """Returns the events of models as a trace for Perfetto or Chrome, each model a process."""
    events: list[Mapping[str, Any]] = []
    for process, (name, trace) in enumerate(traces.items(), 1):
        named = {"ph": "M", "name": "process_name", "pid": process, "args": {"name": name}}
        events += [named, *({**event, "pid": process} for event in trace)]
    return json.dumps({"displayTimeUnit": "ms", "traceEvents": events}) + "\n"
