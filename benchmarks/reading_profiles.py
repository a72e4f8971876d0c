"""How long it takes to read what profilers have seen: 100,000 events of onnxruntime's and of torch's.

    python benchmarks/reading_profiles.py [EVENTS]

The events of onnxruntime come from a real session, repeated with later times.
"""

from __future__ import annotations

import re
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import numpy as np
import onnxruntime
import torch
from onnx import TensorProto, helper, numpy_helper
from torch.profiler import ProfilerActivity, profile, record_function

from otel_quant.inference.onnx_kernels import read_profile
from otel_quant.inference.torch_profile import RUN, events_of, runs_of

T = TypeVar("T")

LAYERS = 60
RUNS = 10
WITHIN_LINEAR = 10
"""Operators within ``torch.nn.functional.linear``, itself included."""


def best_of_five(read: Callable[[], T]) -> tuple[float, T]:
    """Returns the least CPU time of a reading, in seconds, and what it gives."""
    times = []
    for _ in range(5):
        began = time.process_time()
        result = read()
        times.append(time.process_time() - began)
    return min(times), result


def _model() -> bytes:
    weights = numpy_helper.from_array(np.full((64, 64), 0.01, np.float32), "w")
    nodes = [
        helper.make_node("MatMul", [f"v{i}", "w"], [f"v{i + 1}"], f"/layers.{i}/q_proj/MatMul")
        for i in range(LAYERS)
    ]
    first, last = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [8, 64])
        for name in ("v0", f"v{LAYERS}")
    )
    graph = helper.make_graph(nodes, "layers", [first], [last], [weights])
    opset = helper.make_opsetid("", 17)
    return helper.make_model(graph, opset_imports=[opset], ir_version=10).SerializeToString()


def of_onnxruntime(folder: Path, events: int) -> None:
    """Prints the CPU time that a profile takes: one run as onnxruntime has written it, again and again."""
    options = onnxruntime.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = str(folder / "one")
    session = onnxruntime.InferenceSession(_model(), options, providers=["CPUExecutionProvider"])
    session.run(None, {"v0": np.zeros((8, 64), np.float32)})
    lines = Path(session.end_profiling()).read_text().splitlines()[1:-1]
    run = [
        f"{line.rstrip(',')}," for line in lines if '"cat" : "Node"' in line or "model_run" in line
    ]
    path = folder / "many.json"
    with path.open("w") as file:
        file.write("[\n")
        for number in range(events // LAYERS):
            file.writelines(f"{_later(line, 10**6 * number)}\n" for line in run)
        file.write("{}\n]\n")
    seconds, found = best_of_five(lambda: read_profile(path))
    print(
        f"onnxruntime, {events:,} events, {path.stat().st_size / 1e6:.0f} MB: {seconds:.2f} s of CPU "
        f"(best of 5), {len(found.kernels)} kernels, {len(found.runs):,} runs"
    )


def _later(line: str, micros: int) -> str:
    return re.sub(r'"ts" :(\d+)', lambda at: f'"ts" :{int(at[1]) + micros}', line, count=1)


def of_torch(events: int) -> None:
    """Prints the CPU time that events of small operators take."""
    layers = events // (RUNS * WITHIN_LINEAR)
    x, weights, bias = torch.ones(1, 8), torch.ones(8, 8), torch.ones(8)
    with torch.no_grad(), profile(activities=[ProfilerActivity.CPU]) as session:
        for _ in range(RUNS):
            with record_function(RUN):
                for _ in range(layers):
                    torch.nn.functional.linear(x, weights, bias)
    results = session.profiler.kineto_results
    assert results is not None
    seconds, runs = best_of_five(lambda: runs_of(events_of(results)))
    count = sum(len(run.operators) for run in runs)
    print(f"torch, {count:,} operators: {seconds:.2f} s of CPU (best of 5)")


if __name__ == "__main__":
    wanted = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    with tempfile.TemporaryDirectory() as name:
        of_onnxruntime(Path(name), wanted)
    of_torch(wanted)
