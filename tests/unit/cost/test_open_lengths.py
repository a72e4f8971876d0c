"""Input shapes as a user writes them, and lengths that a model leaves open: names, texts that name nothing, expressions."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import onnx
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from otel_quant.cost import (
    Assumption,
    CostError,
    InputSpec,
    ModelCost,
    analyze,
    parse_dims,
    parse_inputs,
)
from otel_quant.cost.inputs import MAX_LENGTH, Symbols
from otel_quant.cost.operation import Shape
from tests.fixtures.onnx_builder import floats, model_of_text

Dim = str | int | None


def elementwise(*shapes: list[Dim]) -> bytes:
    """A Relu of each of the inputs ``x0``, ``x1`` ..."""
    inputs = [
        helper.make_tensor_value_info(f"x{i}", TensorProto.FLOAT, shape)
        for i, shape in enumerate(shapes)
    ]
    nodes = [helper.make_node("Relu", [f"x{i}"], [f"y{i}"]) for i in range(len(shapes))]
    return helper.make_model(helper.make_graph(nodes, "g", inputs, [])).SerializeToString()


def results(cost: ModelCost) -> list[Shape | None]:
    return [node.outputs[0] for node in cost.nodes]


@pytest.mark.parametrize("text", ["?", "None", "none", "-1", "*", "unknown", "??", "<>", "unk__7"])
def test_a_text_without_a_name_is_a_separate_length_each_time(text: str) -> None:
    model = elementwise([text, 3, 48, text], [text, text])

    cost = analyze(model, inputs={"x0": (1, 3, 48, 192)})
    assert results(cost) == [(1, 3, 48, 192), (1, 1)]
    assert cost.assumed == (
        Assumption("x1[0]", 1, "x1", (1, 1)), Assumption("x1[1]", 1, "x1", (1, 1))
    )  # fmt: skip
    assert {each.option for each in cost.assumed} == {"--input x1=1x1"}


def test_a_number_written_as_text_is_that_number() -> None:
    cost = analyze(elementwise(["48", "2*3"]))
    assert (results(cost), cost.assumed) == ([(48, 6)], ())


@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("past_sequence_length + seq", 101),
        ("seq+past_sequence_length", 101),
        ("past_sequence_length - seq", 99),
        ("-seq + past_sequence_length", 99),
        ("2*past_sequence_length", 200),
        ("past_sequence_length // 3", 33),
        ("past_sequence_length / 4", 25),
        ("past_sequence_length % 7", 2),
        ("2 * (past_sequence_length + seq) - 2", 200),
        ("batch.size*past_sequence_length", 800),
        ("p2o.Dynamic.0", 3),
    ],
)
def test_a_length_is_computed_from_names_that_are_known(text: str, length: int) -> None:
    model = elementwise(
        ["past_sequence_length"], ["seq"], ["batch.size"], ["p2o.Dynamic.0"], [text]
    )
    dims = {"past_sequence_length": 100, "seq": 1, "batch.size": 8, "p2o.Dynamic.0": 3}

    cost = analyze(model, dims=dims)
    assert (results(cost)[-1], cost.assumed, cost.unused_dims) == ((length,), (), ())


@pytest.mark.parametrize(
    "text",
    [
        "seq + nobody", "seq - 2", "seq / 2", "seq // (seq - 1)", "seq % 0", "Max(seq, 1)", "seq +", "(seq",
        "seq ** 1000000000", "seq * 99999999999999999999999", "(" * 240 + "seq" + ")" * 240,
        "seq" + " + 1" * 600,
    ],
)  # fmt: skip
def test_a_length_that_cannot_be_computed_is_unknown_and_not_1(text: str) -> None:
    cost = analyze(elementwise(["seq"], [text]), dims={"seq": 1})
    assert results(cost) == [(1,), (None,)]
    assert cost.uncosted_ops == {"Relu": 1}
    shown = text if len(text) <= 200 else text[:200] + "..."
    assert cost.nodes[1].unknown_reason == (
        f"input 'x1': the length '{shown}' of axis 0 cannot be computed; --input x1=SHAPE gives it"
    )
    assert results(analyze(elementwise(["seq"], [text]), inputs={"x1": (9,)})) == [(1,), (9,)]


def test_assumptions_about_names_apply_to_expressions_of_them() -> None:
    cost = analyze(elementwise(["past + seq"], ["past"], ["seq"]))
    assert results(cost) == [(2,), (1,), (1,)]
    assert cost.assumed == (Assumption("past", 1), Assumption("seq", 1))


def test_a_length_may_be_given_for_a_complete_expression() -> None:
    model = elementwise(["past + seq"], ["past + seq"])
    assert results(analyze(model, inputs={"x0": (9,)})) == [(9,), (9,)]
    assert results(analyze(model, dims={"past + seq": 9})) == [(9,), (9,)]


def test_a_hyphen_is_a_subtraction_only_between_known_names() -> None:
    assert results(analyze(elementwise(["batch-size"]), dims={"batch-size": 3})) == [(3,)]
    assert analyze(elementwise(["batch-size"])).assumed == (Assumption("batch-size", 1),)
    computed = analyze(elementwise(["all-some"], ["all"], ["some"]), dims={"all": 9, "some": 4})
    assert results(computed)[0] == (5,)


def test_a_given_dimension_applies_everywhere_and_an_unused_one_is_listed() -> None:
    model = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["": 21]>
        g (float[N, 6] x, float[N] z) => (float[M, 2] y)
        <int64[2, found] where> {
            [where] where = NonZero (x) [turn] y = Transpose (where) [act] a = Relu (z) }
    """).SerializeToString()

    open_ = analyze(model, dims={"N": 4, "typo": 2})
    assert [node.outputs[0] for node in open_.nodes] == [(2, None), (None, 2), (4,)]
    assert open_.unused_dims == ("typo",)
    assert open_.nodes[0].unknown_reason == (
        "node 'where' (NonZero): the size of its result depends on data; "
        "--dim found=LENGTH gives it"
    )
    given = analyze(model, dims={"N": 4, "found": 7})
    assert [node.outputs[0] for node in given.nodes] == [(2, 7), (7, 2), (4,)]
    assert (given.unused_dims, given.uncosted_ops, given.unsized_tensors) == ((), {}, 0)


FROM_0 = "expected integers from 0 to 1,099,511,627,776"


@pytest.mark.parametrize(
    ("shapes", "given", "problem"),
    [
        ([["N"]], {"dims": {"N": -1}}, f"dimension: 'N' has a length -1; {FROM_0}"),
        ([["N"]], {"dims": {"N": MAX_LENGTH + 1}}, f"dimension: 'N' has a length {MAX_LENGTH + 1}; {FROM_0}"),
        ([["N"]], {"dims": parse_dims(["N=" + "9" * 5000])}, FROM_0),
        ([["N"]], {"dims": {"N": True}}, f"dimension: 'N' has a length True; {FROM_0}"),
        ([["N"]], {"dims": {"?": 3}}, "'?' names no dimension; expected a name; a length without one is given with"),
        ([["N"]], {"inputs": {"x0": (3,)}, "dims": {"N": 4}}, "input 'x0' sets 'N' to 3; expected 4 as given for it"),
        ([["past + seq"], ["past"], ["seq"]], {"inputs": {"x0": (9,)}, "dims": {"past": 4, "seq": 1}},
         "input 'x0' sets 'past + seq' to 9; expected 5 as elsewhere among the inputs"),
        ([["N"]], {"rules": "fast"}, "'fast' is not a rule set; expected corrected or onnx_tool"),
    ],
)  # fmt: skip
def test_an_invalid_or_contradictory_argument_is_an_error(
    shapes: list[list[Dim]], given: dict[str, Any], problem: str
) -> None:
    with pytest.raises(CostError, match=re.escape(problem)):
        analyze(elementwise(*shapes), **given)


def test_dimensions_are_read_as_a_user_writes_them() -> None:
    assert parse_dims(["batch=8", "a=b=1"]) == {"batch": 8, "a=b": 1}


def test_an_option_is_quoted_for_a_shell() -> None:
    cost = analyze(elementwise(["`id` b", 3], [None, 2]))
    assert [each.option for each in cost.assumed] == ["--dim '`id` b=1'", "--input x1=1x2"]


def test_an_error_for_an_input_without_a_shape_names_the_option_that_sets_it() -> None:
    info = helper.make_tensor_value_info("x", TensorProto.FLOAT, None)
    model = helper.make_model(
        helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [info], [])
    ).SerializeToString()
    (node,) = analyze(model).nodes
    assert node.unknown_reason == ("input 'x' has no declared shape; --input x=SHAPE gives it one")
    assert results(analyze(model, inputs={"x": (2, 3)})) == [(2, 3)]
    with pytest.raises(CostError, match="'x' has 5,000 dimensions; expected at most 64"):
        analyze(model, inputs={"x": (MAX_LENGTH,) * 5000})


@pytest.mark.parametrize(
    ("shape", "result"), [((4, 3), (4, 3)), ((4, 5), (1, 3)), ((4,), (1, 3)), ((4, 3, 1), (1, 3))]
)
def test_an_optional_shape_is_ignored_if_it_does_not_fit(
    shape: tuple[int, ...], result: Shape
) -> None:
    inputs = {"x0": InputSpec(shape, if_fits=True), "other": InputSpec((1,), if_fits=True)}
    assert results(analyze(elementwise(["N", 3]), inputs=inputs)) == [result]


def test_optional_shapes_that_disagree_on_a_name_are_ignored() -> None:
    inputs = {"x0": InputSpec((4,), if_fits=True), "x1": InputSpec((5, 2), if_fits=True)}
    assert results(analyze(elementwise(["N"], ["N", 2]), inputs=inputs)) == [(4,), (4, 2)]


NUMBERS = st.sampled_from(["a", "b", "0", "1", "7"])
ARITHMETIC = st.recursive(
    NUMBERS,
    lambda inner: st.tuples(
        inner, st.sampled_from(["+", "-", "*", "//", "%"]), inner, st.sampled_from(["", " "])
    ).map(lambda parts: f"({parts[0]}{parts[3]}{parts[1]}{parts[3]}{parts[2]})"),
    max_leaves=12,
)


@settings(derandomize=True)
@given(text=ARITHMETIC, a=st.integers(0, 1000), b=st.integers(0, 1000))
def test_an_expression_is_computed_as_python_does(text: str, a: int, b: int) -> None:
    try:
        expected = eval(text, {"a": a, "b": b})  # of numbers and operators
    except ZeroDivisionError:
        expected = -1
    length = Symbols({"a": a, "b": b}).length(text)
    assert length == (expected if expected >= 0 else None)


@settings(derandomize=True)
@given(text=st.text(st.sampled_from("ab19+-*/%(), ._?:") | st.characters(), max_size=40))
@example(text="a**64**64")
@example(text="--" * 400 + "a")
@example(text="(" * 1000)
@example(text="1" * 1000)
@example(text="\u0663+a")
def test_any_text_is_parsed_as_a_length_or_is_unknown(text: str) -> None:
    length = Symbols({"a": 3, "b": 1 << 40}).length(text)
    assert length is None or 0 <= length < 1 << 63
    shapes = [node.outputs[0] for node in analyze(elementwise([text], ["a"])).nodes]
    assert shapes[1] == (1,)


def dynamic_model() -> bytes:
    text = """<ir_version: 10, opset_import: ["": 21]>
        g (float[batch, seq, 8] a, float[batch, 8, x] b) => (float[] c) { c = MatMul (a, b) }"""
    model = onnx.parser.parse_model(text)
    model.graph.input[1].type.tensor_type.shape.dim[2].Clear()  # a length without a name
    content: bytes = model.SerializeToString()
    return content


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
        ("x:1x3xhxw", "x", InputSpec((1, 3, "h", "w"))),
        ("x=1,max_len", "x", InputSpec((1, "max_len"))),
        ("x:i64:2xn", "x", InputSpec((2, "n"), TensorProto.INT64)),
    ],
)
def test_both_notations_are_understood(text: str, name: str, spec: InputSpec) -> None:
    assert parse_inputs([text]) == {name: spec._replace(origin=repr(text))}


@pytest.mark.parametrize(
    ("parse", "texts", "problem"),
    [
        (parse_inputs, ["x"], "'x' is not understood; expected name=1x3x224x224"),
        (parse_inputs, ["x=1xh-1xw"], "is not understood"),
        (parse_inputs, ["x=1x"], "is not understood"),
        (parse_inputs, ["x:f32"], "is not understood"),
        (parse_inputs, ["x:i64:1:a"], "has values 'a'; expected int64 numbers"),
        (parse_inputs, ["x:i64:1:18446744073709551616"], "has values '18446744073709551616'; expected int64"),
        (parse_inputs, ["x=1", "x=2"], "'x' is given twice"),
        (parse_dims, ["batch"], "'batch' is not understood; expected name=8"),
        (parse_dims, ["=8"], "'=8' is not understood"),
        (parse_dims, ["batch=-1"], "is not understood"),
        (parse_dims, ["N=1", "N=1"], "'N' is given twice"),
    ],
)  # fmt: skip
def test_text_in_neither_notation_is_an_error_that_shows_what_is_expected(
    parse: Callable[[list[str]], object], texts: list[str], problem: str
) -> None:
    with pytest.raises(CostError, match=problem):
        parse(texts)


def test_lengths_that_are_not_given_are_assumed_to_be_one_and_listed() -> None:
    cost = analyze(dynamic_model())
    assert cost.symbolic_dims == {"batch": 1, "seq": 1, "b[2]": 1}
    assert cost.macs == 8


def test_a_symbol_that_one_input_decides_holds_for_the_others() -> None:
    cost = analyze(dynamic_model(), inputs={"a": (2, 5, 8)})
    assert cost.symbolic_dims == {"b[2]": 1}
    assert cost.nodes[0].inputs == ((2, 5, 8), (2, 8, 1))
    assert cost.macs == 2 * 5 * 8


@pytest.mark.parametrize(
    ("inputs", "problem"),
    [
        ({"z": (1,)}, "has no input 'z'; expected one of 'a', 'b'"),
        ({"a": (1, 2)}, "input 'a' is given shape [1, 2]; expected 3 dimensions as in ['batch', 'seq', 8]"),
        ({"a": (1, 2, 8), "b": (3, 8, 1)}, "input 'b' sets 'batch' to 3; expected 1 as elsewhere among the inputs"),
        ({"a": InputSpec((1, 2, 8), TensorProto.INT64)},
         "input 'a' is given type int64; expected float32 as the model declares it"),
        (parse_inputs(["a:i64:1x2x8"], option="--input"),
         "input 'a' is given type int64 (--input 'a:i64:1x2x8'); expected float32 as the model declares it"),
        (parse_inputs(["a=1x2"], option="--input"),
         "input 'a' is given shape [1, 2] (--input 'a=1x2'); expected 3 dimensions as in ['batch', 'seq', 8]"),
        (parse_inputs(["a:f32:1x2x8:1x2x3"]), "'a' ('a:f32:1x2x8:1x2x3') has 3 values; expected 16 for shape [1, 2, 8]"),
        ({"a": (1, -2, 8)}, f"'a' has a length -2; {FROM_0}"),
        ({"a": (1, 1 << 41, 8)}, f"'a' has a length {1 << 41}; {FROM_0}"),
        (parse_inputs(["\n=1"]), r"has no input '\\n' ('\\n=1'); expected one of 'a', 'b'"),
    ],
)  # fmt: skip
def test_inputs_that_do_not_fit_the_model_are_errors(
    inputs: dict[str, tuple[int, ...] | InputSpec], problem: str
) -> None:
    with pytest.raises(CostError) as caught:
        analyze(dynamic_model(), inputs=inputs)
    assert str(caught.value).partition(": ")[2] == problem


def test_a_shape_for_an_input_that_is_not_a_tensor_is_an_error() -> None:
    model = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["": 21]>
        g (seq(float[2]) s) => (int64 n) { n = SequenceLength (s) }
    """)
    with pytest.raises(CostError) as caught:
        analyze(model.SerializeToString(), inputs={"s": (2,)})
    assert str(caught.value) == (
        "<bytes>: input 's' is given a shape; expected none, as it is of type sequence"
    )


@pytest.mark.parametrize(("count", "expected"), [(0, "none"), (99, "one of 'i0', 'i1', 'i2', ")])
def test_an_error_names_the_inputs_and_cuts_a_long_list(count: int, expected: str) -> None:
    inputs = [helper.make_tensor_value_info(f"i{k}", TensorProto.FLOAT, [1]) for k in range(count)]
    model = helper.make_model(helper.make_graph([], "g", inputs, []))
    with pytest.raises(CostError) as caught:
        analyze(model.SerializeToString(), inputs={"x": (1,)})
    assert str(caught.value).startswith(f"<bytes>: has no input 'x'; expected {expected}")
    assert len(str(caught.value)) < 300


def fixed_model() -> bytes:
    text = """<ir_version: 10, opset_import: ["": 21]>
        g (float[1, 3, 8, 8] image) => (float[1, 10] y, float[1, 4, 8, 8] map) {
            map = Conv (image, w) flat = Flatten (map) y = Gemm (flat, head) }"""
    return model_of_text(text, **floats(0, w=(4, 3, 1, 1), head=(256, 10))).SerializeToString()


def test_a_length_that_the_model_fixes_may_be_overridden_and_is_listed() -> None:
    cost = analyze(fixed_model(), inputs={"image": (5, 3, 8, 8)})
    assert cost.overridden_dims == {"image[0]": (1, 5)}
    assert cost.to_json_dict()["overridden_dims"] == {"image[0]": {"model": 1, "given": 5}}
    assert [node.outputs for node in cost.nodes] == [((5, 4, 8, 8),), ((5, 256),), ((5, 10),)]
    assert cost.macs_contraction == 5 * analyze(fixed_model()).macs_contraction
    assert cost.uncosted_ops == {}


@pytest.mark.parametrize(
    ("shape", "shapes", "uncosted"),
    [
        ((1, 3, 16, 16), [((1, 4, 16, 16),), ((1, 1024),), (None,)], {"Gemm": 1}),
        ((1, 4, 8, 8), [(None,), (None,), (None,)], {"Conv": 1, "Gemm": 1}),
    ],
)
def test_nodes_that_do_not_fit_an_overridden_length_have_unknown_macs(
    shape: tuple[int, ...], shapes: list[object], uncosted: dict[str, int]
) -> None:
    cost = analyze(fixed_model(), inputs={"image": shape})
    assert [node.outputs for node in cost.nodes] == shapes
    assert cost.uncosted_ops == uncosted
