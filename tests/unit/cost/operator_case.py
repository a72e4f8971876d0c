"""One node of an operator with its cost, and a model with only this node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import helper, numpy_helper

RNG = np.random.default_rng(5)


@dataclass(frozen=True)
class Case:
    """One node."""

    op: str  # Operator, behind its domain
    operands: Sequence[np.ndarray | None]  # None for one that is left out
    shapes: Sequence[tuple[int, ...]]  # Of its results
    macs: int | None  # What it costs; None if it is not costed
    settings: Mapping[str, object] = field(default_factory=dict)  # Attributes
    version: int = 1  # Of the domain's operator set


def floats(*shape: int) -> np.ndarray:
    return RNG.random(shape, np.float32)


def octets(*shape: int) -> np.ndarray:
    return RNG.integers(0, 255, shape, np.uint8)


def ints(*values: int, shape: tuple[int, ...] = (-1,)) -> np.ndarray:
    return np.array(values, np.int32).reshape(shape)


def model_of(case: Case, results: Sequence[onnx.ValueInfoProto] = ()) -> onnx.ModelProto:
    """Returns a model of the node: the first operand an input, all others constants; results may be declared."""
    domain, _, op = case.op.rpartition(":")
    names = ["" if array is None else f"i{i}" for i, array in enumerate(case.operands)]
    made = [f"o{i}" for i in range(len(case.shapes))]
    tensors = [
        numpy_helper.from_array(array, name)
        for array, name in zip(case.operands, names, strict=True)
        if array is not None
    ]
    graph = helper.make_graph(
        [helper.make_node(op, names, made, domain=domain, **case.settings)],
        "g",
        [helper.make_tensor_value_info("i0", tensors[0].data_type, list(tensors[0].dims))],
        results or [onnx.ValueInfoProto(name=name) for name in made],
        tensors[1:],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(domain, case.version)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)
