"""A loop that a counter ends is costed for as often as onnxruntime runs it."""

from __future__ import annotations

import numpy as np
import onnx.parser
import onnxruntime
import pytest

from otel_quant.cost import analyze

CONDITIONS = {
    "less": "k = Add (i, one) go = Less (k, n)",
    "less or equal": "k = Add (i, one) go = LessOrEqual (k, n)",
    "greater": "k = Add (i, one) go = Greater (n, k)",
    "greater or equal": "k = Add (i, one) go = GreaterOrEqual (n, k)",
    "before it grows": "k = Add (i, one) go = Less (i, n)",
    "steps of three": "k = Add (three, i) go = Less (k, n)",
    "downwards": "k = Sub (i, three) m = Neg (n) m2 = Add (m, k) go = Greater (k, low)",
    "twice the counter": "k = Add (i, one) d = Mul (k, three) go = Less (d, n)",
    "taken away from n": "k = Add (i, one) d = Sub (n, k) go = Greater (d, zero)",
    "not": "k = Add (i, one) done = GreaterOrEqual (k, n) go = Not (done)",
    "not equal": "k = Add (i, one) done = Equal (k, n) go = Not (done)",
    "and": "k = Add (i, one) a = Less (k, n) b = Less (k, three) go = And (a, b)",
    "and with the condition before": "k = Add (i, one) a = Less (k, n) go = And (c, a)",
    "neither": "k = Add (i, one) a = Greater (k, n) b = Equal (k, three) o = Or (a, b) go = Not (o)",
    "the number of the iteration": "k = Identity (i) m = Cast <to = 7> (n) go = Less (t, m)",
    "upwards from n": "k = Add (i, one) go = Less (n, k)",
    "moved about": "k1 = Add (i, one) k2 = Identity (k1) k = Cast <to = 6> (k2) go = Less (k, n)",
}


def loop(condition: str, limit: int, n: int) -> bytes:
    return onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["": 21]>
        g (float[4] x) => (float[4] y)
        <int64 most = {{{limit}}}, bool start = {{1}}, int32 zero = {{0}}, int32 one = {{1}},
         int32 three = {{3}}, int32 n = {{{n}}}, int32 low = {{-10}}, float[1] more = {{1}}> {{
            last, y = Loop (most, start, zero, x) <body = b
                (int64 t, bool c, int32 i, float[4] h) => (bool go, int32 k, float[4] h2) {{
                    {condition} h2 = Add (h, more) }}>
        }}"""
    ).SerializeToString()


@pytest.mark.parametrize("n", [-3, 0, 1, 7, 9])
@pytest.mark.parametrize("limit", [5, 1000])
@pytest.mark.parametrize("condition", CONDITIONS)
def test_a_loop_that_a_counter_ends_is_costed_for_as_often_as_it_runs(
    condition: str, limit: int, n: int
) -> None:
    model = loop(CONDITIONS[condition], limit, n)
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    (result,) = session.run(["y"], {"x": np.zeros(4, np.float32)})
    cost = analyze(model)
    assert [node.macs for node in cost.nodes if node.outputs == ((4,),)] == [4 * int(result[0])]
    assert cost.uncosted_ops == {}
