"""Each mistake that onnx_tool 1.0.1 makes, and the figure that is right.

The list is from the cost documentation; one test for each of its entries.
"""

from __future__ import annotations

import pytest
from onnx import TensorProto, helper

from otel_quant.cost import analyze
from otel_quant.cost.operators.rule import DIV, ERF, EXP, SQRT, TANH
from tests.unit.cost.text_models import one, text_cost

SOFTMAX = EXP + DIV

MISTAKES: dict[str, tuple[str, str, tuple[int, ...], dict[str, int]]] = {
    "a transposed convolution multiplies its input elements": (
        "(float[1, 8, 4, 4] x, float[8, 4, 2, 2] w) => (float[1, 4, 8, 8] y)",
        "y = ConvTranspose <strides = [2, 2], kernel_shape = [2, 2]> (x, w)", (1, 4, 8, 8),
        {"macs_contraction": 2048},
    ),
    "the operator Where broadcasts all three inputs": (
        "(bool[4,1,1] c, float[1,5,1] a, float[1,1,6] b) => (float[] y)", "y = Where (c, a, b)",
        (4, 5, 6), {"memory_bytes": 4 * 120},
    ),
    "the third input of MatMulInteger is a zero point and no bias": (
        "(uint8[4,8] a, uint8[8,6] b, uint8 z) => (int32[] y)", "y = MatMulInteger (a, b, z, z)",
        (4, 6), {"macs": 4 * 8 * 6},
    ),
    "a normalization takes its square root per channel": (
        "(float[2,16,8,8] x, float[16] s, float[16] b, float[16] m, float[16] v) => (float[] y)",
        "y = BatchNormalization (x, s, b, m, v)", (2, 16, 8, 8),
        {"macs": 3 * 2 * 16 * 64 + 16 * (SQRT + DIV)},
    ),
    "pooling in three dimensions has three kernel lengths": (
        "(float[1,2,8,8,8] x) => (float[] y)",
        "y = MaxPool <kernel_shape = [2, 2, 2], strides = [2, 2, 2]> (x)", (1, 2, 4, 4, 4),
        {"macs": 2 * 64 * 8},
    ),
    "auto_pad VALID respects dilation": (
        "(float[1,1,9,9] x, float[1,1,3,3] w) => (float[] y)",
        'y = Conv <auto_pad = "VALID", dilations = [2, 2], kernel_shape = [3, 3]> (x, w)',
        (1, 1, 5, 5), {},
    ),
    # The tool ends with an error where a model has one of these.
    "Attention": (
        "(float[2,6,32] q, float[2,9,16] k, float[2,9,16] v) => (float[] y)",
        "y = Attention <q_num_heads = 4, kv_num_heads = 2> (q, k, v)",
        (2, 6, 32), {"macs": 2 * 4 * 6 * 9 * (8 + 8) + 2 * 4 * 6 * 9 * (SOFTMAX + 1)},
    ),
    "RMSNormalization": (
        "(float[4,8] x, float[8] s) => (float[] y)", "y = RMSNormalization (x, s)",
        (4, 8), {"macs": 3 * 32 + 4 * (SQRT + DIV + 1)},
    ),
    "RotaryEmbedding": (
        "(float[1,2,4,8] x, float[16,4] c, float[16,4] s, int64[1,4] p) => (float[] y)",
        "y = RotaryEmbedding (x, c, s, p)", (1, 2, 4, 8), {"macs": 3 * 64},
    ),
    "GroupNormalization": (
        "(float[2,8,4] x, float[8] s, float[8] b) => (float[] y)",
        "y = GroupNormalization <num_groups = 2> (x, s, b)",
        (2, 8, 4), {"macs": 7 * 64 + 2 * 2 * (SQRT + DIV + 1)},
    ),
    "DynamicQuantizeLinear": (
        "(float[10] x) => (uint8[] y, float s, uint8 z)", "y, s, z = DynamicQuantizeLinear (x)",
        (10,), {"macs": 40},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("signature", "body", "shape", "figures"), MISTAKES.values(), ids=MISTAKES)
def test_an_operator_has_the_right_figure(
    signature: str, body: str, shape: tuple[int, ...], figures: dict[str, int]
) -> None:
    cost = one(signature, body, opset=23)
    assert (cost.nodes[0].outputs[0], cost.uncosted_ops) == (shape, {})
    assert {name: getattr(cost, name) for name in figures} == figures


@pytest.mark.parametrize(
    ("left", "right", "shape", "expected"),
    [
        ("16", "16", (), 16),
        ("4,16", "16", (4,), 64),
        ("16", "16,5", (5,), 80),
        ("3,4,16", "16", (3, 4), 192),
        ("16", "3,16,5", (3, 5), 240),
        ("1,3,8,16", "2,1,16,8", (2, 3, 8, 8), 2 * 3 * 8 * 16 * 8),
    ],
)
def test_a_matrix_product_takes_vectors_and_broadcasts_the_batches_of_both_sides(
    left: str, right: str, shape: tuple[int, ...], expected: int
) -> None:
    cost = one(f"(float[{left}] a, float[{right}] b) => (float[] y)", "y = MatMul (a, b)")
    assert cost.nodes[0].outputs == (shape,)
    assert cost.macs == expected


@pytest.mark.parametrize("op", ["Pow", "PRelu"])
def test_two_operands_broadcast_against_each_other(op: str) -> None:
    cost = one("(float[4,1] a, float[1,5] b) => (float[] y)", f"y = {op} (a, b)")
    assert cost.nodes[0].outputs == ((4, 5),)
    assert cost.macs == 20 * (EXP if op == "Pow" else 2)


@pytest.mark.parametrize(
    ("inputs", "equation", "shape", "expected"),
    [
        (("2,3",), "ij->j", (3,), 6),
        (("2,3",), "ij->ji", (3, 2), 0),
        (("2,3", "3,4"), "ij,jk", (2, 4), 24),
        (("2,3", "3,4", "4,5"), "ij,jk,kl->il", (2, 5), 2 * 3 * 4 + 2 * 4 * 5),
        (("7,2,3", "7,3,4"), "...ij,...jk->...ik", (7, 2, 4), 7 * 24),
        (("2,3", "7,3,4"), "...ij,...jk", (7, 2, 4), 7 * 24),
    ],
)
def test_einsum_takes_one_or_three_operands_ellipses_and_no_output(
    inputs: tuple[str, ...], equation: str, shape: tuple[int, ...], expected: int
) -> None:
    names = [f"x{i}" for i in range(len(inputs))]
    signature = ", ".join(f"float[{dims}] {n}" for n, dims in zip(names, inputs, strict=True))
    cost = one(
        f"({signature}) => (float[] y)",
        f'y = Einsum <equation = "{equation}"> ({", ".join(names)})',
    )
    assert cost.nodes[0].outputs == (shape,)
    assert cost.macs == expected


LSTM_STATE = 3 * EXP + 2 * TANH + 4 + 4
GRU_STATE = 2 * EXP + TANH + 5 + 3


@pytest.mark.parametrize(
    ("op", "gates", "state"), [("LSTM", 4, LSTM_STATE), ("GRU", 3, GRU_STATE), ("RNN", 1, TANH + 1)]
)
@pytest.mark.parametrize("directions", [1, 2])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("layout", [0, 1])
def test_recurrent_layers_of_every_form_are_costed(
    op: str, gates: int, state: int, directions: int, bias: bool, layout: int
) -> None:
    steps, batch, width, hidden = 7, 3, 5, 4
    first = f"{batch},{steps}" if layout else f"{steps},{batch}"
    direction = "bidirectional" if directions == 2 else "forward"
    cost = one(
        f"(float[{first},{width}] x, float[{directions},{gates * hidden},{width}] w, "
        f"float[{directions},{gates * hidden},{hidden}] r, "
        f"float[{directions},{2 * gates * hidden}] b) => (float[] y)",
        f'y = {op} <hidden_size = {hidden}, direction = "{direction}", layout = {layout}> '
        f"(x, w, r{', b' if bias else ''})",
    )
    matrices = directions * gates * hidden * (width + hidden)
    assert cost.macs_contraction == steps * batch * matrices
    biases = directions * 2 * gates * hidden if bias else 0
    assert cost.macs == steps * batch * (matrices + biases + directions * hidden * state)
    shape = (batch, steps, directions, hidden) if layout else (steps, directions, batch, hidden)
    assert cost.nodes[0].outputs == (shape,)


@pytest.mark.parametrize(
    ("body", "per_element"),
    [
        ("y = Tanh (x)", TANH),
        ("y = Erf (x)", ERF),
        ("y = Max (x, x, x, x)", 3),
        ("y = Min (x, x, x)", 2),
        ("y = Pow (x, two)", 1),
        ("y = Pow (x, three)", 2),
        ("y = Pow (x, root)", SQRT),
        ("y = Pow (x, odd)", EXP),
        ("y = Pow (x, inverse)", DIV),
    ],
)
def test_functions_cost_what_they_compute(body: str, per_element: int) -> None:
    cost = text_cost(
        f"""g (float[10] x) => (float[10] y)
        <float two = {{2}}, float three = {{3}}, float root = {{0.5}}, float odd = {{2.7}},
         float inverse = {{-1}}>
        {{ {body} }}"""
    )
    assert cost.macs == 10 * per_element


QUANTIZED_LINEAR = f"""g (float[2, 8] x) => (float[2, 4] y)
    <int8[8, 4] w = {{{", ".join("0" * 32)}}}, float scale = {{1}}> {{
        wf = DequantizeLinear (w, scale) y = MatMul (x, wf) }}"""


def test_dequantizing_a_constant_costs_nothing_per_run_and_takes_no_memory() -> None:
    cost = text_cost(QUANTIZED_LINEAR)
    assert [node.macs for node in cost.nodes] == [0, 64]
    assert [node.memory_bytes for node in cost.nodes] == [32 + 4, 4 * 8]
    assert cost.peak_activation_bytes == 4 * (16 + 8)
    assert cost.weight_bytes == 36
    tool = text_cost(QUANTIZED_LINEAR, "onnx_tool")
    assert [node.macs for node in tool.nodes] == [64, 64]


@pytest.mark.parametrize(
    ("dtype", "elements", "stored"),
    [
        (TensorProto.BFLOAT16, 10, 20),
        (TensorProto.FLOAT8E4M3FN, 10, 10),
        (TensorProto.FLOAT8E5M2, 10, 10),
        (TensorProto.INT4, 9, 5),
        (TensorProto.UINT4, 10, 5),
        (TensorProto.UINT32, 10, 40),
        (TensorProto.FLOAT4E2M1, 7, 4),
        (TensorProto.FLOAT16, 10, 20),
        (TensorProto.DOUBLE, 10, 80),
    ],
)
def test_every_type_has_its_size(dtype: int, elements: int, stored: int) -> None:
    weight = TensorProto(name="w", data_type=dtype, dims=[elements], raw_data=bytes(stored))
    graph = helper.make_graph(
        [helper.make_node("Identity", ["w"], ["y"])],
        "g",
        [],
        [helper.make_tensor_value_info("y", dtype, [elements])],
        [weight],
    )
    cost = analyze(helper.make_model(graph).SerializeToString())
    assert (cost.params, cost.weight_bytes, cost.memory_bytes) == (elements, stored, stored)


def test_a_tensor_of_rank_0_has_one_element() -> None:
    text = """g (float x) => (float y) <float w = {2}> { y = Mul (x, w) }"""
    cost = text_cost(text)
    assert (cost.macs, cost.params, cost.memory_bytes) == (1, 1, 8)
    tool = text_cost(text, "onnx_tool")
    assert (tool.macs, tool.params, tool.memory_bytes) == (0, 0, 0)


def zeros(count: int) -> str:
    return f"{{{', '.join('0' * count)}}}"


def test_weights_in_constant_nodes_in_bodies_and_in_functions_count_once_each() -> None:
    cost = text_cost(
        f"""g (float[2, 4] x, bool flag) => (float[] a, float[] c, float[] d) {{
            k = Constant <value = float[4, 3] {zeros(12)}> () a = MatMul (x, k)
            b = f.linear (x) c = f.linear (b)
            d = If (flag) <
                then_branch = t () => (float[] p) <float[4, 5] v = {zeros(20)}> {{ p = MatMul (x, v) }},
                else_branch = e () => (float[] q) <float[4, 6] u = {zeros(24)}> {{ q = MatMul (x, u) }}> }}
        <domain: "f", opset_import: ["": 21]> linear (i) => (o) {{
            w = Constant <value = float[4, 4] {zeros(16)}> () o = MatMul (i, w) }}"""
    )
    assert cost.params == 4 * 3 + 4 * 4 + 4 * 5 + 4 * 6
    assert sum(node.params for node in cost.nodes) == cost.params
    assert cost.weight_bytes == 4 * cost.params
    # The more expensive branch, the product with the Constant, and the function twice.
    assert cost.macs == 2 * 4 * 6 + 2 * 4 * 3 + 2 * 2 * 4 * 4


def test_a_weight_in_the_body_of_a_loop_counts_once_however_often_it_runs() -> None:
    cost = text_cost(
        f"""g (float[2, 4] x) => (float[2, 4] y) <int64 trips = {{7}}> {{
            y = Loop (trips, , x) <body = b (int64 i, bool go, float[2, 4] h)
                => (bool on, float[2, 4] next) <float[4, 4] w = {zeros(16)}> {{
                    on = Identity (go) next = MatMul (h, w) }}> }}"""
    )
    assert cost.params == 4 * 4 + 1
    assert cost.weight_bytes == 4 * 4 * 4 + 8
    assert cost.macs == 7 * 2 * 4 * 4


def test_nodes_with_the_same_name_are_costed_separately() -> None:
    cost = text_cost(
        """g (float[8] x) => (float[8] y) { [same] a = Relu (x) [same] y = Relu (a) }"""
    )
    assert [node.name for node in cost.nodes] == ["same", "same"]
    assert cost.macs == 16


def test_nodes_out_of_order_are_put_in_order() -> None:
    cost = text_cost(
        """g (float[8] x) => (float16[8] y) { [relu] y = Relu (half) [cast] half = Cast <to = 10> (x) }"""
    )
    assert [node.name for node in cost.nodes] == ["cast", "relu"]
    assert [node.memory_bytes for node in cost.nodes] == [16, 16]
