"""A family of models such as users have: exported, converted and written by hand.

Each entry makes a file in a folder and returns what its inputs are. The weights are random:
only structure matters here.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx

from tests.integration.cost import converted_models, exported_models
from tests.integration.cost.exporting import Case


def control_flow(folder: Path) -> Case:
    """A Loop of known length, a Scan, an If whose condition is data, sequences."""
    text = """
    <ir_version: 9, opset_import: ["": 19]>
    g (float[4, 8] x, bool flag) => (float[4, 8] y, float[5, 4, 8] steps, float[4, 6] z, float[4, 8] s)
    <int64 five = {5}, bool yes = {1}, int64[1] from = {0}, int64[1] to = {6}, int64[1] one = {1}>
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
            else_branch = cheap () => (float[4, 6] b) { cut = Slice (y, from, to, one) b = Relu (cut) }
        >
        last, s = Scan (zero, x) <num_scan_inputs = 1, body = add (float[8] sum, float[8] row)
            => (float[8] sum_out, float[8] out) {
            sum_out = Add (sum, row)
            out = Identity (sum_out)
        }>
    }
    """
    model = onnx.parser.parse_model(text)
    for name, dims in (("w", [8, 8]), ("v", [8, 6]), ("zero", [8])):
        data = np.full(dims, 0.1, np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(data, name))
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
