"""A float model in a file."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

MODEL = onnx.parser.parse_model("""
    <ir_version: 8, opset_import: ["" : 17]>
    agraph (float[2, 3] x) => (float[2, 4] y)
    <float[3, 4] w = {1,2,3,4,5,6,7,8,9,10,11,12}>
    { y = MatMul (x, w) }
""")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "float.onnx"
    onnx.save(MODEL, path)
    return path
