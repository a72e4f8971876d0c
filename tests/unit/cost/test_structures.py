"""Functions, bodies and sequences are costed or named."""

from __future__ import annotations

import onnx
import pytest
from onnx import TensorProto, helper

from otel_quant.cost import ModelCost, analyze

OPSETS = [helper.make_opsetid("", 21), helper.make_opsetid("f", 1)]


def info(name: str, dims: list[int] | None, dtype: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, dims)


def text_cost(text: str) -> ModelCost:
    head = '<ir_version: 10, opset_import: ["": 21, "f": 1]> '
    return analyze(onnx.parser.parse_model(head + text).SerializeToString())


def test_a_function_takes_the_callers_attributes_and_its_own_defaults() -> None:
    cost = text_cost(
        """
        g (float[2, 8] x) => (float[] y, float[] z) {
            y = f.cut <axis = 0> (x)
            z = f.cut (x)
        }
        <domain: "f", opset_import: ["": 21]>
        cut <axis: int = 1> (a) => (b) { b = ArgMax <axis: int = @axis, keepdims = 0> (a) }
        """
    )
    assert [node.outputs for node in cost.nodes] == [((8,),), ((2,),)]
    assert [node.name.rpartition("/")[2] for node in cost.nodes] == ["ArgMax_0", "ArgMax_0"]


def test_an_operand_that_a_call_omits_is_missing_in_the_function() -> None:
    cost = text_cost(
        """
        g (float[2, 4] x, float[4, 3] w, float[3] v) => (float[] y, float[] z) {
            y = f.affine (x, w, v)
            z = f.affine (x, w)
        }
        <domain: "f", opset_import: ["": 21]> affine (a, w, b) => (c) { c = Gemm (a, w, b) }
        """
    )
    assert [node.macs for node in cost.nodes] == [24 + 6, 24]


def test_a_local_function_overrides_an_operator_of_its_name() -> None:
    cost = text_cost(
        """
        g (float[10] x) => (float[10] y) { y = Relu (x) }
        <domain: "", opset_import: ["": 21]> Relu (a) => (b) { b = Exp (a) }
        """
    )
    assert cost.op_counts == {"Exp": 1}


def test_a_scan_costs_its_body_for_every_slice() -> None:
    cost = text_cost(
        """
        g (float[8] start, float[5, 8] xs, float[8, 8] w) => (float[8] last, float[5, 8] ys) {
            last, ys = Scan (start, xs) <num_scan_inputs = 1, body = step
                (float[8] h, float[8] x) => (float[8] h2, float[8] y) {
                    p = MatMul (h, w) h2 = Add (p, x) y = Identity (h2) }>
        }
        """
    )
    assert cost.nodes[0].outputs == ((8,), (5, 8))
    assert cost.macs == 5 * (64 + 8)
    assert cost.uncosted_ops == {}


def test_a_scan_along_another_axis_stacks_along_another_axis() -> None:
    cost = text_cost(
        """
        g (float[3, 5] xs) => (float[3, 5] ys) {
            ys = Scan (xs) <num_scan_inputs = 1, scan_input_axes = [1], scan_output_axes = [1],
                body = step (float[3] x) => (float[3] y) { y = Relu (x) }>
        }
        """
    )
    assert cost.nodes[0].outputs == ((3, 5),)
    assert cost.macs == 15


def test_lengths_that_grow_in_a_loop_are_unknown_and_constant_ones_known() -> None:
    cost = text_cost(
        """
        g (float[4] x, float[4] k) => (float[N] y, float[4] z) <int64 trips = {3}, bool go = {1}> {
            y, z = Loop (trips, go, x, k) <body = b (int64 i, bool c, float[M] h, float[4] s)
                => (bool c2, float[K] h2, float[4] s2) {
                    c2 = Identity (c) h2 = Concat <axis = 0> (h, k) s2 = Relu (s) }>
        }
        """
    )
    assert cost.nodes[0].outputs == ((None,), (4,))
    assert [(node.op_type, node.macs) for node in cost.nodes] == [
        ("Loop", 0), ("Identity", 0), ("Concat", 0), ("Relu", 12),
    ]  # fmt: skip


def test_a_body_reads_values_of_the_graph_around_it() -> None:
    cost = text_cost(
        """
        g (float[4, 8] x, bool flag, float[8, 2] w) => (float[4, 2] y) {
            a = Relu (x)
            y = If (flag) <then_branch = t () => (float[4, 2] p) { p = MatMul (a, w) },
                           else_branch = e () => (float[4, 2] q) { q = MatMul (a, w) }>
        }
        """
    )
    assert cost.nodes[1].outputs == ((4, 2),)
    assert cost.macs == 32 + 64


def test_lengths_that_differ_between_branches_are_unknown() -> None:
    cost = text_cost(
        """
        g (float[4, 8] x, bool flag, float[8, 2] w, float[8, 3] v) => (float[] y) {
            y = If (flag) <then_branch = t () => (float[4, 2] p) { p = MatMul (x, w) },
                           else_branch = e () => (float[4, 3] q) { q = MatMul (x, v) }>
        }
        """
    )
    assert cost.nodes[0].outputs == ((4, None),)
    assert cost.macs == 4 * 8 * 3


def test_sequences_keep_the_shapes_of_their_members() -> None:
    cost = text_cost(
        """
        g (float[6, 8] x, int64 where) => (float[] y, float[] z, float[] rest)
        <int64[3] parts = {1, 2, 3}, int64 at = {-1}> {
            s = SplitToSequence <axis = 0> (x, parts)
            y = SequenceAt (s, at)
            z = ConcatFromSequence <axis = 0> (s)
            both = SequenceConstruct (y, x)
            rest = SequenceAt (both, where)
        }
        """
    )
    tensors = [node.outputs for node in cost.nodes if node.op_type.endswith(("At", "Sequence"))]
    assert tensors[1:] == [((3, 8),), ((6, 8),), ((None, 8),)]
    assert cost.uncosted_ops == {}


@pytest.mark.parametrize(
    ("weight", "activation", "precision"),
    [
        ("int8", "int8", "int8"),
        ("int8", "uint8", "int8"),
        ("int8", "int16", "int16"),
        ("int4", "int8", "int8"),
        ("int8", None, "int8 weight-only"),
        ("int4", None, "int4 weight-only"),
    ],
)
def test_a_contraction_executes_in_the_type_of_its_quantized_operands(
    weight: str, activation: str | None, precision: str
) -> None:
    zero = "" if activation is None else f", {activation} z = {{0}}"
    source = """q = QuantizeLinear (x, s, z) d = DequantizeLinear (q, s, z) r = Reshape (d, to)"""
    cost = text_cost(
        f"""g (float[2, 8] x) => (float[] y)
        <{weight}[8, 4] w = {{{", ".join("0" * 32)}}}, float s = {{1}}, int64[2] to = {{2, 8}}{zero}> {{
            wf = DequantizeLinear (w, s) {source if activation else "r = Reshape (x, to)"}
            y = MatMul (r, wf) }}"""
    )
    assert cost.precision == {precision: 1.0}
    assert cost.dequantize_nodes == (2 if activation is not None else 1)
    assert cost.quantize_nodes == (1 if activation is not None else 0)
