"""Lengths beyond any tensor's: figures are numbers that can be printed, or not known."""

from __future__ import annotations

import json
from pathlib import Path

import onnx.parser
import pytest

from otel_quant.capture.instruments.model_cost import figures_of
from otel_quant.cli import main
from otel_quant.cost import analyze

HUGE = (1 << 63) - 1
RELU = "y = Relu (x0)"


def save(path: Path, body: str, *shapes: list[int]) -> Path:
    inputs = ", ".join(f"float[{','.join(map(str, dims))}] x{i}" for i, dims in enumerate(shapes))
    text = f'<ir_version: 10, opset_import: ["": 21]> g ({inputs}) => (float[] y) {{ {body} }}'
    path.write_bytes(onnx.parser.parse_model(text).SerializeToString())
    return path


def einsum(path: Path, labels: int) -> Path:
    """An Einsum whose every label has the greatest length, 50 in each operand."""
    names = [chr(0x4E00 + i) for i in range(labels)]
    terms = ["".join(names[i : i + 50]) for i in range(0, labels, 50)]
    operands = ", ".join(f"x{i}" for i in range(len(terms)))
    body = f'[sum] y = Einsum <equation = "{",".join(terms)}->"> ({operands})'
    return save(path, body, *([HUGE] * len(term) for term in terms))


@pytest.mark.parametrize("form", ["table", "markdown", "csv", "json"])
def test_a_product_of_400_lengths_is_unknown_in_every_format(
    form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = einsum(tmp_path / "m.onnx", 400)
    (node,) = analyze(path).nodes
    assert (node.macs, node.unknown_reason) == (
        None,
        "node 'sum' (Einsum): that is more than 9,223,372,036,854,775,807 MACs, which no machine "
        "runs",
    )
    assert main(["cost", str(path), "--format", form]) == 0
    assert capsys.readouterr().err == ""


def test_a_ratio_of_a_huge_figure_to_a_small_one_is_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small = save(tmp_path / "small.onnx", RELU, [1])
    huge = save(tmp_path / "huge.onnx", RELU, [HUGE] * 60)
    for form in ("table", "markdown", "csv"):
        assert main(["cost", str(small), str(huge), "--format", form, "--by", "comparison"]) == 0
    assert main(["cost", str(small), str(huge), str(small), "--format", "json"]) == 0
    text = capsys.readouterr().out
    bytes_ = json.loads(text[text.index('{\n  "schema"') :])["comparison"][0]["memory_bytes"]
    assert bytes_ == {"before": 4, "after": 4 * HUGE**60, "ratio": None}
    assert main(["cost", str(huge), str(small), "--format", "json"]) == 0
    (comparison,) = json.loads(capsys.readouterr().out)["comparison"]
    assert comparison["memory_bytes"]["ratio"] == 0.0


def test_a_loop_in_a_loop_without_end_has_no_known_macs() -> None:
    loop = "Loop (trips, go, {x}) <body = b{i} (int64 i{i}, bool c{i}, float[9] h{i}) => (bool d{i}, float[9] r{i}) {{ d{i} = Identity (c{i}) {inner} }}>"
    inner = loop.format(x="h0", i=1, inner="r1 = Tanh (h1)")
    outer = loop.format(x="x", i=0, inner=f"[inner] r0 = {inner}")
    model = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["": 21]> g (float[9] x) => (float[9] y) '
        f"<int64 trips = {{{HUGE}}}, bool go = {{1}}> {{ [outer] y = {outer} }}"
    )
    found = {
        node.name.rpartition("/")[2]: node for node in analyze(model.SerializeToString()).nodes
    }
    assert found["Tanh_1"].macs is None
    assert found["Tanh_1"].unknown_reason == (
        f"node 'outer/body/inner/body/Tanh_1' (Tanh): it runs {HUGE**2:,} times; that is more than "
        "9,223,372,036,854,775,807 MACs, which no machine runs"
    )


def test_a_figure_too_large_for_an_attribute_is_not_on_the_trace(tmp_path: Path) -> None:
    figures = figures_of(analyze(save(tmp_path / "huge.onnx", RELU, [1 << 61])))
    assert figures["macs"] == 1 << 61
    assert {"memory", "peak_activation_bytes"}.isdisjoint(figures)
