"""How long it takes to read a profile of onnxruntime with 100,000 events.

    python benchmarks/inference_profile.py [EVENTS]

The events are those of a real session, repeated with later times.
"""

from __future__ import annotations

import re
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from otel_quant.inference.onnx_profile import read_profile

LAYERS = 60


def _model() -> bytes:
    weights = numpy_helper.from_array(np.full((64, 64), 0.01, np.float32), "w")
    nodes = [
        helper.make_node("MatMul", [f"v{i}", "w"], [f"v{i + 1}"], f"/layers.{i}/q_proj/MatMul")
        for i in range(LAYERS)
    ]
    graph = helper.make_graph(
        nodes,
        "layers",
        [helper.make_tensor_value_info("v0", TensorProto.FLOAT, [8, 64])],
        [helper.make_tensor_value_info(f"v{LAYERS}", TensorProto.FLOAT, [8, 64])],
        [weights],
    )
    opset = helper.make_opsetid("", 17)
    return helper.make_model(graph, opset_imports=[opset], ir_version=10).SerializeToString()


def _profile(folder: Path, events: int) -> Path:
    """Writes a profile: one run as onnxruntime has written it, again and again."""
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
    return path


def _later(line: str, micros: int) -> str:
    return re.sub(r'"ts" :(\d+)', lambda at: f'"ts" :{int(at[1]) + micros}', line, count=1)


def main() -> None:
    """Prints the CPU time of the best of five."""
    events = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    with tempfile.TemporaryDirectory() as folder:
        path = _profile(Path(folder), events)
        times = []
        for _ in range(5):
            began = time.process_time()
            profile = read_profile(path)
            times.append(time.process_time() - began)
        size = path.stat().st_size / 1e6
    print(
        f"{events:,} events, {size:.0f} MB: {min(times):.2f} s of CPU (best of 5), "
        f"{len(profile.kernels)} kernels, {len(profile.runs):,} runs"
    )


if __name__ == "__main__":
    main()
