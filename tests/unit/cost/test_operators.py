"""Every operator has one complete record, or a reason for what is missing in it."""

from __future__ import annotations

import onnx.parser
import pytest
from onnx import defs

from otel_quant.cost import analyze
from otel_quant.cost.operators import all_operators


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
    text = f"""<ir_version: 10, opset_import: ["": 21]> g (float[4, 4] x, float[4, 4] w) => (float[] y)
        {{ a = MatMul (x, w) b = {kind} (a) y = Relu (b) }}"""
    cost = analyze(onnx.parser.parse_model(text).SerializeToString())
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
    assert without == {
        "If": True,
        "Loop": True,
        "Scan": True,
        "Constant": False,  # its result is the tensor that it holds
    }


def test_every_cost_has_its_formula_in_words() -> None:
    assert [kind for kind, operator in all_operators().items() if not operator.words] == []


def test_every_folded_operator_has_a_shape_rule() -> None:
    assert [
        kind
        for kind, operator in all_operators().items()
        if operator.fold is not None and operator.shapes is None
    ] == []
