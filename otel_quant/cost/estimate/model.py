"""What estimates need to know of a model, from its structure alone."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from otel_quant.cost import InputSpec, ModelCost, TensorCost, analyze, dtypes
from otel_quant.cost.model_reader import read_model
from otel_quant.cost.operation import volume
from otel_quant.cost.structure import Graph, Node

_CALIBRATED: Final = frozenset({"float32", "float16"})
"""Types of the tensors whose ranges are looked for."""


_TUNED: Final = frozenset(
    {"Conv", "ConvTranspose", "Gemm", "InstanceNormalization", "LayerNormalization", "MatMul"}
)
"""Operators whose weights Quark fine-tunes."""

_FLOAT: Final = 4
_PER_PARAMETER: Final = 1 + 3
"""The parameter, and what Quark counts for Adam: momentum, variance, and the parameter again."""


@dataclass(frozen=True, slots=True)
class Layer:
    """The layer with the largest estimate."""

    name: str  # Its node
    bytes: int  # The estimate
    computed_from: str  # The arithmetic in words


@dataclass(frozen=True, slots=True)
class Activation:
    """A tensor of the main graph that is no constant."""

    dtype: str  # Its element type, ``float32`` for example
    bytes: int | None  # Its size; None if it is not known
    made_by: str  # Operator that makes it; empty for an input of the model
    operators: frozenset[str]  # Those that make it or read it

    def calibrated(self, quantized: Collection[str], removed: Collection[str]) -> bool:
        """Whether a library that quantizes some operators looks for its range."""
        return (
            self.dtype in _CALIBRATED
            and not self.operators.isdisjoint(quantized)
            and self.made_by not in removed
        )


@dataclass(frozen=True, slots=True)
class EstimatedModel:
    """What estimates need to know of a model."""

    cost: ModelCost  # Its static cost
    weight_bytes: int  # Bytes of its constants, those that no node reads included
    inputs: tuple[TensorCost, ...]  # Its inputs of known shape
    input_bytes: int  # Bytes of all of them
    activations: tuple[Activation, ...]  # Tensors of the main graph: inputs, and what nodes make
    unsized: int  # How many of these have no known size; estimates leave them out
    layers: Mapping[str, Layer]  # The layers with the largest estimates, by whose arithmetic


def read(
    path: str | os.PathLike[str],
    inputs: Mapping[str, InputSpec] | None = None,
    dims: Mapping[str, int] | None = None,
) -> EstimatedModel:
    """Reads what estimates need of a model; it is not run and its weights are not read."""
    graph = read_model(path).graph
    cost = analyze(path, inputs=inputs, dims=dims, tensors=True)
    operators: defaultdict[str, set[str]] = defaultdict(set)
    made_by: dict[str, str] = {}
    for node in graph.nodes:
        for name in (*node.inputs, *node.outputs):
            operators[name].add(node.op_type)
        made_by.update(dict.fromkeys(node.outputs, node.op_type))
    constants = {tensor.name for tensor in graph.initializers}
    declared = {info.name: info.type for info in graph.inputs if info.name not in constants}
    given = tuple(
        TensorCost(
            name,
            dtypes.name_of(declared[name].dtype),
            shape,
            dtypes.stored_bytes(declared[name].dtype, count),
            node="",
        )
        for name, shape in cost.input_shapes.items()
        if name in declared and (count := volume(shape)) is not None
    )
    made = [tensor for tensor in cost.tensors or () if not tensor.in_body]
    activations = tuple(
        Activation(
            each.dtype, each.bytes, made_by.get(each.name, ""), frozenset(operators[each.name])
        )
        for each in (*given, *made)
    )
    elements = {
        tensor.name: count for tensor in made if (count := volume(tensor.shape)) is not None
    }
    return EstimatedModel(
        cost=cost._replace(tensors=None),
        weight_bytes=cost.weight_bytes + cost.unused_weight_bytes,
        inputs=given,
        input_bytes=sum(tensor.bytes or 0 for tensor in activations[: len(given)]),
        activations=activations,
        unsized=sum(tensor.bytes is None for tensor in activations) + len(declared) - len(given),
        layers=_largest_layers(graph, elements, cost),
    )


def _largest_layers(
    graph: Graph, elements: Mapping[str, int], cost: ModelCost
) -> Mapping[str, Layer]:
    """Finds the layers with the largest estimates: by the arithmetic of Quark, and by ours.

    Quark's is that of its option ``select_max_mem_layer``, which fine-tunes only that layer: of each
    layer with weights, four bytes for a parameter, for three more figures that it counts for Adam,
    and for an element of the result. An activation function behind the layer is a layer's part only
    where Quark leaves it in the quantized model, which it does not by default.
    """
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
