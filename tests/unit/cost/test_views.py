"""Memory as runtimes run quantized operators, and as the file has them."""

from __future__ import annotations

import onnx.parser
import pytest

from otel_quant.cost import CostError, ModelCost, analyze
from otel_quant.cost.results import Memory

SCALES = "float s = {0.5}, float s2 = {0.25}, uint8 z = {3}, uint8 low = {0}"


def text_cost(body: str, outputs: str = "float[100] y", view: str | None = None) -> ModelCost:
    text = (
        f'<ir_version: 10, opset_import: ["": 17]> g (float[100] x) => ({outputs}) <{SCALES}>'
        f"{{ q = QuantizeLinear (x, s, z) d = DequantizeLinear (q, s, z) {body} }}"
    )
    return analyze(onnx.parser.parse_model(text).SerializeToString(), view=view)


def results(cost: ModelCost) -> dict[str, int]:
    """Bytes of each node's results: hundreds, without the few of its scales."""
    return {
        node.name.rpartition("/")[2]: (node.memory_bytes or 0) // 100 * 100 for node in cost.nodes
    }


SIGMOID = """[op] a = Sigmoid (d) [oq] aq = QuantizeLinear (a, s, z)
             [out] y = DequantizeLinear (aq, s, z)"""


def test_a_kernel_on_integers_makes_integers_and_the_conversions_make_nothing() -> None:
    assert results(text_cost(SIGMOID)) == {
        "q": 100, "d": 0, "op": 100, "oq": 0, "out": 400,
    }  # fmt: skip
    assert results(text_cost(SIGMOID, view="file")) == {
        "q": 100, "d": 400, "op": 400, "oq": 100, "out": 400,
    }  # fmt: skip


def test_both_views_exist_and_differ_only_in_memory() -> None:
    fused, file = text_cost(SIGMOID), text_cost(SIGMOID, view="file")
    assert fused.views == file.views == {
        "fused": Memory(605, 500), "file": Memory(1405, 800),
    }  # fmt: skip
    assert (fused.view, fused.memory_bytes, fused.peak_activation_bytes) == ("fused", 605, 500)
    assert (file.view, file.memory_bytes, file.peak_activation_bytes) == ("file", 1405, 800)
    assert (fused.macs, fused.params, fused.weight_bytes) == (
        file.macs, file.params, file.weight_bytes,
    )  # fmt: skip


def test_an_unknown_view_is_rejected() -> None:
    with pytest.raises(CostError, match=r"'both' is not a view.*fused or file"):
        text_cost(SIGMOID, view="both")


Y, B = "float[100] y", "float[100] y, float[100] b"
WITH_RELU = """[op] a = Sigmoid (d) [act] r = Relu (a) [oq] aq = QuantizeLinear (r, s, {0})
               [out] y = DequantizeLinear (aq, s, {0})"""
IN_A_BRANCH = """i = ReduceMax <keepdims = 0> (x) flag = Cast <to = 9> (i)
    y = If (flag) <then_branch = t () => (float[100] p) { [in] a = Sigmoid (d)
                       [iq] aq = QuantizeLinear (a, s, z) p = DequantizeLinear (aq, s, z) },
                   else_branch = e () => (float[100] o) { o = Identity (x) }>"""
NEIGHBOURS = {
    "a second reader": (f"{SIGMOID} [other] b = Relu (a)", B, {"op": 400, "oq": 100}),
    "an output of the model": (SIGMOID, "float[100] y, float[100] a", {"op": 400, "oq": 100}),
    "another scale": (
        "[op] a = Flatten (d) [oq] aq = QuantizeLinear (a, s2, z) [out] y = DequantizeLinear (aq, s2, z)",
        "float[1, 100] y", {"op": 400, "oq": 100},
    ),
    "a Relu that cuts off more": (WITH_RELU.format("z"), Y, {"op": 400, "act": 400, "oq": 100}),
    "a Relu that cuts off no more": (WITH_RELU.format("low"), Y, {"op": 100, "act": 0, "oq": 0}),
    "quantized twice in one way": (
        "[oq] aq = QuantizeLinear (d, s, z) [out] y = DequantizeLinear (aq, s, z)", Y, {"oq": 0, "out": 400},
    ),
    "another reader that needs floats": (f"{SIGMOID} [other] b = Tanh (d)", B, {"d": 400, "op": 100}),
    "an operator in a branch": (IN_A_BRANCH, Y, {"d": 400, "in": 400, "iq": 100}),
}  # fmt: skip


@pytest.mark.parametrize(("body", "outputs", "made"), NEIGHBOURS.values(), ids=NEIGHBOURS)
def test_the_neighbours_of_an_operator_decide_whether_it_is_fused(
    body: str, outputs: str, made: dict[str, int]
) -> None:
    found = results(text_cost(body, outputs))
    assert {name: found[name] for name in made} == made


def test_a_weight_that_is_quantized_at_load_takes_the_bytes_of_its_integers() -> None:
    cost = text_cost(
        f"c = Constant <value = float[100] {{{', '.join(['1'] * 100)}}}> ()"
        "[wq] v = QuantizeLinear (c, s, z) [wd] u = DequantizeLinear (v, s, z) [op] a = Mul (d, u)"
        "[oq] aq = QuantizeLinear (a, s, z) [out] y = DequantizeLinear (aq, s, z)"
    )
    assert results(cost)["wq"] == 100
    assert (cost.weight_bytes, cost.unused_weight_bytes) == (400 + 5, 5)  # s2 and low
