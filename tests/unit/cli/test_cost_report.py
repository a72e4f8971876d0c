"""``otel-quant cost``: its whole output and its exit codes."""

from __future__ import annotations

import csv
import json
import textwrap
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import numpy_helper

from otel_quant.cli import main

FLOAT = """
<ir_version: 9, opset_import: ["" : 17]>
net (float[N, 3, 8, 8] image) => (float[N, 10] scores) {
   [stem] c = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1], strides = [2, 2]> (image, cw, cb)
   [act] r = Relu (c)
   [flat] f = Flatten (r)
   [head] scores = MatMul (f, hw)
}
"""
FLOAT_WEIGHTS = {
    "cw": np.ones((4, 3, 3, 3), np.float32),
    "cb": np.ones(4, np.float32),
    "hw": np.ones((64, 10), np.float32),
}

QUANTIZED = """
<ir_version: 9, opset_import: ["" : 17]>
net (float[N, 3, 8, 8] image) => (float[N, 10] scores) {
   [stem] c = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1], strides = [2, 2]> (image, cw, cb)
   [act] r = Relu (c)
   [flat] f = Flatten (r)
   [q] fq = QuantizeLinear (f, s, z)
   [dq] fd = DequantizeLinear (fq, s, z)
   [dqw] hd = DequantizeLinear (hw, s, z)
   [head] scores = MatMul (fd, hd)
}
"""
QUANTIZED_WEIGHTS = {
    **FLOAT_WEIGHTS,
    "hw": np.ones((64, 10), np.int8),
    "s": np.array(0.5, np.float32),
    "z": np.array(0, np.int8),
}

HOSTILE = """
<ir_version: 9, opset_import: ["" : 17, "custom" : 1]>
net (float[2, 3] image) => (unknown) {
   [first] y = Relu (image)
   [second] unknown = custom.Odd (y)
}
"""


def save(path: Path, text: str, weights: dict[str, np.ndarray]) -> Path:
    model = onnx.parser.parse_model(text)
    model.graph.initializer.extend(
        numpy_helper.from_array(value, name) for name, value in weights.items()
    )
    path.write_bytes(model.SerializeToString())
    return path


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a float model and a quantized one."""
    save(tmp_path / "float.onnx", FLOAT, FLOAT_WEIGHTS)
    save(tmp_path / "quantized.onnx", QUANTIZED, QUANTIZED_WEIGHTS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


ASSUMED = "float.onnx: assumed N = 1: --dim N=1 sets it"

IN_CSV = f"otel-quant: {ASSUMED}\n"
"""On standard error: CSV has no place for it."""


def printed(
    capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0, error: str = ""
) -> str:
    """Runs the command; returns what it wrote, its exit code and complaint as expected."""
    assert main(["cost", *arguments]) == code
    written = capsys.readouterr()
    assert written.err == error
    return written.out


@pytest.mark.usefixtures("folder")
def test_a_model_is_a_table_of_nodes_one_of_operators_and_totals(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert (
        printed(capsys, "float.onnx")
        == """\
float.onnx (rules: corrected, view: fused)
assumed N = 1: --dim N=1 sets it

NODE  OP        MACS      %  BACKWARD MACS  MEMORY B      %  MACS/B  PARAMS      %    INPUT  OUTPUT
----  -------  -----  -----  -------------  --------  -----  ------  ------  -----  -------  -------
stem  Conv     1,792  71.79          3,520       704  18.45    1.22     112  14.89  1x3x8x8  1x4x4x4
head  MatMul     640  25.64          1,280     2,600  68.13    0.22     640  85.11     1x64  1x10
act   Relu        64   2.56             64       256   6.71    0.12       0   0.00  1x4x4x4  1x4x4x4
flat  Flatten      0   0.00              0       256   6.71    0.00       0   0.00  1x4x4x4  1x64

OP       NODES   MACS      %  BACKWARD MACS  MEMORY B      %  MACS/B  PARAMS  %
-------  -----  -----  -----  -------------  --------  -----  ------  ------  -----
Conv         1  1,792  71.79          3,520       704  18.45    1.22     112  14.89
MatMul       1    640  25.64          1,280     2,600  68.13    0.22     640  85.11
Relu         1     64   2.56             64       256   6.71    0.12       0  0.00
Flatten      1      0   0.00              0       256   6.71    0.00       0  0.00

MACs                           2,496
MACs of contractions           2,368
backward MACs                  4,864
parameters                     752
weights, bytes                 3,008
file and external data, bytes  3,306
memory, bytes                  3,816
peak of activations, bytes     1,024
node with the most memory      head
its memory, bytes              2,600
precision of contractions      float32 100.00 %
nodes                          4
"""
    )


@pytest.mark.usefixtures("folder")
def test_markdown_has_the_same_tables(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        printed(capsys, "float.onnx", "--format", "markdown")
        == """\
## float.onnx

assumed N = 1: --dim N=1 sets it

Rules: corrected, view: fused

### Per node

| NODE | OP | MACS | % | BACKWARD MACS | MEMORY B | % | MACS/B | PARAMS | % | INPUT | OUTPUT |
| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
| stem | Conv | 1,792 | 71.79 | 3,520 | 704 | 18.45 | 1.22 | 112 | 14.89 | 1x3x8x8 | 1x4x4x4 |
| head | MatMul | 640 | 25.64 | 1,280 | 2,600 | 68.13 | 0.22 | 640 | 85.11 | 1x64 | 1x10 |
| act | Relu | 64 | 2.56 | 64 | 256 | 6.71 | 0.12 | 0 | 0.00 | 1x4x4x4 | 1x4x4x4 |
| flat | Flatten | 0 | 0.00 | 0 | 256 | 6.71 | 0.00 | 0 | 0.00 | 1x4x4x4 | 1x64 |

### Per operator

| OP | NODES | MACS | % | BACKWARD MACS | MEMORY B | % | MACS/B | PARAMS | % |
| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
| Conv | 1 | 1,792 | 71.79 | 3,520 | 704 | 18.45 | 1.22 | 112 | 14.89 |
| MatMul | 1 | 640 | 25.64 | 1,280 | 2,600 | 68.13 | 0.22 | 640 | 85.11 |
| Relu | 1 | 64 | 2.56 | 64 | 256 | 6.71 | 0.12 | 0 | 0.00 |
| Flatten | 1 | 0 | 0.00 | 0 | 256 | 6.71 | 0.00 | 0 | 0.00 |

### Total

|  |  |
| --- | ---: |
| MACs | 2,496 |
| MACs of contractions | 2,368 |
| backward MACs | 4,864 |
| parameters | 752 |
| weights, bytes | 3,008 |
| file and external data, bytes | 3,306 |
| memory, bytes | 3,816 |
| peak of activations, bytes | 1,024 |
| node with the most memory | head |
| its memory, bytes | 2,600 |
| precision of contractions | float32 100.00 % |
| nodes | 4 |
"""
    )


@pytest.mark.usefixtures("folder")
def test_csv_has_one_line_per_node_with_plain_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    header = (
        "model,node,op,macs,macs_share,backward_macs,memory_bytes,memory_share,intensity,params,"
        "params_share,"
        "input,output\n"
    )
    assert printed(capsys, "float.onnx", "--format", "csv", error=IN_CSV) == header + (
        "float.onnx,stem,Conv,1792,0.717949,3520,704,0.184486,1.21739,112,0.148936,1x3x8x8,1x4x4x4\n"
        "float.onnx,head,MatMul,640,0.25641,1280,2600,0.681342,0.22409,640,0.851064,1x64,1x10\n"
        "float.onnx,act,Relu,64,0.025641,64,256,0.067086,0.125,0,0,1x4x4x4,1x4x4x4\n"
        "float.onnx,flat,Flatten,0,0,0,256,0.067086,0,0,0,1x4x4x4,1x64\n"
    )


@pytest.mark.usefixtures("folder")
def test_csv_of_operators_and_of_models(capsys: pytest.CaptureFixture[str]) -> None:
    by_op = printed(
        capsys, "float.onnx", "--format", "csv", "--by", "op", "--top", "1", error=IN_CSV
    )
    assert by_op == (
        "model,op,nodes,macs,macs_share,backward_macs,memory_bytes,memory_share,intensity,params,"
        "params_share\n"
        "float.onnx,Conv,1,1792,0.717949,3520,704,0.184486,1.21739,112,0.148936\n"
    )
    by_model = printed(capsys, "float.onnx", "--format", "csv", "--by", "total", error=IN_CSV)
    assert by_model == (
        "model,macs,macs_contraction,backward_macs,params,weight_bytes,file_bytes,memory_bytes,"
        "peak_activation_bytes,max_memory_node,max_memory_node_bytes,precision,nodes,"
        "quantize_nodes,dequantize_nodes,symbolic_dims,overridden_dims,uncosted_ops,unsized_tensors,"
        "unused_params,unused_weight_bytes\n"
        "float.onnx,2496,2368,4864,752,3008,3306,3816,1024,head,2600,float32 100.00 %,4,0,0,N = 1,,,"
        "0,0,0\n"
    )


@pytest.mark.usefixtures("folder")
def test_json_is_schema_2_as_documented_nodes_in_order_of_execution(
    capsys: pytest.CaptureFixture[str],
) -> None:
    document = json.loads(printed(capsys, "float.onnx", "--format", "json"))

    assert document == {
        "schema": 2,
        "models": [
            {
                "path": "float.onnx",
                "rules": "corrected",
                "view": "fused",
                "assumed": {"N": {"length": 1, "option": "--dim N=1"}},
                "total": {
                    "macs": 2496,
                    "macs_contraction": 2368,
                    "backward_macs": 4864,
                    "params": 752,
                    "weight_bytes": 3008,
                    "memory_bytes": 3816,
                    "peak_activation_bytes": 1024,
                },
                "views": {
                    "fused": {"memory_bytes": 3816, "peak_activation_bytes": 1024},
                    "file": {"memory_bytes": 3816, "peak_activation_bytes": 1024},
                },
                "nodes": [
                    {
                        "name": "stem",
                        "op_type": "Conv",
                        "macs": 1792,
                        "params": 112,
                        "memory_bytes": 704,
                        "moved_bytes": 1472,
                        "intensity": 1792 / 1472,
                        "inputs": [[1, 3, 8, 8], [4, 3, 3, 3], [4]],
                        "outputs": [[1, 4, 4, 4]],
                    },
                    {
                        "name": "act",
                        "op_type": "Relu",
                        "macs": 64,
                        "params": 0,
                        "memory_bytes": 256,
                        "moved_bytes": 512,
                        "intensity": 0.125,
                        "inputs": [[1, 4, 4, 4]],
                        "outputs": [[1, 4, 4, 4]],
                    },
                    {
                        "name": "flat",
                        "op_type": "Flatten",
                        "macs": 0,
                        "params": 0,
                        "memory_bytes": 256,
                        "moved_bytes": 512,
                        "intensity": 0.0,
                        "inputs": [[1, 4, 4, 4]],
                        "outputs": [[1, 64]],
                    },
                    {
                        "name": "head",
                        "op_type": "MatMul",
                        "macs": 640,
                        "params": 640,
                        "memory_bytes": 2600,
                        "moved_bytes": 2856,
                        "intensity": 640 / 2856,
                        "inputs": [[1, 64], [64, 10]],
                        "outputs": [[1, 10]],
                    },
                ],
                "precision": {"float32": 1.0},
                "uncosted_ops": {},
                "symbolic_dims": {"N": 1},
                "max_memory_node": "head",
            }
        ],
    }


@pytest.mark.usefixtures("folder")
def test_memory_is_that_of_kernels_that_run_unless_that_of_the_file_is_asked_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    models = ("float.onnx", "quantized.onnx", "--format", "json")
    fused = json.loads(printed(capsys, *models))
    file = json.loads(printed(capsys, *models, "--view", "file"))
    both = {
        "fused": {"memory_bytes": 1965, "peak_activation_bytes": 1024},
        "file": {"memory_bytes": 2221, "peak_activation_bytes": 1024},
    }
    assert [document["models"][1]["view"] for document in (fused, file)] == ["fused", "file"]
    assert [document["models"][1]["views"] for document in (fused, file)] == [both, both]
    for document, memory in ((fused, 1965), (file, 2221)):
        model = document["models"][1]
        assert model["total"]["memory_bytes"] == memory
        assert sum(node["memory_bytes"] for node in model["nodes"]) == memory
        assert document["comparison"][0]["memory_bytes"]["after"] == memory
    assert printed(capsys, "quantized.onnx", "--view", "file", "--by", "op").startswith(
        "quantized.onnx (rules: corrected, view: file)\n"
    )
    assert printed(capsys, "quantized.onnx", "--rules", "onnx_tool", "--by", "op").startswith(
        "quantized.onnx (rules: onnx_tool, view: file)\n"
    )


@pytest.mark.usefixtures("folder")
def test_a_second_model_is_compared_with_the_first(capsys: pytest.CaptureFixture[str]) -> None:
    out = printed(capsys, "float.onnx", "quantized.onnx", "--by", "total")
    assert (
        out.partition("float.onnx -> ")[2]
        == """\
quantized.onnx (view: fused)

                                 BEFORE    AFTER  CHANGE
-----------------------------  --------  -------  -------------
file and external data, bytes     3,306    1,527  x 0.462
weights, bytes                    3,008    1,093  x 0.363
parameters                          752      754  x 1.003
MACs                              2,496    2,752  x 1.103
MACs of contractions              2,368    2,368  x 1.000
memory, bytes                     3,816    1,965  x 0.515
peak of activations, bytes        1,024    1,024  x 1.000
nodes                                 4        7  +3
QuantizeLinear nodes                  0        1  +1
DequantizeLinear nodes                0        2  +2
nodes without known MACs              0        0  +0
contraction MACs in float32    100.00 %  72.97 %  -27.03 points
contraction MACs in int8         0.00 %  27.03 %  +27.03 points
"""
    )
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
        }
    ]


@pytest.mark.usefixtures("folder")
def test_a_comparison_without_the_models_is_printed_in_every_format(
    capsys: pytest.CaptureFixture[str],
) -> None:
    models = ("float.onnx", "quantized.onnx")
    table = printed(capsys, *models, "--by", "comparison")
    assumed = (
        "float.onnx: assumed N = 1: --dim N=1 sets it\n"
        "quantized.onnx: assumed N = 1: --dim N=1 sets it\n"
    )
    assert table.startswith(f"float.onnx -> quantized.onnx (view: fused)\n{assumed}\n")
    table = table.replace(assumed, "")
    assert printed(capsys, *models, "--by", "total").endswith(f"\n{table}")
    page = printed(capsys, *models, "--by", "comparison", "--format", "markdown")
    assert (
        page
        == """\
## float.onnx -\\> quantized.onnx (view: fused)

float.onnx: assumed N = 1: --dim N=1 sets it

quantized.onnx: assumed N = 1: --dim N=1 sets it

|  | BEFORE | AFTER | CHANGE |
| --- | ---: | ---: | ---: |
| file and external data, bytes | 3,306 | 1,527 | x 0.462 |
| weights, bytes | 3,008 | 1,093 | x 0.363 |
| parameters | 752 | 754 | x 1.003 |
| MACs | 2,496 | 2,752 | x 1.103 |
| MACs of contractions | 2,368 | 2,368 | x 1.000 |
| memory, bytes | 3,816 | 1,965 | x 0.515 |
| peak of activations, bytes | 1,024 | 1,024 | x 1.000 |
| nodes | 4 | 7 | +3 |
| QuantizeLinear nodes | 0 | 1 | +1 |
| DequantizeLinear nodes | 0 | 2 | +2 |
| nodes without known MACs | 0 | 0 | +0 |
| contraction MACs in float32 | 100.00 % | 72.97 % | -27.03 points |
| contraction MACs in int8 | 0.00 % | 27.03 % | +27.03 points |
"""
    )
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
"""
    )


@pytest.mark.usefixtures("folder")
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


@pytest.mark.usefixtures("folder")
def test_the_documentation_shows_what_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    page = (Path(__file__).parents[3] / "docs" / "cost.md").read_text()

    example = page.partition("```json\n")[2].partition("```")[0]
    assert example == printed(capsys, "float.onnx", "--format", "json")
    comparison = printed(capsys, "float.onnx", "quantized.onnx", "--by", "total")
    table = comparison[comparison.index("float.onnx -> ") :]
    assert textwrap.indent(table, "    ") in page


def test_an_unknown_shape_is_null_in_json_and_a_question_mark_in_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    save(Path("m.onnx"), HOSTILE, {})

    (model,) = json.loads(printed(capsys, "m.onnx", "--format", "json"))["models"]
    assert model["nodes"][1] == {
        "name": "second",
        "op_type": "custom:Odd",
        "macs": None,
        "params": 0,
        "memory_bytes": None,
        "moved_bytes": None,
        "intensity": None,
        "inputs": [[2, 3]],
        "outputs": [None],
        "unknown_reason": "node 'second' (custom:Odd): no rule is known for this operator; "
        "--rules-from gives it one",
    }
    assert model["uncosted_ops"] == {"custom:Odd": 1}
    assert model["unknown_nodes"] == [
        {
            "lack": "rule",
            "ops": {"custom:Odd": 1},
            "first": "second",
            "reason": "node 'second' (custom:Odd): no rule is known for this operator; "
            "--rules-from gives it one",
        }
    ]
    assert (
        printed(capsys, "m.onnx")
        == """\
m.onnx (rules: corrected, view: fused)

NODE    OP          MACS       %  BACKWARD MACS  MEMORY B       %  MACS/B  PARAMS  %  INPUT  OUTPUT
------  ----------  ----  ------  -------------  --------  ------  ------  ------  -  -----  ------
first   Relu           6  100.00              6        24  100.00    0.12       0  -    2x3  2x3
second  custom:Odd     ?       -              ?         ?       -       ?       0  -    2x3  ?

OP          NODES  MACS       %  BACKWARD MACS  MEMORY B       %  MACS/B  PARAMS  %
----------  -----  ----  ------  -------------  --------  ------  ------  ------  -
Relu            1     6  100.00              6        24  100.00    0.12       0  -
custom:Odd      1     ?       -              ?         ?       -       ?       0  -

MACs                           6
MACs of contractions           0
backward MACs                  6
parameters                     0
weights, bytes                 0
file and external data, bytes  125
memory, bytes                  24
peak of activations, bytes     48
node with the most memory      first
its memory, bytes              24
nodes                          2
results of unknown size        1
nodes without a rule           custom:Odd 1
  the first                    node 'second' (custom:Odd): no rule is known for this operator; --rules-from gives it one
"""
    )


def test_control_characters_in_names_are_escaped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    path = save(Path("m.onnx"), HOSTILE, {})
    model = onnx.load(path)
    model.graph.node[0].name = "a\n\x1b[31m|<b>\u202e"
    path.write_bytes(model.SerializeToString())

    assert (
        printed(capsys, "m.onnx", "--by", "node", "--top", "1")
        == """\
m.onnx (rules: corrected, view: fused)

NODE                   OP    MACS       %  BACKWARD MACS  MEMORY B       %  MACS/B  PARAMS  %  INPUT  OUTPUT
---------------------  ----  ----  ------  -------------  --------  ------  ------  ------  -  -----  ------
a\\n\\x1b[31m|<b>\\u202e  Relu     6  100.00              6        24  100.00    0.12       0  -    2x3  2x3
(1 more)
"""
    )
    lines = printed(capsys, "m.onnx", "--format", "csv", "--top", "1")
    assert lines.splitlines()[1].split(",")[1] == "a\\n\\x1b[31m|<b>\\u202e"
    page = printed(capsys, "m.onnx", "--format", "markdown", "--by", "node", "--top", "1")
    assert page.splitlines()[8].startswith("| a\\\\n\\\\x1b\\[31m\\|\\<b\\>\\\\u202e | Relu |")
    document = printed(capsys, "m.onnx", "--format", "json")
    assert document.isascii()
    assert json.loads(document)["models"][0]["nodes"][0]["name"] == "a\n\x1b[31m|<b>\u202e"


@pytest.mark.parametrize(
    ("name", "cell"),
    [
        ("=1+1", "'=1+1"),
        ("+1", "'+1"),
        ("-1", "'-1"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("  =1", "'  =1"),
        ("\t=1", "\\t=1"),
        ('"=1', "'\"=1"),
        ("\uff1d1", "'\uff1d1"),
        ("a;=1", "a;'=1"),
        ("a,=1", "a,'=1"),
        ("/model/a-b+c=d@e", "/model/a-b+c=d@e"),
    ],
)
def test_no_name_is_read_as_a_spreadsheet_formula(
    name: str,
    cell: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    path = save(Path("m.onnx"), HOSTILE, {})
    model = onnx.load(path)
    model.graph.node[0].name = name
    path.write_bytes(model.SerializeToString())

    written = printed(capsys, "m.onnx", "--format", "csv", "--top", "1")
    assert list(csv.reader(written.splitlines()))[1][1] == cell
    document = json.loads(printed(capsys, "m.onnx", "--format", "json", "--top", "1"))
    assert document["models"][0]["nodes"][0]["name"] == name


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("arguments", "order"),
    [
        ((), ["stem", "head", "act", "flat"]),
        (("--sort", "macs"), ["stem", "head", "act", "flat"]),
        (("--sort", "memory"), ["head", "stem", "act", "flat"]),
        (("--sort", "params"), ["head", "stem", "act", "flat"]),
        (("--sort", "order"), ["stem", "act", "flat", "head"]),
        (("--sort", "order", "--top", "3"), ["stem", "act", "flat"]),
    ],
)
def test_nodes_are_in_the_requested_order(
    arguments: tuple[str, ...], order: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    out = printed(capsys, "float.onnx", "--format", "csv", *arguments, error=IN_CSV)
    lines = out.splitlines()[1:]
    assert [line.split(",")[1] for line in lines] == order


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    "notation", ["image=5x3x8x8", "image:5x3x8x8", "image:f32:5x3x8x8", "image:float32:5x3x8x8"]
)
def test_an_input_may_be_given_in_either_notation(
    notation: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out = printed(capsys, "float.onnx", "--format", "json", "--input", notation)
    (model,) = json.loads(out)["models"]
    assert (model["total"]["macs_contraction"], model["symbolic_dims"]) == (5 * 2368, {})


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("form", ["table", "markdown", "csv", "json"])
def test_an_overridden_length_is_in_every_format(
    form: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ("--input", "image=1x3x16x8", "--by", "total", "--format", form)
    out = printed(capsys, "float.onnx", *arguments)
    assert {
        "table": "\noverridden image[2] = 16 (model: 8)\n\n",
        "markdown": "\n\noverridden image\\[2\\] = 16 (model: 8)\n\nRules: ",
        "csv": ",image[2] = 16 (model: 8),MatMul 1,",
        "json": '"overridden_dims": {\n        "image[2]": {"model": 8, "given": 16}\n',
    }[form] in out
    printed(
        capsys, "float.onnx", *arguments, "--strict", code=3,
        error="otel-quant: float.onnx: nodes without known MACs: 1, results of unknown size: 1; "
        "the totals leave them out\n",
    )  # fmt: skip


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("by", ["node", "op"])
def test_assumed_lengths_are_shown_without_totals_too(
    by: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert printed(capsys, "float.onnx", "--by", by).startswith(
        "float.onnx (rules: corrected, view: fused)\nassumed N = 1: --dim N=1 sets it\n\n"
    )
    page = printed(capsys, "float.onnx", "--by", by, "--format", "markdown")
    assert page.startswith("## float.onnx\n\nassumed N = 1: --dim N=1 sets it\n\nRules: ")


@pytest.mark.usefixtures("folder")
def test_shares_and_totals_are_those_of_all_nodes_whatever_is_shown(
    capsys: pytest.CaptureFixture[str],
) -> None:
    whole = json.loads(printed(capsys, "float.onnx", "--format", "json"))["models"][0]
    cut = json.loads(
        printed(capsys, "float.onnx", "--format", "json", "--top", "1", "--sort", "memory")
    )["models"][0]

    assert [node["name"] for node in cut["nodes"]] == ["head"]
    assert {**cut, "nodes": whole["nodes"]} == whole


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("arguments", "code", "error"),
    [
        (
            ("missing.onnx",),
            1,
            "missing.onnx: cannot be opened: No such file or directory; expected an ONNX file",
        ),
        (
            ("float.onnx", "--input", "image"),
            2,
            "--input: 'image' is not understood; "
            "expected name=1x3x224x224 or name:f32:1x3x224x224[:values]",
        ),
        (
            ("float.onnx", "--input", "image=1x3", "--input", "image=1x4"),
            2,
            "--input: 'image' is given twice",
        ),
        (
            ("float.onnx", "--input", "sound=1x3"),
            1,
            "float.onnx: has no input 'sound' (--input 'sound=1x3'); expected one of 'image'",
        ),
        (
            ("float.onnx", "--input", "image=1x3"),
            1,
            "float.onnx: input 'image' is given shape [1, 3] (--input 'image=1x3'); "
            "expected 4 dimensions as in ['N', 3, 8, 8]",
        ),
        (
            ("float.onnx", "--input", "image:i64:1x3x8x8"),
            1,
            "float.onnx: input 'image' is given type int64 (--input 'image:i64:1x3x8x8'); "
            "expected float32 as the model declares it",
        ),
        (
            ("float.onnx", "--by", "comparison"),
            2,
            "--by comparison: one model is given; expected two or more",
        ),
        ((".",), 1, ".: is not a regular file; expected an ONNX file"),
    ],
)
def test_an_error_is_one_line_and_an_exit_code(
    arguments: tuple[str, ...], code: int, error: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert printed(capsys, *arguments, code=code, error=f"otel-quant: {error}\n") == ""


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--top", "0"), "argument --top: '0' is not a number of lines from 1"),
        (("--top", "-1"), "argument --top: '-1' is not a number of lines from 1"),
        (("--top", "\x1b[31m"), r"argument --top: '\x1b[31m' is not a number of lines from 1"),
        (
            ("--time-limit", "nan"),
            "argument --time-limit: 'nan' is not a number of seconds above 0, at most 86400",
        ),
        (("--rules", "exact"), "argument --rules: invalid choice: 'exact'"),
        (("--format", "xml"), "argument --format: invalid choice: 'xml'"),
    ],
)
def test_a_wrong_command_line_exits_with_2(
    arguments: tuple[str, ...], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["cost", "float.onnx", *arguments])

    written = capsys.readouterr()
    assert caught.value.code == 2
    assert written.out == ""
    last = written.err.splitlines()[-1]
    assert last.startswith(f"otel-quant cost: error: {complaint}")


@pytest.mark.usefixtures("folder")
def test_one_bad_model_among_others_is_an_error_and_the_others_are_costed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = printed(
        capsys, "float.onnx", "missing.onnx", "quantized.onnx", "--format", "json", code=1,
        error="otel-quant: missing.onnx: cannot be opened: No such file or directory; "
        "expected an ONNX file\n",
    )  # fmt: skip

    document = json.loads(out)
    assert [model["path"] for model in document["models"]] == ["float.onnx", "quantized.onnx"]
    assert "comparison" not in document


def test_strict_makes_unknown_figures_an_error_with_exit_code_3(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    save(Path("odd.onnx"), HOSTILE, {})
    save(Path("float.onnx"), FLOAT, FLOAT_WEIGHTS)

    printed(capsys, "float.onnx", "--strict", "--dim", "N=1")
    printed(
        capsys, "float.onnx", "--strict", code=3,
        error="otel-quant: float.onnx: assumed N = 1: --dim N=1 sets it\n",
    )  # fmt: skip
    printed(capsys, "odd.onnx")
    out = printed(
        capsys, "odd.onnx", "--strict", code=3,
        error="otel-quant: odd.onnx: nodes without known MACs: 1, results of unknown size: 1; "
        "the totals leave them out\n",
    )  # fmt: skip
    assert out.startswith("odd.onnx (rules: corrected, view: fused)\n")
