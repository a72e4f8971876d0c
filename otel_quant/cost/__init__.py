"""What an ONNX model costs, without running it and without reading its weights.

    >>> from otel_quant.cost import cost_of
    >>> cost = cost_of("model.onnx", inputs={"input_ids": (1, 128)})
    >>> cost.macs_contraction, cost.params, cost.uncosted_ops

Forward and backward MACs, parameters, memory, peak of live activations and the precision
that the arithmetic executes in, per node and in all. Only the file's structure is read;
neither ``onnx`` nor ``numpy`` is imported. What is not known is None: ``unknown_nodes`` says why,
and ``assumed`` which lengths of inputs were taken as 1 because nothing gives them.
"""

from __future__ import annotations

from otel_quant.cost.analysis import cost_of
from otel_quant.cost.errors import CostError
from otel_quant.cost.inputs import InputSpec, parse_dims, parse_inputs
from otel_quant.cost.results import (
    Assumption,
    Memory,
    ModelCost,
    NodeCost,
    UnknownNodes,
    WeightSparsity,
)

__all__ = [
    "Assumption",
    "CostError",
    "InputSpec",
    "Memory",
    "ModelCost",
    "NodeCost",
    "UnknownNodes",
    "WeightSparsity",
    "cost_of",
    "parse_dims",
    "parse_inputs",
]
