"""Writes a ResNet-50 with random weights as an ONNX file: 25.5 M parameters, 98 MB.

The topology is that of the paper (https://arxiv.org/abs/1512.03385) with the stride in
the 3x3 convolutions; nothing is downloaded.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

STAGES = ((3, 64), (4, 128), (6, 256), (3, 512))
"""Blocks and width of the four stages."""


class _Graph:
    """Collects nodes and initializers; every method returns the name of its output."""

    def __init__(self, seed: int) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []
        self._random = np.random.default_rng(seed)

    def weight(self, *shape: int, scale: float) -> str:
        name = f"weight_{len(self.initializers)}"
        values = self._random.standard_normal(shape, dtype=np.float32) * np.float32(scale)
        self.initializers.append(numpy_helper.from_array(values, name))
        return name

    def node(self, op: str, inputs: Sequence[str], **attributes: object) -> str:
        output = f"{op.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [output], name=output, **attributes))
        return output

    def conv(self, x: str, channels: int, width: int, kernel: int, stride: int = 1) -> str:
        # He initialisation keeps the activations' range alike through 50 layers.
        scale = (2 / (channels * kernel * kernel)) ** 0.5
        weight = self.weight(width, channels, kernel, kernel, scale=scale)
        bias = self.weight(width, scale=0.01)
        pad = kernel // 2
        return self.node(
            "Conv",
            [x, weight, bias],
            kernel_shape=[kernel, kernel],
            strides=[stride, stride],
            pads=[pad, pad, pad, pad],
        )

    def relu(self, x: str) -> str:
        return self.node("Relu", [x])


def write_resnet50(
    path: Path,
    *,
    size: int = 224,
    width: int = 64,
    stages: Sequence[tuple[int, int]] = STAGES,
    classes: int = 1000,
    seed: int = 0,
) -> Path:
    """Writes the model.

    Args:
        path: Where to.
        size: Height and width of the input image.
        width: Channels of the first convolution.
        stages: Blocks and width of each stage; fewer or narrower ones make a small model.
        classes: Length of the output.
        seed: Of the random weights.

    Returns:
        The path.
    """
    graph = _Graph(seed)
    x = graph.relu(graph.conv("input", 3, width, 7, 2))
    x = graph.node("MaxPool", [x], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    channels = width
    for stage, (blocks, inner) in enumerate(stages):
        for block in range(blocks):
            stride = 2 if block == 0 and stage > 0 else 1
            shortcut = x if block else graph.conv(x, channels, inner * 4, 1, stride)
            y = graph.relu(graph.conv(x, channels, inner, 1))
            y = graph.relu(graph.conv(y, inner, inner, 3, stride))
            y = graph.conv(y, inner, inner * 4, 1)
            x = graph.relu(graph.node("Add", [y, shortcut]))
            channels = inner * 4
    x = graph.node("Flatten", [graph.node("GlobalAveragePool", [x])])
    head = graph.weight(channels, classes, scale=0.01)
    output = graph.node("Gemm", [x, head, graph.weight(classes, scale=0.01)])
    model = helper.make_model(
        helper.make_graph(
            graph.nodes,
            "resnet50",
            [helper.make_tensor_value_info("input", TensorProto.FLOAT, [1, 3, size, size])],
            [helper.make_tensor_value_info(output, TensorProto.FLOAT, [1, classes])],
            graph.initializers,
        ),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=9,
    )
    onnx.checker.check_model(model)
    onnx.save(model, path)
    return path
