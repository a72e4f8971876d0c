"""Models in ONNX text that the tests of ``otel-quant cost`` cost, and what it prints of them."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.fixtures.onnx_builder import model_of_text

FLOAT = """
<ir_version: 9, opset_import: ["" : 17]>
net (float[N, 3, 8, 8] image) => (float[N, 10] scores) {
   [stem] c = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1], strides = [2, 2]> (image, cw, cb)
   [act] r = Relu (c)
   [flat] f = Flatten (r)
   [head] scores = MatMul (f, hw)
}
"""
FLOAT_WEIGHTS = {
    "cw": np.ones((4, 3, 3, 3), np.float32),
    "cb": np.ones(4, np.float32),
    "hw": np.ones((64, 10), np.float32),
}

QUANTIZED = """
<ir_version: 9, opset_import: ["" : 17]>
net (float[N, 3, 8, 8] image) => (float[N, 10] scores) {
   [stem] c = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1], strides = [2, 2]> (image, cw, cb)
   [act] r = Relu (c)
   [flat] f = Flatten (r)
   [q] fq = QuantizeLinear (f, s, z)
   [dq] fd = DequantizeLinear (fq, s, z)
   [dqw] hd = DequantizeLinear (hw, s, z)
   [head] scores = MatMul (fd, hd)
}
"""
QUANTIZED_WEIGHTS = {
    **FLOAT_WEIGHTS,
    "hw": np.ones((64, 10), np.int8),
    "s": np.array(0.5, np.float32),
    "z": np.array(0, np.int8),
}

HOSTILE = """
<ir_version: 9, opset_import: ["" : 17, "custom" : 1]>
net (float[2, 3] image) => (unknown) {
   [first] y = Relu (image)
   [second] unknown = custom.Odd (y)
}
"""


def save(path: Path, text: str, weights: dict[str, np.ndarray]) -> Path:
    path.write_bytes(model_of_text(text, **weights).SerializeToString())
    return path


ASSUMED = "float.onnx: assumed N = 1: --dim N=1 sets it"

IN_CSV = f"otel-quant: {ASSUMED}\n"
"""On standard error: CSV has no place for it."""


Cost = Callable[..., str]
"""Runs `otel-quant cost`."""


def installed(monkeypatch: pytest.MonkeyPatch, folder: Path, *names: str) -> None:
    """Has these of the packages that estimates look for found, and the others not."""
    for name in ("onnxruntime", "quark", "torch"):
        if name not in names:
            monkeypatch.setitem(sys.modules, name, None)
        elif sys.modules.get(name) is None:
            monkeypatch.delitem(sys.modules, name, raising=False)
            (folder / "packages" / name).mkdir(parents=True, exist_ok=True)
            (folder / "packages" / name / "__init__.py").touch()
    monkeypatch.syspath_prepend(folder / "packages")
    importlib.invalidate_caches()
