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
