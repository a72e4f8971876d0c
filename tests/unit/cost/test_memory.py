"""Memory of nodes, the largest live memory, and the bytes that nodes move for their MACs."""

from __future__ import annotations

import pytest

from otel_quant.cost import ModelCost
from tests.unit.cost.text_models import text_cost

HEAD = '<ir_version: 10, opset_import: ["": 21]> '


def test_a_nodes_memory_is_its_weights_and_its_results() -> None:
    cost = text_cost(
        HEAD + "g (float[2,4] x) => (float[2,3] y) "
        "<float[4,3] w = {0,0,0,0,0,0,0,0,0,0,0,0}, float[3] b = {0,0,0}> { y = Gemm (x, w, b) }"
    )
    assert cost.nodes[0].memory_bytes == 4 * (12 + 3) + 4 * 6


def test_a_weight_that_two_nodes_share_counts_once() -> None:
    cost = text_cost(
        HEAD + "g (float[4] x) => (float[4] y) <float[4] w = {1, 2, 3, 4}>"
        "{ a = Mul (x, w) y = Add (a, w) }"
    )
    assert [(node.params, node.memory_bytes) for node in cost.nodes] == [(4, 32), (0, 16)]
    assert (cost.params, cost.weight_bytes, cost.memory_bytes) == (4, 16, 48)


def test_the_peak_is_the_largest_live_memory_and_not_the_sum() -> None:
    cost = text_cost(
        HEAD + "g (float[100] x) => (float[100] y)"
        "{ a = Relu (x) b = Relu (a) c = Relu (b) y = Relu (c) }"
    )
    assert cost.peak_activation_bytes == 2 * 400
    assert cost.memory_bytes == 4 * 400


def test_a_tensor_stays_alive_until_its_last_reader() -> None:
    cost = text_cost(
        HEAD + "g (float[100] x) => (float[100] y)"
        "{ a = Relu (x) b = Relu (a) c = Relu (b) y = Add (c, a) }"
    )
    assert cost.peak_activation_bytes == 3 * 400


def test_an_output_stays_alive_to_the_end() -> None:
    cost = text_cost(
        HEAD + "g (float[100] x) => (float[100] a, float[100] y)"
        "{ a = Relu (x) b = Relu (x) y = Relu (b) }"
    )
    assert cost.peak_activation_bytes == 3 * 400


def test_a_view_takes_no_memory_and_keeps_its_operand_alive() -> None:
    cost = text_cost(
        HEAD + "g (float[100] x) => (float[100] y) <int64[2] s = {10, 10}, int64[1] f = {100}>"
        "{ a = Relu (x) v = Reshape (a, s) w = Reshape (v, f) y = Relu (w) }"
    )
    assert cost.peak_activation_bytes == 2 * 400


def test_the_peak_counts_an_operand_and_its_result_together() -> None:
    cost = text_cost(
        HEAD + "g (float[10,1] x) => (float[10,1] y) "
        "<int64[2] shape = {10, 50}, int64[1] axis = {1}>"
        "{ wide = Expand (x, shape) y = ReduceSum (wide, axis) }"
    )
    # x has gone when the sum is made, but not yet while it is stretched.
    assert cost.peak_activation_bytes == 4 * (10 + 500)


def test_the_layer_with_the_most_memory_is_named() -> None:
    cost = text_cost(
        HEAD + "g (float[1] x) => (float[1000] y) <int64[1] shape = {1000}>"
        "{ [first] a = Relu (x) [big] b = Expand (a, shape) [last] y = Identity (b) }"
    )
    assert cost.max_memory_node == "big"


def test_backward_has_two_gradients_per_contraction_and_the_rest_once() -> None:
    cost = text_cost(
        HEAD + "g (float[2,4] x, float[4,3] w) => (float[2,3] y) { m = MatMul (x, w) y = Relu (m) }"
    )
    assert (cost.macs, cost.macs_contraction, cost.backward_macs) == (24 + 6, 24, 2 * 24 + 6)


def moved(model: ModelCost) -> dict[str, int | None]:
    return {node.name: node.moved_bytes for node in model.nodes}


def test_operands_constants_and_results_count_as_moved_bytes_and_a_repeated_one_once() -> None:
    model = text_cost("""
        <ir_version: 10, opset_import: ["": 17]> g (float[2, 3] x) => (float[2, 3] z)
        <float[3] c = {1, 2, 3}> { [add] y = Add (x, c)  [square] z = Mul (y, y) }
    """)
    assert moved(model) == {"add": 4 * (6 + 3 + 6), "square": 4 * (6 + 6)}
    assert [node.intensity for node in model.nodes] == [6 / 60, 6 / 48]


def test_nodes_with_unknown_values_have_no_arithmetic_intensity() -> None:
    model = text_cost("""
        <ir_version: 10, opset_import: ["": 17]> g (float[3] x) => (int64[] z)
        { [found] y = NonZero (x)  [neg] z = Neg (y) }
    """)
    assert [(node.macs, node.moved_bytes, node.intensity) for node in model.nodes] == [
        (0, None, 0.0), (None, None, None),
    ]  # fmt: skip


def test_a_body_moves_its_bytes_in_each_iteration() -> None:
    model = text_cost("""
        <ir_version: 10, opset_import: ["": 17]> g (float[8] x) => (float[8] y)
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
        <ir_version: 10, opset_import: ["": 17]> g (float[100] x) => (float[100] y)
        <float s = {0.5}, uint8 z = {3}> {
          q = QuantizeLinear (x, s, z)  d = DequantizeLinear (q, s, z)  [op] a = Sigmoid (d)
          aq = QuantizeLinear (a, s, z)  y = DequantizeLinear (aq, s, z)
        }
        """,
        view=view,
    )
    (node,) = (node for node in model.nodes if node.name == "op")
    assert node.moved_bytes == expected
