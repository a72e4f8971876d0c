"""``otel-quant cost``: modules, tensors, names in shapes."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import onnx.parser
import pytest

from otel_quant.cli import main

MODEL = """
<ir_version: 10, opset_import: ["": 17, "my": 1]>
g (float[2, 3] x, float[3, 4] w, float[4, 5] v) => (float[2, 5] y) {
  ["/encoder/layer.0/MatMul"] a = MatMul (x, w)
  ["/encoder/layer.0/act/Relu"] b = Relu (a)
  ["/head/MatMul"] c = MatMul (b, v)
  ["Relu_3"] y = Relu (c)
}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write(MODEL)
    return tmp_path


def write(text: str) -> None:
    Path("m.onnx").write_bytes(onnx.parser.parse_model(text).SerializeToString())


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["cost", *arguments])
    return code, *capsys.readouterr()


def test_modules_are_a_tree_with_the_sums_of_their_content(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(capsys, "m.onnx", "--by", "module") == (
        0,
        """\
m.onnx (rules: corrected, view: fused)

MODULE       NODES  MACS      %  BACKWARD MACS  MEMORY B      %  MACS/B  PARAMS  %
-----------  -----  ----  -----  -------------  --------  -----  ------  ------  -
encoder          2    32  39.02             56        64  44.44    0.19       0  -
  layer.0        2    32  39.02             56        64  44.44    0.19       0  -
    act          1     8   9.76              8        32  22.22    0.12       0  -
head             1    40  48.78             80        40  27.78    0.26       0  -
(no module)      1    10  12.20             10        40  27.78    0.12       0  -
""",
        "",
    )


def test_modules_are_sorted_among_their_siblings_and_have_paths_in_csv_and_json(
    capsys: pytest.CaptureFixture[str],
) -> None:
    _, out, _ = run(
        capsys, "m.onnx", "--by", "module", "--sort", "macs", "--top", "4", "--format", "csv"
    )
    assert [line.split(",")[1:4] for line in out.splitlines()] == [
        ["module", "nodes", "macs"],
        ["head", "1", "40"],
        ["encoder", "2", "32"],
        ["encoder/layer.0", "2", "32"],
        ["encoder/layer.0/act", "1", "8"],
    ]
    _, out, _ = run(capsys, "m.onnx", "--by", "module", "--top", "1", "--format", "json")
    assert json.loads(out)["models"][0]["modules"] == [
        {
            "module": "encoder",
            "nodes": 2,
            "macs": 32,
            "params": 0,
            "memory_bytes": 64,
            "intensity": 32 / (4 * (6 + 12 + 8) + 4 * (8 + 8)),
        }
    ]


@pytest.mark.parametrize(
    ("name", "modules"),
    [
        ("model.layers.0.Add", ["model", "  layers", "    0"]),
        ("/".join(["a"] * 40), ["  " * depth + "a" for depth in range(32)]),
        ("//a///b", ["a"]),
        ("/", ["(no module)"]),
    ],
)
def test_module_names_of_any_form_make_a_tree(
    name: str, modules: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    write(f"""
        <ir_version: 10, opset_import: ["": 17]> g (float[2] x) => (float[2] y)
        {{ ["{name}"] y = Relu (x) }}
    """)
    _, out, _ = run(capsys, "m.onnx", "--by", "module")
    lines = out.splitlines()[4:]
    assert [line[: len(module)] for line, module in zip(lines, modules, strict=True)] == modules


def test_tensors_have_type_shape_and_node(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "m.onnx", "--by", "tensor", "--top", "3") == (
        0,
        """\
m.onnx (rules: corrected, view: fused)

TENSOR  TYPE     SHAPE  BYTES  NODE
------  -------  -----  -----  -------------------------
a       float32  2x4       32  /encoder/layer.0/MatMul
b       float32  2x4       32  /encoder/layer.0/act/Relu
c       float32  2x5       40  /head/MatMul
(1 more)
""",
        "",
    )
    _, out, _ = run(
        capsys, "m.onnx", "--by", "tensor", "--sort", "memory", "--top", "1", "--format", "csv"
    )
    assert out == "model,tensor,dtype,shape,bytes,node\nm.onnx,c,float32,2x5,40,/head/MatMul\n"
    _, out, _ = run(capsys, "m.onnx", "--by", "tensor", "--format", "json")
    assert json.loads(out)["models"][0]["tensors"][-1] == {
        "name": "y", "dtype": "float32", "shape": [2, 5], "bytes": 40, "node": "Relu_3",
    }  # fmt: skip


def test_names_in_a_shape_are_set_with_dim(capsys: pytest.CaptureFixture[str]) -> None:
    write("""
        <ir_version: 10, opset_import: ["": 17]> g (float[a, b, c] x) => (float[a, b, c] y)
        { y = Relu (x) }
    """)
    given = ("m.onnx", "--input", "x:1xhxw", "--dim", "h=3")
    code, out, _ = run(capsys, *given, "--dim", "w=5", "--format", "json", "--strict")
    assert (code, json.loads(out)["models"][0]["nodes"][0]["inputs"]) == (0, [[1, 3, 5]])
    assert run(capsys, *given) == (
        1,
        "",
        "otel-quant: input shape: 'x' has a length 'w', which is not given (--input 'x:1xhxw'); "
        "expected --dim w=LENGTH as well\n",
    )


def test_an_excluded_operator_is_left_out_of_sums_and_named_first(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, out, _ = run(capsys, "m.onnx", "--by", "op", "--exclude", "Relu")
    assert (code, out.splitlines()[1]) == (0, "excluded Relu 2")
    assert "Relu" not in out.split("\n", 2)[2]
    _, out, _ = run(capsys, "m.onnx", "--exclude", "MatMul", "--format", "json")
    (model,) = json.loads(out)["models"]
    assert model["excluded"] == {"MatMul": 2}
    assert model["total"] == {
        "macs": 18,
        "macs_contraction": 0,
        "backward_macs": 18,
        "params": 0,
        "weight_bytes": 0,
        "memory_bytes": 72,
        "peak_activation_bytes": 4 * (6 + 12 + 20 + 8),
    }
    assert run(capsys, "m.onnx", "--exclude", "Conv", "--by", "total")[::2] == (
        1,
        "otel-quant: --exclude: no model has an operator 'Conv'; expected one that --by op lists\n",
    )
