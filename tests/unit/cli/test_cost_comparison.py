"""``otel-quant cost`` of several models: what has changed from the first to the others."""

from __future__ import annotations

import json

import pytest

from otel_quant.cost.graph import runtime_here
from tests.unit.cli.costed_models import IN_CSV, printed


@pytest.mark.usefixtures("two_models")
def test_a_second_model_is_compared_with_the_first(capsys: pytest.CaptureFixture[str]) -> None:
    document = json.loads(printed(capsys, "float.onnx", "quantized.onnx", "--format", "json"))
    assert document["comparison"] == [
        {
            "baseline": "float.onnx",
            "path": "quantized.onnx",
            "file_bytes": {"before": 3306, "after": 1527, "ratio": 1527 / 3306},
            "weight_bytes": {"before": 3008, "after": 1093, "ratio": 1093 / 3008},
            "params": {"before": 752, "after": 754, "ratio": 754 / 752},
            "macs": {"before": 2496, "after": 2752, "ratio": 2752 / 2496},
            "macs_contraction": {"before": 2368, "after": 2368, "ratio": 1.0},
            "memory_bytes": {"before": 3816, "after": 1965, "ratio": 1965 / 3816},
            "peak_activation_bytes": {"before": 1024, "after": 1024, "ratio": 1.0},
            "nodes": {"before": 4, "after": 7},
            "quantize_nodes": {"before": 0, "after": 1},
            "dequantize_nodes": {"before": 0, "after": 2},
            "uncosted_nodes": {"before": 0, "after": 0},
            "precision": {
                "float32": {"before": 1.0, "after": 1728 / 2368},
                "int8": {"before": 0.0, "after": 640 / 2368},
            },
            "expected_precision": {
                "float32": {"before": 1.0, "after": 1728 / 2368},
                "int8": {"before": 0.0, "after": 640 / 2368},
            },
        }
    ]


@pytest.mark.usefixtures("two_models")
def test_a_comparison_without_the_models_is_printed_in_every_format(
    capsys: pytest.CaptureFixture[str],
) -> None:
    models = ("float.onnx", "quantized.onnx")
    table = printed(capsys, *models, "--by", "comparison")
    types = "float32 72.97 %, int8 27.03 %"
    assumed = (
        "float.onnx: assumed N = 1: --dim N=1 sets it\n"
        "quantized.onnx: assumed N = 1: --dim N=1 sets it\n"
        f"quantized.onnx: contractions: stored in {types}, expected to run in {types} by "
        f"{runtime_here().title}\n"
    )
    assert table.startswith(f"float.onnx -> quantized.onnx (view: fused)\n{assumed}\n")
    table = table.replace(assumed, "")
    assert printed(capsys, *models, "--by", "total").endswith(f"\n{table}")
    rows = printed(
        capsys, *models, "--by", "comparison", "--format", "csv",
        error=IN_CSV + IN_CSV.replace("float", "quantized"),
    )  # fmt: skip
    assert (
        rows
        == """\
baseline,model,figure,before,after,ratio
float.onnx,quantized.onnx,file_bytes,3306,1527,0.461887
float.onnx,quantized.onnx,weight_bytes,3008,1093,0.363364
float.onnx,quantized.onnx,params,752,754,1.00266
float.onnx,quantized.onnx,macs,2496,2752,1.10256
float.onnx,quantized.onnx,macs_contraction,2368,2368,1
float.onnx,quantized.onnx,memory_bytes,3816,1965,0.514937
float.onnx,quantized.onnx,peak_activation_bytes,1024,1024,1
float.onnx,quantized.onnx,nodes,4,7,
float.onnx,quantized.onnx,quantize_nodes,0,1,
float.onnx,quantized.onnx,dequantize_nodes,0,2,
float.onnx,quantized.onnx,uncosted_nodes,0,0,
float.onnx,quantized.onnx,precision.float32,1,0.72973,
float.onnx,quantized.onnx,precision.int8,0,0.27027,
float.onnx,quantized.onnx,expected_precision.float32,1,0.72973,
float.onnx,quantized.onnx,expected_precision.int8,0,0.27027,
"""
    )


@pytest.mark.usefixtures("two_models")
def test_a_comparison_with_a_model_that_cannot_be_read_is_only_an_error(
    capsys: pytest.CaptureFixture[str],
) -> None:
    complaint = "missing.onnx: cannot be opened: No such file or directory; expected an ONNX file"
    arguments = ("float.onnx", "missing.onnx", "--by", "comparison")
    for form in ("table", "csv"):
        assert (
            printed(
                capsys, *arguments, "--format", form, code=1, error=f"otel-quant: {complaint}\n"
            )
            == ""
        )
