"""Constants that no node reads, and wrong lengths of external tensors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from otel_quant.cost import ModelCost, analyze
from tests.unit.cost.text_models import with_external_weight


def with_weights(text: str, **weights: np.ndarray) -> ModelCost:
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 21]> {text}')
    model.graph.initializer.extend(
        numpy_helper.from_array(value, name) for name, value in weights.items()
    )
    return analyze(model.SerializeToString())


def constants(cost: ModelCost) -> tuple[int, int, int, int]:
    return cost.params, cost.weight_bytes, cost.unused_params, cost.unused_weight_bytes


def floats(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


def test_constants_that_no_node_reads_are_counted_separately() -> None:
    cost = with_weights(
        "g (float[2, 3] x) => (float[2, 4] y) { k = Constant <value_floats = [1.0, 2.0]> () "
        "y = MatMul (x, w) }",
        w=floats(3, 4), left=floats(5, 5), half=np.ones(7, np.float16),
    )  # fmt: skip
    assert constants(cost) == (12, 48, 25 + 7 + 2, 100 + 14 + 8)
    assert cost.to_json_dict()["total"] == {
        "macs": 24,
        "macs_contraction": 24,
        "backward_macs": 48,
        "params": 12,
        "weight_bytes": 48,
        "memory_bytes": 48 + 32,
        "peak_activation_bytes": 24 + 32,
        "unused_params": 34,
        "unused_weight_bytes": 122,
    }


def test_constants_of_a_branch_that_is_not_taken_count_as_read() -> None:
    cost = with_weights(
        "g (float[2, 3] x) => (float[2, 4] y) <bool yes = {1}> { y = If (yes) <"
        "then_branch = a () => (float[2, 4] p) { p = MatMul (x, w) }, "
        "else_branch = b () => (float[2, 4] q) { q = MatMul (x, v) }> }",
        w=floats(3, 4), v=floats(3, 4), left=floats(5),
    )  # fmt: skip
    assert constants(cost) == (12 + 12 + 1, 48 + 48 + 1, 5, 20)


@pytest.mark.parametrize(("length", "stored"), [(None, 1024), ("1024", 1024), ("1000", 1000),
                                                ("0", 1024), ("9000000000000000000", 1024)])  # fmt: skip
def test_an_external_length_larger_than_the_shape_is_ignored(
    length: str | None, stored: int, tmp_path: Path
) -> None:
    path = with_external_weight(tmp_path, (16, 16), length=length)
    cost = analyze(path)
    assert (cost.weight_bytes, cost.file_bytes) == (stored, path.stat().st_size + stored)


def test_weights_are_read_up_to_what_the_shape_needs(tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(bytes(1024))
    path = with_external_weight(tmp_path, (16, 16), length="9000000000000000000")
    cost = analyze(path, sparsity=True)
    assert cost.sparsity is not None
    assert [(zeros.weight, zeros.ratio) for zeros in cost.sparsity] == [("w", 1.0)]
