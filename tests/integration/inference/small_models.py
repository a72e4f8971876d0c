"""Builds small quantized graphs, node by node, whose faults are known."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FLOAT, FLOAT16, INT64 = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.INT64


class Builder:
    """A graph that is added to from its input to its output.

    Args:
        shape: Shape of its input ``x``; texts are names of dimensions.
        opset: Version of the operator set.
        dtype: Element type of the input and the outputs.
    """

    def __init__(
        self, shape: Sequence[int | str], opset: int = 17, dtype: int = FLOAT, ir_version: int = 10
    ) -> None:
        self._random = np.random.default_rng(7)
        self._nodes: list[onnx.NodeProto] = []
        self._constants: dict[str, onnx.TensorProto] = {}
        self._outputs: list[str] = []
        self._shape, self._opset, self._dtype, self._ir = list(shape), opset, dtype, ir_version

    def node(
        self, op: str, inputs: Sequence[str], name: str, domain: str = "", **attributes: object
    ) -> str:
        """Adds a node with one result, which has the node's name; returns it."""
        self._nodes.append(
            helper.make_node(op, list(inputs), [name], name=name, domain=domain, **attributes)
        )
        return name

    def constant(self, name: str, value: object) -> str:
        """Adds a constant; returns its name."""
        self._constants[name] = numpy_helper.from_array(np.asarray(value), name)
        return name

    def tensor(self, tensor: onnx.TensorProto) -> None:
        """Adds a constant of a type that numpy does not have."""
        self._constants[tensor.name] = tensor

    def weights(self, name: str, *shape: int, dtype: type = np.int8) -> str:
        """Adds random weights."""
        if np.dtype(dtype).kind == "f":
            return self.constant(name, self._random.normal(0, 0.1, shape).astype(dtype))
        return self.constant(name, self._random.integers(-90, 90, shape).astype(dtype))

    def quantized(self, value: str, zero: object = np.uint8(128), scale: float = 0.05) -> str:
        """Adds QuantizeLinear and DequantizeLinear behind a value; returns the result."""
        q = self.node("QuantizeLinear", [value, *self.how(value, zero, scale)], f"{value}_Q")
        return self.node("DequantizeLinear", [q, *self.how(value, zero, scale)], f"{value}_DQ")

    def how(self, value: str, zero: object, scale: float | np.ndarray) -> tuple[str, str]:
        """Adds scale and zero point."""
        return (
            self.constant(f"{value}_scale", np.asarray(scale, np.float32)),
            self.constant(f"{value}_zero", zero),
        )

    def dequantized(
        self,
        weight: str,
        zero: object = np.int8(0),
        scale: float | np.ndarray = 0.02,
        **more: object,
    ) -> str:
        """Adds a DequantizeLinear behind integer weights; returns the result."""
        return self.node(
            "DequantizeLinear", [weight, *self.how(weight, zero, scale)], f"{weight}_DQ", **more
        )

    def output(self, name: str) -> None:
        """Makes a value an output."""
        self._outputs.append(name)

    def model(self) -> onnx.ModelProto:
        """Returns the model."""
        graph = helper.make_graph(
            self._nodes,
            "planted",
            [helper.make_tensor_value_info("x", self._dtype, self._shape)],
            [helper.make_tensor_value_info(name, self._dtype, None) for name in self._outputs],
            list(self._constants.values()),
        )
        opsets = [helper.make_opsetid("", self._opset), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=self._ir)

    def save(self, path: Path) -> Path:
        """Writes the model."""
        onnx.save(self.model(), path)
        return path


def quantized_conv(
    graph: Builder, value: str, name: str, ins: int, outs: int, **how: object
) -> str:
    """Adds a Conv of quantized operands whose result is quantized."""
    weight = graph.dequantized(graph.weights(f"{name}_w", outs, ins, 3, 3))
    return graph.quantized(graph.node("Conv", [value, weight], name, pads=[1, 1, 1, 1], **how))


def quantized_matmul(graph: Builder, value: str, name: str, ins: int, outs: int) -> str:
    """Adds a MatMul of quantized operands whose result is quantized."""
    weight = graph.dequantized(graph.weights(f"{name}_w", ins, outs))
    return graph.quantized(graph.node("MatMul", [value, weight], name))
