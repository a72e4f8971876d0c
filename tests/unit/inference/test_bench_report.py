"""Results: what is shown of variants, each as a row, one that failed with its error, no number from noise; a result can be read again."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from otel_quant.inference.arrays import saved_arrays
from otel_quant.inference.findings import with_slower
from otel_quant.inference.outputs import compared_outputs
from otel_quant.inference.results import (
    Accuracy,
    Finding,
    InferenceResult,
    Latency,
    MemoryUse,
    ModelResult,
    OutputError,
    Ran,
    RanKernel,
    TensorError,
    read_result,
)
from otel_quant.recordings.reader import read
from otel_quant.views.html import page_text
from otel_quant.views.inference import document
from otel_quant.views.report import render
from otel_quant.views.writers import terminal_text, written
from tests.fixtures.recorded import RecordedFolder


def _call(median: float, noise: float, **more: Any) -> Latency:
    return Latency(median, round(0.9 * median, 5), round(1.1 * median, 5), noise=noise, **more)


FLOAT = ModelResult(
    "fp32", kind="torch", is_quantized=False,
    latency=_call(0.0201, 0.004, processes=(0.02, 0.0201, 0.0203)),
    memory=MemoryUse(600_000_000, 580_000_000, weights_on_disk=14_200_000), quantize=0.012,
    compile=0.0,
)  # fmt: skip
INT8 = ModelResult(
    "int8", kind="torch", is_quantized=True,
    latency=_call(0.0099, 0.005, ratio=0.5, is_apart=True, processes=(0.0098, 0.0099, 0.0099)),
    memory=MemoryUse(450_000_000, 700_000_000, weights_on_disk=3_630_000), quantize=3.25,
    compile=12.5, accuracy=Accuracy((OutputError("output", 47.31, 0.99999, 0.0203),)),
)  # fmt: skip
AGAIN = ModelResult(
    "again", kind="torch", latency=_call(0.0202, 0.0061, ratio=1.005, is_apart=False),
    memory=MemoryUse(600_000_000, 580_000_000, weights_on_disk=14_200_000),
    accuracy=Accuracy(
        (OutputError("output", None, 1.0, 0.0),), (), "only one of the two has an output 'more'",
    ),
)  # fmt: skip
GPU = ModelResult(
    "on a GPU", kind="torch",
    latency=replace(_call(0.001, 0.001, ratio=0.05, is_apart=True), gpu_energy=0.512),
    memory=MemoryUse(900_000_000, 700_000_000, gpu=2_240_000_000),
    accuracy=Accuracy(problem="it has other inputs than fp32"),
)  # fmt: skip
FAILED = ModelResult("compiled", "its first call failed: InductorError: no compiler", kind="torch")
RESULT = InferenceResult(
    (FLOAT, INT8, AGAIN, GPU, FAILED), "2.13.0",
    {"torch": "2.13.0", "GPU": "", "rounds": "10 of 0.2 s or longer, the variants in turn"}, 0.25,
    2, "torch", "fp32", "otel-quant bench models.py:variants --seconds 20",
)  # fmt: skip


def _text(result: InferenceResult, form: str, width: int | None = None) -> str:
    return "".join(written(document(result, 10), form, width))


def _page(result: InferenceResult) -> str:
    return page_text(document(result))


def test_the_table_has_a_row_for_each_variant_and_ends_with_the_command() -> None:
    assert _text(RESULT, "table").splitlines() == [
        "int8 is 2.0 x faster than fp32: 9.90 ms, not 20.1 ms; SQNR 47.3 dB",
        "again takes 20.2 ms and fp32 20.1 ms, which cannot be told apart: rounds differ by 0.61 %; equal outputs",
        "on a GPU is 20.0 x faster than fp32: 1.00 ms, not 20.1 ms",
        "compiled was not measured",
        "",
        "model     median  vs. baseline    p10   p90   noise     peak memory  on disk  to quantize  to compile   SQNR  largest difference  GPU energy of a run",
        "              ms                   ms    ms                                             s           s     dB",
        "--------  ------  -------------  ----  ----  ------  --------------  -------  -----------  ----------  -----  ------------------  -------------------",
        "fp32        20.1  -              18.1  22.1  0.40 %          600 MB  14.2 MB         0.01        0.00      -                   -                    -",
        "int8        9.90  2.0 x faster   8.91  10.9  0.50 %          450 MB  3.63 MB         3.25       12.50   47.3              0.0203                    -",
        "again       20.2  within noise   18.2  22.2  0.61 %          600 MB  14.2 MB            -           -  equal                0.00                    -",
        "on a GPU    1.00  20.0 x faster   0.9  1.10  0.10 %  2.24 GB of GPU        -            -           -      -                   -               512 mJ",
        "compiled       -  -                 -     -       -               -        -            -           -      -                   -                    -  its first call failed: InductorError: no compiler",
        "",
        "again: its error is not known of all outputs: only one of the two has an output 'more'",
        "on a GPU: its error is not known: it has other inputs than fp32",
        "",
        "measured",
        "baseline  fp32",
        "torch     2.13.0",
        "rounds    10 of 0.2 s or longer, the variants in turn",
        "machine   2 cores, load 0.25 before",
        "noise     0.61 % between rounds, 1.5 % between processes at most",
        "",
        "to repeat: otel-quant bench models.py:variants --seconds 20",
    ]


def test_outputs_without_a_reference_signal_are_not_reported_as_equal() -> None:
    silent = replace(INT8, accuracy=Accuracy((OutputError("output", None, None, 0.5),)))
    [line] = [
        each
        for each in _text(replace(RESULT, models=(silent,)), "table").splitlines()
        if each.startswith("int8  ")
    ]
    assert ("equal" in line, line.split()[-1]) == (False, "0.5")


def test_csv_has_a_line_for_each_variant_and_no_speed_up_from_noise() -> None:
    assert _text(RESULT, "csv").splitlines() == [
        "model,median_seconds,p10_seconds,p90_seconds,noise,peak_bytes,disk_bytes,quantize_seconds,compile_seconds,sqnr_db,largest_difference,gpu_energy_joules,cpu_energy_joules,cpu_seconds,kind,speedup,problem",
        "fp32,0.0201,0.01809,0.02211,0.004,600000000,14200000,0.012,0,,,,,,torch,,",
        "int8,0.0099,0.00891,0.01089,0.005,450000000,3630000,3.25,12.5,47.31,0.0203,,,,torch,2,",
        "again,0.0202,0.01818,0.02222,0.0061,600000000,14200000,,,,0,,,,torch,,only one of the two has an output 'more'",
        "on a GPU,0.001,0.0009,0.0011,0.001,2240000000,,,,,,0.512,,,torch,20,it has other inputs than fp32",
        "compiled,,,,,,,,,,,,,,torch,,its first call failed: InductorError: no compiler",
    ]


@pytest.mark.parametrize(
    ("name", "title"), [("bench", "Variants side by side"), ("inference", "Inference")]
)
def test_the_page_and_the_report_show_results_with_escaped_text(
    name: str, title: str, tmp_path: Path
) -> None:
    script = "<script>alert(1)</script>"
    failed = ModelResult(script, f"loading it failed: {script}", kind="torch")
    result = replace(RESULT, models=(FLOAT, failed))
    if name == "inference":
        result = InferenceResult((failed,), "1.31.1", {"threads": "2"}, 0.25, 2)
    RecordedFolder(tmp_path / "recording")
    assert title not in render(read(tmp_path / "recording"))
    (tmp_path / "recording" / f"{name}.json").write_text(result.to_json())
    for page in (render(read(tmp_path / "recording")), _page(result)):
        assert title in page
        assert "loading it failed: &lt;script&gt;" in page
        assert script not in page
        assert "2 cores, load 0.25 before" in page


@pytest.mark.parametrize("name", ["bench.json", "inference.json"])
@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, '{"schema": 9}', '{"schema": 1}'])
def test_a_damaged_result_in_a_recording_is_reported_as_damaged(
    name: str, text: str, tmp_path: Path
) -> None:
    RecordedFolder(tmp_path / "recording")
    (tmp_path / "recording" / name).write_text(text)
    page = render(read(tmp_path / "recording"))
    assert f"{name} is damaged, or of another version of otel-quant" in page


def test_a_column_that_no_variant_has_is_left_out() -> None:
    files = [replace(each, kind="onnx", quantize=None) for each in (FLOAT, INT8)]
    assert "to quantize" not in _text(replace(RESULT, models=tuple(files)), "table")


def _kernel(number: int) -> RanKernel:
    name = f"/model/layers.{number}/self_attn/q_proj/MatMul"
    types = ("float32 1x128x4096", "uint8 4096x32x64", "float32 131072")
    return RanKernel(
        name, "MatMulNBits", name, 1, "CPUExecutionProvider", 2.5, 0.25, 1.0, types, types[:1], 7
    )


def _result(kernels: int) -> InferenceResult:
    ran = Ran(20, 100.0, tuple(map(_kernel, range(kernels))))
    finding = Finding("in_float", "m1", "MatMul `m1` ...", "", 2.5, 0.25, ("m1",), "a.cc")
    model = ModelResult(
        "a.onnx",
        inputs={"x": "float32 1x8"},
        assumed=("--dim batch=1",),
        providers=("CPUExecutionProvider",),
        assigned={"CPUExecutionProvider": 3},
        latency=Latency(0.5, 0.25, 0.75, 10, 1.0, 0.125, processes=(0.5, 0.5)),
        memory=MemoryUse(None, 2, 3, 4, 5, 6, None),
        ran=ran,
        findings=(finding,),
    )
    error = Accuracy((OutputError("y", 30.5, 0.5, 0.25),), (TensorError("t", 1.5, None, "m1"),))
    models = (
        model,
        ModelResult("b.onnx", problem="is gone"),
        ModelResult("c.onnx", accuracy=error),
    )
    return InferenceResult(models, "1.31.1", {"threads": "2"}, 0.5, 2)


def test_a_result_that_is_read_again_is_the_same() -> None:
    result = _result(3)
    assert read_result(result.to_json()) == result
    assert "latency" not in json.loads(result.to_json())["models"][1]  # what is not known is absent
    ran = json.loads(result.to_json())["models"][0]["ran"]
    assert (ran["kernel_micros"], ran["between_micros"]) == (7.5, 92.5)
    [operator] = ran["operators"]
    assert (operator["calls"], operator["micros"], operator["macs"]) == (3, 7.5, 21)


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"schema": 2}', '{"schema": 1, "models": [{"path": 3}]}']
)
def test_a_file_that_is_not_a_result_is_rejected(text: str) -> None:
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
def test_outputs_are_compared_or_have_a_reason_why_not(
    first: dict[str, Any], other: dict[str, Any], errors: list[OutputError], problem: str
) -> None:
    assert compared_outputs(first, other) == Accuracy(tuple(errors), (), problem)


def test_findings_with_the_same_reason_are_one_sentence() -> None:
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
    )
    found = ["m1 is bad; and 1 more for the same reason, 30.0 % together", "m2 is bad", "m4 is bad"]
    assert _points(model) == found
    others = tuple(finding(f"n{i}", f"kind {i}", "", 0.5) for i in range(19))
    found += [*(f"n{i} is bad" for i in range(17)), "and 2 more, which took less time"]
    assert _points(replace(model, findings=(*model.findings, *others))) == found
    assert _points(ModelResult("b.onnx", ran=Ran(1, 1.0, (_kernel(1),)))) == ["nothing"]


def _points(model: ModelResult) -> list[str]:
    return [line[2:] for line in _shown(model).splitlines() if line.startswith("- ")]


def _shown(*models: ModelResult) -> str:
    return terminal_text(document(InferenceResult(models, "1.31.1", {}, 0.5, 2), 10))


def test_compiled_kernels_are_not_nodes_and_have_unknown_conversions() -> None:
    cast = RanKernel("Cast", "Cast", "Cast", 1, "CPU", 2.0, 0.25, 1.0, (), ())
    compiled = replace(cast, name="subgraph_1", op_type="subgraph_1", node=None, is_compiled=True)
    model = ModelResult("a.onnx", ran=Ran(1, 4.0, (cast,)))
    assert model.converting == 0.25
    for nodes, words in ((6, "(6 nodes, compiled)"), (0, "(compiled)")):
        ran = Ran(1, 4.0, (cast, replace(compiled, nodes=nodes)))
        model = ModelResult("a.onnx", ran=ran)
        assert model.converting is None
        assert f"{words} subgraph_1" in _shown(model)


def test_slower_than_the_first_is_a_finding_only_if_the_difference_is_significant() -> None:
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
        "slower 500 0.2: it is 1.25 x slower than the float model, where rounds differ by "
        "2.0 % (the float model's by 1.1 %)"
    ]
    assert found(is_apart=False) == found(ratio=0.8) == []
    assert found(base=replace(first, inputs={"x": "float32 2"})) == []
    [of_another] = found(base=replace(first, is_quantized=True))
    assert "slower than the first model, where rounds differ by" in of_another
    assert found(base=ModelResult("float", "cannot be opened")) == []
