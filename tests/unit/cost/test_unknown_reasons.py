"""Each node whose cost is not known has a reason: the first cause, or a length beyond any tensor's."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import onnx.parser
import pytest

from otel_quant.capture.instruments.model_cost import figures_of
from otel_quant.cost import analyze, parse_inputs
from tests.fixtures.commands import Commands
from tests.unit.cost.text_models import text_cost, text_model

MISFIT = ", or its attributes, do not fit the operator (ValueError in its shape rule)"


@pytest.mark.parametrize(
    ("signature", "body", "reason"),
    [
        ("(float[1, 3, 8, 8] x, float[4, 5, 3, 3] w) => (float[] y)", "y = Conv (x, w)",
         "channels of input and weight differ: 3, 5"),
        ("(float[1, 3, 2, 2] x, float[4, 3, 5, 5] w) => (float[] y)", "y = Conv (x, w)",
         "a window of 5 is longer than an axis of 2 with 0 of padding"),
        ("(float[8] x, float[4, 8] w) => (float[] y)", "y = Gemm (x, w)", f"operands of shapes [8], [4, 8]{MISFIT}"),
        ("(float[2, 8] x, float[4, 8] w) => (float[] y)", "y = MatMul (x, w)", "summed lengths of the operands differ: 8, 4"),
        ("(float[2, 3] x, float[2, 4] z) => (float[] y)", "y = Add (x, z)", "lengths 3 and 4 of axis -1 cannot be broadcast"),
        ("(float[2, 8] x) => (float[] y)", "y = ReduceSum (x, axes)", None),
        ("(float[2, 8] x) => (float[] y)", 'y = Resize <mode = "sharp"> (x, , , size)',
         "attribute 'mode' is 'sharp'; expected one of nearest, linear, bilinear, cubic"),
        ("(float[1, 3, 8, 8] x) => (float[] y)", "y = MaxPool (x)", f"operands of shapes [1, 3, 8, 8]{MISFIT}"),
        ("(float[2, 8] x) => (float[] y)", "y = Transpose <perm = 1> (x)", "attribute 'perm' is not a list of integers"),
        ("(float[2, 8] x) => (float[] y)", "c = Constant <value = 5> () y = Add (x, c)",
         "the size of its result 'c' is not known, which is of type unknown"),
        ("(float[2, 8] x, float s, seq(float) z) => (uint8[] y)", "y = QuantizeLinear (x, s, z)",
         "the size of its result 'y' is not known, which is of type unknown"),
        ("(float[2, 8] x) => (float[] y)", "y = Bernoulli (x)", "not costed: depends on the generator of random numbers"),
    ],
)  # fmt: skip
def test_a_rule_that_fails_gives_a_reason(signature: str, body: str, reason: str | None) -> None:
    found = text_cost(
        f"g {signature} <int64[1] axes = {{0}}, int64[2] size = {{4, 16}}> {{ {body} }}"
    ).nodes[0]
    title = f"node '{body.split()[0]}' ({body.split()[2]}): "
    assert found.unknown_reason == (None if reason is None else title + reason)


ODD = "node 'odd' (mine:Odd): no rule is known for this operator"
OF_DATA = "node 'where' (NonZero): the size of its result depends on data"
OF_A_TARGET = (
    "node 'r' (Reshape): the size of its result depends on data; "
    "what it depends on is set with --input target:int64:2:VALUES"
)
HOW_OFTEN = (
    "node 'again' (Loop): how often it runs its body is not known; "
    "what it depends on is set with --input trips:int64::VALUES --input go:bool::VALUES"
)
NO_TENSOR = "node 's' (SequenceConstruct): the size of its result 's' is not known, which is of type sequence"
CAUSES: dict[str, tuple[str, dict[str, str | None]]] = {
    "an operator without a rule": (
        """g (float[2, 8] x, float[8, 4] w) => (float[] z) {
            [fine] a = Relu (x) [odd] b = mine.Odd (a) [m] c = MatMul (b, w) [n] d = Tanh (c)
            [other] z = MatMul (a, w) }""",
        {"fine": None, "odd": ODD, "m": ODD, "n": ODD, "other": None},
    ),
    "a size that depends on data": (
        """g (float[4, 6] x) => (float[] z) {
            [where] a = NonZero (x) [t] b = Transpose (a) [r] z = Abs (b) }""",
        {"where": OF_DATA, "t": OF_DATA, "r": OF_DATA},
    ),
    "a target shape that is not known": (
        """g (float[4, 6] x, int64[2] target) => (float[] z) {
            [r] a = Reshape (x, target) [t] z = Tanh (a) }""",
        {"r": OF_A_TARGET, "t": OF_A_TARGET},
    ),
    "a loop of unknown length": (
        """g (float[4] x, int64 trips, bool go) => (float[4] y) {
            [again] y = Loop (trips, go, x) <body = b (int64 i, bool c, float[4] h)
                => (bool c2, float[4] h2) { [keep] c2 = Identity (c) [t] h2 = Tanh (h) }> }""",
        {"again": HOW_OFTEN, "again/body/keep": None, "again/body/t": HOW_OFTEN},
    ),
    "a result that is not a tensor": (
        "g (float[4] x) => (float[4] y) { [s] s = SequenceConstruct (x) }", {"s": NO_TENSOR},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("graph", "reasons"), CAUSES.values(), ids=CAUSES)
def test_the_reason_is_the_first_cause_also_for_later_nodes(
    graph: str, reasons: dict[str, str | None]
) -> None:
    assert {node.name: node.unknown_reason for node in text_cost(graph).nodes} == reasons


def test_names_in_a_reason_are_escaped_and_cut() -> None:
    model = onnx.ModelProto.FromString(
        text_model("g (float[4] x) => (float[4] y) { y = mine.Odd (x) }")
    )
    model.graph.node[0].name = "a\n\x1b[31m" + "b" * 100
    (node,) = analyze(model.SerializeToString()).nodes
    assert node.unknown_reason == (
        f"node 'a\\n\\x1b[31m{'b' * 73}...' (mine:Odd): no rule is known for this operator"
    )


def test_a_precision_that_an_attribute_of_the_wrong_type_should_give_is_unknown() -> None:
    found = text_cost(
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
    model = text_model(f"g {signature} {{ {body} }}")
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
    model = text_model(f"g {signature} {{ {body} }}")
    node = analyze(model, dims={"N": 3}).nodes[-1]
    assert (node.outputs, node.unknown_reason) == ((None,), f"node 'n' {reason}")


HUGE = (1 << 63) - 1
RELU = "y = Relu (x0)"


def save(path: Path, body: str, *shapes: list[int]) -> Path:
    inputs = ", ".join(f"float[{','.join(map(str, dims))}] x{i}" for i, dims in enumerate(shapes))
    text = f'<ir_version: 10, opset_import: ["": 21]> g ({inputs}) => (float[] y) {{ {body} }}'
    path.write_bytes(onnx.parser.parse_model(text).SerializeToString())
    return path


def einsum(path: Path, labels: int) -> Path:
    """An Einsum whose every label has the greatest length, 50 in each operand."""
    names = [chr(0x4E00 + i) for i in range(labels)]
    terms = ["".join(names[i : i + 50]) for i in range(0, labels, 50)]
    operands = ", ".join(f"x{i}" for i in range(len(terms)))
    body = f'[sum] y = Einsum <equation = "{",".join(terms)}->"> ({operands})'
    return save(path, body, *([HUGE] * len(term) for term in terms))


@pytest.mark.parametrize("form", ["table", "markdown", "csv", "json"])
def test_a_product_of_400_lengths_is_unknown_in_every_format(
    form: str, tmp_path: Path, command: Commands
) -> None:
    path = einsum(tmp_path / "m.onnx", 400)
    (node,) = analyze(path).nodes
    assert (node.macs, node.unknown_reason) == (
        None,
        "node 'sum' (Einsum): that is more than 9,223,372,036,854,775,807 MACs, which no machine "
        "runs",
    )
    assert command("cost", path, "--format", form)[::2] == (0, "")


def test_a_ratio_of_a_huge_figure_to_a_small_one_is_left_out(
    tmp_path: Path, command: Commands
) -> None:
    small = save(tmp_path / "small.onnx", RELU, [1])
    huge = save(tmp_path / "huge.onnx", RELU, [HUGE] * 60)
    for form in ("table", "markdown", "csv"):
        command.output("cost", small, huge, "--format", form, "--by", "comparison")
    after = {"before": 4, "after": 4 * HUGE**60, "ratio": None}
    before = {"before": 4 * HUGE**60, "after": 4, "ratio": 0.0}
    for models, bytes_ in (((small, huge, small), after), ((huge, small), before)):
        document = json.loads(command.output("cost", *models, "--format", "json"))
        assert document["comparison"][0]["memory_bytes"] == bytes_


def test_a_loop_in_a_loop_without_end_has_no_known_macs() -> None:
    loop = "Loop (trips, go, {x}) <body = b{i} (int64 i{i}, bool c{i}, float[9] h{i}) => (bool d{i}, float[9] r{i}) {{ d{i} = Identity (c{i}) {inner} }}>"
    inner = loop.format(x="h0", i=1, inner="r1 = Tanh (h1)")
    outer = loop.format(x="x", i=0, inner=f"[inner] r0 = {inner}")
    model = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["": 21]> g (float[9] x) => (float[9] y) '
        f"<int64 trips = {{{HUGE}}}, bool go = {{1}}> {{ [outer] y = {outer} }}"
    )
    found = {
        node.name.rpartition("/")[2]: node for node in analyze(model.SerializeToString()).nodes
    }
    assert found["r1"].macs is None
    assert found["r1"].unknown_reason == (
        f"node 'outer/body/inner/body/r1' (Tanh): it runs {HUGE**2:,} times; that is more than "
        "9,223,372,036,854,775,807 MACs, which no machine runs"
    )


def test_a_figure_too_large_for_an_attribute_is_not_on_the_trace(tmp_path: Path) -> None:
    figures = figures_of(analyze(save(tmp_path / "huge.onnx", RELU, [1 << 61])))
    assert figures["macs"] == 1 << 61
    assert {"memory", "peak_activation_bytes"}.isdisjoint(figures)
