"""The record that is made of the cost of a model."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import onnx
import pytest

from otel_quant.capture.instruments.model_cost import cost_models
from otel_quant.capture.instruments.samples import note_shapes
from otel_quant.capture.instruments.steps import operating
from otel_quant.schema.readings import CostedModel


def test_a_record_has_the_totals_and_the_heaviest_nodes(model: Path) -> None:
    [cost] = cost_models([("float", model)], time_limit=10, paths=True)

    assert cost == CostedModel(
        role="float", path=str(model), start_ns=cost.start_ns, end_ns=cost.end_ns,
        figures={
            "size": model.stat().st_size, "params": 12, "macs": 24, "macs_contraction": 24,
            "backward_macs": 48, "weight_bytes": 48, "memory": 80, "peak_activation_bytes": 56,
            "nodes": 1, "qdq_nodes": 0, "stored.float32": 1.0, "max_memory_node": cost.heaviest[0]["name"],
            "integer_mac_share": 0.0, "precision.float32": 1.0, "expected_integer_mac_share": 0.0,
            "expected_precision.float32": 1.0,
        },
        heaviest=(
            {
                "name": cost.heaviest[0]["name"], "op_type": "MatMul", "macs": 24, "params": 12,
                "memory_bytes": 80, "precision": "float32", "expected_precision": "float32",
            },
        ),
    )  # fmt: skip
    assert cost.start_ns <= cost.end_ns


@pytest.mark.parametrize(
    ("shapes", "macs", "seen"),
    [
        ({"x": (5, 3), "other": (9,)}, 5 * 12, {"input_shapes": ("x=5x3",)}),
        ({"x": (5, 4)}, 12, {"assumed": ("N=1",)}),
        ({"x": (5,)}, 12, {"assumed": ("N=1",)}),
        ({}, 12, {"assumed": ("N=1",)}),
    ],
)
def test_shapes_of_a_calibration_set_open_lengths_if_they_fit(
    shapes: dict[str, tuple[int, ...]], macs: int, seen: dict[str, tuple[str, ...]]
) -> None:
    proto = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 21]> '
        "g (float[N, 3] x) => (float[N, 4] y) <float[3, 4] w> { y = MatMul (x, w) }"
    )
    [cost] = cost_models([("float", proto)], time_limit=10, paths=True, shapes=shapes)
    assert cost.error is None
    assert cost.figures["macs"] == macs
    assert {
        name: cost.figures[name] for name in ("input_shapes", "assumed") if name in cost.figures
    } == seen


def test_the_branch_that_is_costed_is_an_assumption() -> None:
    proto = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 21]> '
        "g (float[4] x, bool flag) => (float[4] y) { [gate] y = If (flag) "
        "<then_branch = t () => (float[4] p) { p = Exp (x) },"
        " else_branch = e () => (float[4] q) { q = Neg (x) }> }"
    )
    [cost] = cost_models([("float", proto)], time_limit=10, paths=True, shapes={})
    assert cost.figures["assumed"] == ("gate: then branch",)


class Untouched:
    """An object of the program's whose shape may not be asked for."""

    @property
    def shape(self) -> tuple[int, ...]:
        raise AssertionError("asked")


def test_shapes_are_kept_from_the_first_sample_that_has_them() -> None:
    ragged: list[object] = [[1.0, 2.0], [3.0]]
    with operating("a library", {}, costs_models=True) as outer, operating("another", {}) as inner:
        note_shapes({"x": Untouched(), 7: np.ones(3)})
        assert outer.input_shapes == {}
        note_shapes(
            {"x": Untouched(), "a": np.ones((2, 3)), "l": ragged, "n": 5, "e": [], "s": "text"}
        )
        note_shapes({"a": np.ones((9, 9))})
    expected = {"a": (2, 3), "l": (2, 2), "n": (), "e": (0,)}
    assert (outer.input_shapes, inner.input_shapes) == (expected, expected)


def test_a_file_is_hashed_on_request(model: Path) -> None:
    [cost] = cost_models([("float", model)], time_limit=10, paths=True, hashes=True)
    assert cost.figures["sha256"] == hashlib.sha256(model.read_bytes()).hexdigest()


@pytest.mark.parametrize("content", [b"PK\x03\x04 a zip", b"\x08\x08", b"", b"\x3a\x7f"])
def test_a_file_that_cannot_be_costed_has_a_reason_without_its_path_if_paths_are_off(
    tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "broken.onnx"
    path.write_bytes(content)

    [with_path] = cost_models([("quantized", path)], time_limit=10, paths=True)
    [cost] = cost_models([("quantized", path)], time_limit=10, paths=False)

    assert (cost.figures, cost.heaviest) == ({}, ())
    assert with_path.error == f"{path}: {cost.error}"
    assert "broken" not in str(cost.error)
