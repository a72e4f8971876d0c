"""What is shown of variants: each as a row, one that failed with its error, no number from noise."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from otel_quant.inference.results import (
    Accuracy,
    InferenceResult,
    Latency,
    MemoryUse,
    ModelResult,
    OutputError,
)
from otel_quant.recordings.reader import read
from otel_quant.views.html import page_text
from otel_quant.views.inference import document
from otel_quant.views.report import render
from otel_quant.views.writers import written
from tests.fixtures.recorded import RecordedFolder


def _call(median: float, noise: float, **more: Any) -> Latency:
    return Latency(median, round(0.9 * median, 5), round(1.1 * median, 5), noise=noise, **more)


FLOAT = ModelResult(
    "fp32",
    kind="torch",
    is_quantized=False,
    latency=_call(0.0201, 0.004, processes=(0.02, 0.0201, 0.0203)),
    memory=MemoryUse(600_000_000, 580_000_000, weights_on_disk=14_200_000),
    quantize=0.012,
    compile=0.0,
)
INT8 = ModelResult(
    "int8",
    kind="torch",
    is_quantized=True,
    latency=_call(
        0.0099,
        0.005,
        ratio=0.5,
        is_apart=True,
        processes=(0.0098, 0.0099, 0.0099),
    ),
    memory=MemoryUse(450_000_000, 700_000_000, weights_on_disk=3_630_000),
    quantize=3.25,
    compile=12.5,
    accuracy=Accuracy((OutputError("output", 47.31, 0.99999, 0.0203),)),
)
AGAIN = ModelResult(
    "again",
    kind="torch",
    latency=_call(0.0202, 0.0061, ratio=1.005, is_apart=False),
    memory=MemoryUse(600_000_000, 580_000_000, weights_on_disk=14_200_000),
    accuracy=Accuracy(
        (OutputError("output", None, 1.0, 0.0),), (), "only one of the two has an output 'more'"
    ),
)
GPU = ModelResult(
    "on a GPU",
    kind="torch",
    latency=_call(0.001, 0.001, ratio=0.05, is_apart=True),
    memory=MemoryUse(900_000_000, 700_000_000, gpu=2_240_000_000),
    accuracy=Accuracy(problem="it has other inputs than fp32"),
)
FAILED = ModelResult("compiled", "its first call failed: InductorError: no compiler", kind="torch")
RESULT = InferenceResult(
    (FLOAT, INT8, AGAIN, GPU, FAILED),
    "2.13.0",
    {"torch": "2.13.0", "GPU": "", "rounds": "10 of 0.2 s or longer, the variants in turn"},
    0.25,
    2,
    "torch",
    "fp32",
    "otel-quant bench models.py:variants --seconds 20",
)


def _text(result: InferenceResult, form: str, width: int | None = None) -> str:
    return "".join(written(document(result, 10), form, width))


def _page(result: InferenceResult) -> str:
    return page_text(document(result))


def test_the_table_has_a_row_for_each_variant_and_ends_with_the_command() -> None:
    assert _text(RESULT, "table").splitlines() == [
        "int8 is 2.0 x faster than fp32: 9.90 ms, not 20.1 ms; SQNR 47.3 dB",
        "again takes 20.2 ms and fp32 20.1 ms, which cannot be told apart: rounds differ by 0.61 %",
        "on a GPU is 20.0 x faster than fp32: 1.00 ms, not 20.1 ms",
        "compiled was not measured",
        "",
        "model     median  vs. baseline    p10   p90   noise     peak memory  on disk  to quantize  to compile   SQNR  largest difference",
        "              ms                   ms    ms                                             s           s     dB",
        "--------  ------  -------------  ----  ----  ------  --------------  -------  -----------  ----------  -----  ------------------",
        "fp32        20.1  -              18.1  22.1  0.40 %          600 MB  14.2 MB         0.01        0.00      -                   -",
        "int8        9.90  2.0 x faster   8.91  10.9  0.50 %          450 MB  3.63 MB         3.25       12.50   47.3              0.0203",
        "again       20.2  within noise   18.2  22.2  0.61 %          600 MB  14.2 MB            -           -  equal                0.00",
        "on a GPU    1.00  20.0 x faster   0.9  1.10  0.10 %  2.24 GB of GPU        -            -           -      -                   -",
        "compiled       -  -                 -     -       -               -        -            -           -      -                   -  its first call failed: InductorError: no compiler",
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
        "model,median_seconds,p10_seconds,p90_seconds,noise,peak_bytes,disk_bytes,quantize_seconds,compile_seconds,sqnr_db,largest_difference,kind,speedup,problem",
        "fp32,0.0201,0.01809,0.02211,0.004,600000000,14200000,0.012,0,,,torch,,",
        "int8,0.0099,0.00891,0.01089,0.005,450000000,3630000,3.25,12.5,47.31,0.0203,torch,2,",
        "again,0.0202,0.01818,0.02222,0.0061,600000000,14200000,,,,0,torch,,only one of the two has an output 'more'",
        "on a GPU,0.001,0.0009,0.0011,0.001,2240000000,,,,,,torch,20,it has other inputs than fp32",
        "compiled,,,,,,,,,,,torch,,its first call failed: InductorError: no compiler",
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
