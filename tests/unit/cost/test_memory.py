"""Memory of nodes, and how much of it is alive at once."""

from __future__ import annotations

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


def test_the_peak_is_the_most_that_is_alive_and_not_the_sum() -> None:
    cost = text_cost(
        HEAD + "g (float[100] x) => (float[100] y)"
        "{ a = Relu (x) b = Relu (a) c = Relu (b) y = Relu (c) }"
    )
    assert cost.peak_activation_bytes == 2 * 400
    assert cost.memory_bytes == 4 * 400


def test_a_tensor_lives_until_its_last_reader() -> None:
    cost = text_cost(
        HEAD + "g (float[100] x) => (float[100] y)"
        "{ a = Relu (x) b = Relu (a) c = Relu (b) y = Add (c, a) }"
    )
    assert cost.peak_activation_bytes == 3 * 400


def test_an_output_lives_to_the_end() -> None:
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
