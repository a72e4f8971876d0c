"""What a model costs us grows with its graph and not with its weights."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from onnx import TensorProto, helper

from tests.integration.cost.exporting import export

SCRIPT = """
import json, sys
from otel_quant.cost import analyze, parse_inputs
sparsity = sys.argv[2:] == ["sparsity"]
inputs = {} if sparsity else parse_inputs(sys.argv[2:])
cost = analyze(sys.argv[1], inputs=inputs, sparsity=sparsity)
print(json.dumps({
    # not ru_maxrss, which a process inherits from the one that started it
    "rss": 1024 * int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0]),
    "heavy": sorted({"onnx", "numpy", "google.protobuf", "torch"} & set(sys.modules)),
    "nodes": len(cost.nodes),
    "params": cost.params,
    "weight_bytes": cost.weight_bytes,
    "macs_contraction": cost.macs_contraction,
    "uncosted": cost.uncosted_ops,
    "unsized": cost.unsized_tensors,
    "zeros": [zeros.ratio for zeros in cost.sparsity or ()],
}))
"""


def in_a_process_of_its_own(path: Path, *inputs: str) -> dict[str, object]:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(path), *inputs],
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
    )
    found: dict[str, object] = json.loads(done.stdout)
    return found


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


def test_weights_are_streamed_where_their_zeros_are_asked_for(tmp_path: Path) -> None:
    rows, columns = 6_000, 5_000
    path = tmp_path / "large.onnx"
    model_with_a_hole(path, rows, columns)
    assert path.stat().st_size > 119_000_000
    found = in_a_process_of_its_own(path, "sparsity")
    assert found["zeros"] == [1.0]
    assert found["heavy"] == ["numpy"]
    assert found["rss"] < 110_000_000


def test_bert_base_has_its_published_number_of_parameters(tmp_path: Path) -> None:
    import torch
    from transformers import BertConfig, BertModel

    model = BertModel(BertConfig(attn_implementation="eager"), add_pooling_layer=False)

    class Wrapped(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
            out: torch.Tensor = self.model(
                input_ids=input_ids, attention_mask=attention_mask
            ).last_hidden_state
            return out

    ids = torch.ones(1, 128, dtype=torch.int64)
    case = export(
        Wrapped(), (ids, ids), tmp_path / "bert.onnx", names=["input_ids", "attention_mask"]
    )
    found = in_a_process_of_its_own(case.path)
    weights = sum(parameter.numel() for parameter in model.parameters())
    assert round(weights / 1e6, 2) == 108.89
    # The exporter adds shape constants, and its key biases and unused rows stay or go with it.
    assert found["params"] == pytest.approx(weights, rel=2e-3)
    per_token = 12 * (4 * 768 * 768 + 2 * 768 * 3072)
    assert found["macs_contraction"] == 128 * per_token + 12 * 2 * 12 * 128 * 128 * 64
    assert found["heavy"] == []
    assert found["rss"] < 60_000_000


REPORT = """
import os, sys
from otel_quant.cli import main
main(["cost", *sys.argv[1:]])
sys.stdout.flush()
print(open("/proc/self/status").read().split("VmHWM:")[1].split()[0], file=sys.stderr)
"""


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
    done = subprocess.run(
        [sys.executable, "-c", REPORT, str(many_nodes), "--format", form],
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stdout.count("/blocks.") >= 100_000
    assert 1024 * int(done.stderr) < 120_000_000
