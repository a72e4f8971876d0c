"""The models whose estimates are compared with real runs, written with random weights.

One of each kind that holds memory in its own way: a ResNet, a segmentation network whose
activations are thirty times its weights, a transformer, and layers that are hardly anything but
weights. No estimate was fitted to them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))


class _Graph:
    """Collects nodes and weights; every method returns the name of its result."""

    def __init__(self) -> None:
        self._nodes: list[onnx.NodeProto] = []
        self._weights: list[onnx.TensorProto] = []
        self._random = np.random.default_rng(0)

    def constant(self, values: Any) -> str:
        name = f"weight_{len(self._weights)}"
        self._weights.append(numpy_helper.from_array(np.asarray(values), name))
        return name

    def weight(self, *shape: int, inputs: int) -> str:
        values = self._random.standard_normal(shape, dtype=np.float32)
        return self.constant(values * np.float32((2 / inputs) ** 0.5))

    def node(self, op: str, inputs: Sequence[str], **attributes: Any) -> str:
        output = f"{op.lower()}_{len(self._nodes)}"
        self._nodes.append(helper.make_node(op, inputs, [output], name=output, **attributes))
        return output

    def conv(self, x: str, channels: int, width: int, kernel: int = 3, stride: int = 1) -> str:
        weight = self.weight(width, channels, kernel, kernel, inputs=channels * kernel * kernel)
        bias = self.weight(width, inputs=width)
        pads = [kernel // 2] * 4
        return self.node("Conv", [x, weight, bias], strides=[stride, stride], pads=pads)

    def relu_conv(self, x: str, channels: int, width: int, stride: int = 1) -> str:
        return self.node("Relu", [self.conv(x, channels, width, stride=stride)])

    def linear(self, x: str, inputs: int, outputs: int) -> str:
        product = self.node("MatMul", [x, self.weight(inputs, outputs, inputs=inputs)])
        return self.node("Add", [product, self.weight(outputs, inputs=outputs)])

    def save(self, path: Path, dtype: int, shape: Sequence[int], output: str) -> None:
        graph = helper.make_graph(
            self._nodes,
            path.stem,
            [helper.make_tensor_value_info("input", dtype, shape)],
            [helper.make_tensor_value_info(output, TensorProto.FLOAT, None)],
            self._weights,
        )
        opset = helper.make_opsetid("", 17)
        onnx.save(helper.make_model(graph, opset_imports=[opset], ir_version=8), path)


def _resnet(path: Path) -> None:
    from resnet50 import write_resnet50

    write_resnet50(path)


def _segmentation(path: Path) -> None:
    """A U-Net: 3 levels, 24 channels and more, images of 256 x 256."""
    graph = _Graph()
    width = 24
    x = graph.relu_conv("input", 3, width)
    skipped = []
    for _ in range(3):
        skipped.append((x, width))
        x = graph.relu_conv(x, width, 2 * width, stride=2)
        width *= 2
        x = graph.relu_conv(x, width, width)
    for skip, channels in reversed(skipped):
        scales = graph.constant(np.array([1, 1, 2, 2], np.float32))
        x = graph.node("Resize", [x, "", scales], mode="nearest")
        x = graph.node("Concat", [x, skip], axis=1)
        x = graph.relu_conv(x, width + channels, channels)
        width = channels
        x = graph.relu_conv(x, width, width)
    graph.save(path, TensorProto.FLOAT, (1, 3, 256, 256), graph.conv(x, width, 2, kernel=1))


def _transformer(path: Path) -> None:
    """An encoder: 4 layers of width 768, 12 heads, 256 tokens out of 20,000."""
    graph = _Graph()
    tokens, width, heads = 256, 768, 12
    size = width // heads
    split = graph.constant(np.array([1, tokens, heads, size]))
    joined = graph.constant(np.array([1, tokens, width]))
    scale = graph.constant(np.float32(size**-0.5))

    def normalized(x: str) -> str:
        ends = [graph.constant(value(width, np.float32)) for value in (np.ones, np.zeros)]
        return graph.node("LayerNormalization", [x, *ends])

    def per_head(x: str, order: Sequence[int]) -> str:
        parts = graph.node("Reshape", [graph.linear(x, width, width), split])
        return graph.node("Transpose", [parts], perm=order)

    x = graph.node("Gather", [graph.weight(20_000, width, inputs=2), "input"])
    for _ in range(4):
        query, value = per_head(x, [0, 2, 1, 3]), per_head(x, [0, 2, 1, 3])
        scores = graph.node("MatMul", [query, per_head(x, [0, 2, 3, 1])])
        shares = graph.node("Softmax", [graph.node("Mul", [scores, scale])], axis=-1)
        found = graph.node("MatMul", [shares, value])
        found = graph.node("Transpose", [found], perm=[0, 2, 1, 3])
        found = graph.linear(graph.node("Reshape", [found, joined]), width, width)
        x = normalized(graph.node("Add", [x, found]))
        inner = graph.linear(x, width, 4 * width)
        inner = graph.node("Mul", [inner, graph.node("Sigmoid", [inner])])
        x = normalized(graph.node("Add", [x, graph.linear(inner, 4 * width, width)]))
    graph.save(path, TensorProto.INT64, (1, tokens), x)


def _linear(path: Path) -> None:
    """10 layers of 2,048 x 2,048, of 16 rows at once."""
    graph = _Graph()
    x = "input"
    for _ in range(10):
        weights = [graph.weight(2048, 2048, inputs=2048), graph.weight(2048, inputs=2048)]
        x = graph.node("Relu", [graph.node("Gemm", [x, *weights])])
    graph.save(path, TensorProto.FLOAT, (16, 2048), x)


MODELS: Final[Mapping[str, Callable[[Path], None]]] = {
    "resnet": _resnet,
    "segmentation": _segmentation,
    "transformer": _transformer,
    "linear": _linear,
}
"""By name, what writes the model."""
