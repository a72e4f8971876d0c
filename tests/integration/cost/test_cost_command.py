"""``otel-quant cost`` as a process: output that cannot be written, and memory that grows with the graph and not with the weights."""

from __future__ import annotations

import json
import sys
import textwrap
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from benchmarks.onnx_models import llama
from examples.resnet50 import write_resnet50
from tests.fixtures.commands import Commands
from tests.fixtures.onnx_builder import floats, model_of_text, varint
from tests.fixtures.programs import clean_environment, run

ROOT = Path(__file__).resolve().parents[3]
FORMATS = ("table", "json", "csv", "markdown")


FLOAT = """
<ir_version: 9, opset_import: ["" : 17]>
net (float[N, 3, 16, 16] image) => (float[N, 10] y) {
   [conv] c = Conv <pads = [1, 1, 1, 1]> (image, cw, cb)
   [relu] r = Relu (c)
   [flatten] f = Flatten (r)
   [head] y = MatMul (f, hw)
}
"""


def float_model() -> onnx.ModelProto:
    return model_of_text(FLOAT, **floats(0, cw=(8, 3, 3, 3), cb=8, hw=(8 * 16 * 16, 10)))


@pytest.mark.parametrize(
    ("redirected", "problem"),
    [
        *((f"--format {form} > /dev/full", "No space left on device") for form in FORMATS),
        (">&-", "closed; expected a place to write"),
    ],
)
def test_output_that_cannot_be_written_is_one_line_and_exit_code_1(
    tmp_path: Path, redirected: str, problem: str
) -> None:
    onnx.save(float_model(), tmp_path / "m.onnx")
    shell = ["sh", "-c", f'"$0" -m otel_quant cost m.onnx {redirected}', sys.executable]
    done = run(shell, tmp_path, clean_environment())

    assert (done.returncode, done.stderr) == (1, f"otel-quant: standard output: {problem}\n")


def test_the_documentation_shows_the_output_for_the_demo_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Commands
) -> None:
    monkeypatch.chdir(tmp_path)
    write_resnet50(Path("resnet50.onnx"))
    page = (ROOT / "docs" / "cost.md").read_text()
    for options in ("", " --by op --top 5"):
        code, out, err = command("cost", "resnet50.onnx", *options.split())
        assert (code, err) == (0, "")
        shown = f"$ otel-quant cost resnet50.onnx{options}\n{out}"
        assert textwrap.indent(shown, "    ", lambda line: bool(line.strip())) in page


def test_sparsity_is_a_column_and_a_key_when_asked_for(tmp_path: Path, command: Commands) -> None:
    model = float_model()
    weight = np.ones((8 * 16 * 16, 10), np.float32)
    weight[::2] = 0
    model.graph.initializer[2].CopyFrom(numpy_helper.from_array(weight, "hw"))
    onnx.save(model, tmp_path / "m.onnx")

    asked = ("cost", tmp_path / "m.onnx", "--sparsity")
    header, *_, conv, head, _ = command.output(*asked, "--by", "node", "--top", "2").splitlines()[
        5:
    ]
    assert header.split()[-6:] == ["BLOCK", "ZERO", "BLOCKS", "2:4", "INPUT", "OUTPUT"]
    assert (conv.split()[0], head.split()[0]) == ("conv", "head")
    (document,) = json.loads(command.output(*asked, "--format", "json"))["models"]
    nodes = {node["name"]: node for node in document["nodes"]}
    assert nodes["relu"]["sparsity"] is None
    assert nodes["head"]["sparsity"]["ratio"] == 0.5
    assert nodes["head"]["sparsity"]["two_of_four"] is True


@pytest.mark.parametrize("inside", [False, True])
def test_gigabytes_of_weights_take_a_few_megabytes(tmp_path: Path, inside: bool) -> None:
    llama(tmp_path / "m.onnx", 22 if not inside else 13, inside=inside)
    whole = sum(path.stat().st_size for path in tmp_path.iterdir())
    assert whole > 2_700_000_000

    limited = ["sh", "-c", f'ulimit -v {200 << 10}; exec "$@"', "sh", sys.executable]  # in KiB
    asked = ("-m", "otel_quant", "cost", "m.onnx", "--format", "json")
    done = run([*limited, *asked], tmp_path, clean_environment())

    assert (done.returncode, done.stderr) == (0, "")
    (model,) = json.loads(done.stdout)["models"]
    assert model["uncosted_ops"] == {}
    layers, hidden, inner, tokens = (13 if inside else 22), 2048, 5632, 128
    projections = tokens * hidden * (2 * hidden + 2 * 256 + 3 * inner)
    attention = 2 * 32 * tokens * tokens * 64
    assert model["total"]["macs_contraction"] == (
        layers * (projections + attention) + tokens * hidden * 32_000
    )


PEAK = """
# not ru_maxrss, which a process inherits from the one that started it
print(open("/proc/self/status").read().split("VmHWM:")[1].split()[0], file=sys.stderr)
"""
ZEROS = f"""
import sys
from otel_quant.cost import analyze
cost = analyze(sys.argv[1], sparsity=True)
print([zeros.ratio for zeros in cost.sparsity], {{"onnx", "google.protobuf"}} & set(sys.modules))
{PEAK}"""
REPORT = f"""
import sys
from otel_quant.cli import main
main(["cost", *sys.argv[1:]])
sys.stdout.flush()
{PEAK}"""


def in_a_process_of_its_own(script: str, path: Path, *options: str) -> tuple[str, int]:
    """Returns what a script prints, and the most memory that it had, in bytes."""
    done = run([sys.executable, "-c", script, path, *options], path.parent, clean_environment())
    assert done.returncode == 0, done.stderr
    return done.stdout, 1024 * int(done.stderr)


def model_with_a_hole(path: Path, rows: int, columns: int) -> None:
    """A product with a weight of zeros, which take no space on the disk."""
    payload = rows * columns * 4
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[rows, columns])
    head = tensor.SerializeToString() + varint(9 << 3 | 2) + varint(payload)
    rest = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, rows])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, columns])],
    ).SerializeToString()
    inner = varint(5 << 3 | 2) + varint(len(head) + payload) + head
    with path.open("wb") as file:  # a hole where the weight would be
        file.write(varint(7 << 3 | 2) + varint(len(inner) + payload + len(rest)) + inner)
        file.seek(payload, 1)
        file.write(rest + varint(8 << 3 | 2) + b"\x02\x10\x15")


def test_weights_are_streamed_when_sparsity_is_requested(tmp_path: Path) -> None:
    rows, columns = 6_000, 5_000
    path = tmp_path / "large.onnx"
    model_with_a_hole(path, rows, columns)
    assert path.stat().st_size > 119_000_000
    printed, memory = in_a_process_of_its_own(ZEROS, path)
    assert printed == "[1.0] set()\n"
    assert memory < 110_000_000


@pytest.fixture(scope="module")
def many_nodes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A chain of 100,000 nodes, no two of one name."""
    graph = helper.make_graph(
        [],
        "chain",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [8, 64])],
        [helper.make_tensor_value_info("t100000", TensorProto.FLOAT, [8, 64])],
        [helper.make_tensor("w", TensorProto.FLOAT, [64, 64], bytes(4 * 64 * 64), raw=True)],
    )
    for i in range(100_000):
        op, *weights = ("MatMul", "w") if i % 5 == 0 else ("Relu",)
        made = "x" if i == 0 else f"t{i}"
        graph.node.add(
            op_type=op,
            name=f"/blocks.{i // 10}/{op}_{i}",
            input=[made, *weights],
            output=[f"t{i + 1}"],
        )
    path = tmp_path_factory.mktemp("many") / "chain.onnx"
    path.write_bytes(helper.make_model(graph).SerializeToString())
    return path


@pytest.mark.parametrize("form", ["table", "csv", "json", "markdown"])
def test_a_report_of_a_hundred_thousand_nodes_takes_120_mb(form: str, many_nodes: Path) -> None:
    printed, memory = in_a_process_of_its_own(REPORT, many_nodes, "--by", "node", "--format", form)
    assert printed.count("/blocks.") >= 100_000
    assert memory < 120_000_000
