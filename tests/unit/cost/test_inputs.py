"""Input shapes as a user writes them, and what they mean for a model."""

from __future__ import annotations

import pytest
from onnx import TensorProto, helper

from otel_quant.cost import CostError, InputSpec, cost_of, parse_inputs


def dynamic_model() -> bytes:
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["a", "b"], ["c"])],
        "g",
        [
            helper.make_tensor_value_info("a", TensorProto.FLOAT, ["batch", "seq", 8]),
            helper.make_tensor_value_info("b", TensorProto.FLOAT, ["batch", 8, None]),
        ],
        [helper.make_tensor_value_info("c", TensorProto.FLOAT, None)],
    )
    return helper.make_model(graph).SerializeToString()


@pytest.mark.parametrize(
    ("text", "name", "spec"),
    [
        ("x=1x3x224x224", "x", InputSpec((1, 3, 224, 224))),
        ("x=1,3", "x", InputSpec((1, 3))),
        ("x=", "x", InputSpec(())),
        ("x:1x128", "x", InputSpec((1, 128))),
        ("x:f32:1x3x224x224", "x", InputSpec((1, 3, 224, 224), TensorProto.FLOAT)),
        ("x:int32:2", "x", InputSpec((2,), TensorProto.INT32)),
        ("s:f32:1x2:0.25x0.5", "s", InputSpec((1, 2), TensorProto.FLOAT, (0.25, 0.5))),
        ("s:i64:2:3x-4", "s", InputSpec((2,), TensorProto.INT64, (3, -4))),
        ("serving:0:f32:1x2", "serving:0", InputSpec((1, 2), TensorProto.FLOAT)),
        ("serving:0=1x2", "serving:0", InputSpec((1, 2))),
        ("a=b=1x2", "a=b", InputSpec((1, 2))),
    ],
)
def test_both_notations_are_understood(text: str, name: str, spec: InputSpec) -> None:
    assert parse_inputs([text]) == {name: spec}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("x", "'x' is not understood; expected name=1x3x224x224"),
        ("x=1xhxw", "is not understood"),
        ("x:f32:1x2:1x2x3", "has 3 values; expected 2 for shape"),
        ("x:i64:1:a", "has values 'a'; expected int64 numbers"),
        ("x=99999999999999999999", "has a length beyond"),
    ],
)
def test_what_is_neither_is_an_error_that_says_what_is(text: str, problem: str) -> None:
    with pytest.raises(CostError, match=problem):
        parse_inputs([text])


def test_an_input_given_twice_is_an_error() -> None:
    with pytest.raises(CostError, match="'x' is given twice"):
        parse_inputs(["x=1", "x=2"])


def test_lengths_that_nobody_gives_are_assumed_to_be_one_and_named() -> None:
    cost = cost_of(dynamic_model())
    assert cost.symbolic_dims == {"batch": 1, "seq": 1, "b[2]": 1}
    assert cost.macs == 8


def test_a_symbol_that_one_input_decides_holds_for_the_others() -> None:
    cost = cost_of(dynamic_model(), inputs={"a": (2, 5, 8)})
    assert cost.symbolic_dims == {"b[2]": 1}
    assert cost.nodes[0].inputs == ((2, 5, 8), (2, 8, 1))
    assert cost.macs == 2 * 5 * 8


@pytest.mark.parametrize(
    ("inputs", "problem"),
    [
        ({"z": (1,)}, "has no input 'z'; expected one of 'a', 'b'"),
        ({"a": (1, 2)}, r"input 'a' is given shape \[1, 2\]; expected 3 dimensions"),
        ({"a": (1, 2, 8), "b": (3, 8, 1)}, "input 'b' sets 'batch' to 3; expected 1"),
        ({"a": (1, -2, 8)}, "'a' has a length -2"),
    ],
)
def test_inputs_that_do_not_fit_the_model_are_errors(
    inputs: dict[str, tuple[int, ...]], problem: str
) -> None:
    with pytest.raises(CostError, match=problem):
        cost_of(dynamic_model(), inputs=inputs)


def test_an_unknown_rule_set_is_an_error_that_names_those_there_are() -> None:
    with pytest.raises(CostError, match="'fast' is no rule set; expected corrected or onnx_tool"):
        cost_of(dynamic_model(), rules="fast")
