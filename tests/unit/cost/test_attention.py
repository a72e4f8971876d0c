"""What attention of a decoder costs: the keys that are in use count, no others."""

from __future__ import annotations

import onnx
import onnx.parser
import pytest

from otel_quant.cost import analyze
from otel_quant.cost.operators.record import EXP
from tests.unit.cost.text_models import one


def test_grouped_query_attention_counts_only_the_keys_in_use() -> None:
    signature = (
        "(float[1,3,64] q, float[1,3,16] k, float[1,3,16] v, float[1,2,10,8] pk, "
        "float[1,2,10,8] pv, int32[1] len) => (float[] y, float[] a, float[] b)"
    )
    graph = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["": 21, "com.microsoft": 1]> g {signature}
        <int32 total = {{13}}>
        {{ y, a, b = com.microsoft.GroupQueryAttention <num_heads = 8, kv_num_heads = 2>
           (q, k, v, pk, pv, len, total) }}"""
    )
    cost = analyze(graph.SerializeToString())
    assert cost.nodes[0].outputs == ((1, 3, 64), (1, 2, 13, 8), (1, 2, 13, 8))
    assert cost.macs_contraction == 8 * 3 * 13 * (8 + 8)


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
    model = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["": 21, "com.microsoft": 1]>
        g (float[1,1,16] q, float[1,1,16] k, float[1,1,16] v, float[1,1,48] packed,
           float[1,2,10,8] past, int32[1,11] mask, float[48] bias) => (float[] y)
        <int32[1] four = {{4}}>
        {{ y = com.microsoft.DecoderMaskedMultiHeadAttention
           <num_heads = 2{", " + settings if settings else ""}> ({operands}) }}"""
    )
    cost = analyze(model.SerializeToString())
    assert cost.nodes[0].outputs == ((1, 1, 16),)
    assert cost.macs_contraction == 2 * keys * (8 + 8)
    assert cost.macs == 2 * keys * (8 + 8 + SCORE) + extra


def test_attention_over_an_unknown_number_of_keys_is_not_costed() -> None:
    cost = one(
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
