"""What no session in this environment shows: other providers and packed operands."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

from otel_quant.inference.onnx_findings import FINDINGS, Evidence
from otel_quant.inference.onnx_kernels import (
    FileGraph,
    Part,
    Profile,
    RanGraph,
    placed,
    read_profile,
)
from otel_quant.inference.results import Finding, RanKernel
from tests.fixtures.onnx_builder import Builder
from tests.integration.inference.planted import compiled_in_part

_CPU = "CPUExecutionProvider"
_CUDA = "CUDAExecutionProvider"
_FLOATS = ("float32 2x2",)
_OPENVINO = Path(__file__).parents[2] / "fixtures" / "openvino_1.24.1"


def _graph(path: Path, *nodes: onnx.NodeProto) -> Path:
    graph = helper.make_graph(
        list(nodes),
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 2])],
    )
    onnx.save(helper.make_model(graph), path)
    return path


def _kernel(
    name: str, op_type: str, provider: str, micros: float, inputs: tuple[str, ...] = _FLOATS
) -> RanKernel:
    return RanKernel(
        name, op_type, None, 0, provider, micros, micros / 100, 1.0, inputs, _FLOATS, None, None
    )


def _found(
    file: FileGraph, ran: RanGraph, asked: list[str], *kernels: RanKernel
) -> tuple[Finding, ...]:
    profile = Profile(kernels, ((0, 110),))
    return FINDINGS.of(Evidence(file, placed(profile, file, ran), asked, "all"), 100.0)


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
    said = _found(file, RanGraph(ran), [_CUDA, _CPU], *kernels)
    assert [(each.kind, each.node, each.share, each.sentence) for each in said] == [
        (
            "memcpy",
            "det",
            0.3,
            "a tensor is copied between providers between Exp `exp` and Det `det` (30.0 % of the time)",
        ),
        (
            "fallback",
            "det",
            0.2,
            f"Det `det` ran on {_CPU} and not on {_CUDA} (20.0 % of the time)",
        ),
    ]


def test_packed_operands_of_a_kernel_are_joined_to_the_graph(tmp_path: Path) -> None:
    build = Builder([1, 4])
    taken = ["x", build.weights("w", 4, 8), build.constant("scale", np.float32(0.5))]
    build.node("Packs", [*taken, "", build.weights("bias", 8, dtype=np.float32)], "packs", "test")
    ran = RanGraph(build.save(tmp_path / "ran.onnx"))
    x, w, scale, bias = "float32 1x4", "int8 4x8", "float32 scalar", "float32 8"

    def operands(*listed: str) -> list[str]:
        return list(ran.operands(_kernel("packs", "Packs", _CPU, 1, listed), ran.nodes["packs"]))

    assert operands(x, scale, bias) == [x, w, scale, bias]
    assert operands(x, w, scale, bias) == [x, w, scale, bias]
    assert operands(x) == [x, w, scale, bias]
    assert operands(x, scale, bias, bias) == [x, scale, bias, bias]  # not this node's


def test_unnamed_kernels_are_joined_only_if_all_of_them_are_in_the_graph(
    tmp_path: Path,
) -> None:
    ran = RanGraph(
        _graph(
            tmp_path / "ran.onnx",
            helper.make_node("Exp", ["x"], ["e"]),
            helper.make_node("Abs", ["e"], ["a"], "abs"),
            helper.make_node("Exp", ["a"], ["y"]),
        )
    )

    def outputs(*names: str) -> list[str | None]:
        kernels = [_kernel(name, name[:3].title(), _CPU, 1.0) for name in names]
        return [node and node.outputs[0] for node in ran.nodes_of(kernels)]

    assert outputs("Exp_5", "abs", "Exp_7") == ["e", "a", "y"]
    assert outputs("Exp_5", "Exp_2", "abs", "Exp_7") == [None, None, "a", None]  # one is of a body


def test_a_finding_explains_what_is_unknown_about_compiled_nodes(tmp_path: Path) -> None:
    file = FileGraph(str(compiled_in_part().save(tmp_path / "file.onnx")), {}, {})
    profile = read_profile(_OPENVINO / "profile.json")
    parts = [Part(*each) for each in json.loads((_OPENVINO / "assigned.json").read_text())]
    compiler = "OpenVINOExecutionProvider"

    def found(parts: list[Part]) -> list[tuple[str, str, str]]:
        kernels = placed(profile, file, RanGraph(None), parts)
        first, det, second = (each.ran for each in kernels)
        nodes = (6, 1, 1) if parts else (0, 1, 0)
        assert (first.nodes, det.nodes, second.nodes) == nodes
        assert [first.is_compiled, det.is_compiled, second.is_compiled] == [True, False, True]
        assert first.macs == (16 * 16 * 9 * 32 * 32 if parts else None)
        assert (first.node, det.node, second.node) == (None, "det", None)
        evidence = Evidence(file, kernels, [compiler], "all", parts)
        every = FINDINGS.of(evidence, sum(each.ran.micros for each in kernels))
        return [(each.kind, each.node, each.sentence.partition(" (")[0]) for each in every]

    name = f"{compiler}_OpenVINO-EP-subgraph_5_0"
    cannot = "which types they ran in and what was fused there is not known"
    outside = f"Det `det` ran on CPUExecutionProvider and not on {compiler}"
    assert found(parts) == [
        (
            "compiled",
            name,
            f"{compiler} has compiled 7 of 8 nodes of the file into 2 kernels: {cannot}",
        ),
        ("fallback", "det", f"{outside}, which took no Det of the file"),
    ]
    # Before onnxruntime 1.24, and with a Det that the provider has taken
    some = f"{compiler} has compiled an unknown number of nodes of the file into 2 kernels"
    assert found([]) == [("compiled", name, f"{some}: {cannot}"), ("fallback", "det", outside)]
    after_one_that_does_not_compile = [Part(_CUDA, [("", "Exp")]), *parts]
    kernels = placed(profile, file, RanGraph(None), after_one_that_does_not_compile)
    assert [each.ran.nodes for each in kernels] == [6, 1, 1]
    with_det = [parts[0]._replace(nodes=[*parts[0].nodes, ("", "Det")]), *parts[1:]]
    kernels = placed(profile, file, RanGraph(None), with_det)
    assert kernels[0].ran.nodes == 7
    [_, fallback] = FINDINGS.of(Evidence(file, kernels, [compiler], "all", with_det), 1.0)
    assert f"{outside}, which took 1 other Det of the file" in fallback.sentence
