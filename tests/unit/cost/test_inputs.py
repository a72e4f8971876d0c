"""Input shapes as a user writes them, and what they mean for a model."""

from __future__ import annotations

import onnx
import pytest
from onnx import TensorProto, helper

from otel_quant.cost import CostError, InputSpec, analyze, parse_inputs
from tests.fixtures.onnx_builder import floats, model_of_text


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
    ("text", "problem"),
    [
        ("x", "'x' is not understood; expected name=1x3x224x224"),
        ("x=1xh-1xw", "is not understood"),
        ("x=1x", "is not understood"),
        ("x:f32", "is not understood"),
        ("x:i64:1:a", "has values 'a'; expected int64 numbers"),
        ("x:i64:1:18446744073709551616", "has values '18446744073709551616'; expected int64"),
    ],
)
def test_text_in_neither_notation_is_an_error_that_shows_both(text: str, problem: str) -> None:
    with pytest.raises(CostError, match=problem):
        parse_inputs([text])


def test_an_input_given_twice_is_an_error() -> None:
    with pytest.raises(CostError, match="'x' is given twice"):
        parse_inputs(["x=1", "x=2"])


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
        (
            {"a": (1, 2)},
            "input 'a' is given shape [1, 2]; expected 3 dimensions as in ['batch', 'seq', 8]",
        ),
        (
            {"a": (1, 2, 8), "b": (3, 8, 1)},
            "input 'b' sets 'batch' to 3; expected 1 as elsewhere among the inputs",
        ),
        (
            {"a": InputSpec((1, 2, 8), TensorProto.INT64)},
            "input 'a' is given type int64; expected float32 as the model declares it",
        ),
        (
            parse_inputs(["a:i64:1x2x8"], option="--input"),
            "input 'a' is given type int64 (--input 'a:i64:1x2x8'); "
            "expected float32 as the model declares it",
        ),
        (
            parse_inputs(["a=1x2"], option="--input"),
            "input 'a' is given shape [1, 2] (--input 'a=1x2'); "
            "expected 3 dimensions as in ['batch', 'seq', 8]",
        ),
        (
            parse_inputs(["a:f32:1x2x8:1x2x3"]),
            "'a' ('a:f32:1x2x8:1x2x3') has 3 values; expected 16 for shape [1, 2, 8]",
        ),
        (parse_inputs(["\n=1"]), r"has no input '\\n' ('\\n=1'); expected one of 'a', 'b'"),
    ],
)
def test_inputs_that_do_not_fit_the_model_are_errors(
    inputs: dict[str, tuple[int, ...] | InputSpec], problem: str
) -> None:
    with pytest.raises(CostError) as caught:
        analyze(dynamic_model(), inputs=inputs)
    assert str(caught.value).partition(": ")[2] == problem


@pytest.mark.parametrize("length", [-2, 1 << 41])
def test_a_length_that_no_tensor_has_is_an_error(length: int) -> None:
    expected = f"'a' has a length {length}; expected integers from 0 to 1,099,511,627,776"
    with pytest.raises(CostError, match=expected):
        analyze(dynamic_model(), inputs={"a": (1, length, 8)})


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


def test_an_error_for_an_unknown_rule_set_lists_the_existing_ones() -> None:
    with pytest.raises(
        CostError, match="'fast' is not a rule set; expected corrected or onnx_tool"
    ):
        analyze(dynamic_model(), rules="fast")
