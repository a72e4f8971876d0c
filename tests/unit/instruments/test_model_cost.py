"""Which models are costed after an operation, and what is told of them."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from otel_quant.instruments.model_cost import cost_models, models_of
from otel_quant.records import CostedModel

MODEL = onnx.parser.parse_model("""
    <ir_version: 8, opset_import: ["" : 17]>
    agraph (float[2, 3] x) => (float[2, 4] y)
    <float[3, 4] w = {1,2,3,4,5,6,7,8,9,10,11,12}>
    { y = MatMul (x, w) }
""")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "float.onnx"
    onnx.save(MODEL, path)
    return path


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("model_input", "model_output"),
        ("input_model", "output_model_path"),
        ("input_model_path", "output_model"),
    ],
)
def test_input_and_output_of_every_spelling_are_costed(
    model: Path, tmp_path: Path, before: str, after: str
) -> None:
    quantized = tmp_path / "quantized.onnx"
    onnx.save(MODEL, quantized)

    found = models_of({before: str(model), after: quantized, "per_channel": True}, None)

    assert found == [("float", str(model)), ("quantized", quantized)]


def test_result_is_the_quantized_model_where_no_file_was_asked_for(model: Path) -> None:
    result = onnx.ModelProto()
    found = models_of({"model_input": model, "model_output": None}, result)
    assert found == [("float", model), ("quantized", result)]


def test_model_that_was_quantized_in_place_is_costed_once(model: Path) -> None:
    assert models_of({"model_input": str(model), "model_output": model}, None) == [
        ("quantized", model)
    ]


def test_what_is_no_onnx_model_is_not_costed(tmp_path: Path) -> None:
    (tmp_path / "checkpoint.bin").write_bytes(b"weights")
    arguments = {
        "model_input": str(tmp_path / "checkpoint.bin"),
        "model_output": str(tmp_path / "was_never_written.onnx"),
    }
    assert models_of(arguments, None) == []


def test_totals_and_heaviest_nodes_are_told(model: Path) -> None:
    [cost] = cost_models([("float", model)], time_limit=10, paths=True)

    assert cost == CostedModel(
        role="float",
        path=str(model),
        start_ns=cost.start_ns,
        end_ns=cost.end_ns,
        figures={
            "size": model.stat().st_size,
            "params": 12,
            "macs": 24,
            "macs_contraction": 24,
            "backward_macs": 48,
            "weight_bytes": 48,
            "memory": 80,
            "peak_activation_bytes": 56,
            "nodes": 1,
            "qdq_nodes": 0,
            "max_memory_node": cost.heaviest[0]["name"],
            "integer_mac_share": 0.0,
            "precision.float32": 1.0,
        },
        heaviest=(
            {
                "name": cost.heaviest[0]["name"],
                "op_type": "MatMul",
                "macs": 24,
                "params": 12,
                "memory_bytes": 80,
                "precision": "float32",
            },
        ),
    )
    assert cost.start_ns <= cost.end_ns


def test_paths_can_be_kept_out(model: Path) -> None:
    [cost] = cost_models([("float", model)], time_limit=10, paths=False)
    assert cost.path is None


@pytest.mark.parametrize("content", [b"PK\x03\x04 a zip", b"\x08\x08", b""])
def test_file_that_cannot_be_costed_is_told_with_the_reason(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "broken.onnx"
    path.write_bytes(content)

    [cost] = cost_models([("quantized", path)], time_limit=10, paths=True)

    assert (cost.figures, cost.heaviest) == ({}, ())
    assert cost.error is not None
    assert str(path) in cost.error


@pytest.mark.parametrize("content", [b"PK\x03\x04 a zip", b"\x08\x08", b"", b"\x3a\x7f"])
def test_a_reason_names_no_file_where_paths_are_kept_out(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "broken.onnx"
    path.write_bytes(content)

    [with_path] = cost_models([("quantized", path)], time_limit=10, paths=True)
    [cost] = cost_models([("quantized", path)], time_limit=10, paths=False)

    assert with_path.error == f"{path}: {cost.error}"
    assert "broken" not in str(cost.error)


def test_time_is_limited(tmp_path: Path) -> None:
    nodes = [onnx.helper.make_node("Relu", [f"t{i}"], [f"t{i + 1}"]) for i in range(20_000)]
    ends = [
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1])
        for name in ("t0", "t20000")
    ]
    path = tmp_path / "long.onnx"
    onnx.save(
        onnx.helper.make_model(onnx.helper.make_graph(nodes, "long", ends[:1], ends[1:])), path
    )

    [cost] = cost_models([("float", path)], time_limit=0.001, paths=True)

    assert cost.figures == {}
    assert cost.error is not None
    assert "long.onnx" in cost.error
