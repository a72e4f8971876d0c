"""The cost of models that are written as ONNX text."""

from __future__ import annotations

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
