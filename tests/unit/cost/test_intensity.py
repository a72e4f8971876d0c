"""Arithmetic intensity: MACs by the bytes of operands and results, counted by hand."""

from __future__ import annotations

import onnx.parser
import pytest

from otel_quant.cost import ModelCost, analyze


def cost(text: str, **options: str) -> ModelCost:
    return analyze(onnx.parser.parse_model(text).SerializeToString(), **options)


def moved(model: ModelCost) -> dict[str, int | None]:
    return {node.name: node.moved_bytes for node in model.nodes}


def test_operands_constants_and_results_are_moved_and_one_given_twice_is_read_once() -> None:
    model = cost("""
        <ir_version: 10, opset_import: ["": 17]> g (float[2, 3] x) => (float[2, 3] z)
        <float[3] c = {1, 2, 3}> { [add] y = Add (x, c)  [square] z = Mul (y, y) }
    """)
    assert moved(model) == {"add": 4 * (6 + 3 + 6), "square": 4 * (6 + 6)}
    assert [node.intensity for node in model.nodes] == [6 / 60, 6 / 48]


def test_what_is_not_known_has_no_intensity() -> None:
    model = cost("""
        <ir_version: 10, opset_import: ["": 17]> g (float[3] x) => (int64[] z)
        { [found] y = NonZero (x)  [neg] z = Neg (y) }
    """)
    assert [(node.macs, node.moved_bytes, node.intensity) for node in model.nodes] == [
        (0, None, 0.0), (None, None, None),
    ]  # fmt: skip


def test_a_body_moves_its_bytes_in_each_iteration() -> None:
    model = cost("""
        <ir_version: 10, opset_import: ["": 17]> g (float[8] x) => (float[8] y)
        <int64 n = {5}, bool go = {1}> {
          [loop] y = Loop (n, go, x) <body = b (int64 i, bool c, float[8] v)
            => (bool c2, float[8] w) { [keep] c2 = Identity (c)  [neg] w = Neg (v) }>
        }
    """)
    neg = next(node for node in model.nodes if node.name.endswith("neg"))
    assert (neg.macs, neg.moved_bytes) == (5 * 8, 5 * (32 + 32))


@pytest.mark.parametrize(("view", "expected"), [("fused", 100 + 100), ("file", 400 + 400)])
def test_a_kernel_on_integers_moves_integers(view: str, expected: int) -> None:
    model = cost(
        """
        <ir_version: 10, opset_import: ["": 17]> g (float[100] x) => (float[100] y)
        <float s = {0.5}, uint8 z = {3}> {
          q = QuantizeLinear (x, s, z)  d = DequantizeLinear (q, s, z)  [op] a = Sigmoid (d)
          aq = QuantizeLinear (a, s, z)  y = DequantizeLinear (aq, s, z)
        }
        """,
        view=view,
    )
    (node,) = (node for node in model.nodes if node.name == "op")
    assert node.moved_bytes == expected
