"""The layer with the largest estimate: by the arithmetic of Quark, and by ours.

Quark's is that of its option ``select_max_mem_layer``, which fine-tunes only that layer: of each
layer with weights, four bytes for a parameter, for three more figures that it counts for Adam, and
for an element of the result. An activation function behind the layer is a layer's part only where
Quark leaves it in the quantized model, which it does not by default.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from otel_quant.cost import ModelCost
from otel_quant.cost.structure import Graph, Node
from otel_quant.estimate.results import Layer

_TUNED: Final = frozenset(
    {"Conv", "ConvTranspose", "Gemm", "InstanceNormalization", "LayerNormalization", "MatMul"}
)
"""Operators whose weights Quark fine-tunes."""

_FLOAT: Final = 4
_PER_PARAMETER: Final = 1 + 3
"""The parameter, and what Quark counts for Adam: momentum, variance, and the parameter again."""


def largest_layers(
    graph: Graph, elements: Mapping[str, int], cost: ModelCost
) -> Mapping[str, Layer]:
    """Finds the layers with the largest estimates."""
    found = {}
    weights = {tensor.name: tensor.elements for tensor in graph.initializers}
    tuned = [
        layer
        for node in graph.nodes
        if node.op_type in _TUNED and (layer := _tuned(node, weights, elements))
    ]
    if tuned:
        found["quark"] = max(tuned, key=lambda layer: layer.bytes)
    largest = next((node for node in cost.nodes if node.name == cost.max_memory_node), None)
    if largest is not None and largest.memory_bytes is not None:
        found["otel-quant"] = Layer(
            largest.name, largest.memory_bytes, "its weights and results, as they are stored"
        )
    return found


def _tuned(node: Node, weights: Mapping[str, int], elements: Mapping[str, int]) -> Layer | None:
    """Returns Quark's estimate of a layer; None if it has no weight, or no result of known size."""
    if len(node.inputs) < 2 or node.inputs[1] not in weights or node.outputs[0] not in elements:
        return None
    parameters = sum(weights.get(name, 0) for name in node.inputs[1:3])
    results = elements[node.outputs[0]]
    return Layer(
        node.name or node.outputs[0],
        _FLOAT * (_PER_PARAMETER * parameters + results),
        f"{_FLOAT} B x ({_PER_PARAMETER} x {parameters:,} parameters + {results:,} elements of "
        "its result)",
    )
