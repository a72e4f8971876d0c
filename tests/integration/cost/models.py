"""A family of models such as users have: exported, converted and written by hand.

Each entry makes a file in a folder and returns what its inputs are. The weights are random:
only structure matters here.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

from tests.integration.cost import converted_models, exported_models
from tests.integration.cost.exporting import Case


def control_flow(folder: Path) -> Case:
    """A Loop of known length, a Scan, an If whose condition is data, sequences."""
    text = """
    <ir_version: 9, opset_import: ["": 19]>
    g (float[4, 8] x, bool flag) => (float[4, 8] y, float[5, 4, 8] steps, float[4, 6] z, float[4, 8] s)
    <float[8, 8] w, float[8, 6] v, int64 five = {5}, bool yes = {1}, float[8] zero>
    {
        y, steps = Loop (five, yes, x) <body = turn (int64 i, bool go, float[4, 8] h)
            => (bool go_on, float[4, 8] next, float[4, 8] seen) {
            go_on = Identity (go)
            product = MatMul (h, w)
            next = Tanh (product)
            seen = Identity (next)
        }>
        z = If (flag) <
            then_branch = dear () => (float[4, 6] a) { a = MatMul (y, v) },
            else_branch = cheap () => (float[4, 6] b) { cut = Slice (y, nul, six, one) b = Relu (cut) }
        >
        last, s = Scan (zero, x) <num_scan_inputs = 1, body = add (float[8] sum, float[8] row)
            => (float[8] sum_out, float[8] out) {
            sum_out = Add (sum, row)
            out = Identity (sum_out)
        }>
    }
    """
    model = onnx.parser.parse_model(text.replace("nul, six, one", "zero_at, six, one"))
    graph = model.graph
    for name, value in (("zero_at", 0), ("six", 6), ("one", 1)):
        graph.initializer.append(helper.make_tensor(name, TensorProto.INT64, [1], [value]))
    for name, dims in (("w", [8, 8]), ("v", [8, 6]), ("zero", [8])):
        for old in [t for t in graph.initializer if t.name == name]:
            graph.initializer.remove(old)
        data = np.full(dims, 0.1, np.float32)
        graph.initializer.append(onnx.numpy_helper.from_array(data, name))
    path = folder / "control_flow.onnx"
    onnx.save(model, path)
    feeds = {"x": np.ones((4, 8), np.float32), "flag": np.array(True)}
    return Case(path, feeds)


FAMILY: dict[str, Callable[[Path], Case]] = {
    name: maker
    for made in (vars(exported_models), vars(converted_models), {"control_flow": control_flow})
    for name, maker in made.items()
    if getattr(maker, "__annotations__", None) == {"folder": "Path", "return": "Case"}
}
