"""What a model costs us grows with its graph and not with its weights."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from onnx import TensorProto, helper

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
    done = subprocess.run(
        [sys.executable, "-c", script, str(path), *options],
        check=True, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    return done.stdout, 1024 * int(done.stderr)


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


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
