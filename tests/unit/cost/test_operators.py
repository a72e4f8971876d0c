"""Every operator has one complete record, or a reason for what is missing in it."""

from __future__ import annotations

from otel_quant.cost.operators import OPERATORS


def test_every_operator_has_a_cost_or_a_reason_why_not() -> None:
    not_costed = {
        kind: operator.cost.source
        for kind, operator in OPERATORS.items()
        if operator.cost.contraction is None and operator.cost.rest is None
    }
    generator = "not costed: depends on the generator of random numbers"
    texts = "not costed: depends on the length of texts"
    runtime = "not costed: how it searches is left to the runtime"
    no_formula = "not costed: no formula yet"
    assert not_costed == {
        "Bernoulli": generator,
        "Multinomial": generator,
        "RandomNormal": generator,
        "RandomUniform": generator,
        "RandomNormalLike": f"{generator} (onnx_tool: 0)",
        "RandomUniformLike": f"{generator} (onnx_tool: 0)",
        "RegexFullMatch": texts,
        "StringConcat": texts,
        "TfIdfVectorizer": texts,
        "Unique": runtime,
        "com.microsoft:Unique": runtime,
        "NonMaxSuppression": "not costed: the number of boxes compared is data (onnx_tool: 0)",
        "MaxRoiPool": "not costed: the sizes of the regions are data",
        "MelWeightMatrix": no_formula,
        "STFT": no_formula,
        "com.microsoft:Inverse": no_formula,
        "com.microsoft:QOrderedGelu": no_formula,
        "com.microsoft:QOrderedLayerNormalization": no_formula,
    }


def test_every_operator_has_a_shape_rule_or_bodies_that_give_its_results() -> None:
    without = {
        kind: operator.bodies is not None
        for kind, operator in OPERATORS.items()
        if operator.shape is None
    }
    assert without == {
        "If": True,
        "Loop": True,
        "Scan": True,
        "SequenceMap": True,
        "Constant": False,  # its result is the tensor that it holds
    }


def test_every_cost_has_its_formula_in_words() -> None:
    assert [kind for kind, operator in OPERATORS.items() if not operator.cost.source] == []


def test_what_is_folded_has_a_shape_to_fold_into() -> None:
    assert [
        kind
        for kind, operator in OPERATORS.items()
        if operator.fold is not None and operator.shape is None
    ] == []
