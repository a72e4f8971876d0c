"""The graph of a model has a box for each module, below what it reads, in the shade of its figure."""

from __future__ import annotations

import json
import re
from pathlib import Path

import onnx
import pytest

from otel_quant.cost import CostError
from otel_quant.inference.results import InferenceResult, ModelResult, Ran, RanKernel
from otel_quant.views.model_graph import graph_text

TEXT = """
<ir_version: 8, opset_import: ["" : 17]>
net (float[4,8] x, float[8,8] w) => (float[4,8] y) {
    ["/stem/MatMul"] a = MatMul(x, w)
    ["/stem/Relu"] b = Relu(a)
    ["/block/a/MatMul"] c = MatMul(b, w)
    ["/block/b/MatMul"] d = MatMul(b, w)
    ["/block/Add"] e = Add(c, d)
    ["/<head>/MatMul"] y = MatMul(e, w)
}"""
LAYERS = ("/stem/MatMul", "/block/a/MatMul", "/block/b/MatMul", "/<head>/MatMul")


def _result(path: Path, text: str = TEXT) -> InferenceResult:
    onnx.save(onnx.parser.parse_model(text), path)

    def model(name: str, *micros: float) -> ModelResult:
        kernels = tuple(
            RanKernel(layer, "MatMul", layer, 1, "CPU", each, 0.25, 1, ("float32 4x8",), ())
            for layer, each in zip(LAYERS, micros, strict=True)
        )
        return ModelResult(name, ran=Ran(3, 100, kernels), is_quantized=name != str(path))

    models = model(str(path), 100, 100, 100, 100), model("int8.onnx", 50, 300, 100, 200)
    return InferenceResult(models, "1.32", {}, None, 2)


def _boxes(picture: str) -> dict[str, tuple[str, str, float]]:
    """Returns the boxes: their figure, shade and height from the top, by name."""
    found = re.findall(r'<title>(.*?): (.*?)</title><rect class="(\w+)".*? y="(\d+)"', picture)
    return {name: (text, shade, float(y)) for name, text, shade, y in found}


def test_a_picture_has_a_box_for_each_layer_below_what_it_reads(tmp_path: Path) -> None:
    picture = graph_text(_result(tmp_path / "net.onnx"), "change", is_picture=True)
    assert _boxes(picture) == {
        "stem/MatMul": ("x 0.50", "s0", 50),
        "block/a/MatMul": ("x 3.00", "s3", 114),
        "block/b/MatMul": ("x 1.00", "s1", 114),
        "&lt;head&gt;/MatMul": ("x 2.00", "s2", 178),
    }
    assert picture.count("<path") == 4  # the Relu and the Add belong to what is in front of them


def test_layers_are_folded_by_module_where_there_are_more_than_there_is_room_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("otel_quant.views.model_graph._MOST_BOXES", 3)
    picture = graph_text(_result(tmp_path / "net.onnx"), "time", is_picture=True)
    assert {name: text for name, (text, *_) in _boxes(picture).items()} == {
        "stem": "50 us", "block": "400 us", "&lt;head&gt;": "200 us",
    }  # fmt: skip


def test_node_data_have_the_figure_of_each_node_by_its_name(tmp_path: Path) -> None:
    """As GraphNodeData of the package ai-edge-model-explorer has it."""
    data = json.loads(graph_text(_result(tmp_path / "net.onnx"), "change", is_picture=False))
    assert data["results"] == {
        name: {"value": value} for name, value in zip(LAYERS, (0.5, 3, 1, 2), strict=True)
    }
    assert [each["stop"] for each in data["gradient"]] == [0, 0.25, 0.5, 0.75, 1]
    assert data.keys() == {"name", "results", "gradient"}


def test_a_picture_of_very_many_nodes_is_refused(tmp_path: Path) -> None:
    many = "\n".join(f"    [n{i}] t{i + 1} = Neg(t{i})" for i in range(5001))
    text = TEXT.replace("a = MatMul(x, w)", f"t0 = MatMul(x, w)\n{many}\n    a = Neg(t5001)")
    result = _result(tmp_path / "net.onnx", text)
    with pytest.raises(
        CostError, match=r"it has 5,008 nodes, and a picture takes 5,000; expected FILE\.json"
    ):
        graph_text(result, "time", is_picture=True)
    assert json.loads(graph_text(result, "time", is_picture=False))["results"]
