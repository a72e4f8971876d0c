"""What ran as a trace that Perfetto and Chrome open."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from otel_quant.inference.measure import Measured
from otel_quant.inference.profile_json import Event, Profile, ProfiledKernel

_MOST_EVENTS: Final = 2000
"""Of all models: the trace stays below a megabyte."""

_LONGEST: Final = 120


def chrome_trace(models: Sequence[Measured]) -> str:
    """Returns the trace: a process for each model, and in it the last runs of its kernels."""
    measured = [model for model in models if model.profile is not None]
    most = _MOST_EVENTS // max(1, len(measured))
    events = [
        event for number, model in enumerate(measured, 1) for event in _events(number, model, most)
    ]
    return json.dumps({"displayTimeUnit": "ms", "traceEvents": events}) + "\n"


def _events(number: int, model: Measured, most: int) -> Iterator[Mapping[str, Any]]:
    assert model.profile is not None
    yield {
        "ph": "M",
        "name": "process_name",
        "pid": number,
        "tid": 1,
        "args": {"name": model.subject.path},
    }
    nodes = {
        kernel.profiled: kernel.node.name[:_LONGEST] for kernel in model.kernels if kernel.node
    }
    for begin, length, events in _last_runs(model.profile, most):
        left = len(events) - most
        cut = {"left out": f"{left:,} kernels"} if left > 0 else {}
        yield _complete(number, "run", "run", begin, length, cut)
        for event in events[:most]:
            kernel = model.profile.kernels[event.kernel]
            yield _complete(
                number,
                kernel.name[:_LONGEST],
                kernel.op_type,
                event.begin,
                event.length,
                _arguments(kernel, nodes),
            )


def _arguments(kernel: ProfiledKernel, nodes: Mapping[ProfiledKernel, str]) -> Mapping[str, str]:
    found = {
        "operator": kernel.op_type,
        "provider": kernel.provider,
        "inputs": ", ".join(map(str, kernel.inputs[:4])),
        "outputs": ", ".join(map(str, kernel.outputs[:2])),
    }
    return found | ({"node": nodes[kernel]} if kernel in nodes else {})


def _last_runs(profile: Profile, most: int) -> list[tuple[int, int, list[Event]]]:
    """Returns the last runs with their events; at least one, whatever it has."""
    found: list[tuple[int, int, list[Event]]] = []
    left = list(profile.events)
    for begin, length in reversed(profile.runs):
        events = []
        while left and left[-1].begin >= begin:
            events.append(left.pop())
        if found and sum(len(each) for _, _, each in found) + len(events) > most:
            break
        found.append((begin, length, events[::-1]))
    return found[::-1]


def _complete(
    number: int, name: str, category: str, begin: int, length: int, arguments: Mapping[str, str]
) -> Mapping[str, Any]:
    return {
        "ph": "X",
        "name": name,
        "cat": category,
        "pid": number,
        "tid": 1,
        "ts": begin,
        "dur": length,
        "args": arguments,
    }
