"""Every operator has one complete record, or a reason for what is missing in it; language models cost what they compute."""

from __future__ import annotations

import pytest
from onnx import defs

from otel_quant.cost import analyze
from otel_quant.cost.operators import all_operators
from otel_quant.cost.operators.rule import SOFTMAX
from otel_quant.views.cost import assumptions
from tests.unit.cost.microsoft_cases import MICROSOFT
from tests.unit.cost.operator_case import Case, model_of
from tests.unit.cost.text_models import one


def test_every_onnx_operator_that_quantized_models_use_has_a_record() -> None:
    kinds = {each.name for each in defs.get_all_schemas_with_history() if not each.domain}
    assert len(kinds) > 150
    assert kinds - all_operators().keys() <= {
        "StringConcat", "StringNormalizer", "StringSplit", "RegexFullMatch", "TfIdfVectorizer",
        "ImageDecoder", "DFT", "STFT", "MelWeightMatrix",
        "HannWindow", "HammingWindow", "BlackmanWindow",
        "NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss", "Multinomial", "Det", "Unique",
        "AffineGrid", "CenterCropPad", "Col2Im", "Compress", "MaxUnpool", "MaxRoiPool",
        "FlexAttention", "Optional", "OptionalGetElement",
        "OptionalHasElement", "SequenceEmpty", "SequenceErase", "SequenceInsert", "SequenceLength",
        "SequenceMap",
    }  # fmt: skip


@pytest.mark.parametrize("kind", ["Det", "SequenceLength", "STFT"])
def test_a_node_of_an_operator_without_a_record_is_not_counted_as_free(kind: str) -> None:
    cost = one(
        "(float[4, 4] x, float[4, 4] w) => (float[] y)",
        f"a = MatMul (x, w) b = {kind} (a) y = Relu (b)",
    )
    assert cost.uncosted_ops == {kind: 1, "Relu": 1}
    assert (cost.macs, cost.unknown_nodes[0].lack) == (64, "rule")


def test_every_operator_has_a_cost_or_a_reason_why_not() -> None:
    not_costed = {
        kind: operator.words for kind, operator in all_operators().items() if not operator.costed
    }
    generator = "not costed: depends on the generator of random numbers"
    assert not_costed == {
        "Bernoulli": generator,
        "RandomNormal": generator,
        "RandomUniform": generator,
        "RandomNormalLike": f"{generator} (onnx_tool: 0)",
        "RandomUniformLike": f"{generator} (onnx_tool: 0)",
        "NonMaxSuppression": "not costed: the number of boxes compared is data (onnx_tool: 0)",
    }


def test_every_operator_has_a_shape_rule_or_bodies_that_give_its_results() -> None:
    without = {
        kind: operator.bodies is not None
        for kind, operator in all_operators().items()
        if not operator.has_results
    }
    # The result of a Constant is the tensor that it holds.
    assert without == {"If": True, "Loop": True, "Scan": True, "Constant": False}


def test_every_cost_has_its_formula_in_words_and_every_folded_operator_a_shape_rule() -> None:
    every = all_operators().items()
    assert [kind for kind, each in every if not each.words] == []
    assert [kind for kind, each in every if each.fold is not None and each.shapes is None] == []


# --- operators of language models -------------------------------------------------------------


@pytest.mark.parametrize("case", MICROSOFT.values(), ids=MICROSOFT)
def test_a_node_has_the_figure_and_the_results_of_its_definition(case: Case) -> None:
    cost = analyze(model_of(case).SerializeToString())
    assert [*cost.nodes[0].outputs] == [*case.shapes]
    assert cost.uncosted_ops == ({} if case.macs is not None else {case.op: 1})
    assert cost.macs == (case.macs or 0)


STANDARD = {
    "LinearAttention": (
        "(float[1,3,16] q, float[1,3,16] k, float[1,3,24] v) => (float[] y, float[] s)",
        'y, s = LinearAttention <q_num_heads=2, kv_num_heads=2, update_rule="linear"> (q, k, v)',
        (1, 3, 24), 3 * 2 * 96 * 2 + 72,
    ),
    "CausalConvWithState": (
        "(float[2,6,5] x, float[6,1,4] w, float[6] b) => (float[] y, float[] s)",
        "y, s = CausalConvWithState (x, w, b)", (2, 6, 5), 60 * 4 + 60,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", STANDARD)
def test_an_operator_of_onnx_has_the_figure_of_its_definition(name: str) -> None:
    signature, body, shape, macs = STANDARD[name]
    cost = one(signature, body, opset=27)
    assert (cost.nodes[0].outputs[0], cost.uncosted_ops, cost.macs) == (shape, {}, macs)


def test_attention_over_a_number_of_keys_that_is_data_is_assumed_to_be_of_past_and_query() -> None:
    cost = one(
        "(float[1,1,16] q, float[1,2,10,8] past, int32[1] last, int32 keys) => (float[] y)",
        "y = com.microsoft.GroupQueryAttention <num_heads = 2, kv_num_heads = 2> "
        "(q, q, q, past, past, last, keys)",
    )
    (node,) = cost.nodes
    assert (node.outputs, node.macs, node.unknown_reason) == (
        ((1, 1, 16),), 2 * (10 + 1) * (16 + SOFTMAX + 1), None,
    )  # fmt: skip
    assert cost.assumed_full == ("y",)
    assert assumptions(cost) == [
        "assumed that 'y' (GroupQueryAttention) attends to past and query together: how many keys there are is data"
    ]


X = "(uint8[1,4,4,4] x, float s, uint8 z, uint8[4,4,1,1] w) => (uint8[] y)"


@pytest.mark.parametrize(
    ("signature", "call", "attribute"),
    [
        (X, "QLinearConv <channels_last = 1> (x, s, z, w, s, z, s, z)", "channels_last"),
        (X, "QLinearGlobalAveragePool <channels_last = 1> (x, s, z, s, z)", "channels_last"),
        (X, "QLinearAveragePool <kernel_shape = [2, 2], channels_last = 1> (x, s, z, s, z)", "channels_last"),
        ("(float[2,1,16] x, float[16,48] w, float[48] b, float[2,2,2,10,8] p) => (float[] y)",
         "Attention <num_heads = 2, past_present_share_buffer = 1> (x, w, b, , p)",
         "past_present_share_buffer"),
    ],
)  # fmt: skip
def test_nodes_that_need_a_running_session_are_not_costed(
    signature: str, call: str, attribute: str
) -> None:
    (node,) = one(signature, f"y = com.microsoft.{call}").nodes
    assert (node.macs, node.outputs) == (None, (None,))
    assert str(node.unknown_reason).endswith(f": attribute '{attribute}' is 1; expected 0")


def test_experts_with_a_bit_width_for_each_layer_are_counted_by_it() -> None:
    cost = one(
        "(float[5,32] x, float[5,3] r, float[3,64] s, float[3,32] t) => (float[] y) "
        f"<uint8[3,64,32] v = {{{', '.join('0' * 3 * 64 * 32)}}}, "
        f"uint8[3,32,32] w = {{{', '.join('0' * 3 * 32 * 32)}}}>",
        "y = com.microsoft.QMoE <k = 2, expert_weight_bits = 4, fc1_expert_weight_bits = 8> "
        "(x, r, v, s, , w, t)",
    )
    assert (cost.params, cost.macs) == (3 * 64 * 32 + 3 * 32 * 64, 5 * 2 * (64 * 32 + 32 * 64))
