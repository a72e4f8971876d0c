"""What people, spreadsheets and pages are shown of inference."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from otel_quant.inference.results import (
    Accuracy,
    BackendKernel,
    Conversion,
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
)
from otel_quant.views.html import page_text
from otel_quant.views.inference import document
from otel_quant.views.writers import written


def _kernel(name: str, op_type: str, node: str | None, micros: float, **more: Any) -> RanKernel:
    kernel = RanKernel(
        name, op_type, node, 1, "CPU", micros, micros / 100, 1.0, ("float32 8x64",),
        ("float32 8",), None, None,
    )  # fmt: skip
    return replace(kernel, **more)


KERNELS = (
    _kernel("c", "QLinearConv", "conv", 50.0, macs=5_000_000, macs_per_second=1e11),
    _kernel("c_q", "QuantizeLinear", "conv", 20.0),
    _kernel("token_7", "Transpose", None, 9.5, provider="CUDA"),
    _kernel("r", "Relu", "relu", 0.5, inputs=(), outputs=()),
)
OPERATORS = (
    OperatorTime("QLinearConv", "CPU", 1, 50.0, 0.5, 5_000_000, 1e11),
    *(OperatorTime(f"op{i}", "CPU", 1000 + i, 2.0, 0.02, None, None) for i in range(21)),
)
RAN = Ran(20, 100.0, 80.0, 20.0, KERNELS, 0, 0.0, OPERATORS[:2])
FLOAT = ModelResult(
    "float.onnx",
    inputs={"x": "float32 8x64"},
    assigned={"CPU": 1003},
    latency=Latency(0.0125, 0.012, 0.0131, 1200, 0.02, 0.01),
    memory=MemoryUse(500_000_000, 510_000_000, None, None, None, 6_000_000, None),
    ran=replace(RAN, kernels=KERNELS[:1], operators=OPERATORS[:1]),
)
INT8 = ModelResult(
    "int8.onnx",
    inputs={"x": "float32 8x64"},
    assumed=("--dim batch=1",),
    assigned={"CPU": 3},
    latency=Latency(0.005, 0.004, 0.006, 9, 0.02, 0.03, 0.4, True, 1.25),
    memory=MemoryUse(None, 510_000_000, None, None, None, 2_000_000, None),
    ran=RAN,
    findings=(
        Finding("unfused", "conv", "c was not fused", "", 20.0, 0.2, ("c_q", "c"), "a.cc", "Conv"),
        Finding("inserted", "conv", "t was put in", "", 9.5, 0.095, ("token_7",), "b.cc", "T"),
    ),
    more_findings=1,
    accuracy=Accuracy(
        (OutputError("y", 30.25, 0.999, 0.125), OutputError("z", None, 1.0, 0.0)),
        (TensorError("t", 12.0, None), TensorError("u", None, 15.0)),
        "only one of the two has an output 'w'",
    ),
)
AGAIN = replace(
    INT8,
    path="again.onnx",
    latency=Latency(0.0126, 0.012, 0.0131, 9, 0.02, 0.002, 1.01, False),
    findings=(), more_findings=0, accuracy=Accuracy(),
    ran=replace(RAN, kernels=KERNELS[:1], operators=OPERATORS[:1]),
)  # fmt: skip
FAILED = ModelResult("gone.onnx", "cannot be opened")
RESULT = InferenceResult((FLOAT, INT8, AGAIN, FAILED), "1.24.0", {"threads": "2", "x": ""}, 0.5, 2)

TORCH = InferenceResult(
    (
        replace(
            INT8,
            path="int8",
            accuracy=None,
            ran=replace(
                RAN,
                operators=tuple(replace(each, allocated=1000) for each in OPERATORS),
            ),
            conversions=(
                Conversion("quantize", "float32 -> qint8", 2, 9.5, 0.095),
                Conversion("choose scales", "", 1, 12.0, 0.12),
            ),
            backend=(
                BackendKernel("oneDNN", "matmul", "brgemm", "s8 f32", 2, "fc", 2),
                BackendKernel("MKL", "SGEMM", "", "", 1, "", 1),
            ),
            facts={"quantized engine": "x86"},
        ),
        replace(FLOAT, path="fp32", facts={"only here": "1"}),
    ),
    "2.9.0",
    {},
    0.5,
    1,
    "torch",
)


def _lines(result: InferenceResult, form: str, top: int) -> list[str]:
    return "".join(written(document(result, top), form)).splitlines()


ONE_KERNEL = [
    "a run with the profiler on: 0.1 ms, of which kernels 0.08 ms and between them 0.02 ms (20.0 %); mean of 20 runs",
    "",
    "operator     kernels  time   share    rate  provider",
    "                        us          GMAC/s",
    "-----------  -------  ----  ------  ------  --------",
    "QLinearConv        1  50.0  50.0 %     100  CPU",
    "",
    "node of the file  kernel       time   share    rate  operands and results",
    "                                 us          GMAC/s",
    "----------------  -----------  ----  ------  ------  -------------------------",
    "conv              QLinearConv  50.0  50.0 %     100  float32 8x64 -> float32 8",
    "",
]


def test_the_table_has_all_that_was_measured_of_each_model() -> None:
    assert _lines(RESULT, "table", 2) == [
        "measured",
        "onnxruntime                      1.24.0",
        "threads                          2",
        "machine                          2 cores, load 0.50 before",
        "noise                            3.0 % between rounds at most",
        "inputs                           x float32 8x64",
        "assumed                          --dim batch=1",
        "nodes by provider of float.onnx  CPU 1,003",
        "nodes by provider of int8.onnx   CPU 3",
        "nodes by provider of again.onnx  CPU 3",
        "",
        "model       median   p10   p90   runs  first run   noise  profiled  vs. baseline",
        "                ms    ms    ms                ms",
        "----------  ------  ----  ----  -----  ---------  ------  --------  ----------------------",
        "float.onnx    12.5  12.0  13.1  1,200       20.0   1.0 %         -",
        "int8.onnx     5.00  4.00  6.00      9       20.0   3.0 %    x 1.25  x 0.400",
        "again.onnx    12.6  12.0  13.1      9       20.0  0.20 %         -  within noise (x 1.010)",
        "gone.onnx        -     -     -      -          -       -         -                          cannot be opened",
        "",
        "model       peak while running  peak until the first run  weights on disk",
        "----------  ------------------  ------------------------  ---------------",
        "float.onnx              500 MB                    510 MB          6.00 MB",
        "int8.onnx                    -                    510 MB          2.00 MB",
        "again.onnx                   -                    510 MB          2.00 MB",
        "",
        "output, vs. baseline   SQNR    cosine  largest difference",
        "                         dB",
        "--------------------  -----  --------  ------------------",
        "int8.onnx: y           30.2  0.999000               0.125",
        "int8.onnx: z          equal  1.000000                0.00",
        "",
        "int8.onnx: only one of the two has an output 'w'",
        "",
        "float.onnx: what ran",
        *ONE_KERNEL,
        "float.onnx: what went wrong",
        "- nothing",
        "",
        "int8.onnx: what ran",
        "a run with the profiler on: 0.1 ms, of which kernels 0.08 ms and between them 0.02 ms (20.0 %); mean of 20 runs",
        "",
        "operator     kernels  time   share    rate  provider",
        "                        us          GMAC/s",
        "-----------  -------  ----  ------  ------  --------",
        "QLinearConv        1  50.0  50.0 %     100  CPU",
        "op0            1,000   2.0   2.0 %       -  CPU",
        "",
        "node of the file    kernel                           time   share    rate  operands and results",
        "                                                       us          GMAC/s",
        "------------------  -------------------------------  ----  ------  ------  -------------------------",
        "conv                QLinearConv, QuantizeLinear x 2  70.0  70.0 %    71.4  float32 8x64 -> float32 8",
        "(inserted) token_7  Transpose                         9.5   9.5 %       -  float32 8x64 -> float32 8",
        "1 more node left out.",
        "",
        "int8.onnx: what went wrong",
        "- c was not fused",
        "- t was put in",
        "- and 1 more, which took less time",
        "",
        "tensor, worst first  of its own  of all before it too",
        "                             dB                    dB",
        "-------------------  ----------  --------------------",
        "t                          12.0                     -",
        "u                             -                  15.0",
        "",
        "again.onnx: what ran",
        *ONE_KERNEL,
        "again.onnx: what went wrong",
        "- nothing",
    ]


def test_a_model_of_pytorch_has_modules_changes_of_type_and_kernels_below_its_operators() -> None:
    lines = _lines(TORCH, "table", 1)
    assert lines[: lines.index("")] == [
        "measured",
        "torch                      2.9.0",
        "machine                    1 core, load 0.50 before",
        "noise                      3.0 % between rounds at most",
        "inputs                     x float32 8x64",
        "assumed                    --dim batch=1",
        "nodes by provider of int8  CPU 3",
        "nodes by provider of fp32  CPU 1,003",
        "quantized engine           x86",
        "only here                  1",
    ]
    at = lines.index("2 more operators left out.")
    assert lines[at - 1] == "op18         1,018   2.0   2.0 %       -    1.00 kB  CPU"
    assert lines[at + 1 : lines.index("fp32: what ran")] == [
        "",
        "module  kernel                           time   share    rate  operands and results",
        "                                           us          GMAC/s",
        "------  -------------------------------  ----  ------  ------  -------------------------",
        "conv    QLinearConv, QuantizeLinear x 2  70.0  70.0 %    71.4  float32 8x64 -> float32 8",
        "2 more modules left out.",
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
        "int8: what went wrong",
        "- c was not fused",
        "- t was put in",
        "- and 1 more, which took less time",
        "",
    ]


def test_csv_has_each_kernel_with_what_was_found_of_it() -> None:
    assert _lines(replace(RESULT, models=(INT8, FAILED)), "csv", 1) == [
        "model,kernel,operator,provider,node,micros,share,calls,macs,macs_per_second,inputs,outputs,findings,allocated",
        "int8.onnx,c,QLinearConv,CPU,conv,50,0.5,1,5000000,100000000000,float32 8x64,float32 8,c was not fused,",
        "int8.onnx,c_q,QuantizeLinear,CPU,conv,20,0.2,1,,,float32 8x64,float32 8,c was not fused,",
        "int8.onnx,token_7,Transpose,CUDA,,9.5,0.095,1,,,float32 8x64,float32 8,t was put in,",
        "int8.onnx,r,Relu,CPU,relu,0.5,0.005,1,,,,,,",
    ]


def test_many_operators_of_a_node_are_counted() -> None:
    kernels = tuple(_kernel(f"k{i}", f"Op{i}", "node", 5.0) for i in range(5))
    result = replace(RESULT, models=(replace(FLOAT, ran=replace(RAN, kernels=kernels)),))
    [line] = [each for each in _lines(result, "table", 1) if each.startswith("node  ")]
    assert re.split("  +", line)[1:] == [
        "Op0, Op1, 3 more x 5", "25.0", "25.0 %", "float32 8x64 -> float32 8",
    ]  # fmt: skip


def test_the_page_has_the_same_tables_with_their_captions_and_each_finding_with_its_source() -> (
    None
):
    page = page_text(document(RESULT))
    tables = re.findall(r'<table id="inference-([^"]+)".*?<caption[^>]*>([^<]+)', page, re.DOTALL)
    assert tables == [
        ("latency", "Latency, without the profiler"),
        ("memory", "Memory"),
        ("error", "How far off"),
        ("operators-0", "Kernels by operator"),
        ("nodes-0", "By node of the file"),
        ("operators-1", "Kernels by operator"),
        ("nodes-1", "By node of the file"),
        ("layers-1", "Error of each tensor"),
        ("operators-2", "Kernels by operator"),
        ("nodes-2", "By node of the file"),
    ]
    points = re.findall(r"<li>(.*)</li>", page)
    assert points == [
        "nothing",
        "c was not fused (a.cc)",
        "t was put in (b.cc)",
        "and 1 more, which took less time",
        "nothing",
    ]
    assert "cannot be opened" in page
    assert ">SQNR <small>dB</small>" in page
    assert "<h3>How it was measured</h3>" in page
    captions = re.findall(r"<caption[^>]*>([^<]+)", page_text(document(TORCH)))
    assert captions[2:6] == [
        "Kernels by operator", "By module", "Changes of type", "Kernels below the operators",
    ]  # fmt: skip


def test_a_page_has_a_hundred_rows_of_a_table_and_says_how_many_it_leaves_out() -> None:
    kernels = tuple(_kernel(f"k{i}", "Add", f"n{i}", 1.0) for i in range(103))
    layers = tuple(TensorError(f"t{i}", 1.0, None) for i in range(101))
    model = replace(INT8, ran=replace(RAN, kernels=kernels), accuracy=Accuracy(layers=layers))
    page = page_text(document(replace(RESULT, models=(model,))))
    assert len(re.findall(r'<th scope="row" class="t">n\d', page)) == 100
    assert "3 more nodes left out." in page
    assert "1 more row left out." in page
