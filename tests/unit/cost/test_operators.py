"""Every operator has one complete record, or a reason for what is missing in it."""

from __future__ import annotations

from onnx import defs

from otel_quant.cost.operators import all_operators


def test_every_operator_of_every_version_of_onnx_has_a_record() -> None:
    kinds = {each.name for each in defs.get_all_schemas_with_history() if not each.domain}
    assert len(kinds) > 150
    assert kinds - all_operators().keys() == set()


def test_every_operator_has_a_cost_or_a_reason_why_not() -> None:
    not_costed = {
        kind: operator.words for kind, operator in all_operators().items() if not operator.costed
    }
    generator = "not costed: depends on the generator of random numbers"
    texts = "not costed: depends on the length of texts"
    runtime = "not costed: how it searches is left to the runtime"
    assert not_costed == {
        "Bernoulli": generator,
        "Multinomial": generator,
        "RandomNormal": generator,
        "RandomUniform": generator,
        "RandomNormalLike": f"{generator} (onnx_tool: 0)",
        "RandomUniformLike": f"{generator} (onnx_tool: 0)",
        "RegexFullMatch": texts,
        "StringConcat": texts,
        "StringNormalizer": texts,
        "StringSplit": texts,
        "TfIdfVectorizer": texts,
        "Unique": runtime,
        "NonMaxSuppression": "not costed: the number of boxes compared is data (onnx_tool: 0)",
        "MaxRoiPool": "not costed: the sizes of the regions are data",
        "ImageDecoder": "not costed: the lengths of the image are in its data",
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
        "SequenceMap": True,
        "Constant": False,  # its result is the tensor that it holds
    }


def test_every_cost_has_its_formula_in_words() -> None:
    assert [kind for kind, operator in all_operators().items() if not operator.words] == []


def test_what_is_folded_has_a_shape_to_fold_into() -> None:
    assert [
        kind
        for kind, operator in all_operators().items()
        if operator.fold is not None and operator.shapes is None
    ] == []
