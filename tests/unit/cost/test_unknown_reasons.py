"""Each node whose cost is not known has a reason: the first cause, with its node's name."""

from __future__ import annotations

import onnx
import onnx.parser
import pytest

from otel_quant.cost import ModelCost, analyze, parse_inputs


def cost(graph: str) -> ModelCost:
    head = '<ir_version: 10, opset_import: ["": 21, "mine": 1, "com.microsoft": 1]> '
    return analyze(onnx.parser.parse_model(head + graph).SerializeToString())


def reasons(graph: str) -> dict[str, str | None]:
    return {node.name: node.unknown_reason for node in cost(graph).nodes}


@pytest.mark.parametrize(
    ("signature", "body", "reason"),
    [
        (
            "(float[1, 3, 8, 8] x, float[4, 3, 3, 3, 3] w) => (float[] y)",
            "y = Conv <kernel_shape = [3]> (x, w)",
            "a kernel of 1 dimensions on an input of 2; 2 are expected",
        ),
        (
            "(float[1, 3, 8, 8] x, float[4, 5, 3, 3] w) => (float[] y)",
            "y = Conv (x, w)",
            "channels of input and weight differ: 3, 5",
        ),
        (
            "(float[1, 3, 2, 2] x, float[4, 3, 5, 5] w) => (float[] y)",
            "y = Conv (x, w)",
            "a window of 5 is longer than an axis of 2 with 0 of padding",
        ),
        (
            "(float[8] x, float[4, 8] w) => (float[] y)",
            "y = Gemm (x, w)",
            "operands of 1 and 2 dimensions; 2 each are expected",
        ),
        (
            "(float[2, 8] x, float[4, 8] w) => (float[] y)",
            "y = MatMul (x, w)",
            "summed lengths of the operands differ: 8, 4",
        ),
        (
            "(float[2, 3] x, float[2, 4] z) => (float[] y)",
            "y = Add (x, z)",
            "lengths 3 and 4 of axis -1 cannot be broadcast",
        ),
        (
            "(float[2, 8] x) => (float[] y)",
            "y = DepthToSpace <blocksize = 2> (x)",
            "operand 0 'x' has 2 dimensions; 4 are expected",
        ),
        (
            "(float[2, 8] x) => (float[] y)",
            "y = ReduceSum (x, axes)",
            None,
        ),
        (
            "(float[2, 8] x) => (float[] y)",
            'y = Resize <mode = "sharp"> (x, , , size)',
            "attribute 'mode' is 'sharp'; expected one of nearest, linear, bilinear, cubic",
        ),
        (
            "(float[1, 3, 8, 8] x) => (float[] y)",
            "y = MaxPool (x)",
            "the attribute 'kernel_shape' is missing",
        ),
        ("(float[2, 8] x) => (float[] y)", "y = Transpose <perm = 1> (x)",
         "attribute 'perm' is not a list of integers"),
        ("(float[2, 8] x) => (float[] y)", "c = Constant <value = 5> () y = Add (x, c)",
         "the size of its result 'c' is not known, which is of type unknown"),
        ("(float[1, 3, 8, 8] x, float[4, 3, 3, 3] w) => (float[] y)", "y = Conv <strides = [2]> (x, w)",
         "its shape rule failed with IndexError"),
        ("(float[2, 8] x, float s, seq(float) z) => (uint8[] y)", "y = QuantizeLinear (x, s, z)",
         "the size of its result 'y' is not known, which is of type unknown"),
        ("(float[2, 8] x) => (float[] y)", "y = Bernoulli (x)",
         "not costed: depends on the generator of random numbers"),
    ],
)  # fmt: skip
def test_a_rule_that_fails_gives_a_reason(signature: str, body: str, reason: str | None) -> None:
    found = cost(
        f"g {signature} <int64[1] axes = {{0}}, int64[2] size = {{4, 16}}> {{ {body} }}"
    ).nodes[0]
    kind = body.split()[2]
    title = f"node '{kind}_0' ({kind}): "
    assert found.unknown_reason == (None if reason is None else title + reason)


def test_the_reason_is_the_first_cause_also_for_later_nodes() -> None:
    odd = "node 'odd' (mine:Odd): no rule is known for this operator"
    assert reasons(
        """g (float[2, 8] x, float[8, 4] w) => (float[] z) {
            [fine] a = Relu (x) [odd] b = mine.Odd (a) [m] c = MatMul (b, w) [n] d = Tanh (c)
            [other] z = MatMul (a, w) }"""
    ) == {"fine": None, "odd": odd, "m": odd, "n": odd, "other": None}


def test_a_size_that_depends_on_data_is_the_reason() -> None:
    depends = "node 'where' (NonZero): the size of its result depends on data"
    assert reasons(
        """g (float[4, 6] x) => (float[] z) {
            [where] a = NonZero (x) [t] b = Transpose (a) [r] z = Abs (b) }"""
    ) == {"where": depends, "t": depends, "r": depends}


def test_a_target_shape_that_is_not_known_is_the_reason_for_what_follows() -> None:
    depends = (
        "node 'r' (Reshape): the size of its result depends on data; "
        "what it depends on is set with --input target:int64:2:VALUES"
    )
    assert reasons(
        """g (float[4, 6] x, int64[2] target) => (float[] z) {
            [r] a = Reshape (x, target) [t] z = Tanh (a) }"""
    ) == {"r": depends, "t": depends}


def test_a_body_of_a_loop_of_unknown_length_names_the_loop() -> None:
    often = (
        "node 'again' (Loop): how often it runs its body is not known; "
        "what it depends on is set with --input trips:int64::VALUES --input go:bool::VALUES"
    )
    assert reasons(
        """g (float[4] x, int64 trips, bool go) => (float[4] y) {
            [again] y = Loop (trips, go, x) <body = b (int64 i, bool c, float[4] h)
                => (bool c2, float[4] h2) { [keep] c2 = Identity (c) [t] h2 = Tanh (h) }> }"""
    ) == {"again": often, "again/body/keep": None, "again/body/t": often}


def test_a_result_that_is_not_a_tensor_is_the_reason_for_an_unknown_size() -> None:
    assert reasons("g (float[4] x) => (float[4] y) { [s] s = SequenceConstruct (x) }") == {
        "s": "node 's' (SequenceConstruct): the size of its result 's' is not known, "
        "which is of type sequence"
    }


def test_names_in_a_reason_are_escaped_and_cut() -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["mine": 1]> g (float[4] x) => (float[4] y) '
        "{ y = mine.Odd (x) }"
    )
    model.graph.node[0].name = "a\n\x1b[31m" + "b" * 100
    (node,) = analyze(model.SerializeToString()).nodes
    assert node.unknown_reason == (
        f"node 'a\\n\\x1b[31m{'b' * 73}...' (mine:Odd): no rule is known for this operator"
    )


def test_a_precision_that_an_attribute_of_the_wrong_type_should_give_is_unknown() -> None:
    found = cost(
        "g (float[2, 8] x, uint8[4, 1, 4] w, float[4] s) => (float[] y) "
        '{ y = com.microsoft.MatMulNBits <N = 4, K = 8, bits = "four"> (x, w, s) }'
    )
    assert found.precision == {"unknown": 1.0}


@pytest.mark.parametrize(
    ("signature", "body", "given"),
    [
        ("(float[8] x, int64[1] start, int64[1] end) => (float[] y)",
         "y = Slice (x, start, end)", ["start:int64:1:2", "end:int64:1:5"]),
        ("(int64[8] x, int64[1] k) => (int64[] y, int64[] i)",
         "y, i = TopK (x, k)", ["k:int64:1:3"]),
        ("(int64[1] shape) => (float[] y)", "y = ConstantOfShape (shape)", ["shape:int64:1:7"]),
        ("(int64 start, int64 limit, int64 delta) => (int64[] y)",
         "y = Range (start, limit, delta)",
         ["start:int64::0", "limit:int64::9", "delta:int64::3"]),
    ],
)  # fmt: skip
def test_the_option_that_a_reason_names_gives_the_size(
    signature: str, body: str, given: list[str]
) -> None:
    model = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["": 21]> g {signature} {{ {body} }}'
    ).SerializeToString()
    (open_,) = analyze(model).nodes
    options = " ".join(f"--input {text.rpartition(':')[0]}:VALUES" for text in given)
    assert open_.unknown_reason is not None
    assert open_.unknown_reason.endswith(f"; what it depends on is set with {options}")
    (node,) = analyze(model, inputs=parse_inputs(given)).nodes
    assert node.unknown_reason is None


@pytest.mark.parametrize(
    ("signature", "body", "reason"),
    [
        ("(float[N, 5, 8] x) => (float[2, T, 8] y)",
         "shape = Constant <value_ints = [2, -1, 8]> () [n] y = Reshape (x, shape)",
         "(Reshape): [3, 5, 8] cannot be reshaped to [2, None, 8]: no length fits the open axis"),
        ("(float[N, 5, 8] x) => (float[2, 5, 8] y)",
         "shape = Constant <value_ints = [2, 5, 8]> () [n] y = Reshape (x, shape)",
         "(Reshape): [3, 5, 8] cannot be reshaped to [2, 5, 8]: other element counts"),
        ("(float[N, 8] x, float[2, 8] w) => (float[2, 8] y)", "[n] y = Add (x, w)",
         "(Add): lengths 2 and 3 of axis -2 cannot be broadcast"),
        ("(float[8, N] x, float[2, 4] w) => (float[8, 4] y)", "[n] y = MatMul (x, w)",
         "(MatMul): summed lengths of the operands differ: 3, 2"),
        ("(float[1, N, 8, 8] x, float[4, 2, 3, 3] w) => (float[1, 4, 6, 6] y)",
         "[n] y = Conv (x, w)", "(Conv): channels of input and weight differ: 3, 2"),
    ],
)  # fmt: skip
def test_a_declared_shape_does_not_hide_operands_that_do_not_fit(
    signature: str, body: str, reason: str
) -> None:
    model = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["": 21]> g {signature} {{ {body} }}'
    ).SerializeToString()
    node = analyze(model, dims={"N": 3}).nodes[-1]
    assert (node.outputs, node.unknown_reason) == ((None,), f"node 'n' {reason}")
