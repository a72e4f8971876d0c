"""Lengths that a model leaves open: names, texts that name nothing, and expressions of names."""

from __future__ import annotations

import onnx
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from otel_quant.cost import Assumption, CostError, InputSpec, ModelCost, analyze, parse_dims
from otel_quant.cost.inputs import MAX_LENGTH, Symbols
from otel_quant.cost.operation import Shape

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
        "seq + nobody",
        "seq - 2",
        "seq / 2",
        "seq // (seq - 1)",
        "seq % 0",
        "Max(seq, 1)",
        "seq +",
        "(seq",
        "seq ** 1000000000",
        "seq * 99999999999999999999999",
        "(" * 240 + "seq" + ")" * 240,
        "seq" + " + 1" * 600,
    ],
)
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


def test_a_length_that_contradicts_its_expression_is_an_error() -> None:
    model = elementwise(["past + seq"], ["past"], ["seq"])
    with pytest.raises(CostError) as caught:
        analyze(model, inputs={"x0": (9,)}, dims={"past": 4, "seq": 1})
    assert str(caught.value) == (
        "<bytes>: input 'x0' sets 'past + seq' to 9; expected 5 as elsewhere among the inputs"
    )


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


def test_a_dimension_that_two_options_give_differently_is_an_error() -> None:
    with pytest.raises(CostError) as caught:
        analyze(elementwise(["N"]), inputs={"x0": (3,)}, dims={"N": 4})
    assert str(caught.value) == "<bytes>: input 'x0' sets 'N' to 3; expected 4 as given for it"


@pytest.mark.parametrize(
    ("dims", "problem"),
    [
        ({"N": -1}, "dimension: 'N' has a length -1; expected integers from 0 to"),
        ({"N": MAX_LENGTH + 1}, "expected integers from 0 to 1,099,511,627,776"),
        (parse_dims(["N=" + "9" * 5000]), "expected integers from 0 to 1,099,511,627,776"),
        ({"N": True}, "'N' has a length True"),
        ({"?": 3}, r"'\?' names no dimension; expected a name; a length without one is given with"),
    ],
)
def test_an_invalid_dimension_is_an_error(dims: dict[str, int], problem: str) -> None:
    with pytest.raises(CostError, match=problem):
        analyze(elementwise(["N"]), dims=dims)


def test_dimensions_are_read_as_a_user_writes_them() -> None:
    assert parse_dims(["batch=8", "a=b=1"]) == {"batch": 8, "a=b": 1}
    for text, problem in (
        ("batch", "'batch' is not understood; expected name=8"),
        ("=8", "'=8' is not understood"),
        ("batch=-1", "is not understood"),
    ):
        with pytest.raises(CostError, match=problem):
            parse_dims([text])
    with pytest.raises(CostError, match="'N' is given twice"):
        parse_dims(["N=1", "N=1"])


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


def test_a_symbol_is_looked_up_before_it_is_parsed_as_an_expression() -> None:
    symbols = Symbols({"a": 2, "a + a": 7})
    assert [symbols.length(dim) for dim in ("a", "a + a", "a*a", "b", 5, -1, None)] == [
        2, 7, 4, None, 5, None, None
    ]  # fmt: skip
