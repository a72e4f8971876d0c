"""Costs models with little memory and time, and reports the files that it opened.

A process of its own: what exceeds its memory gets a MemoryError, what exceeds its processor
time is killed, and the test that waits for its answer sees either. A request is a line, a
JSON list of path, rules and whether to look for sparsity; so is the answer, an object.
"""

from __future__ import annotations

import json
import re
import resource
import signal
import sys
import traceback
from importlib import import_module
from pathlib import Path

import otel_quant
from otel_quant.cost import CostError, analyze

MEMORY = 1 << 30
SECONDS = 30.0
PYTHON = (sys.prefix, sys.base_prefix, str(Path(otel_quant.__file__).parent))

PROGRAMMING_ERROR = re.compile(r"failed with (TypeError|KeyError|AttributeError)$")
"""On a hostile model a rule may find too few axes or too large numbers; this is our mistake."""

LOADED_LATER = ("numpy", "otel_quant.cost.fused", "otel_quant.cost.sparsity")
"""Modules that a cost may need: what their own files are is not the model's doing."""

opened: list[str] = []


def note(event: str, arguments: tuple[object, ...]) -> None:
    if event == "open" and isinstance(arguments[0], str | bytes):
        path = str(arguments[0])
        if not path.startswith(PYTHON):  # modules that are loaded when they are needed
            opened.append(path)


def answer(path: str, rules: str, sparsity: bool) -> dict[str, object]:
    opened.clear()
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        cost = analyze(path, rules=rules, sparsity=sparsity)
        found: dict[str, object] = {"outcome": "cost", "wrong": wrong(cost.to_json_dict())}
    except CostError as error:
        found = {"outcome": "error", "message": str(error)}
    except Exception:  # noqa: BLE001  # to be reported, and to fail the test
        found = {"outcome": "crash", "traceback": traceback.format_exc()}
    signal.setitimer(signal.ITIMER_PROF, 0)
    return {**found, "opened": list(opened)}


def wrong(model: dict[str, object]) -> list[str]:
    """What cannot be true of a cost, whatever the model."""
    json.dumps(model, allow_nan=False)
    found = []
    nodes = model["nodes"]
    assert isinstance(nodes, list)
    for node in nodes:
        reason = node.get("unknown_reason")
        if (None in (node["macs"], node["memory_bytes"])) and not reason:
            found.append(f"{node['op_type']}: it has no reason for what is not known")
        if reason and PROGRAMMING_ERROR.search(reason):
            found.append(reason)
        for key in ("macs", "params", "memory_bytes"):
            if node[key] is not None and not (type(node[key]) is int and node[key] >= 0):
                found.append(f"{node['op_type']}: {key} {node[key]!r}")
        for shape in (*node["inputs"], *node["outputs"]):
            if not all(dim is None or (type(dim) is int and dim >= 0) for dim in shape or ()):
                found.append(f"{node['op_type']}: shape {shape!r}")
    return found


def main() -> None:
    for module in LOADED_LATER:
        import_module(module)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    sys.addaudithook(note)
    for line in sys.stdin:
        print(json.dumps(answer(*json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
