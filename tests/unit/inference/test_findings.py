"""What no real session of the tests shows: copies between providers, packed operands, a bias by a way round."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

from otel_quant.inference.findings import Evidence, findings
from otel_quant.inference.onnx_kernels import FileGraph, RanGraph, joined
from otel_quant.inference.onnx_profile import Profile, ProfiledKernel, Tensor
from tests.fixtures.onnx_builder import Builder

_CPU = "CPUExecutionProvider"
_CUDA = "CUDAExecutionProvider"
_FLOATS = (Tensor("float32", (2, 2)),)


def _graph(path: Path, *nodes: onnx.NodeProto) -> Path:
    graph = helper.make_graph(
        list(nodes),
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 2])],
    )
    onnx.save(helper.make_model(graph), path)
    return path


def _kernel(name: str, op_type: str, provider: str, micros: int) -> ProfiledKernel:
    return ProfiledKernel(name, op_type, None, provider, _FLOATS, _FLOATS, 1, micros)


def test_a_copy_and_the_node_that_caused_it_are_named(tmp_path: Path) -> None:
    path = _graph(
        tmp_path / "file.onnx",
        helper.make_node("Exp", ["x"], ["e"], "exp"),
        helper.make_node("Det", ["e"], ["y"], "det"),
    )
    ran = _graph(
        tmp_path / "ran.onnx",
        helper.make_node("Exp", ["x"], ["e"], "exp"),
        helper.make_node("MemcpyToHost", ["e"], ["e_copy"], "Memcpy_token_1"),
        helper.make_node("Det", ["e_copy"], ["y"], "det"),
    )
    file = FileGraph(str(path), {}, {})
    kernels = (
        _kernel("exp", "Exp", _CUDA, 50),
        _kernel("Memcpy_token_1", "MemcpyToHost", _CUDA, 30),
        _kernel("det", "Det", _CPU, 20),
    )
    found = joined(Profile(kernels, ((0, 110),), ()), file, RanGraph(ran))
    said = findings(Evidence(file, found, [_CUDA, _CPU], "all", open_lengths=False))
    assert [(each.kind, each.node, each.share, each.sentence) for each in said] == [
        (
            "memcpy",
            "det",
            0.3,
            "a tensor is copied between providers between Exp `exp` and Det `det` (30.0 % of the "
            "time); wanted: nodes of one provider on either side",
        ),
        (
            "fallback",
            "det",
            0.2,
            f"Det `det` ran on {_CPU} and not on {_CUDA} (20.0 % of the time)",
        ),
    ]


def test_a_bias_that_does_not_come_straight_from_its_conversion_is_named(tmp_path: Path) -> None:
    graph = Builder([1, 4, 8, 8])
    value = graph.quantized("x")
    weights = graph.dequantized(graph.weights("w", 4, 4, 3, 3))
    bias = graph.dequantized(graph.weights("b", 4, dtype=np.int32), np.int32(0), 0.001)
    same = graph.node("Identity", [bias], "same")
    graph.output(graph.quantized(graph.node("Conv", [value, weights, same], "c1")))
    file = FileGraph(str(graph.save(tmp_path / "file.onnx")), {}, {})
    kernels = (
        _kernel("b_DQ", "DequantizeLinear", _CPU, 25),
        ProfiledKernel("c1", "Conv", None, _CPU, 3 * _FLOATS, _FLOATS, 1, 75),
    )
    found = joined(Profile(kernels, ((0, 110),), ()), file, None)
    said = findings(Evidence(file, found, [], "all", open_lengths=False))
    assert [(each.kind, each.node, each.share, each.remedy) for each in said] == [
        ("in_float", "c1", 0.75, "a DequantizeLinear of its own"),
        ("unfused", "same", 0.25, ""),
    ]
    assert said[0].sentence == (
        "Conv `c1` ran in float although its weights are int8: its bias does not come straight from a "
        "DequantizeLinear but through Identity `same` (75.0 % of the time); wanted: a DequantizeLinear "
        "of its own"
    )


def test_operands_that_a_kernel_has_packed_are_those_of_the_graph(tmp_path: Path) -> None:
    build = Builder([1, 4])
    taken = ["x", build.weights("w", 4, 8), build.constant("scale", np.float32(0.5))]
    build.node("Packs", [*taken, "", build.weights("bias", 8, dtype=np.float32)], "packs", "test")
    ran = RanGraph(build.save(tmp_path / "ran.onnx"))
    x, w = Tensor("float32", (1, 4)), Tensor("int8", (4, 8))
    scale, bias = Tensor("float32", ()), Tensor("float32", (8,))

    def operands(*listed: Tensor) -> list[Tensor]:
        return list(ran.operands(ProfiledKernel("packs", "Packs", None, _CPU, listed, (), 1, 1)))

    assert operands(x, scale, bias) == [x, w, scale, bias]
    assert operands(x, w, scale, bias) == [x, w, scale, bias]
    assert operands(x) == [x, w, scale, bias]
    assert operands(x, scale, bias, bias) == [x, scale, bias, bias]  # not this node's
