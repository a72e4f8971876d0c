"""What no session in this environment shows; the profiler's file is read event by event; what a model is fed."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper, parser

from otel_quant.cost import InputSpec
from otel_quant.inference.model_process import ModelProcess
from otel_quant.inference.onnx_findings import FINDINGS, OnnxEvidence
from otel_quant.inference.onnx_kernels import (
    FileGraph,
    OnnxProfile,
    Part,
    RanGraph,
    placed,
    read_profile,
)
from otel_quant.inference.onnx_session import SessionRequestError, feeds
from otel_quant.inference.results import Finding, RanKernel
from otel_quant.inference.subjects import OnnxModel, Options, with_ranges
from otel_quant.inference.torch_profile import read_verbose
from tests.fixtures.onnx_builder import Builder
from tests.integration.inference.planted import compiled_in_part

_CPU = "CPUExecutionProvider"
_CUDA = "CUDAExecutionProvider"
_FLOATS = ("float32 2x2",)
_OPENVINO_PROVIDER = "OpenVINOExecutionProvider"
_BELOW = """\
onednn_verbose,v1,primitive,exec,cpu,reorder,jit:uni,undef,src:s8::blocked:abcd::f0 dst:TYPE:p:blocked:Acdb32a::f0,,,16x16x3x3,0.0029
onednn_verbose,v1,primitive,exec,cpu,convolution,brg_conv_fwd:avx512_core,forward_inference,src:TYPE::blocked:acdb::f0 wei:TYPE:a:blocked:Acdb16a::f0 bia:undef::undef::: dst:TYPE::blocked:acdb::f0,,alg:convolution_direct,mb1_ic16oc16,0.05
onednn_verbose,v1,primitive,exec,cpu,convolution,brg_conv_fwd:avx512_core,forward_inference,src:TYPE::blocked:acdb::f0 wei:TYPE:a:blocked:Acdb16a::f0 bia:undef::undef::: dst:TYPE::blocked:acdb::f0,,alg:convolution_direct,mb1_ic16oc16,0.05
onednn_verbose,v1,primitive,exec,cpu,softmax,jit:avx10_1_512,forward_inference,src:f32::blocked:ab::f0 dst:f32::blocked:ab::f0,,alg:softmax_accurate axis:1,1x16,0.01
"""
"""What oneDNN 3.8 in onnxruntime-openvino 1.24.1 has printed."""
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
    profile = OnnxProfile(kernels, ((0, 110),))
    return FINDINGS.of(OnnxEvidence(file, placed(profile, file, ran), asked, "all"), 100.0)


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
        ("memcpy", "det", 0.3,
         "a tensor is copied between providers between Exp `exp` and Det `det` (30.0 % of the time)"),
        ("fallback", "det", 0.2, f"Det `det` ran on {_CPU} and not on {_CUDA} (20.0 % of the time)"),
    ]  # fmt: skip


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


def test_only_products_of_matrices_multiply_types() -> None:
    both = ("uint8 1x4", "uint8 1x4")
    kernels = (_kernel("a", each, _CPU, 1.0, both) for each in ("QLinearAdd", "QLinearMatMul"))
    found = [replace(each, macs=4).multiplies for each in kernels]
    assert found == [(), ("", "uint8", "uint8")]


def test_unnamed_kernels_are_joined_only_if_all_of_them_are_in_the_graph(tmp_path: Path) -> None:
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
        evidence = OnnxEvidence(file, kernels, [compiler], "all", parts)
        every = FINDINGS.of(evidence, sum(each.ran.micros for each in kernels))
        return [(each.kind, each.node, each.sentence.partition(" (")[0]) for each in every]

    name = f"{compiler}_OpenVINO-EP-subgraph_5_0"
    cannot = "which types they ran in and what was fused there is not known"
    outside = f"Det `det` ran on CPUExecutionProvider and not on {compiler}"
    assert found(parts) == [
        ("compiled", name, f"{compiler} has compiled 7 of 8 nodes of the file into 2 kernels: {cannot}"),
        ("fallback", "det", f"{outside}, which took no Det of the file and gives no reason"),
    ]  # fmt: skip
    # Before onnxruntime 1.24, and with a Det that the provider has taken
    some = f"{compiler} has compiled an unknown number of nodes of the file into 2 kernels"
    assert found([]) == [("compiled", name, f"{some}: {cannot}"), ("fallback", "det", outside)]
    after_one_that_does_not_compile = [Part(_CUDA, [("", "Exp")]), *parts]
    kernels = placed(profile, file, RanGraph(None), after_one_that_does_not_compile)
    assert [each.ran.nodes for each in kernels] == [6, 1, 1]
    with_det = [parts[0]._replace(nodes=[*parts[0].nodes, ("", "Det")]), *parts[1:]]
    kernels = placed(profile, file, RanGraph(None), with_det)
    assert kernels[0].ran.nodes == 7
    [_, fallback] = FINDINGS.of(OnnxEvidence(file, kernels, [compiler], "all", with_det), 1.0)
    assert f"{outside}, which took 1 other Det of the file" in fallback.sentence


def test_what_onednn_reports_of_compiled_nodes_is_said_and_why_it_is_float(tmp_path: Path) -> None:
    profile = read_profile(_OPENVINO / "profile.json")
    parts = [Part(*each) for each in json.loads((_OPENVINO / "assigned.json").read_text())]

    def found(zero: np.ndarray, dtype: str) -> tuple[str, str]:
        model = compiled_in_part().model()
        for constant in model.graph.initializer:
            if constant.name == "x_zero":
                constant.CopyFrom(numpy_helper.from_array(zero, constant.name))
        onnx.save(model, tmp_path / "file.onnx")
        file = FileGraph(str(tmp_path / "file.onnx"), {}, {})
        kernels = placed(profile, file, RanGraph(None), parts)
        below, _ = read_verbose(_BELOW.replace("TYPE", dtype))
        evidence = OnnxEvidence(file, kernels, [_OPENVINO_PROVIDER], "all", parts, below=below)
        every = FINDINGS.of(evidence, sum(each.ran.micros for each in kernels))
        return next((it.sentence, it.remedy) for it in every if it.kind == "compiled")

    said, remedy = found(np.int8(-4), "f32")
    reports = "it gives no times of their layers; oneDNN reports f32 convolution x 2 and f32 softmax x 1 in a run"
    assert f": {reports} (" in said
    assert (
        remedy
        == "uint8 for activations, or int8 with zero point 0 (ActivationSymmetric), which OpenVINO's convolutions take"
    )
    others = [found(np.int8(0), "f32"), found(np.uint8(4), "f32"), found(np.int8(-4), "s8")]
    assert [remedy for _, remedy in others] == ["", "", ""]


MULTIPLY = {
    "op_name": "MatMul",
    "provider": "CPUExecutionProvider",
    "node_index": "0",
    "input_type_shape": [{"float": [1, 8]}, {"float": [8, 2]}],
    "output_type_shape": [{"float": [1, 2]}],
    "mem_in_use_peak": "96",
}
LOOP = MULTIPLY | {
    "op_name": "Loop", "node_index": "1", "input_type_shape": [], "output_type_shape": [],
}  # fmt: skip


def _line(name: str, begin: int, length: int, args: dict[str, Any] | None = None) -> str:
    """Returns an event as onnxruntime writes it."""
    category = "Node" if args else "Session"
    return (
        f'{{"cat" : "{category}","pid" :1,"tid" :1,"dur" :{length},"ts" :{begin},"ph" : "X",'
        f'"name" :{json.dumps(name)},"args" : {json.dumps(args or {})}}},\n'
    )


def _written(folder: Path, *lines: str) -> Path:
    path = folder / "profile.json"
    path.write_text("[\n" + "".join(lines).rstrip(",\n") + "\n]\n")
    return path


def _run(begin: int, length: int, multiply: int) -> tuple[str, str]:
    return (
        _line("m1_kernel_time", begin + 1, multiply, MULTIPLY),
        _line("model_run", begin, length),
    )


def test_the_fastest_of_the_runs_after_the_first_is_used(tmp_path: Path) -> None:
    times = ((100, 99, 90), (200, 20, 10), (300, 95, 80), (400, 24, 14), (500, 30, 21))
    runs = (line for each in times for line in _run(*each))
    path = _written(tmp_path, _line("session_initialization", 0, 90), *runs)
    kernel = RanKernel(
        "m1", "MatMul", None, 0, "CPUExecutionProvider", 10.0, 1.0, 1.0,
        ("float32 1x8", "float32 8x2"), ("float32 1x2",), None, None,
    )  # fmt: skip
    profile = read_profile(path)
    assert profile == OnnxProfile((kernel,), ((200, 20), (400, 24)), arena_used=96)
    assert profile.run_micros == 20


def test_the_time_of_a_loop_excludes_its_body(tmp_path: Path) -> None:
    path = _written(
        tmp_path,
        _line("model_run", 0, 9),
        _line("m1_kernel_time", 112, 20, MULTIPLY),
        _line("m1_kernel_time", 140, 25, MULTIPLY),
        _line("loop_kernel_time", 110, 60, LOOP),
        _line("model_run", 100, 80),
    )
    profile = read_profile(path)
    times = {each.name: (each.calls, each.micros) for each in profile.kernels}
    assert times == {"m1": (2, 45), "loop": (1, 15)}


def test_nodes_with_the_same_name_are_distinguished_by_their_index(tmp_path: Path) -> None:
    path = _written(
        tmp_path,
        _line("model_run", 0, 9),
        _line('a "name"_kernel_time', 110, 5, MULTIPLY),
        _line('a "name"_kernel_time', 120, 7, MULTIPLY | {"node_index": "4"}),
        _line("model_run", 100, 80),
    )
    profile = read_profile(path)
    found = [(each.name, each.micros) for each in profile.kernels]
    assert found == [('a "name"', 5), ('a "name"', 7)]


def test_a_truncated_file_has_the_runs_before_the_cut(tmp_path: Path) -> None:
    path = _written(tmp_path, *_run(100, 20, 10), *_run(200, 20, 10))
    path.write_text(path.read_text()[:-60] + "\n")
    assert read_profile(path, warmup=0).runs == ((100, 20),)
    path.write_text("")
    assert read_profile(path) == OnnxProfile((), ())


NOTHING_GIVEN: Mapping[str, Any] = {"values": {}, "data": None, "ranges": {}}


def _inputs(**types: str) -> list[Any]:
    """Returns inputs as a session of onnxruntime has them, each of 4x500 numbers."""
    return [
        SimpleNamespace(name=name, type=f"tensor({kind})", shape=[4, 500])
        for name, kind in types.items()
    ]


def _fed(inputs: list[Any], **more: Any) -> Mapping[str, Any]:
    shapes = {each.name: tuple(each.shape) for each in inputs}
    return feeds(inputs, {"shapes": shapes, **NOTHING_GIVEN, **more})


@pytest.mark.parametrize(
    ("kind", "dtype", "lowest", "highest"),
    [
        ("uint8", "uint8", 0, 255),
        ("int8", "int8", -128, 127),
        ("int32", "int32", 0, 1),
        ("int64", "int64", 0, 1),
        ("uint16", "uint16", 0, 1),
        ("bool", "bool", False, True),
    ],
)
def test_integers_are_in_the_range_of_their_meaning(
    kind: str, dtype: str, lowest: int, highest: int
) -> None:
    [array] = _fed(_inputs(x=kind)).values()
    assert (str(array.dtype), array.shape) == (dtype, (4, 500))
    assert (array.min(), array.max()) == (lowest, highest)


@pytest.mark.parametrize(
    ("kind", "dtype"), [("float", "float32"), ("double", "float64"), ("float16", "float16")]
)
def test_floats_are_normal_and_the_same_for_an_input_of_the_same_name(
    kind: str, dtype: str
) -> None:
    found, again = (_fed(_inputs(x=kind, y=kind)) for _ in range(2))
    assert {name: str(each.dtype) for name, each in found.items()} == {"x": dtype, "y": dtype}
    assert all((found[name] == again[name]).all() for name in "xy")
    assert (found["x"] != found["y"]).any()
    assert abs(float(found["x"].mean())) < 0.1
    assert 0.9 < float(found["x"].std()) < 1.1


def _quantized(path: Path, scale: float, zero: int, kind: str, front: str = "") -> str:
    """Writes a model that quantizes its input, perhaps behind another node; returns the path."""
    model = parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : 21]> m (float[1, 8] x) => ({kind}[1, 8] y)'
        f" <float s = {{{scale}}}, {kind} z = {{{zero}}}>"
        f" {{ {front}y = QuantizeLinear ({'t' if front else 'x'}, s, z) }}"
    )
    onnx.save(model, path)
    return str(path)


@pytest.mark.parametrize(
    ("models", "expected"),
    [
        ([(0.01, 0, "uint8")], {"x": (0.0, 2.55)}),  # images
        ([(0.0078125, 0, "int8")], {"x": (-1.0, 0.9921875)}),
        ([(0.01, 0, "uint8", "t = Transpose <perm = [0, 1]> (x) ")], {"x": (0.0, 2.55)}),
        ([(0.00005, 32768, "uint16")], {"x": (-1.6384, 1.63835)}),
        ([(0.01, 0, "uint8"), (0.01, 100, "uint8")], {"x": (0.0, 1.55)}),  # codes of both
        ([(0.04, 0, "int8")], {}),  # as a normal distribution has them
        ([(0.4, 0, "int8")], {}),  # a scale that is ten times too large is to be seen
        ([(1.0, 0, "uint8", "t = Relu (x) ")], {}),  # behind what changes values
        ([(0.0, 0, "uint8")], {}),
    ],
)
def test_random_inputs_lie_where_quantized_ones_have_codes(
    models: list[tuple[Any, ...]], expected: Mapping[str, Any], tmp_path: Path
) -> None:
    paths = [_quantized(tmp_path / f"{i}.onnx", *each) for i, each in enumerate(models)]
    found = with_ranges(Options(), [*paths, str(tmp_path / "absent.onnx")]).ranges
    assert found == {name: pytest.approx(ends) for name, ends in expected.items()}
    given = {"x": InputSpec((1, 8), data=(0,) * 8)}
    for options in (Options(data="given.npz"), Options(inputs=given)):
        assert with_ranges(options, paths).ranges == {}
    for low, high in found.values():
        fed = _fed(_inputs(x="float"), ranges=found)["x"]
        assert (str(fed.dtype), low <= fed.min(), fed.max() <= high) == ("float32", True, True)
        assert fed.mean() == pytest.approx((low + high) / 2, abs=(high - low) / 20)


def test_a_file_that_a_script_feeds_has_no_random_inputs(tmp_path: Path) -> None:
    path = _quantized(tmp_path / "m.onnx", 0.01, 0, "uint8")
    model = OnnxModel("m", path, with_ranges(Options(), [path]), is_profiled=False)
    with closing(model.process):
        model.take_inputs(cast("ModelProcess", SimpleNamespace(ask=lambda *_, **__: "")), {})
        assert (model.problem, dict(model.options.ranges)) == ("", {})


def test_given_values_are_used() -> None:
    inputs = [SimpleNamespace(name="n", type="tensor(int64)", shape=[2, 1])]
    assert _fed(inputs, values={"n": (7, 9)})["n"].tolist() == [[7], [9]]


@pytest.mark.parametrize(
    ("inputs", "arrays", "problem"),
    [
        ({"x": "string"}, None, "input 'x' is tensor(string); expected tensors of numbers"),
        ({"x": "float", "y": "float"}, {"x": np.ones((4, 500), np.float32)}, "{path} has no 'y', which the model takes"),
    ],
)  # fmt: skip
def test_values_that_do_not_fit_raise_an_error(
    inputs: dict[str, str], arrays: dict[str, Any] | None, problem: str, tmp_path: Path
) -> None:
    path = None
    if arrays is not None:
        path = str(tmp_path / "inputs.npz")
        np.savez(path, **arrays)
    with pytest.raises(SessionRequestError, match=f"^{re.escape(problem.format(path=path))}$"):
        _fed(_inputs(**inputs), data=path)
