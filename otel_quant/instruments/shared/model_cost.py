"""Static cost of the models that a quantization read and wrote.

It is computed after the operation that made them, between steps, so that its time and
memory count for no step. A model that cannot be costed yields a record with the reason.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Final

from otel_quant.cost import CostError, ModelCost, NodeCost, cost_of
from otel_quant.instruments.shared.onnx_models import Models
from otel_quant.records import AttributeValue, CostedModel

HEAVIEST: Final = 10
"""Nodes that are named in the log record of a model."""

_INTEGER: Final = frozenset({"int8", "uint8", "int4", "uint4", "int2", "uint2"})


def cost_models(models: Models, *, time_limit: float, paths: bool) -> Iterator[CostedModel]:
    """Costs models, each within a time limit.

    Args:
        models: Role and model of each.
        time_limit: Seconds for one model.
        paths: Whether the record may name the file.

    Yields:
        One record for each model.
    """
    for role, model in models:
        start = time.time_ns()
        path = os.fspath(model) if paths and isinstance(model, str | os.PathLike) else None
        cost, error = None, None
        try:
            cost = cost_of(model, time_limit=time_limit)
        except CostError as refused:
            error = str(refused) if paths else refused.reason
        yield CostedModel(
            role=role,
            path=path,
            start_ns=start,
            end_ns=time.time_ns(),
            figures={} if cost is None else figures_of(cost),
            heaviest=() if cost is None else tuple(heaviest_of(cost)),
            error=error,
        )


def figures_of(cost: ModelCost) -> dict[str, AttributeValue]:
    """Returns a model's totals, by the last part of their attributes' names."""
    figures: dict[str, AttributeValue | None] = {
        "size": cost.file_bytes,
        "params": cost.params,
        "macs": cost.macs,
        "macs_contraction": cost.macs_contraction,
        "backward_macs": cost.backward_macs,
        "weight_bytes": cost.weight_bytes,
        "memory": cost.memory_bytes,
        "peak_activation_bytes": cost.peak_activation_bytes,
        "nodes": len(cost.nodes),
        "qdq_nodes": cost.quantize_nodes + cost.dequantize_nodes,
        "max_memory_node": cost.max_memory_node,
    }
    if cost.precision:
        shares = cost.precision
        figures["integer_mac_share"] = round(
            sum((share for kind, share in shares.items() if kind in _INTEGER), 0.0), 6
        )
        figures |= {f"precision.{kind}": round(share, 6) for kind, share in shares.items()}
    if cost.uncosted_ops:
        figures["uncosted_ops"] = tuple(
            f"{op}:{count}" for op, count in sorted(cost.uncosted_ops.items())
        )
    return {name: value for name, value in figures.items() if value is not None}


def heaviest_of(cost: ModelCost) -> Iterator[dict[str, str | int]]:
    """Yields the nodes with the most MACs, heaviest first."""
    known = [node for node in cost.nodes if node.macs]
    for node in sorted(known, key=lambda node: -(node.macs or 0))[:HEAVIEST]:
        yield _shown(node)


def _shown(node: NodeCost) -> dict[str, str | int]:
    shown: dict[str, str | int] = {
        "name": node.name,
        "op_type": node.op_type,
        "macs": node.macs or 0,
        "params": node.params,
    }
    if node.memory_bytes is not None:
        shown["memory_bytes"] = node.memory_bytes
    if node.precision is not None:
        shown["precision"] = node.precision
    return shown
