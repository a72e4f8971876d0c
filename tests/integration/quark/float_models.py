"""Float models that the tests quantize: small, built here, the same in every run."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

CONV_INPUT = (1, 3, 8, 8)
MATMUL_INPUT = (1, 64)


def write_conv(path: Path) -> None:
    """Writes Conv, Relu, Conv, GlobalAveragePool, Flatten, Gemm."""
    random = np.random.default_rng(1)

    def weights(name: str, *shape: int) -> onnx.TensorProto:
        return numpy_helper.from_array(random.standard_normal(shape, dtype=np.float32), name)

    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["c1"], "conv1", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c1"], ["r1"], "relu1"),
        helper.make_node("Conv", ["r1", "w2", "b2"], ["c2"], "conv2", pads=[1, 1, 1, 1]),
        helper.make_node("GlobalAveragePool", ["c2"], ["p"], "pool"),
        helper.make_node("Flatten", ["p"], ["f"], "flatten"),
        helper.make_node("Gemm", ["f", "w3", "b3"], ["y"], "gemm", transB=1),
    ]
    graph = helper.make_graph(
        nodes,
        "conv",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, CONV_INPUT)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 10])],
        [
            weights("w1", 8, 3, 3, 3),
            weights("b1", 8),
            weights("w2", 8, 8, 3, 3),
            weights("b2", 8),
            weights("w3", 10, 8),
            weights("b3", 10),
        ],
    )
    _save(graph, path)


def write_matmul(path: Path) -> None:
    """Writes two MatMuls with constant weights."""
    random = np.random.default_rng(2)
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["m"], "matmul1"),
        helper.make_node("Relu", ["m"], ["r"], "relu"),
        helper.make_node("MatMul", ["r", "w2"], ["y"], "matmul2"),
    ]
    graph = helper.make_graph(
        nodes,
        "matmul",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, MATMUL_INPUT)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 32])],
        [
            numpy_helper.from_array(random.standard_normal(shape, dtype=np.float32), name)
            for name, shape in (("w1", (64, 64)), ("w2", (64, 32)))
        ],
    )
    _save(graph, path)


def write_checkpoint(folder: Path) -> None:
    """Writes a checkpoint of one linear layer as safetensors, with its config."""
    from safetensors.numpy import save_file

    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(3)
    save_file(
        {"model.layers.0.linear.weight": random.standard_normal((16, 32), dtype=np.float32)},
        folder / "model.safetensors",
        metadata={"format": "pt"},
    )
    (folder / "config.json").write_text(
        json.dumps({"architectures": ["LlamaForCausalLM"], "model_type": "llama"})
    )


def _save(graph: onnx.GraphProto, path: Path) -> None:
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, path)
