"""``otel-quant cost``: its whole output, in each format; modules, tensors, names in shapes."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path

import onnx
import onnx.parser
import pytest

from otel_quant.cost.graph import runtime_here
from tests.fixtures.commands import Commands
from tests.unit.cli.costed_models import HOSTILE, IN_CSV, Cost, save

FLAT = """
<ir_version: 9, opset_import: ["" : 17]>
net (float[2, 3] x) => (float[2, 3] y) { y = Flatten (x) }
"""
SUMMARY = """\
float.onnx takes 3.31 kB and has 752 parameters and 2,496 MACs.

float.onnx (rules: corrected, view: fused)
assumed N = 1: --dim N=1 sets it

MACs            2,496 (2,368 of contractions)
parameters      752 (3.01 kB)
bytes moved     3.56 kB of constants and results; activations at most 1.02 kB at once
nodes           4 (--by node lists them)
largest node 1  stem (Conv): 1,792 MACs (71.79 %), 704 B
largest node 2  head (MatMul): 640 MACs (25.64 %), 2.60 kB
largest node 3  act (Relu): 64 MACs (2.56 %), 0 B
"""
NODES = """\
NODE  OP        MACS      %  BACKWARD MACS  MOVED B      %  MACS/B  PARAMS      %    INPUT  OUTPUT
----  -------  -----  -----  -------------  -------  -----  ------  ------  -----  -------  -------
stem  Conv     1,792  71.79          3,520      704  19.78    1.22     112  14.89  1x3x8x8  1x4x4x4
head  MatMul     640  25.64          1,280    2,600  73.03    0.22     640  85.11     1x64  1x10
act   Relu        64   2.56             64        0   0.00       ?       0   0.00  1x4x4x4  1x4x4x4
flat  Flatten      0   0.00              0      256   7.19    0.00       0   0.00  1x4x4x4  1x64
"""
OPERATORS = """\
OP       NODES   MACS      %  BACKWARD MACS  MOVED B      %  MACS/B  PARAMS      %
-------  -----  -----  -----  -------------  -------  -----  ------  ------  -----
Conv         1  1,792  71.79          3,520      704  19.78    1.22     112  14.89
MatMul       1    640  25.64          1,280    2,600  73.03    0.22     640  85.11
Relu         1     64   2.56             64        0   0.00       ?       0   0.00
Flatten      1      0   0.00              0      256   7.19    0.00       0   0.00
"""
TOTAL = """\
MACs                           2,496
MACs of contractions           2,368
backward MACs                  4,864
parameters                     752
weights, bytes                 3,008
file and external data, bytes  3,306
bytes moved                    3,560
peak of activations, bytes     1,024
node that moves most bytes     head
bytes that it moves            2,600
weights stored in              float32 100.00 %
contractions ask for           float32 100.00 %
nodes                          4
"""


@pytest.mark.usefixtures("two_models")
def test_a_model_is_printed_in_ten_lines_or_as_the_requested_table(cost: Cost) -> None:
    assert cost("float.onnx") == SUMMARY
    head = SUMMARY[: SUMMARY.index("\n\nMACs") + 2]
    for by, table in (("node", NODES), ("op", OPERATORS), ("total", TOTAL)):
        assert cost("float.onnx", "--by", by) == head + table
    save(Path("flat.onnx"), FLAT, {})
    total = cost("flat.onnx", "--by", "total").splitlines()
    assert {"MACs                           0", "parameters                     0"} <= {*total}
    first = cost("float.onnx", "--sort", "memory", "--top", "1").splitlines()[-1]
    assert first == "largest node 1  head (MatMul): 640 MACs (25.64 %), 2.60 kB"


@pytest.mark.usefixtures("two_models")
def test_csv_has_one_line_per_node_with_plain_numbers(cost: Cost) -> None:
    header = (
        "model,node,op,macs,macs_share,backward_macs,memory_bytes,memory_share,intensity,params,"
        "params_share,"
        "input,output\n"
    )
    assert cost("float.onnx", "--format", "csv", error=IN_CSV) == header + (
        "float.onnx,stem,Conv,1792,0.717948717949,3520,704,0.197752808989,1.21739130435,112,0.148936170213,1x3x8x8,1x4x4x4\n"
        "float.onnx,head,MatMul,640,0.25641025641,1280,2600,0.730337078652,0.224089635854,640,0.851063829787,1x64,1x10\n"
        "float.onnx,act,Relu,64,0.025641025641,64,0,0,,0,0,1x4x4x4,1x4x4x4\n"
        "float.onnx,flat,Flatten,0,0,0,256,0.0719101123596,0,0,0,1x4x4x4,1x64\n"
    )


@pytest.mark.usefixtures("two_models")
def test_csv_of_operators_and_of_models(cost: Cost) -> None:
    by_op = cost("float.onnx", "--format", "csv", "--by", "op", "--top", "1", error=IN_CSV)
    assert by_op == (
        "model,op,nodes,macs,macs_share,backward_macs,memory_bytes,memory_share,intensity,params,"
        "params_share\n"
        "float.onnx,Conv,1,1792,0.717948717949,3520,704,0.197752808989,1.21739130435,112,0.148936170213\n"
    )
    by_model = cost("float.onnx", "--format", "csv", "--by", "total", error=IN_CSV)
    assert by_model == (
        "model,macs,macs_contraction,backward_macs,params,weight_bytes,file_bytes,memory_bytes,"
        "peak_activation_bytes,max_memory_node,max_memory_node_bytes,stored,precision,expected_precision,nodes,"
        "quantize_nodes,dequantize_nodes,symbolic_dims,overridden_dims,uncosted_ops,unsized_tensors,"
        "unused_params,unused_weight_bytes\n"
        "float.onnx,2496,2368,4864,752,3008,3306,3560,1024,head,2600,float32 100.00 %,float32 100.00 %,,4,0,0,N = 1,,,"
        "0,0,0\n"
    )


@pytest.mark.usefixtures("two_models")
def test_memory_is_counted_for_fused_kernels_unless_the_file_view_is_requested(cost: Cost) -> None:
    models = ("float.onnx", "quantized.onnx", "--format", "json")
    for options, view, memory in (((), "fused", 1709), (("--view", "file"), "file", 2221),
                                  (("--rules", "onnx_tool"), "file", 4776)):  # fmt: skip
        document = json.loads(cost(*models, *options))
        assert document["models"][1]["view"] == view
        assert document["models"][1]["total"]["memory_bytes"] == memory
        assert document["comparison"][0]["memory_bytes"]["after"] == memory


@pytest.mark.usefixtures("two_models")
def test_the_documentation_shows_the_printed_output(cost: Cost) -> None:
    page = (Path(__file__).parents[3] / "docs" / "cost.md").read_text()

    example = page.partition("```json\n")[2].partition("```")[0]
    assert example == cost("float.onnx", "--format", "json")
    comparison = cost("float.onnx", "quantized.onnx", "--by", "total")
    table = comparison[comparison.index("float.onnx -> ") :]
    assert textwrap.indent(table, "    ") in page


def test_an_unknown_shape_is_null_in_json_and_a_question_mark_in_tables(cost: Cost) -> None:
    save(Path("m.onnx"), HOSTILE, {})

    (model,) = json.loads(cost("m.onnx", "--format", "json"))["models"]
    assert model["nodes"][1] == {
        "name": "second", "op_type": "custom:Odd", "macs": None, "params": 0, "memory_bytes": None,
        "moved_bytes": None, "intensity": None, "inputs": [[2, 3]], "outputs": [None],
        "unknown_reason": "node 'second' (custom:Odd): no rule is known for this operator",
    }  # fmt: skip
    assert model["uncosted_ops"] == {"custom:Odd": 1}
    assert model["unknown_nodes"] == [
        {
            "lack": "rule",
            "ops": {"custom:Odd": 1},
            "first": "second",
            "reason": "node 'second' (custom:Odd): no rule is known for this operator",
        }
    ]
    assert [cost("m.onnx", "--by", by).splitlines()[-1] for by in ("node", "op")] == [
        "second  custom:Odd     ?       -              ?        ?       -       ?       0  -    2x3  ?",
        "custom:Odd      1     ?       -              ?        ?       -       ?       0  -",
    ]
    lines = cost("m.onnx").splitlines()
    assert lines[-1] == "largest node 2        second (custom:Odd): ? MACs, ?"
    assert lines[-4].startswith("nodes without a rule  custom:Odd 1")


@pytest.mark.usefixtures("two_models")
@pytest.mark.parametrize(
    ("arguments", "order"),
    [
        ((), ["stem", "head", "act", "flat"]),
        (("--sort", "macs"), ["stem", "head", "act", "flat"]),
        (("--sort", "memory"), ["head", "stem", "flat", "act"]),
        (("--sort", "params"), ["head", "stem", "act", "flat"]),
        (("--sort", "order"), ["stem", "act", "flat", "head"]),
        (("--sort", "order", "--top", "3"), ["stem", "act", "flat"]),
    ],
)
def test_nodes_are_in_the_requested_order(
    arguments: tuple[str, ...], order: list[str], cost: Cost
) -> None:
    out = cost("float.onnx", "--format", "csv", *arguments, error=IN_CSV)
    lines = out.splitlines()[1:]
    assert [line.split(",")[1] for line in lines] == order


@pytest.mark.usefixtures("two_models")
@pytest.mark.parametrize("form", ["table", "csv", "json"])
def test_an_overridden_length_that_does_not_fit_is_in_every_format_and_an_error(
    form: str, cost: Cost
) -> None:
    arguments = ("--input", "image=1x3x16x8", "--by", "total", "--format", form)
    error = (
        "otel-quant: float.onnx: node 'head' (MatMul): summed lengths of the operands differ: 128, 64 (operands 1x128 and 64x10); "
        "expected lengths that the model takes; the totals leave out what depends on it\n"
    )
    out = cost("float.onnx", *arguments, code=1, error=error)
    assert {
        "table": "\noverridden image[2] = 16 (model: 8)\n\n",
        "csv": ",image[2] = 16 (model: 8),MatMul 1,",
        "json": '"overridden_dims": {\n        "image[2]": {"model": 8, "given": 16}\n',
    }[form] in out


@pytest.mark.usefixtures("two_models")
def test_shares_and_totals_include_nodes_that_are_not_shown(cost: Cost) -> None:
    whole = json.loads(cost("float.onnx", "--format", "json"))["models"][0]
    cut = json.loads(cost("float.onnx", "--format", "json", "--top", "1", "--sort", "memory"))[
        "models"
    ][0]

    assert [node["name"] for node in cut["nodes"]] == ["head"]
    assert {**cut, "nodes": whole["nodes"]} == whole


@pytest.mark.usefixtures("two_models")
def test_a_second_model_is_compared_with_the_first(cost: Cost) -> None:
    document = json.loads(cost("float.onnx", "quantized.onnx", "--format", "json"))
    assert document["comparison"] == [
        {
            "baseline": "float.onnx",
            "path": "quantized.onnx",
            "file_bytes": {"before": 3306, "after": 1527, "ratio": 1527 / 3306},
            "weight_bytes": {"before": 3008, "after": 1093, "ratio": 1093 / 3008},
            "params": {"before": 752, "after": 754, "ratio": 754 / 752},
            "macs": {"before": 2496, "after": 2752, "ratio": 2752 / 2496},
            "macs_contraction": {"before": 2368, "after": 2368, "ratio": 1.0},
            "memory_bytes": {"before": 3560, "after": 1709, "ratio": 1709 / 3560},
            "peak_activation_bytes": {"before": 1024, "after": 1024, "ratio": 1.0},
            "nodes": {"before": 4, "after": 7},
            "quantize_nodes": {"before": 0, "after": 1},
            "dequantize_nodes": {"before": 0, "after": 2},
            "uncosted_nodes": {"before": 0, "after": 0},
            "precision": {"float32": {"before": 1.0, "after": 1728 / 2368}, "int8": {"before": 0.0, "after": 640 / 2368}},
            "expected_precision": {"float32": {"before": 1.0, "after": 1728 / 2368}, "int8": {"before": 0.0, "after": 640 / 2368}},
        }
    ]  # fmt: skip


@pytest.mark.usefixtures("two_models")
def test_a_comparison_without_the_models_is_printed_in_every_format(cost: Cost) -> None:
    models = ("float.onnx", "quantized.onnx")
    table = cost(*models, "--by", "comparison")
    types = "float32 72.97 %, int8 27.03 %"
    assumed = (
        "float.onnx: assumed N = 1: --dim N=1 sets it\n"
        "quantized.onnx: assumed N = 1: --dim N=1 sets it\n"
        f"quantized.onnx: types: weights stored in int8 58.65 %, float32 41.35 %; contractions ask for {types}, expected to run in {types} by "
        f"{runtime_here().title}\n"
        "quantized.onnx: left in float: 1 of 2 contractions, 73.0 % of their MACs, stays in float, because options "
        "of the quantizer exclude the name or operator, or list only others (Conv 1, the first 'stem'; the names among those to be quantized would change it)\n"
    )
    answer, bars, _ = table.split("\n\n", 2)
    assert answer == (
        "quantized.onnx takes 1.53 kB, 46.2 % of float.onnx; 27.0 % of its contractions are "
        "expected to run in integers."
    )
    assert [line.split("  ")[0] for line in bars.splitlines()] == [
        f"{name}, {of}" for of in ("file", "bytes moved") for name in models
    ]
    table = table.removeprefix(f"{answer}\n\n{bars}\n\n")
    assert table.startswith(f"float.onnx -> quantized.onnx (view: fused)\n{assumed}\n")
    table = table.replace(assumed, "")
    assert cost(*models, "--by", "total").endswith(f"\n{table}")
    rows = cost(*models, "--by", "comparison", "--format", "csv",
        error=IN_CSV + IN_CSV.replace("float", "quantized"),
    )  # fmt: skip
    assert (
        rows
        == """\
baseline,model,figure,before,after,ratio
float.onnx,quantized.onnx,file_bytes,3306,1527,0.461887477314
float.onnx,quantized.onnx,weight_bytes,3008,1093,0.363364361702
float.onnx,quantized.onnx,params,752,754,1.00265957447
float.onnx,quantized.onnx,macs,2496,2752,1.10256410256
float.onnx,quantized.onnx,macs_contraction,2368,2368,1
float.onnx,quantized.onnx,memory_bytes,3560,1709,0.480056179775
float.onnx,quantized.onnx,peak_activation_bytes,1024,1024,1
float.onnx,quantized.onnx,nodes,4,7,
float.onnx,quantized.onnx,quantize_nodes,0,1,
float.onnx,quantized.onnx,dequantize_nodes,0,2,
float.onnx,quantized.onnx,uncosted_nodes,0,0,
float.onnx,quantized.onnx,precision.float32,1,0.72972972973,
float.onnx,quantized.onnx,precision.int8,0,0.27027027027,
float.onnx,quantized.onnx,expected_precision.float32,1,0.72972972973,
float.onnx,quantized.onnx,expected_precision.int8,0,0.27027027027,
"""
    )


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
def _model() -> None:
    write(MODEL)


def write(text: str) -> None:
    Path("m.onnx").write_bytes(onnx.parser.parse_model(text).SerializeToString())


def test_modules_are_a_tree_with_the_sums_of_their_content(command: Commands) -> None:
    assert command("cost", "m.onnx", "--by", "module") == (
        0,
        """\
m.onnx takes 254 B and has 0 parameters and 82 MACs.

m.onnx (rules: corrected, view: fused)

MODULE       NODES  MACS      %  BACKWARD MACS  MOVED B      %  MACS/B  PARAMS  %
-----------  -----  ----  -----  -------------  -------  -----  ------  ------  -
encoder          2    32  39.02             56       64  44.44    0.19       0  -
  layer.0        2    32  39.02             56       64  44.44    0.19       0  -
    act          1     8   9.76              8       32  22.22    0.12       0  -
head             1    40  48.78             80       40  27.78    0.26       0  -
(no module)      1    10  12.20             10       40  27.78    0.12       0  -
""",
        "",
    )


def test_modules_are_sorted_among_their_siblings_and_have_paths_in_csv_and_json(
    command: Commands,
) -> None:
    _, out, _ = command(
        "cost", "m.onnx", "--by", "module", "--sort", "macs", "--top", "4", "--format", "csv"
    )
    assert [line.split(",")[1:4] for line in out.splitlines()] == [
        ["module", "nodes", "macs"],
        ["head", "1", "40"],
        ["encoder", "2", "32"],
        ["encoder/layer.0", "2", "32"],
        ["encoder/layer.0/act", "1", "8"],
    ]
    _, out, _ = command("cost", "m.onnx", "--by", "module", "--top", "1", "--format", "json")
    assert json.loads(out)["models"][0]["modules"] == [
        {
            "module": "encoder", "nodes": 2, "macs": 32, "params": 0, "memory_bytes": 64,
            "intensity": 32 / (4 * (6 + 12 + 8) + 4 * (8 + 8)),
        },
    ]  # fmt: skip


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
    name: str, modules: list[str], command: Commands
) -> None:
    write(f"""
        <ir_version: 10, opset_import: ["": 17]> g (float[2] x) => (float[2] y)
        {{ ["{name}"] y = Relu (x) }}
    """)
    _, out, _ = command("cost", "m.onnx", "--by", "module")
    lines = out.splitlines()[6:]
    assert [line[: len(module)] for line, module in zip(lines, modules, strict=True)] == modules


def test_tensors_have_type_shape_and_node(command: Commands) -> None:
    assert command("cost", "m.onnx", "--by", "tensor", "--top", "3") == (
        0,
        """\
m.onnx takes 254 B and has 0 parameters and 82 MACs.

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
    _, out, _ = command(
        "cost", "m.onnx", "--by", "tensor", "--sort", "memory", "--top", "1", "--format", "csv"
    )
    assert out == "model,tensor,dtype,shape,bytes,node\nm.onnx,c,float32,2x5,40,/head/MatMul\n"
    _, out, _ = command("cost", "m.onnx", "--by", "tensor", "--format", "json")
    assert json.loads(out)["models"][0]["tensors"][-1] == {
        "name": "y", "dtype": "float32", "shape": [2, 5], "bytes": 40, "node": "Relu_3",
    }  # fmt: skip


def test_names_in_a_shape_are_set_with_dim(command: Commands) -> None:
    write("""
        <ir_version: 10, opset_import: ["": 17]> g (float[a, b, c] x) => (float[a, b, c] y)
        { y = Relu (x) }
    """)
    given = ("m.onnx", "--input", "x:1xhxw", "--dim", "h=3")
    code, out, _ = command("cost", *given, "--dim", "w=5", "--format", "json", "--strict")
    assert (code, json.loads(out)["models"][0]["nodes"][0]["inputs"]) == (0, [[1, 3, 5]])
    assert command("cost", *given) == (
        1,
        "",
        "otel-quant: input shape: 'x' has a length 'w', which is not given (--input 'x:1xhxw'); "
        "expected --dim w=LENGTH as well\n",
    )


def test_an_excluded_operator_is_left_out_of_sums_and_named_first(command: Commands) -> None:
    code, out, _ = command("cost", "m.onnx", "--by", "op", "--exclude", "Relu")
    assert (code, out.splitlines()[3]) == (0, "excluded Relu 2")
    assert "Relu" not in out.split("\n", 4)[4]
    _, out, _ = command("cost", "m.onnx", "--exclude", "MatMul", "--format", "json")
    (model,) = json.loads(out)["models"]
    assert model["excluded"] == {"MatMul": 2}
    assert model["total"] == {
        "macs": 18, "macs_contraction": 0, "backward_macs": 18, "params": 0, "weight_bytes": 0,
        "memory_bytes": 72, "peak_activation_bytes": 4 * (6 + 12 + 20 + 8),
    }  # fmt: skip
    assert command("cost", "m.onnx", "--exclude", "Conv", "--by", "total")[::2] == (
        1,
        "otel-quant: --exclude: no model has an operator 'Conv'; expected one that --by op lists\n",
    )
