"""A model written with inferred shapes: what changes, what does not, and when it is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import numpy_helper

from otel_quant.cost import CostError, analyze, write_with_shapes

OPEN = """
<ir_version: 10, opset_import: ["": 17]>
g (float[N, 4] x, bool c) => (float[N, M] y, seq(float[N, 4]) s)
<float[4, 3] w, float[N, 4] odd> {
  a = Relu (x)
  odd = Neg (a)
  s = SequenceConstruct (a, odd)
  k = If (c) <
    then_branch = t () => (float[] p) { p = Abs (a) },
    else_branch = e () => (float[] q) { q = Neg (a) } >
  n = NonZero (k)
  y = MatMul (odd, w)
}
"""


def saved(tmp_path: Path, text: str = OPEN) -> Path:
    model = onnx.parser.parse_model(text)
    weight = np.arange(12, dtype=np.float32).reshape(4, 3)
    model.graph.initializer.append(numpy_helper.from_array(weight, "w"))
    for info in list(model.graph.value_info):
        if info.name == "w":
            model.graph.value_info.remove(info)
    path = tmp_path / "m.onnx"
    onnx.save(model, path)
    return path


def lengths(info: onnx.ValueInfoProto) -> list[int | str]:
    return [dim.dim_param or dim.dim_value for dim in info.type.tensor_type.shape.dim]


def test_declared_shapes_become_those_that_were_analyzed(tmp_path: Path) -> None:
    path = saved(tmp_path)
    cost = analyze(path, dims={"N": 6}, tensors=True)
    write_with_shapes(path, cost, tmp_path / "out.onnx")

    graph = onnx.load(tmp_path / "out.onnx").graph
    onnx.checker.check_model(str(tmp_path / "out.onnx"), full_check=True)
    assert {info.name: lengths(info) for info in graph.value_info} == {
        "a": [6, 4], "odd": [6, 4], "k": [6, 4], "n": [2, 0],
    }  # fmt: skip
    assert [lengths(info) for info in graph.input] == [[6, 4], []]
    assert [lengths(graph.output[0]), graph.output[1]] == [
        [6, 3], onnx.load(path).graph.output[1],
    ]  # fmt: skip
    before = onnx.load(path).graph
    assert (graph.node, graph.initializer) == (before.node, before.initializer)


def test_what_would_not_be_true_is_not_written(tmp_path: Path) -> None:
    path, out = saved(tmp_path), tmp_path / "out.onnx"
    for cost, problem in (
        (analyze(path, tensors=True), "N = 1 is assumed, .*; expected --dim N=1 or another length"),
        (analyze(path, dims={"N": 2}), "its tensors are not listed; expected tensors=True"),
    ):
        with pytest.raises(CostError, match=problem):
            write_with_shapes(path, cost, out)
    fixed = saved(tmp_path, OPEN.replace("[N, 4] x", "[2, 4] x"))
    cost = analyze(fixed, inputs={"x": (3, 4), "c": ()}, dims={"N": 3}, tensors=True)
    with pytest.raises(CostError, match=r"x\[0\] is not the model's own"):
        write_with_shapes(fixed, cost, out)
    assert not out.exists()


def test_the_model_itself_is_not_overwritten_and_errors_leave_nothing(tmp_path: Path) -> None:
    path = saved(tmp_path)
    content = path.read_bytes()
    cost = analyze(path, dims={"N": 6}, tensors=True)
    with pytest.raises(CostError, match="is the model itself; expected another file"):
        write_with_shapes(path, cost, path)
    with pytest.raises(CostError, match="cannot be written: No such file or directory"):
        write_with_shapes(path, cost, tmp_path / "none" / "out.onnx")
    assert path.read_bytes() == content
    path.write_bytes(content[:-1])
    with pytest.raises(CostError, match="onnx cannot read or write it: "):
        write_with_shapes(path, cost, tmp_path / "out.onnx")
    assert [each.name for each in tmp_path.iterdir()] == ["m.onnx"]


def test_external_weights_stay_where_they_are_and_need_not_be_there(tmp_path: Path) -> None:
    path = saved(tmp_path)
    onnx.save(onnx.load(path), path, save_as_external_data=True, location="w.bin", size_threshold=0)
    (tmp_path / "w.bin").unlink()
    cost = analyze(path, dims={"N": 6}, tensors=True)
    write_with_shapes(path, cost, tmp_path / "out.onnx")
    before, after = (
        onnx.load(tmp_path / name, load_external_data=False).graph.initializer[0]
        for name in ("m.onnx", "out.onnx")
    )
    assert before == after
    assert sorted(each.name for each in tmp_path.iterdir()) == ["m.onnx", "out.onnx"]
    (tmp_path / "other").mkdir()
    with pytest.raises(CostError, match="is not where the model's external data lies; expected a "):
        write_with_shapes(path, cost, tmp_path / "other" / "out.onnx")
