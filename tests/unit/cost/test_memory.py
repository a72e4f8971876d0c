"""Memory of nodes, the largest live memory, the bytes that nodes move for their MACs, and constants."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from otel_quant.cost import ModelCost, analyze
from tests.fixtures.onnx_builder import model_of_text
from tests.unit.cost.text_models import text_cost, with_external_weight


def test_a_nodes_memory_is_its_weights_and_its_results() -> None:
    cost = text_cost(
        "g (float[2,4] x) => (float[2,3] y) "
        "<float[4,3] w = {0,0,0,0,0,0,0,0,0,0,0,0}, float[3] b = {0,0,0}> { y = Gemm (x, w, b) }"
    )
    assert cost.nodes[0].memory_bytes == 4 * (12 + 3) + 4 * 6


def test_a_weight_that_two_nodes_share_counts_once() -> None:
    cost = text_cost(
        "g (float[4] x) => (float[4] y) <float[4] w = {1, 2, 3, 4}>"
        "{ a = Mul (x, w) y = Add (a, w) }"
    )
    assert [(node.params, node.memory_bytes) for node in cost.nodes] == [(4, 32), (0, 16)]
    assert (cost.params, cost.weight_bytes, cost.memory_bytes) == (4, 16, 48)


PEAKS: dict[str, tuple[str, int]] = {
    "the largest live memory and not the sum": (
        "g (float[100] x) => (float[100] y) { a = Relu (x) b = Relu (a) c = Relu (b) y = Relu (c) }",
        2 * 400,
    ),
    "a tensor until its last reader": (
        "g (float[100] x) => (float[100] y) { a = Relu (x) b = Relu (a) c = Relu (b) y = Add (c, a) }",
        3 * 400,
    ),
    "an output to the end": (
        "g (float[100] x) => (float[100] a, float[100] y) { a = Relu (x) b = Relu (x) y = Relu (b) }",
        3 * 400,
    ),
    "a view, which takes nothing and keeps its operand alive": (
        """g (float[100] x) => (float[100] y) <int64[2] s = {10, 10}, int64[1] f = {100}>
        { a = Relu (x) v = Reshape (a, s) w = Reshape (v, f) y = Relu (w) }""",
        2 * 400,
    ),
    # x has gone when the sum is made, but not yet while it is stretched.
    "an operand and its result together": (
        """g (float[10,1] x) => (float[10,1] y) <int64[2] shape = {10, 50}, int64[1] axis = {1}>
        { wide = Expand (x, shape) y = ReduceSum (wide, axis) }""",
        4 * (10 + 500),
    ),
    "the result of a branch once": (
        """g (float[100] x, bool flag) => (float[100] y) { y = If (flag)
        <then_branch = t () => (float[100] p) { p = Relu (x) },
         else_branch = e () => (float[100] q) { q = Neg (x) }> }""",
        400 + 1 + 400,
    ),
    "the branch that needs more": (
        """g (float[100] x, bool flag) => (float[100] y)
        <int64[2] wide = {9, 100}, int64[1] first = {0}> { y = If (flag)
        <then_branch = t () => (float[100] p) { w = Expand (x, wide) p = ReduceMax <keepdims = 0> (w, first) },
         else_branch = e () => (float[100] q) { a = Relu (x) b = Exp (a) c = Tan (b) q = Neg (c) }> }""",
        400 + 1 + 3600 + 400,
    ),
    # x, big, and of an iteration what enters it, two of its results, and whether it goes on.
    "what a loop reads from outside, while it runs": (
        """g (float[3000] x) => (float[3000] y)
        <int64 trips = {5}, bool go = {1}, int64[1] from = {0}, int64[1] to = {3000}> {
            big = Concat <axis = 0> (x, x, x)
            y = Loop (trips, go, x) <body = b (int64 i, bool c, float[3000] h)
                => (bool c2, float[3000] h2) {
                    c2 = Identity (c) part = Slice (big, from, to) s = Add (h, part)
                    h2 = Exp (s) }> }""",
        12_000 + 36_000 + 3 * 12_000 + 1,
    ),
    "values that no iteration changes, once": (
        """g (float[100] x, float[1000] same) => (float[100] y, float[1000] out)
        <int64 trips = {5}, bool go = {1}> {
            y, out = Loop (trips, go, x, same) <body = b
                (int64 i, bool c, float[100] h, float[1000] s)
                => (bool c2, float[100] h2, float[1000] s2) {
                    c2 = Identity (c) h2 = Relu (h) s2 = Identity (s) }> }""",
        4000 + 3 * 400 + 1,
    ),
    "slices that a loop stacks, added up": (
        """g (float[100] x) => (float[5, 100] all) <int64 trips = {5}, bool go = {1}> {
            all = Loop (trips, go) <body = b (int64 i, bool c) => (bool c2, float[100] s) {
                c2 = Identity (c) s = Relu (x) }> }""",
        400 + 2000 + 400 + 1,
    ),
}


@pytest.mark.parametrize(("text", "peak"), PEAKS.values(), ids=PEAKS)
def test_the_peak_counts_what_lives_at_the_same_time(text: str, peak: int) -> None:
    assert text_cost(text).peak_activation_bytes == peak


def test_the_layer_with_the_most_memory_is_named() -> None:
    cost = text_cost(
        "g (float[1] x) => (float[1000] y) <int64[1] shape = {1000}>"
        "{ [first] a = Relu (x) [big] b = Expand (a, shape) [last] y = Identity (b) }"
    )
    assert cost.max_memory_node == "big"


def test_backward_has_two_gradients_per_contraction_and_the_rest_once() -> None:
    cost = text_cost(
        "g (float[2,4] x, float[4,3] w) => (float[2,3] y) { m = MatMul (x, w) y = Relu (m) }"
    )
    assert (cost.macs, cost.macs_contraction, cost.backward_macs) == (24 + 6, 24, 2 * 24 + 6)


def moved(model: ModelCost) -> dict[str, int | None]:
    return {node.name: node.moved_bytes for node in model.nodes}


def test_operands_constants_and_results_count_as_moved_bytes_and_a_repeated_one_once() -> None:
    model = text_cost("""
        g (float[2, 3] x) => (float[2, 3] z)
        <float[3] c = {1, 2, 3}> { [add] y = Add (x, c)  [square] z = Mul (y, y) }
    """)
    assert moved(model) == {"add": 4 * (6 + 3 + 6), "square": 4 * (6 + 6)}
    assert [node.intensity for node in model.nodes] == [6 / 60, 6 / 48]


def test_nodes_with_unknown_values_have_no_arithmetic_intensity() -> None:
    model = text_cost("""
        g (float[3] x) => (int64[] z)
        { [found] y = NonZero (x)  [neg] z = Neg (y) }
    """)
    assert [(node.macs, node.moved_bytes, node.intensity) for node in model.nodes] == [
        (0, None, 0.0), (None, None, None),
    ]  # fmt: skip


def test_a_body_moves_its_bytes_in_each_iteration() -> None:
    model = text_cost("""
        g (float[8] x) => (float[8] y)
        <int64 n = {5}, bool go = {1}> {
          [loop] y = Loop (n, go, x) <body = b (int64 i, bool c, float[8] v)
            => (bool c2, float[8] w) { [keep] c2 = Identity (c)  [neg] w = Neg (v) }>
        }
    """)
    neg = next(node for node in model.nodes if node.name.endswith("neg"))
    assert (neg.macs, neg.moved_bytes) == (5 * 8, 5 * (32 + 32))


@pytest.mark.parametrize(("view", "expected"), [("fused", 100 + 100), ("file", 400 + 400)])
def test_a_kernel_on_integers_moves_integers(view: str, expected: int) -> None:
    model = text_cost(
        """
        g (float[100] x) => (float[100] y)
        <float s = {0.5}, uint8 z = {3}> {
          q = QuantizeLinear (x, s, z)  d = DequantizeLinear (q, s, z)  [op] a = Sigmoid (d)
          aq = QuantizeLinear (a, s, z)  y = DequantizeLinear (aq, s, z)
        }
        """,
        view=view,
    )
    (node,) = (node for node in model.nodes if node.name == "op")
    assert node.moved_bytes == expected


# --- constants that no node reads, and wrong lengths of external tensors ----------------------


def with_weights(text: str, **weights: np.ndarray) -> ModelCost:
    head = '<ir_version: 10, opset_import: ["": 21]> '
    return analyze(model_of_text(head + text, **weights))


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
        "macs": 24, "macs_contraction": 24, "backward_macs": 48, "params": 12, "weight_bytes": 48,
        "memory_bytes": 48 + 32, "peak_activation_bytes": 24 + 32, "unused_params": 34,
        "unused_weight_bytes": 122,
    }  # fmt: skip


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
