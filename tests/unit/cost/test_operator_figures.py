"""Operators of language models cost what they compute."""

from __future__ import annotations

import onnx
import pytest

from otel_quant.cost import ModelCost, analyze
from tests.unit.cost.microsoft_cases import MICROSOFT
from tests.unit.cost.operator_case import Case, model_of


@pytest.mark.parametrize("case", MICROSOFT.values(), ids=MICROSOFT)
def test_a_node_has_the_figure_and_the_results_of_its_definition(case: Case) -> None:
    cost = analyze(model_of(case).SerializeToString())
    assert [*cost.nodes[0].outputs] == [*case.shapes]
    assert cost.uncosted_ops == ({} if case.macs is not None else {case.op: 1})
    assert cost.macs == (case.macs or 0)


def text_cost(signature: str, body: str) -> ModelCost:
    opsets = '["": 27, "com.microsoft": 1]'
    text = f"<ir_version: 10, opset_import: {opsets}> g {signature} {{ {body} }}"
    return analyze(onnx.parser.parse_model(text).SerializeToString())


STANDARD = {
    "LinearAttention": (
        "(float[1,3,16] q, float[1,3,16] k, float[1,3,24] v) => (float[] y, float[] s)",
        'y, s = LinearAttention <q_num_heads=2, kv_num_heads=2, update_rule="linear"> (q, k, v)',
        (1, 3, 24),
        3 * 2 * 96 * 2 + 72,
    ),
    "CausalConvWithState": (
        "(float[2,6,5] x, float[6,1,4] w, float[6] b) => (float[] y, float[] s)",
        "y, s = CausalConvWithState (x, w, b)",
        (2, 6, 5),
        60 * 4 + 60,
    ),
}


@pytest.mark.parametrize("name", STANDARD)
def test_an_operator_of_onnx_has_the_figure_of_its_definition(name: str) -> None:
    signature, body, shape, macs = STANDARD[name]
    cost = text_cost(signature, body)
    assert (cost.nodes[0].outputs[0], cost.uncosted_ops, cost.macs) == (shape, {}, macs)


def test_attention_over_an_unknown_number_of_keys_is_not_costed() -> None:
    cost = text_cost(
        "(float[1,1,16] q, float[1,2,10,8] past, int32[1] last, int32 keys) => (float[] y)",
        "y = com.microsoft.GroupQueryAttention <num_heads = 2, kv_num_heads = 2> "
        "(q, q, q, past, past, last, keys)",
    )
    (node,) = cost.nodes
    assert node.outputs == ((1, 1, 16),)
    assert (node.macs, node.unknown_reason) == (
        None,
        "node 'GroupQueryAttention_0' (com.microsoft:GroupQueryAttention): "
        "a length of an attention (keys) is not known",
    )


X = "(uint8[1,4,4,4] x, float s, uint8 z, uint8[4,4,1,1] w) => (uint8[] y)"


@pytest.mark.parametrize(
    ("signature", "call", "attribute"),
    [
        (X, "QLinearConv <channels_last = 1> (x, s, z, w, s, z, s, z)", "channels_last"),
        (X, "QLinearGlobalAveragePool <channels_last = 1> (x, s, z, s, z)", "channels_last"),
        (
            X,
            "QLinearAveragePool <kernel_shape = [2, 2], channels_last = 1> (x, s, z, s, z)",
            "channels_last",
        ),
        (
            "(float[2,1,16] x, float[16,48] w, float[48] b, float[2,2,2,10,8] p) => (float[] y)",
            "Attention <num_heads = 2, past_present_share_buffer = 1> (x, w, b, , p)",
            "past_present_share_buffer",
        ),
    ],
)
def test_nodes_that_need_a_running_session_are_not_costed(
    signature: str, call: str, attribute: str
) -> None:
    (node,) = text_cost(signature, f"y = com.microsoft.{call}").nodes
    assert (node.macs, node.outputs) == (None, (None,))
    assert str(node.unknown_reason).endswith(f": attribute '{attribute}' is 1; expected 0")


def test_experts_with_a_bit_width_for_each_layer_are_counted_by_it() -> None:
    cost = text_cost(
        "(float[5,32] x, float[5,3] r, float[3,64] s, float[3,32] t) => (float[] y) "
        f"<uint8[3,64,32] v = {{{', '.join('0' * 3 * 64 * 32)}}}, "
        f"uint8[3,32,32] w = {{{', '.join('0' * 3 * 32 * 32)}}}>",
        "y = com.microsoft.QMoE <k = 2, expert_weight_bits = 4, fc1_expert_weight_bits = 8> "
        "(x, r, v, s, , w, t)",
    )
    assert (cost.params, cost.macs) == (3 * 64 * 32 + 3 * 32 * 64, 5 * 2 * (64 * 32 + 32 * 64))
