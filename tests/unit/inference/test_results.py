"""A result is 1 MB at most, says what it leaves out, and can be read again."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from otel_quant.inference.accuracy import compared_outputs, saved_arrays, tensor_errors
from otel_quant.inference.findings import with_slower
from otel_quant.inference.results import (
    MOST_BYTES,
    Accuracy,
    BackendKernel,
    Finding,
    InferenceResult,
    Latency,
    MemoryUse,
    ModelResult,
    OperatorTime,
    OutputError,
    Ran,
    RanKernel,
    TensorError,
    read_result,
    role_of,
)
from otel_quant.views.inference import document
from otel_quant.views.terminal import terminal_text


def _kernel(number: int) -> RanKernel:
    name = f"/model/layers.{number}/self_attn/q_proj/MatMul"
    types = ("float32 1x128x4096", "uint8 4096x32x64", "float32 131072")
    return RanKernel(
        name,
        "MatMulNBits",
        name,
        1,
        "CPUExecutionProvider",
        2.5,
        0.25,
        1.0,
        types,
        types[:1],
        7,
        2.5,
    )


def _result(kernels: int) -> InferenceResult:
    ran = Ran(
        20,
        100.0,
        80.0,
        20.0,
        tuple(map(_kernel, range(kernels))),
        0,
        0.0,
        (OperatorTime("MatMulNBits", "CPUExecutionProvider", kernels, 80.0, 1.0, None, None),),
    )
    finding = Finding("in_float", "m1", "MatMul `m1` ...", "", 2.5, 0.25, ("m1",), "a.cc")
    model = ModelResult(
        "a.onnx",
        inputs={"x": "float32 1x8"},
        assumed=("--dim batch=1",),
        providers=("CPUExecutionProvider",),
        assigned={"CPUExecutionProvider": 3},
        latency=Latency(0.5, 0.25, 0.75, 10, 1.0, 0.125),
        memory=MemoryUse(None, 2, 3, 4, 5, 6, None),
        ran=ran,
        findings=(finding,),
    )
    error = Accuracy((OutputError("y", 30.5, 0.5, 0.25),), (TensorError("t", 1.5, None),))
    models = (
        model,
        ModelResult("b.onnx", problem="is gone"),
        ModelResult("c.onnx", accuracy=error),
    )
    return InferenceResult(models, "1.31.1", {"threads": "2"}, 0.5, 2)


def test_a_result_that_is_read_again_is_the_same() -> None:
    result = _result(3)
    assert read_result(result.to_json()) == result


def test_a_result_of_many_kernels_is_a_megabyte_at_most_and_counts_the_others() -> None:
    text = _result(20_000).to_json()
    assert MOST_BYTES / 4 < len(text) <= MOST_BYTES
    ran = json.loads(text)["models"][0]["ran"]
    assert ran["left_out"] == 20_000 - len(ran["kernels"])
    assert ran["left_out_micros"] == pytest.approx(2.5 * ran["left_out"])
    assert json.loads(text)["models"][0]["findings"] != []


def test_a_megabyte_is_counted_in_bytes() -> None:
    first = _result(0).models[0]
    assert first.ran is not None
    kernels = tuple(replace(_kernel(i), name="模" * 120) for i in range(1700))
    first = replace(first, ran=replace(first.ran, kernels=kernels))
    assert len(replace(_result(0), models=(first,)).to_json().encode()) <= MOST_BYTES


def test_all_that_there_is_much_of_is_shortened() -> None:
    [finding] = _result(0).models[0].findings
    model = ModelResult(
        "a.onnx",
        findings=(replace(finding, sentence="s" * 100),) * 6_000,
        more_findings=5,
        accuracy=Accuracy(layers=(TensorError("t", float("inf"), 1.0),) * 6_000),
        backend=(BackendKernel("oneDNN", "matmul", "brgemm", "f32", 1, "fc", 1),) * 6_000,
    )
    text = InferenceResult((model,), "1.31.1", {}, 0.5, 2).to_json()
    [found] = json.loads(text)["models"]
    kept = len(found["findings"])
    assert MOST_BYTES / 4 < len(text) <= MOST_BYTES
    assert found["more_findings"] == 6_005 - kept
    assert found["accuracy"]["layers"] == [{"name": "t", "all": 1.0}] * kept
    assert len(found["backend"]) == kept


def test_a_kernel_of_unknown_operands_shows_none() -> None:
    scalars = ("float32 2", "int64 scalar", "int8 4")
    assert replace(_kernel(0), inputs=scalars, outputs=()).types == "float32 2, int8 4 -> "
    assert replace(_kernel(0), inputs=(), outputs=("float32 2",)).types == " -> float32 2"
    assert replace(_kernel(0), inputs=(), outputs=()).types == ""


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"schema": 2}', '{"schema": 1, "models": [{"path": 3}]}']
)
def test_what_is_no_result_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_result(text)


def test_outputs_are_compared_by_name(tmp_path: Path) -> None:
    first, other = tmp_path / "first.npz", tmp_path / "other.npz"
    np.savez(first, a0=np.array([3.0, 4.0]), a1=np.array([1, 2]))
    np.savez(other, a0=np.array([1, 2]), a1=np.array([3.0, 3.5]), a2=np.zeros(2))
    found = compared_outputs(
        saved_arrays(["y", "z"], first), saved_arrays(["z", "y", "new", "text"], other)
    )
    cosine = (9 + 14) / (5 * np.hypot(3, 3.5))
    assert found == Accuracy(
        (
            OutputError("z", None, pytest.approx(1), 0.0),
            OutputError("y", pytest.approx(20.0), pytest.approx(cosine), 0.5),
        ),
        (),
        "only one of the two has an output 'new'",
    )


ONE = np.ones(1)
NO_ERROR = OutputError("y", None, None, None)


@pytest.mark.parametrize(
    ("first", "other", "errors", "problem"),
    [
        ({"y": np.zeros(2)}, {"y": np.ones(2)}, [OutputError("y", None, None, 1.0)], ""),
        ({"y": np.full(3, 0.7)}, {"y": np.full(3, 0.7)}, [OutputError("y", None, 1.0, 0.0)], ""),
        (
            {"y": np.array([3.0])}, {"y": np.array([3.0 + 0.3j])},  # imaginary parts count
            [OutputError("y", pytest.approx(20), pytest.approx(3 / np.hypot(3, 0.3)), 0.3)], "",
        ),
        ({"y": ONE, "z": np.ones(0)}, {"y": ONE, "z": np.ones(0)}, [OutputError("y", None, 1.0, 0.0)], ""),
        ({"y": ONE}, {"y": np.array([np.nan])}, [NO_ERROR], "output 'y' has values that are not finite"),
        ({"y": np.ones((2, 3))}, {"y": np.ones((3, 2))}, [], "output 'y' is [3, 2], not [2, 3]"),
        ({"y": ONE}, {}, [], "one of the two returns no tensors"),
        ({}, {}, [], "one of the two returns no tensors"),
        ({"y": ONE, "z": ONE}, {"y": ONE}, [OutputError("y", None, 1.0, 0.0)], "only one of the two has an output 'z'"),
        ({"y": ONE, "z": ONE}, {"w": ONE}, [OutputError("w", None, 1.0, 0.0)], "only one of the two has an output 'z'"),
    ],
)  # fmt: skip
def test_outputs_are_compared_and_why_they_are_not_is_said(
    first: dict[str, Any], other: dict[str, Any], errors: list[OutputError], problem: str
) -> None:
    assert compared_outputs(first, other) == Accuracy(tuple(errors), (), problem)


def test_the_worst_tensor_stands_first() -> None:
    found = tensor_errors({"a": {"own": 40.0, "all": 30.0}, "b": {"own": 35.0}, "c": {"own": 9.0}})
    assert found == (
        TensorError("c", 9.0, None),
        TensorError("a", 40.0, 30.0),
        TensorError("b", 35.0, None),
    )


def test_findings_for_the_same_reason_are_one_sentence() -> None:
    def finding(node: str, kind: str, alike: str, micros: float) -> Finding:
        return Finding(
            kind, node, f"{node} is bad", "", micros, micros / 100, (node,), "a.cc", alike
        )

    model = ModelResult(
        "a.onnx",
        findings=(
            finding("m1", "unfused", "Pad", 20.0),
            finding("m2", "in_float", "Pad", 15.0),
            finding("m3", "unfused", "Pad", 10.0),
            finding("m4", "scalar", "Exp", 1.0),
        ),
        more_findings=2,
    )
    assert _text(model).splitlines()[-4:] == [
        "- m1 is bad; and 1 more for the same reason, 30.0 % together",
        "- m2 is bad",
        "- m4 is bad",
        "- and 2 more, which took less time",
    ]
    assert _text(ModelResult("b.onnx")).splitlines()[-1] == "- nothing"


def _text(*models: ModelResult) -> str:
    return terminal_text(document(InferenceResult(models, "1.31.1", {}, 0.5, 2), 10))


def _ran(op_type: str, *inputs: str, macs: int | None = None, **more: object) -> RanKernel:
    fields = {
        "name": op_type, "op_type": op_type, "node": op_type, "nodes": 1, "provider": "CPU",
        "micros": 2.0, "share": 0.25, "calls": 1.0, "inputs": inputs, "outputs": (),
        "macs": macs, "macs_per_second": None,
    }  # fmt: skip
    return RanKernel(**{**fields, **more})  # type: ignore[arg-type]  # a field at a time in the tests


@pytest.mark.parametrize(
    ("kernels", "role"),
    [
        ([_ran("Conv", "float32 1x3x8x8", macs=9)], "float"),
        ([_ran("Conv", "bfloat16 1x3x8x8", macs=9)], "float"),
        ([_ran("Gather", "float32 9x4", "int64 1")], "float"),
        ([_ran("Cast", "uint8 1x3x8x8", macs=9), _ran("Conv", "float32 1", macs=9)], "float"),
        ([_ran("QLinearConv", "uint8 1x3x8x8", macs=9)], "quantized"),
        ([_ran("MatMulNBits", "float32 8x64", "uint8 64x2x16", macs=9)], "quantized"),
        ([_ran("DequantizeLinear", "int8 64x64"), _ran("MatMul", macs=9)], "quantized"),
        ([_ran("BFPQuantizeDequantize", "float32 64x64")], "quantized"),
        ([_ran("aten::linear", "float32 8x64"), _ran("aten::to", "int8 8x64")], "float"),
        ([_ran("quantized::linear_dynamic", "float32 8x64")], "quantized"),
        ([_ran("aten::_weight_int4pack_mm", "bfloat16 8x64")], "quantized"),
    ],
    ids=lambda value: value if isinstance(value, str) else "+".join(each.op_type for each in value),
)
def test_a_model_is_quantized_if_what_ran_is(kernels: list[RanKernel], role: str) -> None:
    assert role_of(kernels) == role


def test_where_nothing_is_compared_there_is_no_table_of_errors() -> None:
    why = Accuracy(problem="its inputs are not those of float.onnx")
    [first, *_] = _result(1).models
    other = replace(first, path="other.onnx", accuracy=why)
    text = _text(first, other)
    assert "other.onnx: its inputs are not those of float.onnx" in text
    assert "output, vs. baseline" not in text


def test_what_a_provider_has_compiled_is_no_node_and_its_conversions_are_not_known() -> None:
    cast, compiled = _ran("Cast"), _ran("subgraph_1", nodes=6, node=None, is_compiled=True)
    model = ModelResult("a.onnx", ran=Ran.of(1, 4.0, [cast]))
    assert model.converting == 0.25
    for nodes, words in ((6, "(6 nodes, compiled)"), (0, "(compiled)")):
        ran = Ran.of(1, 4.0, [cast, replace(compiled, nodes=nodes)])
        model = ModelResult("a.onnx", ran=ran)
        assert model.converting is None
        assert f"{words} subgraph_1" in _text(model)


def test_slower_than_float_is_a_finding_only_where_the_two_can_be_told_apart() -> None:
    first = ModelResult("float", latency=Latency(2e-3, noise=0.011), is_quantized=False)

    def found(is_apart: bool = True, ratio: float = 1.25, base: ModelResult = first) -> list[str]:
        timed = Latency(2e-3 * ratio, noise=0.02, ratio=ratio, is_apart=is_apart)
        own = ModelResult("int8", latency=timed, is_quantized=True)
        before, after = with_slower([base, own])
        assert before.findings == ()
        return [
            f"{each.kind} {each.micros:g} {each.share:g}: {each.sentence}"
            for each in after.findings
        ]

    assert found() == [
        "slower 500 0.2: it is slower than the float model: x 1.250 of its time, where rounds differ by "
        "2.0 % (the float model's by 1.1 %)"
    ]
    assert found(is_apart=False) == found(ratio=0.8) == []
    assert found(base=replace(first, inputs={"x": "float32 2"})) == []
    assert found(base=replace(first, is_quantized=True)) == []
    assert found(base=ModelResult("float", "cannot be opened")) == []
