"""A family of models such as users have: exported, converted and written by hand.

Each entry makes a file in a folder and returns what its inputs are. The weights are random:
only structure matters here.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import onnx

from tests.fixtures.onnx_builder import floats, model_of_text
from tests.integration.cost.exporting import Case
from tests.integration.cost.family.converted_models import CONVERTED
from tests.integration.cost.family.exported_models import EXPORTED


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
    shapes = {"w": (8, 8), "v": (8, 6), "zero": (8,)}
    constants = {name: np.full(shape, 0.1, np.float32) for name, shape in shapes.items()}
    path = folder / "control_flow.onnx"
    onnx.save(model_of_text(text, **constants), path)
    feeds = {"x": np.ones((4, 8), np.float32), "flag": np.array(True)}
    return Case(path, feeds)


RECOGNIZER = """
<ir_version: 9, opset_import: ["" : 17]>
rec (float["?", 3, 48, "?"] x) => (float["?", "?", 37] y) {
   a = Conv <strides = [2, 2], pads = [1, 1, 1, 1]> (x, w1)
   b = HardSwish (a)
   c = Conv <strides = [2, 1], pads = [1, 1, 1, 1]> (b, w2)
   d = AveragePool <kernel_shape = [12, 2], strides = [12, 2]> (c)
   e = Squeeze (d, two)
   f = Transpose <perm = [0, 2, 1]> (e)
   g = MatMul (f, head)
   y = Softmax <axis = 2> (g)
}
"""
"""Layers as of PaddleOCR's recognition models, every open length written ``?``."""


def recognizer(folder: Path, *, is_inferred: bool = False) -> Case:
    """Its lengths are named by a question mark each, or by onnx: ``unk__0`` and so on."""
    weights = floats(0, w1=(8, 3, 3, 3), w2=(16, 8, 3, 3), head=(16, 37))
    model = model_of_text(RECOGNIZER, **weights, two=np.array([2]))
    path = folder / "recognizer.onnx"
    onnx.save(onnx.shape_inference.infer_shapes(model) if is_inferred else model, path)
    shape = (2, 3, 48, 320)
    return Case(path, {"x": np.ones(shape, np.float32)}, {"x": shape})


FAMILY: dict[str, Callable[[Path], Case]] = {
    **EXPORTED,
    **CONVERTED,
    "control_flow": control_flow,
    "recognizer": recognizer,
    "recognizer_named_by_onnx": partial(recognizer, is_inferred=True),
}
