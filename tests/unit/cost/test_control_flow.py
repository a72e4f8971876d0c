"""Loops, branches, functions, bodies and sequences are costed or named."""

from __future__ import annotations

from typing import Any

import pytest

from otel_quant.cost import AssumedBranch, ModelCost, parse_inputs
from tests.unit.cost.text_models import text_cost


@pytest.mark.parametrize(
    ("trips", "condition", "times"),
    [("seven", "Identity (c)", 7), ("seven", "Less (k, n)", None), ("", "Identity (c)", None)],
)
def test_a_loop_is_costed_for_its_trip_count_unless_a_condition_ends_it(
    trips: str, condition: str, times: int | None
) -> None:
    cost = text_cost(
        f"""g (float[4] x) => (float[4] y)
        <int64 seven = {{7}}, int32 n = {{9}}, int32 zero = {{0}}, int32 one = {{1}}> {{
            last, y = Loop ({trips}, , zero, x) <body = b
                (int64 t, bool c, int32 i, float[4] h) => (bool go, int32 k, float[4] h2) {{
                    k = Add (i, one) go = {condition} h2 = Relu (h) }}>
        }}"""
    )
    relu = 4 * times if times else None
    assert [node.macs for node in cost.nodes if node.op_type == "Relu"] == [relu]
    assert bool(cost.uncosted_ops) is (times is None)


BRANCHES = """
    g (float[100] x{flag}) => (float[100] y) <{constant}> {{
        y = If (flag) <
            then_branch = t () => (float[100] p) <float[100] w = {{{hundred}}}> {{ p = Add (x, w) }},
            else_branch = e () => (float[100] q) <float[100] v = {{{hundred}}}, float[100] u = {{{hundred}}}>
                {{ r = Mul (x, v) q = Add (r, u) }}>
    }}
"""


def branches(condition: str | None, **given: Any) -> ModelCost:
    text = BRANCHES.format(
        flag=", bool flag" if condition is None else "",
        constant="" if condition is None else f"bool flag = {{{condition}}}",
        hundred=", ".join(["1"] * 100),
    )
    return text_cost(text, **given)


def test_parameters_of_both_branches_count_whether_or_not_the_condition_is_known() -> None:
    unknown, taken, left = branches(None), branches("1"), branches("0")
    assert unknown.params == 300
    assert taken.params == left.params == 301  # the condition is a constant too
    assert [sum(node.params for node in cost.nodes) for cost in (unknown, taken, left)] == [
        300, 301, 301,
    ]  # fmt: skip
    assert [cost.macs for cost in (unknown, taken, left)] == [200, 100, 200]
    assert [cost.assumed_branches for cost in (unknown, taken, left)] == [
        (AssumedBranch("y", "else", 200, 100, "--input flag:bool::VALUE"),), (), ()
    ]  # fmt: skip
    assert branches(None, inputs=parse_inputs(["flag:bool::1"])).macs == taken.macs


def test_the_taken_branch_is_named_even_if_its_macs_are_unknown() -> None:
    in_a_loop = text_cost(
        """g (float[4] x, int64 trips, bool flag) => (float[4] y) <bool go = {1}> {
            y = Loop (trips, go, x) <body = b (int64 i, bool c, float[4] h) => (bool d, float[4] r) {
                d = Identity (c)
                r = If (flag) <then_branch = t () => (float[4] p) { p = Relu (h) },
                               else_branch = e () => (float[4] q) { q = Neg (h) }> }>
        }"""
    )
    [branch] = in_a_loop.assumed_branches
    assert (branch.macs, branch.other_macs) == (None, None)


def test_a_function_takes_the_callers_attributes_and_its_own_defaults() -> None:
    cost = text_cost(
        """g (float[2, 8] x) => (float[] y, float[] z) {
            y = f.cut <axis = 0> (x)
            z = f.cut (x)
        }
        <domain: "f", opset_import: ["": 21]>
        cut <axis: int = 1> (a) => (b) { b = ArgMax <axis: int = @axis, keepdims = 0> (a) }"""
    )
    assert [node.outputs for node in cost.nodes] == [((8,),), ((2,),)]
    assert [node.name.rpartition("/")[2] for node in cost.nodes] == ["b", "b"]


def test_an_operand_that_a_call_omits_is_missing_in_the_function() -> None:
    cost = text_cost(
        """g (float[2, 4] x, float[4, 3] w, float[3] v) => (float[] y, float[] z) {
            y = f.affine (x, w, v)
            z = f.affine (x, w)
        }
        <domain: "f", opset_import: ["": 21]> affine (a, w, b) => (c) { c = Gemm (a, w, b) }"""
    )
    assert [node.macs for node in cost.nodes] == [24 + 6, 24]


def test_a_local_function_overrides_an_operator_of_its_name() -> None:
    cost = text_cost(
        """g (float[10] x) => (float[10] y) { y = Relu (x) }
        <domain: "", opset_import: ["": 21]> Relu (a) => (b) { b = Exp (a) }"""
    )
    assert cost.op_counts == {"Exp": 1}


BODIES: dict[str, tuple[str, tuple[tuple[int | None, ...], ...], int]] = {
    "a scan costs its body for every slice": (
        """g (float[8] start, float[5, 8] xs, float[8, 8] w) => (float[8] last, float[5, 8] ys) {
            last, ys = Scan (start, xs) <num_scan_inputs = 1, body = step
                (float[8] h, float[8] x) => (float[8] h2, float[8] y) {
                    p = MatMul (h, w) h2 = Add (p, x) y = Identity (h2) }> }""",
        ((8,), (5, 8)),
        5 * (64 + 8),
    ),
    "a scan along another axis stacks along another axis": (
        """g (float[3, 5] xs) => (float[3, 5] ys) {
            ys = Scan (xs) <num_scan_inputs = 1, scan_input_axes = [1], scan_output_axes = [1],
                body = step (float[3] x) => (float[3] y) { y = Relu (x) }> }""",
        ((3, 5),),
        15,
    ),
    "a body reads values of the graph around it": (
        """g (float[4, 8] x, bool flag, float[8, 2] w) => (float[4, 2] y) {
            a = Relu (x)
            y = If (flag) <then_branch = t () => (float[4, 2] p) { p = MatMul (a, w) },
                           else_branch = e () => (float[4, 2] q) { q = MatMul (a, w) }> }""",
        ((4, 2),),
        32 + 64,
    ),
    "lengths that differ between branches are unknown": (
        """g (float[4, 8] x, bool flag, float[8, 2] w, float[8, 3] v) => (float[] y) {
            y = If (flag) <then_branch = t () => (float[4, 2] p) { p = MatMul (x, w) },
                           else_branch = e () => (float[4, 3] q) { q = MatMul (x, v) }> }""",
        ((4, None),),
        4 * 8 * 3,
    ),
}


@pytest.mark.parametrize(("text", "outputs", "macs"), BODIES.values(), ids=BODIES)
def test_a_node_with_bodies_has_their_cost_and_results(
    text: str, outputs: tuple[tuple[int | None, ...], ...], macs: int
) -> None:
    cost = text_cost(text)
    node = next(node for node in cost.nodes if node.op_type in ("Scan", "If"))
    assert (node.outputs, cost.macs, cost.uncosted_ops) == (outputs, macs, {})


def test_lengths_that_grow_in_a_loop_are_unknown_and_constant_ones_known() -> None:
    cost = text_cost(
        """g (float[4] x, float[4] k) => (float[N] y, float[4] z) <int64 trips = {3}, bool go = {1}> {
            y, z = Loop (trips, go, x, k) <body = b (int64 i, bool c, float[M] h, float[4] s)
                => (bool c2, float[K] h2, float[4] s2) {
                    c2 = Identity (c) h2 = Concat <axis = 0> (h, k) s2 = Relu (s) }>
        }"""
    )
    assert cost.nodes[0].outputs == ((None,), (4,))
    assert [(node.op_type, node.macs) for node in cost.nodes] == [
        ("Loop", 0), ("Identity", 0), ("Concat", 0), ("Relu", 12),
    ]  # fmt: skip


def test_sequences_keep_the_shapes_of_their_members() -> None:
    cost = text_cost(
        """g (float[6, 8] x, int64 where) => (float[] y, float[] z, float[] rest)
        <int64[3] parts = {1, 2, 3}, int64 at = {-1}> {
            s = SplitToSequence <axis = 0> (x, parts)
            y = SequenceAt (s, at)
            z = ConcatFromSequence <axis = 0> (s)
            both = SequenceConstruct (y, x)
            rest = SequenceAt (both, where)
        }"""
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
