"""How often loops run, and what branches and bodies have in memory."""

from __future__ import annotations

from typing import Any

import onnx.parser
import pytest

from otel_quant.cost import AssumedBranch, ModelCost, analyze, parse_inputs


def text_cost(text: str, **given: Any) -> ModelCost:
    head = '<ir_version: 10, opset_import: ["": 21]> '
    return analyze(onnx.parser.parse_model(head + text).SerializeToString(), **given)


@pytest.mark.parametrize(
    ("trips", "condition", "times"),
    [("seven", "Identity (c)", 7), ("seven", "Less (k, n)", None), ("", "Identity (c)", None)],
)
def test_a_loop_is_costed_for_its_trip_count_unless_a_condition_ends_it(
    trips: str, condition: str, times: int | None
) -> None:
    cost = text_cost(
        f"""
        g (float[4] x) => (float[4] y)
        <int64 seven = {{7}}, int32 n = {{9}}, int32 zero = {{0}}, int32 one = {{1}}> {{
            last, y = Loop ({trips}, , zero, x) <body = b
                (int64 t, bool c, int32 i, float[4] h) => (bool go, int32 k, float[4] h2) {{
                    k = Add (i, one) go = {condition} h2 = Relu (h) }}>
        }}
        """
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
        (AssumedBranch("If_0", "else", 200, 100, "--input flag:bool::VALUE"),), (), ()
    ]  # fmt: skip
    assert branches(None, inputs=parse_inputs(["flag:bool::1"])).macs == taken.macs


def test_the_taken_branch_is_named_even_if_its_macs_are_unknown() -> None:
    in_a_loop = text_cost(
        """
        g (float[4] x, int64 trips, bool flag) => (float[4] y) <bool go = {1}> {
            y = Loop (trips, go, x) <body = b (int64 i, bool c, float[4] h) => (bool d, float[4] r) {
                d = Identity (c)
                r = If (flag) <then_branch = t () => (float[4] p) { p = Relu (h) },
                               else_branch = e () => (float[4] q) { q = Neg (h) }> }>
        }
        """
    )
    [branch] = in_a_loop.assumed_branches
    assert (branch.macs, branch.other_macs) == (None, None)


def test_a_branchs_result_is_in_memory_once() -> None:
    cost = text_cost(
        "g (float[100] x, bool flag) => (float[100] y) { y = If (flag) "
        "<then_branch = t () => (float[100] p) { p = Relu (x) },"
        " else_branch = e () => (float[100] q) { q = Neg (x) }> }"
    )
    assert cost.peak_activation_bytes == 400 + 1 + 400


def test_the_peak_is_taken_from_the_branch_that_needs_more() -> None:
    cost = text_cost(
        "g (float[100] x, bool flag) => (float[100] y) <int64[2] wide = {9, 100}> "
        "{ y = If (flag) <then_branch = t () => (float[100] p) "
        "{ w = Expand (x, wide) p = ReduceMax <keepdims = 0> (w, zero) },"
        " else_branch = e () => (float[100] q) { a = Relu (x) b = Exp (a) c = Tan (b) q = Neg (c) }>"
        " }".replace("zero", "first").replace("{9, 100}> ", "{9, 100}, int64[1] first = {0}> ")
    )
    assert cost.peak_activation_bytes == 400 + 1 + 3600 + 400


def test_outer_tensors_that_a_loop_reads_stay_alive_during_the_loop() -> None:
    cost = text_cost(
        """
        g (float[3000] x) => (float[3000] y)
        <int64 trips = {5}, bool go = {1}, int64[1] from = {0}, int64[1] to = {3000}> {
            big = Concat <axis = 0> (x, x, x)
            y = Loop (trips, go, x) <body = b (int64 i, bool c, float[3000] h)
                => (bool c2, float[3000] h2) {
                    c2 = Identity (c) part = Slice (big, from, to) s = Add (h, part)
                    h2 = Exp (s) }>
        }
        """
    )
    # x, big, and of an iteration what enters it, two of its results, and whether it goes on.
    assert cost.peak_activation_bytes == 12_000 + 36_000 + 3 * 12_000 + 1


def test_values_that_no_iteration_changes_are_in_memory_once() -> None:
    cost = text_cost(
        """
        g (float[100] x, float[1000] same) => (float[100] y, float[1000] out)
        <int64 trips = {5}, bool go = {1}> {
            y, out = Loop (trips, go, x, same) <body = b
                (int64 i, bool c, float[100] h, float[1000] s)
                => (bool c2, float[100] h2, float[1000] s2) {
                    c2 = Identity (c) h2 = Relu (h) s2 = Identity (s) }>
        }
        """
    )
    assert cost.peak_activation_bytes == 4000 + 3 * 400 + 1


def test_slices_that_a_loop_stacks_add_up() -> None:
    cost = text_cost(
        """
        g (float[100] x) => (float[5, 100] all) <int64 trips = {5}, bool go = {1}> {
            all = Loop (trips, go) <body = b (int64 i, bool c) => (bool c2, float[100] s) {
                c2 = Identity (c) s = Relu (x) }>
        }
        """
    )
    assert cost.peak_activation_bytes == 400 + 2000 + 400 + 1
