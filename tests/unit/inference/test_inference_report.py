"""What people, spreadsheets and pages are shown of inference."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from otel_quant.format.event_file import INFERENCE
from otel_quant.inference.results import (
    Accuracy,
    BackendKernel,
    Conversion,
    Finding,
    InferenceResult,
    Latency,
    MemoryUse,
    ModelResult,
    OutputError,
    Ran,
    RanKernel,
    TensorError,
)
from otel_quant.views.document import Lines
from otel_quant.views.html import page_text
from otel_quant.views.inference import document, recorded_sections
from otel_quant.views.layers_beside import Beside
from otel_quant.views.text import NO_BREAK
from otel_quant.views.writers import written


def _kernel(name: str, op_type: str, node: str | None, micros: float, **more: Any) -> RanKernel:
    kernel = RanKernel(
        name, op_type, node, 1, "CPU", micros, micros / 100, 1.0, ("float32 8x64",),
        ("float32 8",),
    )  # fmt: skip
    return replace(kernel, **more)


KERNELS = (
    _kernel("c", "QLinearConv", "conv", 50.0, macs=5_000_000, inputs=("uint8 8x64",)),
    _kernel("c_q", "QuantizeLinear", "conv", 20.0),
    _kernel("token_7", "Transpose", None, 9.5, provider="CUDA"),
    _kernel("r", "Relu", "relu", 0.5, inputs=(), outputs=()),
)
RAN = Ran(20, 100.0, KERNELS)
FLOAT = ModelResult(
    "float.onnx", inputs={"x": "float32 8x64"}, assigned={"CPU": 1003},
    latency=Latency(0.0125, 0.012, 0.0131, 1200, 0.02, 0.01),
    memory=MemoryUse(500_000_000, 510_000_000, weights_on_disk=6_000_000),
    ran=Ran(
        20, 100.0,
        (replace(KERNELS[0], op_type="Conv", micros=80.0, share=1.0, inputs=("float32 8x64",)),),
    ),
    is_quantized=False,
)  # fmt: skip
INT8 = ModelResult(
    "int8.onnx", inputs={"x": "float32 8x64"}, assumed=("--dim batch=1",), assigned={"CPU": 3},
    latency=Latency(0.005, 0.004, 0.006, 9, 0.02, 0.03, 0.4, True),
    memory=MemoryUse(None, 510_000_000, weights_on_disk=2_000_000), ran=RAN,
    findings=(
        Finding("unfused", "conv", "c was not fused", "", 20.0, 0.2, ("c_q", "c"), "a.cc", "Conv", rewrites="bias"),
        Finding("inserted", "conv", "t was inserted", "", 9.5, 0.095, ("token_7",), "b.cc", "T"),
    ),
    accuracy=Accuracy(
        (OutputError("y", 30.25, 0.999, 0.125), OutputError("z", None, 1.0, 0.0)),
        (TensorError("t", 12.0, None), TensorError("u", None, 15.0, "conv")),
        "only one of the two has an output 'w'",
    ),
    is_quantized=True,
)  # fmt: skip
AGAIN = replace(
    INT8, path="again.onnx", latency=Latency(0.0126, 0.012, 0.0131, 9, 0.02, 0.002, 1.01, False),
    findings=(), accuracy=Accuracy(), ran=FLOAT.ran,
)  # fmt: skip
FAILED = ModelResult("gone.onnx", "cannot be opened")
RESULT = InferenceResult((FLOAT, INT8, AGAIN, FAILED), "1.24.0", {"threads": "2", "x": ""}, 0.5, 2)

TORCH = InferenceResult(
    (
        replace(
            INT8, path="int8", accuracy=None,
            ran=Ran(20, 100.0, tuple(replace(each, allocated=1000) for each in KERNELS)),
            conversions=(
                Conversion("quantize", "float32 -> qint8", 2, 9.5, 0.095),
                Conversion("choose scales", "", 1, 12.0, 0.12),
            ),
            backend=(
                BackendKernel("oneDNN", "matmul", "brgemm", "s8 f32", 2, "fc", 2),
                BackendKernel("GPU", "gemm", "", "", 1, "", 1),
            ),
            facts={"quantized engine": "x86"},
        ),
        replace(FLOAT, path="fp32", facts={"only here": "1"}),
    ),
    "2.9.0", {}, 0.5, 1, "torch",
)  # fmt: skip


def _lines(result: InferenceResult, form: str, top: int) -> list[str]:
    return "".join(written(document(result, top), form)).splitlines()


def test_the_report_has_the_answer_then_models_and_nodes_then_all_measurements() -> None:
    assert _lines(replace(RESULT, models=(FLOAT, INT8, FAILED)), "table", 2) == [
        "int8.onnx is 2.5 x faster than float.onnx: 5.00 ms, not 12.5 ms; SQNR 30.2 dB; 20.0 % of its time: c was not fused",
        "gone.onnx was not measured",
        "",
        "model       median  vs. baseline   p10   p90  noise  peak memory  on disk  SQNR  largest difference",
        "                ms                  ms    ms                                 dB",
        "----------  ------  ------------  ----  ----  -----  -----------  -------  ----  ------------------",
        "float.onnx    12.5  -             12.0  13.1  1.0 %       500 MB  6.00 MB     -                   -",
        "int8.onnx     5.00  2.5 x faster  4.00  6.00  3.0 %            -  2.00 MB  30.2               0.125",
        "gone.onnx        -  -                -     -      -            -        -     -                   -  cannot be opened",
        "",
        "int8.onnx: its error is not known of all outputs: only one of the two has an output 'w'",
        "",
        "layer               float.onnx  int8.onnx  change         type              error  verdict",
        "                            us         us                                      dB",
        "------------------  ----------  ---------  -------------  ----------------  -----  -------",
        "conv                      80.0       70.0  1.14 x faster  float32 -> uint8   15.0  gains",
        "(inserted) token_7           -        9.5  -              float32               -",
        "relu                         -        0.5  -              -                     -",
        "All rows together are the kernels of a run: 0.08 ms and 0.08 ms.",
        "",
        "float.onnx: findings",
        "- nothing",
        "",
        "int8.onnx: findings",
        "- c was not fused",
        "- t was inserted",
        "- what can be rewritten for integers: otel-quant fix int8.onnx --dry-run",
        "",
        "model       peak until the first run",
        "----------  ------------------------",
        "float.onnx                    510 MB",
        "int8.onnx                     510 MB",
        "",
        "output         SQNR    cosine  largest difference",
        "                 dB",
        "------------  -----  --------  ------------------",
        "int8.onnx: y   30.2  0.999000               0.125",
        "int8.onnx: z  equal  1.000000                0.00",
        "",
        "float.onnx: what ran",
        "a run with the profiler on: 0.1 ms, of which kernels 0.08 ms and between them 0.02 ms (20.0 %); least of 20 runs",
        "",
        "operator  calls  time    share    rate  provider",
        "                   us           GMAC/s",
        "--------  -----  ----  -------  ------  --------",
        "Conv          1  80.0  100.0 %    62.5  CPU",
        "",
        "node of the file  kernel  time    share    rate  operands and results",
        "                            us           GMAC/s",
        "----------------  ------  ----  -------  ------  -------------------------",
        "conv              Conv    80.0  100.0 %    62.5  float32 8x64 -> float32 8",
        "",
        "int8.onnx: what ran",
        "a run with the profiler on: 0.1 ms, of which kernels 0.08 ms and between them 0.02 ms (20.0 %); least of 20 runs",
        "",
        "operator        calls  time   share    rate  provider",
        "                         us          GMAC/s",
        "--------------  -----  ----  ------  ------  --------",
        "QLinearConv         1  50.0  50.0 %     100  CPU",
        "QuantizeLinear      1  20.0  20.0 %       -  CPU",
        "Transpose           1   9.5   9.5 %       -  CUDA",
        "Relu                1   0.5  0.50 %       -  CPU",
        "",
        "node of the file    kernel                           time   share    rate  operands and results",
        "                                                       us          GMAC/s",
        "------------------  -------------------------------  ----  ------  ------  -------------------------",
        "conv                QLinearConv, QuantizeLinear x 2  70.0  70.0 %    71.4  uint8 8x64 -> float32 8",
        "(inserted) token_7  Transpose                         9.5   9.5 %       -  float32 8x64 -> float32 8",
        "relu                Relu                              0.5  0.50 %       -",
        "",
        "layer, worst first  of its own  of all",
        "                            dB      dB",
        "------------------  ----------  ------",
        "t                         12.0       -",
        "conv                         -    15.0",
        "",
        "measured",
        "onnxruntime                      1.24.0",
        "threads                          2",
        "inputs                           x float32 8x64",
        "assumed                          --dim batch=1",
        "nodes by provider of float.onnx  CPU 1,003",
        "nodes by provider of int8.onnx   CPU 3",
        "machine                          2 cores, load 0.50 before",
        "noise                            3.0 % between rounds at most",
    ]


def test_models_with_an_insignificant_difference_are_neither_faster_nor_slower() -> None:
    lines = _lines(replace(RESULT, models=(FLOAT, AGAIN)), "table", 2)
    assert lines[0] == (
        "again.onnx takes 12.6 ms and float.onnx 12.5 ms, which cannot be told apart: rounds differ by 1.0 %"
    )
    assert any(
        each.startswith("conv         80.0        80.0  within noise  float32") for each in lines
    )


def test_a_ratio_of_cpu_time_is_called_one_beside_medians_that_say_otherwise() -> None:
    latency = Latency(0.013, 0.012, 0.014, 9, 0.02, 0.03, 0.4, True, cpu=0.005, is_by_cpu=True)
    lines = _lines(replace(RESULT, models=(FLOAT, replace(AGAIN, latency=latency))), "table", 2)
    assert lines[6].startswith("again.onnx    13.0  2.5 x faster by CPU time  12.0")


def test_a_model_of_pytorch_has_modules_changes_of_type_and_kernels_below_its_operators() -> None:
    lines = _lines(TORCH, "table", 1)
    at = lines.index("int8: what ran")
    assert lines[at : lines.index("fp32: what ran")] == [
        "int8: what ran",
        "a run with the profiler on: 0.1 ms, of which kernels 0.08 ms and between them 0.02 ms (20.0 %); mean of 20 runs",
        "",
        "operator        calls  time   share    rate  allocated  provider",
        "                         us          GMAC/s",
        "--------------  -----  ----  ------  ------  ---------  --------",
        "QLinearConv         1  50.0  50.0 %     100    1.00 kB  CPU",
        "QuantizeLinear      1  20.0  20.0 %       -    1.00 kB  CPU",
        "Transpose           1   9.5   9.5 %       -    1.00 kB  CUDA",
        "Relu                1   0.5  0.50 %       -    1.00 kB  CPU",
        "",
        "module    kernel                           time   share    rate  operands and results",
        "                                             us          GMAC/s",
        "--------  -------------------------------  ----  ------  ------  -----------------------",
        "conv      QLinearConv, QuantizeLinear x 2  70.0  70.0 %    71.4  uint8 8x64 -> float32 8",
        "2 others  Transpose, Relu x 2              10.0  10.0 %       -",
        "",
        "change of type             calls  time   share",
        "                                    us",
        "-------------------------  -----  ----  ------",
        "quantize float32 -> qint8      2   9.5   9.5 %",
        "choose scales                  1  12.0  12.0 %",
        "",
        "kernel below the operators  calls  module         types",
        "--------------------------  -----  -------------  ------",
        "oneDNN matmul brgemm            2  fc and 1 more  s8 f32",
        "1 more kernel left out.",
        "",
    ]
    assert lines[lines.index("measured") :] == [
        "measured",
        "torch                      2.9.0",
        "inputs                     x float32 8x64",
        "assumed                    --dim batch=1",
        "nodes by provider of int8  CPU 3",
        "nodes by provider of fp32  CPU 1,003",
        "quantized engine           x86",
        "only here                  1",
        "machine                    1 core, load 0.50 before",
        "noise                      3.0 % between rounds at most",
    ]


def test_csv_has_each_kernel_with_its_findings() -> None:
    assert _lines(replace(RESULT, models=(INT8, FAILED)), "csv", 1) == [
        "model,kernel,operator,provider,node,micros,share,calls,macs,macs_per_second,inputs,outputs,findings,allocated",
        "int8.onnx,c,QLinearConv,CPU,conv,50,0.5,1,5000000,100000000000,uint8 8x64,float32 8,c was not fused,",
        "int8.onnx,c_q,QuantizeLinear,CPU,conv,20,0.2,1,,,float32 8x64,float32 8,c was not fused,",
        "int8.onnx,token_7,Transpose,CUDA,,9.5,0.095,1,,,float32 8x64,float32 8,t was inserted,",
        "int8.onnx,r,Relu,CPU,relu,0.5,0.005,1,,,,,,",
    ]


def test_the_page_begins_with_the_answer_and_has_the_same_tables_with_bars() -> None:
    page = page_text(document(RESULT)).replace(NO_BREAK, " ")
    assert "<h1>int8.onnx is 2.5 x faster than float.onnx: 5.00 ms, not 12.5 ms;" in page
    tables = re.findall(r'<table id="inference-([^"]+)".*?<caption[^>]*>([^<]+)', page, re.DOTALL)
    assert tables == [
        ("models", "Models"),
        ("layers-1", "Time by layer"),
        ("layers-2", "Time by layer"),
        ("memory", "Memory"),
        ("error", "Error of each output"),
        ("operators-0", "Kernels by operator"),
        ("nodes-0", "By node of the file"),
        ("operators-1", "Kernels by operator"),
        ("nodes-1", "By node of the file"),
        ("tensors-1", "Error of each layer"),
        ("operators-2", "Kernels by operator"),
        ("nodes-2", "By node of the file"),
    ]
    bars = re.findall(r'([0-9.]+)<svg aria-hidden="true".*?class="bar" width="([0-9.]+)%"', page)
    assert bars[:3] == [("12.5", "99.2"), ("5.00", "39.7"), ("12.6", "100.0")]
    assert bars[3:6] == [("80.0", "100.0"), ("70.0", "87.5"), ("9.5", "11.9")]
    points = re.findall(r"<li>(.*)</li>", page)
    fix = "what can be rewritten for integers: otel-quant fix int8.onnx --dry-run"
    assert points == ["nothing", "c was not fused", "t was inserted", fix, "nothing"]
    assert "cannot be opened" in page
    assert ">SQNR <small>dB</small>" in page
    assert "<h2>How it was measured</h2>" in page


def test_a_page_shows_twenty_rows_of_a_table_and_folds_the_rest() -> None:
    kernels = tuple(_kernel(f"k{i}", "Add", f"n{i}", 1.0) for i in range(103))
    layers = tuple(TensorError(f"t{i}", 1.0, None) for i in range(21))
    model = replace(INT8, ran=replace(RAN, kernels=kernels), accuracy=Accuracy(layers=layers))
    page = page_text(document(replace(RESULT, models=(model,))))
    assert len(re.findall(r'<th scope="row" class="t">n\d', page)) == 20
    assert '<th scope="row" class="t">83 others</th><td class="t">Add x 83</td><td>83.0' in page
    assert "1 more row left out." in page


DOUBTED = replace(
    INT8, facts={"threads of onnxruntime": "2"},
    latency=Latency(0.005, 0.004, 0.006, 9, 0.02, 0.03, 0.4, True, is_in_doubt=True),
)  # fmt: skip


def test_a_busy_machine_is_told_once_and_the_answer_for_programs_measures_again(
    tmp_path: Path,
) -> None:
    facts, command = DOUBTED.facts, "otel-quant inference float.onnx int8.onnx --dim 'batch size=1'"
    models = replace(FLOAT, facts=facts), DOUBTED
    result = replace(RESULT, models=models, command=command)
    (tmp_path / INFERENCE).write_text(result.to_json())
    (section,) = recorded_sections(tmp_path)
    (first, *_) = section.parts
    assert isinstance(first, Lines)
    assert [
        line.startswith("the machine was busy (load 0.5 on 2 cores)") for line in first.lines
    ] == [True, False]
    brief = json.loads(_lines(result, "brief", 2)[0])
    assert (brief["certainty"], brief["next"]) == (
        "probable",
        [
            "otel-quant fix int8.onnx -o int8.fixed.onnx --float float.onnx --brief",
            f"{command} --threads 1 --brief",
        ],
    )


@pytest.mark.parametrize(
    ("ratio", "is_apart", "threads", "measures_again"),
    [(0.4, False, "2", True), (0.4, True, "2", False), (1.05, False, "2", False), (0.4, False, "1", False)],
)  # fmt: skip
def test_what_noise_hides_is_measured_again_on_one_thread_by_the_answer_for_programs(
    ratio: float, is_apart: bool, threads: str, measures_again: bool
) -> None:
    latency = Latency(0.005, 0.004, 0.006, 9, 0.02, 0.9, ratio, is_apart)
    models = replace(FLOAT, facts={"threads of onnxruntime": threads}), replace(INT8, latency=latency)  # fmt: skip
    result = replace(RESULT, models=models, command="otel-quant inference float.onnx int8.onnx")
    _, *again = json.loads(_lines(result, "brief", 2)[0])["next"]
    assert again == [f"{result.command} --threads 1 --brief"] * measures_again


def test_the_answer_of_variants_is_about_those_that_are_not_the_baseline() -> None:
    result = replace(RESULT, models=(INT8, FLOAT), baseline=FLOAT.path)
    brief = json.loads(_lines(result, "brief", 2)[0])
    assert brief["verdict"].startswith("int8.onnx is 2.5 x faster than float.onnx")
    assert brief["next"] == [
        "otel-quant fix int8.onnx -o int8.fixed.onnx --float float.onnx --brief"
    ]


def test_what_one_model_does_in_one_kernel_is_one_row_of_both() -> None:
    """Products are never joined because both have taken in what stands between them."""
    before = [
        _kernel("a", "FusedConv", "a", 40.0, layer="a", macs=900, parts=("norm", "relu")),
        _kernel("b", "MatMul", "b", 30.0, layer="b", macs=800),
        _kernel("relu2", "Relu", "relu2", 5.0, layer="relu2"),
    ]
    after = [
        _kernel("a", "QLinearConv", "a_quant", 9.0, layer="a_quant", macs=900),
        _kernel("norm", "BatchNormalization", "norm", 20.0, layer="norm", macs=100),
        _kernel("relu", "QuantizeLinear", "relu", 4.0, layer="b", parts=("relu",)),
        _kernel("b", "QGemm", "b_MatMul_quant", 8.0, layer="b", macs=800, parts=("relu2", "shape")),
        _kernel("c", "Reshape", "c", 1.0, layer="c", parts=("shape",)),
    ]
    models = [replace(FLOAT, ran=Ran(9, 90.0, tuple(it))) for it in (before, after)]
    beside = Beside(*models)
    assert {name: (beside.before.get(name), beside.after.get(name)) for name in beside.names} == {
        "a": (before[:1], after[1::-1]), "b": (before[1:], after[2:4]), "c": (None, after[4:]),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("kernels", "reason"),
    [(("a", "q"), "its bias is int8"), (("q", "pool"), "its kernel for uint8 is slower")],
)
def test_a_layer_is_slow_for_a_reason_of_its_own_contraction(
    kernels: tuple[str, ...], reason: str
) -> None:
    """What is not fused with the next node is no reason of a convolution beside it."""
    finding = Finding("any", "a", "X `a` is slow: its bias is int8", "", 9.0, 0.5, kernels, "a.cc")
    before = _kernel("a", "Conv", "a", 10.0, layer="a", macs=900)
    after = [
        _kernel("a", "QLinearConv", "a", 20.0, layer="a", macs=900, inputs=("uint8 8x64",)),
        _kernel("q", "QuantizeLinear", "a", 5.0, layer="a"),
    ]
    models = replace(FLOAT, ran=Ran(9, 9.0, (before,))), replace(INT8, ran=Ran(9, 9.0, tuple(after)), findings=(finding,), accuracy=None)  # fmt: skip
    pair = Beside(*models).pair("a", ["a"])
    assert (pair.verdict, pair.reason) == ("costs more than it gains", reason)


def test_a_finding_about_accuracy_is_no_reason_of_a_slow_layer() -> None:
    finding = Finding(
        "saturates", "(model)", "sums saturate", "", 20.0, 0.5, ("a",), "a.cc", "", True
    )
    models = (
        replace(FLOAT, ran=Ran(9, 9.0, (_kernel("a", "Conv", "a", 10.0, layer="a", macs=900),))),
        replace(INT8, ran=Ran(9, 9.0, (_kernel("a", "QLinearConv", "a", 20.0, layer="a", macs=900, inputs=("uint8 8x64",)),)),
                findings=(finding,), accuracy=None),
    )  # fmt: skip
    pair = Beside(*models).pair("a", ["a"])
    assert (pair.verdict, pair.reason) == (
        "costs more than it gains", "its kernel for uint8 is slower",
    )  # fmt: skip


@pytest.mark.parametrize(("exact", "verdict"), [(None, "hurts accuracy"), (38.0, "gains")])
def test_a_layer_is_not_blamed_for_what_the_outputs_lose_by_sums_that_saturate(
    exact: float | None, verdict: str
) -> None:
    layers = (TensorError("a", 33.0, node="a", lost=7.0),)
    found = Accuracy((OutputError("y", 20.0, 1.0, 0.1),), layers, sqnr_of_layers=exact)
    before = _kernel("a", "Conv", "a", 20.0, layer="a", macs=900)
    after = _kernel("a", "QLinearConv", "a", 9.0, layer="a", macs=900, inputs=("uint8 8x64",))
    models = replace(FLOAT, ran=Ran(9, 9.0, (before,))), replace(INT8, ran=Ran(9, 9.0, (after,)), findings=(), accuracy=found)  # fmt: skip
    assert Beside(*models).pair("a", ["a"]).verdict == verdict


@pytest.mark.parametrize(
    ("sqnr", "lost", "is_told"), [(24.6, 11.5, True), (24.6, 2.0, False), (35.0, 11.5, False)]
)
def test_a_layer_that_costs_poor_outputs_most_of_their_noise_is_in_the_headline(
    sqnr: float, lost: float, is_told: bool
) -> None:
    layers = TensorError("m", 23.2, node="mean", lost=lost), TensorError("c", 39.0, node="conv")
    found = Accuracy((OutputError("y", sqnr, 1.0, 0.1),), layers)
    result = replace(RESULT, models=(FLOAT, replace(INT8, accuracy=found)))
    text = "".join(written(document(result, 2), "table"))
    assert ("; the outputs lose 11.5 dB by `mean` alone" in text) == is_told


def _slower(*after: RanKernel, findings: tuple[Finding, ...] = ()) -> str:
    """Returns the first sentence about a slower model of two convolutions, a pool and a GELU."""
    before = (
        *(_kernel(each, "Conv", each, 20.0, layer=each, macs=900) for each in ("a", "b")),
        _kernel("pool", "MaxPool", "pool", 3.0, layer="pool", macs=9),
        _kernel("gelu", "Gelu", "erf", 4.0, layer="erf", macs=9, parts=("mul",)),
    )
    told = Finding("slower", "(model)", "it is slower", "", 9.0, 0.3, (), "docs")
    model = replace(
        INT8, latency=Latency(0.02, ratio=1.6, is_apart=True), ran=Ran(9, 150.0, after),
        findings=(told, *findings), accuracy=None,
    )  # fmt: skip
    first = replace(FLOAT, ran=Ran(9, 47.0, before))
    return str(document(replace(RESULT, models=(first, model)), 20).title)


def test_the_first_sentence_of_a_slower_model_has_the_reason_by_which_it_loses_most_time() -> None:
    integers = {"inputs": ("uint8 8x64",), "macs": 900}
    fast = [_kernel(each, "QLinearConv", each, 9.0, layer=each, **integers) for each in ("a", "b")]
    slow = [_kernel(each, "Conv", each, 30.0, layer=each, macs=900) for each in ("a", "b")]
    pool = _kernel("pool", "MaxPool", "pool", 50.0, layer="pool", **integers)
    gelu = [_kernel(each, "Mul", each, 4.0, layer=each, **integers) for each in ("erf", "mul")]
    held = tuple(
        replace(INT8.findings[0], node=each.name, sentence=f"Conv `{each.name}` ran in float: its bias is int8",
                kernels=(each.name,), alike="Conv: its bias is int8", micros=30.0)
        for each in slow
    )  # fmt: skip
    assert _slower(*fast, pool).endswith(
        "; `pool` takes 0.047 ms longer: its kernel for uint8 is slower"
    )
    assert _slower(*fast, *gelu).endswith(
        "; `erf` takes 0.004 ms longer: 2 kernels run in place of 1"
    )
    types = [replace(each, inputs=("float32 9x64",), op_type="FusedConv") for each in slow]
    assert _slower(*types, *gelu, findings=held).endswith(
        "; 2 Conv run in float and take 0.02 ms longer, each because its bias is int8"
    )
