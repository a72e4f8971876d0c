"""Static cost of the models that a quantization read and wrote.

It is computed after the operation that made them, between steps, so that its time and
memory count for no step. A model that cannot be costed yields a record with the reason.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from heapq import nlargest
from pathlib import Path
from types import MappingProxyType
from typing import Final, Literal

from otel_quant.auditing.audit import audit, written_in
from otel_quant.auditing.checkpoint import AuditError
from otel_quant.capture.instruments.hooks import Models
from otel_quant.cost import CostError, InputSpec, ModelCost, analyze
from otel_quant.schema.readings import AttributeValue, CostedModel

HEAVIEST: Final = 10  # Nodes that are named of a model by their MACs, and as many by their memory

_SHOWN: Final = (
    "name", "op_type", "params", "macs", "memory_bytes", "precision", "expected_precision",
)  # fmt: skip
"""What is shown of such a node."""

_AUDIT_SECONDS: Final = 2.0  # For the values of scales
_QUANTIZED: Final[Literal["quantized"]] = "quantized"  # Role of a model that was written
_INTEGER: Final = frozenset({"int8", "uint8", "int4", "uint4", "int2", "uint2"})

_FIGURES: Final = {
    "size": "file_bytes", "params": "params", "macs": "macs", "macs_contraction": "macs_contraction",
    "backward_macs": "backward_macs", "weight_bytes": "weight_bytes", "memory": "memory_bytes",
    "peak_activation_bytes": "peak_activation_bytes", "max_memory_node": "max_memory_node",
}  # fmt: skip
"""Totals of a model, by the last part of their attributes' names."""

_LARGEST: Final = (1 << 63) - 1  # What an integer attribute can hold


def cost_models(
    models: Models, *, time_limit: float, paths: bool, hashes: bool = False,
    shapes: Mapping[str, tuple[int, ...]] = MappingProxyType({}), left_out: object = None,
) -> Iterator[CostedModel]:  # fmt: skip
    """Costs models, each within a time limit."""
    inputs = {name: InputSpec(shape, if_fits=True) for name, shape in shapes.items()}
    for role, model in models:
        start, clock = time.time_ns(), time.perf_counter_ns()
        path = os.fspath(model) if paths and isinstance(model, str | os.PathLike) else None
        figures: dict[str, AttributeValue] = {}
        heaviest: tuple[dict[str, str | int], ...] = ()
        error = None
        try:
            is_quantized = role == _QUANTIZED
            cost = analyze(model, inputs=inputs, time_limit=time_limit, quantized=is_quantized)
            figures = figures_of(cost, shapes) | (_hash_of(model) if hashes else {})
            figures |= _audited(model, left_out, paths=paths) if role == _QUANTIZED else {}
            heaviest = tuple(heaviest_of(cost))
        except CostError as refused:
            error = str(refused) if paths else refused.reason
        ended = start + time.perf_counter_ns() - clock
        yield CostedModel(role, path, start, ended, figures, heaviest, error)


def _hash_of(model: object) -> dict[str, AttributeValue]:
    """Returns the SHA-256 of a model's file, without external data; nothing of one in memory."""
    if isinstance(model, str | os.PathLike):
        with suppress(OSError), Path(model).open("rb") as file:
            return {"sha256": hashlib.file_digest(file, "sha256").hexdigest()}
    return {}


def _audited(model: object, left_out: object, *, paths: bool) -> dict[str, AttributeValue]:
    """Returns what an audit finds in a file that was written, with nodes left out on purpose; nothing of one in memory."""
    names = left_out if isinstance(left_out, tuple) else ()
    if isinstance(model, str | os.PathLike):
        with suppress(AuditError):
            found = audit(model, left_out=names, seconds=_AUDIT_SECONDS)
            return dict(found.figures(paths=paths))
    return {}


def audited_checkpoints(written: Mapping[str, int], *, paths: bool) -> Iterator[CostedModel]:
    """Audits safetensors checkpoints that were written, by where steps have written and since when."""
    for place, since in written.items():
        for path in () if place.endswith(".onnx") else written_in(place, since / 1e9):
            start = time.time_ns()
            with suppress(AuditError):
                found = audit(path, seconds=_AUDIT_SECONDS)
                if found.layout or found.of_state("quantized"):  # else it is a float model
                    figures = {"size": found.bytes, **found.figures(paths=paths)}
                    known = path if paths else None
                    yield CostedModel(_QUANTIZED, known, start, time.time_ns(), figures)


def figures_of(
    cost: ModelCost, shapes: Mapping[str, tuple[int, ...]] = MappingProxyType({})
) -> dict[str, AttributeValue]:
    """Returns a model's totals, by the last part of their attributes' names."""
    figures: dict[str, AttributeValue | None] = {
        **{name: getattr(cost, field) for name, field in _FIGURES.items()},
        "nodes": len(cost.nodes),
        "qdq_nodes": cost.quantize_nodes + cost.dequantize_nodes,
        "runtime": cost.runtime or None,
        "left_in_float": cost.left_text or None,
        "in_float": tuple(each.text for each in cost.in_float),
        "uncosted_ops": tuple(f"{op}:{count}" for op, count in sorted(cost.uncosted_ops.items())),
        "assumed": (
            *(f"{each.name}={each.length}" for each in cost.assumed),
            *(f"{each.node}: {each.taken} branch" for each in cost.assumed_branches),
            *(f"{node}: keys of past and query" for node in cost.assumed_full),
        ),
        "input_shapes": tuple(
            f"{name}={'x'.join(map(str, shape))}"
            for name, shape in shapes.items()
            if cost.input_shapes.get(name) == shape
        ),
    }
    for mix in ("stored", "precision", "expected_precision"):
        shares = getattr(cost, mix)
        if shares and mix != "stored":
            integers = sum((share for kind, share in shares.items() if kind in _INTEGER), 0.0)
            figures[f"{mix.removesuffix('precision')}integer_mac_share"] = round(integers, 6)
        # Names of attributes have neither blanks nor hyphens.
        figures |= {
            f"{mix}.{kind.replace(' ', '_').replace('-', '_')}": round(it, 6)
            for kind, it in shares.items()
        }
    return {
        name: value
        for name, value in figures.items()
        if value not in (None, ()) and not (isinstance(value, int) and value > _LARGEST)
    }


def heaviest_of(cost: ModelCost) -> Iterator[dict[str, str | int]]:
    """Yields the nodes with the most MACs, then those with the largest memory, heaviest first."""
    by_macs = nlargest(HEAVIEST, cost.nodes, key=lambda node: node.macs or 0)
    by_memory = nlargest(HEAVIEST, cost.nodes, key=lambda node: node.memory_bytes or 0)
    heaviest = {id(node): node for node in by_macs if node.macs}
    heaviest |= {id(node): node for node in by_memory if node.memory_bytes}
    for node in heaviest.values():
        shown = {name: getattr(node, name) for name in _SHOWN}
        yield {name: value for name, value in shown.items() if value is not None}
