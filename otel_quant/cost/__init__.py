"""What an ONNX model costs, without running it and without reading its weights.

    >>> from otel_quant.cost import analyze
    >>> cost = analyze("model.onnx", inputs={"input_ids": (1, "tokens")}, dims={"tokens": 128})
    >>> cost.macs_contraction, cost.params, cost.uncosted_ops

Forward and backward MACs, parameters, memory, peak of live activations and the precision
that the arithmetic executes in, per node and in all. Only the file's structure is read;
neither ``onnx`` nor ``numpy`` is imported. What is not known is None: ``unknown_nodes`` has the reasons,
and ``assumed`` the lengths of inputs that were taken as 1 because nothing gives them.
"""

from __future__ import annotations

from otel_quant.cost.analysis import analyze
from otel_quant.cost.inputs import InputSpec, parse_dims, parse_inputs
from otel_quant.cost.results import (
    AssumedBranch,
    Assumption,
    InFloat,
    Memory,
    ModelCost,
    NodeCost,
    TensorCost,
    UnknownNodes,
    WeightSparsity,
    intensity,
)
from otel_quant.cost.structure import CostError

__all__ = [
    "AssumedBranch", "Assumption", "CostError", "InFloat", "InputSpec", "Memory", "ModelCost", "NodeCost",
    "TensorCost", "UnknownNodes", "WeightSparsity", "analyze", "intensity", "parse_dims", "parse_inputs",
]  # fmt: skip
