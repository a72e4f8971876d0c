"""The cost of models that are written as ONNX text."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnx.parser

from otel_quant.cost import ModelCost, analyze


def text_model(text: str, opset: int = 21) -> bytes:
    """Returns a model written as ONNX text, without the versions."""
    domains = '"f": 1, "mine": 1, "com.microsoft": 1'
    model = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["": {opset}, {domains}]> {text}'
    )
    content: bytes = model.SerializeToString()
    return content


def text_cost(text: str, rules: str = "corrected", opset: int = 21, **given: Any) -> ModelCost:
    """Costs a model written as ONNX text, without the versions."""
    return analyze(text_model(text, opset), rules=rules, **given)


def one(signature: str, body: str, *, opset: int = 21) -> ModelCost:
    return text_cost(f"g {signature} {{ {body} }}", opset=opset)


def with_external_weight(
    folder: Path, shape: Sequence[int], location: str = "w.bin", **entries: object
) -> Path:
    """Writes a product whose float weight is declared as external; writes no weight."""
    rows, columns = shape
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 21]> '
        f"g (float[1, {rows}] x) => (float[1, {columns}] y) {{ y = MatMul (x, w) }}"
    )
    tensor = model.graph.initializer.add(name="w", data_type=1, dims=shape, data_location=1)
    for key, value in {"location": location, **entries}.items():
        if value is not None:
            tensor.external_data.add(key=key, value=str(value))
    path = folder / "m.onnx"
    path.write_bytes(model.SerializeToString())
    return path
