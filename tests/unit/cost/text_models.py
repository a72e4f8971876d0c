"""The cost of models that are written as ONNX text."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import onnx.parser

from otel_quant.cost import ModelCost, analyze


def text_cost(text: str, rules: str = "corrected", view: str | None = None) -> ModelCost:
    """Costs a model written as ONNX text."""
    return analyze(onnx.parser.parse_model(text).SerializeToString(), rules=rules, view=view)


def one(signature: str, body: str, *, opset: int = 21, domain: str = "com.microsoft") -> ModelCost:
    return text_cost(
        f'<ir_version: 10, opset_import: ["": {opset}, "{domain}": 1]> g {signature} {{ {body} }}'
    )


def macs(signature: str, body: str, **settings: int) -> int:
    cost = one(signature, body, **settings)
    assert cost.uncosted_ops == {}
    return cost.macs


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
