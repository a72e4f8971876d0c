"""Operators of language models and signals cost what they compute."""

from __future__ import annotations

import onnx
import pytest

from otel_quant.cost import ModelCost, analyze
from otel_quant.cost.operators.record import DIV, EXP, LOG
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
    "STFT": (
        "(float[2, 128, 1] x, float[16] w) => (float[] y)",
        "step = Constant <value_int = 8> () y = STFT (x, step, w)",
        (2, 15, 9, 2),
        2 * 15 * (2 * 16 * 4 + 16),
    ),
    "MelWeightMatrix": (
        "(float low) => (float[] y)",
        "n = Constant <value_int = 8> () f = Constant <value_int = 16> ()"
        "y = MelWeightMatrix (n, f, f, low, low)",
        (9, 8),
        10 * (EXP + 2 + DIV + 1) + 2 * LOG + 72 * (1 + DIV),
    ),
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
    node = next(node for node in cost.nodes if node.op_type.endswith(name))
    assert (node.outputs[0], cost.uncosted_ops, cost.macs) == (shape, {}, macs)


SCORE = EXP + 4 + 1
"""Softmax and scale."""


@pytest.mark.parametrize(
    ("operands", "settings", "keys", "extra"),
    [
        ("q, k, v, , , past, past", "", 10 + 1, 0),
        ("q, k, v", "", 1, 0),
        ("q, k, v, , , past, past, four", "past_present_share_buffer = 1", 4 + 1, 0),
        ("q, k, v, mask, , past, past, , , , bias", "", 10 + 1, 2 * 11 + 1 * 48),
        ("packed, , , , , past, past", "", 10 + 1, 0),
        ("q, past, past", "", 10, 0),
        ("q, past, past, , , , , , , , bias", "", 10, 16),
    ],
)
def test_attention_of_a_decoder_is_one_query_against_all_keys(
    operands: str, settings: str, keys: int, extra: int
) -> None:
    cost = text_cost(
        "(float[1,1,16] q, float[1,1,16] k, float[1,1,16] v, float[1,1,48] packed,"
        " float[1,2,10,8] past, int32[1,11] mask, float[48] bias) => (float[] y)",
        "four = Constant <value = int32[1] {4}> () y = com.microsoft.DecoderMaskedMultiHeadAttention"
        f" <num_heads = 2{', ' + settings if settings else ''}> ({operands})",
    )
    assert cost.nodes[-1].outputs == ((1, 1, 16),)
    assert cost.macs_contraction == 2 * keys * (8 + 8)
    assert cost.macs == 2 * keys * (8 + 8 + SCORE) + extra


def test_attention_over_an_unknown_number_of_keys_is_not_costed() -> None:
    cost = text_cost(
        "(float[1,1,16] q, float[1,2,10,8] past, int32[1] n) => (float[] y, float[] a, float[] b)",
        "y, a, b = com.microsoft.DecoderMaskedMultiHeadAttention "
        "<num_heads = 2, past_present_share_buffer = 1> (q, q, q, , , past, past, n)",
    )
    (node,) = cost.nodes
    assert node.outputs == ((1, 1, 16), (1, 2, 10, 8), (1, 2, 10, 8))
    assert (node.macs, node.unknown_reason) == (
        None,
        "node 'DecoderMaskedMultiHeadAttention_0' (com.microsoft:DecoderMaskedMultiHeadAttention): "
        "a length of an attention (keys) is not known",
    )


def test_attention_over_pages_of_unknown_length_is_not_costed() -> None:
    cost = text_cost(
        "(float16[5,16] q, float16[4,8,2,8] c, int32[3] ends, int32[2] past, int32[2,1] table)"
        " => (float16[] y)",
        "y = com.microsoft.PagedAttention <num_heads = 2, kv_num_heads = 2> (q, q, q, c, c, ends,"
        " past, table)",
    )
    assert cost.nodes[0].outputs == ((5, 16),)
    assert cost.uncosted_ops == {"com.microsoft:PagedAttention": 1}
    assert "the elements of operand 5 'ends' are not known" in str(cost.nodes[0].unknown_reason)


def test_a_search_for_tokens_has_the_parameters_of_its_graphs_and_no_figure() -> None:
    cost = text_cost(
        "(int32[2, 7] ids) => (int32[] y)",
        "length = Constant <value = int32[1] {20}> () few = Constant <value = int32[1] {3}> ()"
        "y = com.microsoft.BeamSearch <decoder = d (float[1, 8] x) => (float[1, 6] z)"
        "<float[8, 6] w = {0" + ", 0" * 47 + "}> { z = MatMul (x, w) }>"
        " (ids, length, length, few, few)",
    )
    search = next(node for node in cost.nodes if node.op_type == "com.microsoft:BeamSearch")
    assert search.outputs == ((2, 3, 20),)
    assert cost.params == 48 + 2
    assert cost.uncosted_ops == {"com.microsoft:BeamSearch": 1, "MatMul": 1}
    product = next(node for node in cost.nodes if node.op_type == "MatMul")
    assert "how many tokens it makes is data" in str(product.unknown_reason)
