"""A report names the quantized operators that are expected to run in float, with reason and remedy."""

from __future__ import annotations

import json
import re
from pathlib import Path

import onnx.helper
import onnx.parser
import pytest

from otel_quant.cost import InFloat, ModelCost, analyze
from otel_quant.cost.runtimes import NEWEST, Onnxruntime, runtime_here
from scripts.onnxruntime_rules import Form, built, expected
from tests.fixtures.commands import Commands

CONSTANTS = {
    "s": "float s = {0.5}", "z": "uint8 z = {3}", "zw": "int8 zw = {0}", "z16": "uint16 z16 = {3}",
    "w": "int8[1, 1, 1, 1] w = {1}",
    "b8": "int8[1] b8 = {1}", "b32": "int32[1] b32 = {1}", "zb": "int32 zb = {0}", "sb": "float sb = {0.25}",
}  # fmt: skip
QUANTIZED = """q = QuantizeLinear (x, s, z) d = DequantizeLinear (q, s, z)
               dw = DequantizeLinear (w, s, zw)"""
BEHIND = "aq = QuantizeLinear (a, s, z) y = DequantizeLinear (aq, s, z)"
INT32_BIAS = f"{QUANTIZED} b = DequantizeLinear (b32, sb, zb) [op] a = Conv (d, dw, b) {BEHIND}"
INT8_BIAS = f"{QUANTIZED} b = DequantizeLinear (b8, sb, zw) [op] a = Conv (d, dw, b) {BEHIND}"
OWN_BIAS = "an own bias of int32 with the scale of the products"
EIGHT_BITS = "8 bits, all unsigned with int8 weights or all int8"


def model(body: str) -> bytes:
    text = (
        '<ir_version: 10, opset_import: ["": 21]> '
        f"g (float[1, 1, 4, 4] x) => (float[1, 1, 4, 4] y) <{', '.join(CONSTANTS.values())}>"
        f"{{ {body} }}"
    )
    return onnx.parser.parse_model(text).SerializeToString()


def in_float(body: str) -> tuple[int, tuple[InFloat, ...]]:
    cost: ModelCost = analyze(model(body))
    return cost.quantized_contractions, cost.in_float


@pytest.mark.parametrize(
    ("body", "kind", "reason", "remedy"),
    [
        pytest.param(INT8_BIAS, "Conv", "the bias is int8", OWN_BIAS, id="bias"),
        pytest.param(
            INT32_BIAS.replace("z)", "z16)"), "Conv",
            "its operands and result are uint16 and int8", EIGHT_BITS, id="16 bits",
        ),
        pytest.param(
            f"{QUANTIZED} [op] a = Conv (d, dw) t = Tanh (a) {BEHIND.replace('(a,', '(t,')}",
            "Conv", "its result is not quantized right behind it",
            "QuantizeLinear and DequantizeLinear right behind it, as its only reader", id="result",
        ),
        pytest.param(
            f"{QUANTIZED} [op] a = ConvTranspose (d, dw) {BEHIND}", "ConvTranspose",
            "there is no kernel on integers for it", "", id="no kernel",
        ),
    ],
)  # fmt: skip
def test_the_obstacle_to_integer_execution_of_a_contraction_is_named(
    body: str, kind: str, reason: str, remedy: str
) -> None:
    assert analyze(model(body)).precision.keys() <= {"int8", "int16"}
    assert in_float(body) == (1, (InFloat({kind: 1}, "op", reason, remedy),))


def test_contractions_on_integers_and_unquantized_ones_are_not_reported_as_run_in_float() -> None:
    assert in_float(INT32_BIAS) == (1, ())
    assert in_float("y = Conv <pads = [1, 1, 2, 2]> (x, x)") == (0, ())
    without_contractions = analyze(model(f"{QUANTIZED} a = Sigmoid (d) {BEHIND}"))
    assert (without_contractions.quantized_contractions, without_contractions.runtime) == (0, "")


@pytest.mark.parametrize(
    ("form", "attribute"),
    [
        (Form("Gemm", "float", y="float", scales="channels"), "alpha"),
        (Form("Gemm", bias="int32"), "beta"),
    ],
)
def test_a_factor_that_is_no_number_is_no_error(form: Form, attribute: str) -> None:
    broken = built(form)
    [gemm] = (node for node in broken.graph.node if node.op_type == "Gemm")
    gemm.attribute.append(onnx.helper.make_attribute(attribute, "two"))
    cost = analyze(broken.SerializeToString())
    assert (cost.quantized_contractions, len(cost.in_float)) == (1, 1)


def test_a_relu_without_a_result_is_no_error() -> None:
    broken = built(Form("MatMul", y="float", then="Relu"))
    [relu] = (node for node in broken.graph.node if node.op_type == "Relu")
    del relu.output[:]
    assert analyze(broken.SerializeToString()).quantized_contractions == 1


@pytest.mark.parametrize(
    ("form", "before", "since", "then"),
    [
        (Form("Conv", scales="channels", bias="float"), "float", 23, "integers"),
        (Form("Gemm", "float", y="float", scales="channels"), "float", 25, "weights"),
        (Form("MatMul", "float", y="float", scales="channels"), "float", 25, "weights"),
        (Form("MatMul", "float", "int4", "float", "channels"), "float", 25, "weights"),
        (Form("MatMul", "float", y="float", scales="channels", shared="w"), "float", 25, "weights"),
        (Form("MatMul", "float", y="float", scales="channels", shared="w"), "weights", 27, "float"),
        (Form("Gemm", "float", y="float", bias="int8"), "weights", 27, "float"),  # of the same scale
        (Form("Conv", scales="channels", bias="int32"), "integers", 27, "float"),
        (Form("Gemm", scales="blocks"), "fails", 28, "float"),
        (Form("MatMul", scales="blocks"), "fails", 32, "float"),
        (Form("Gemm", "float", y="int16", scales="channels"), "float", 32, "weights"),
        (Form("MatMul", "uint16", y="float", scales="one, unlike others"), "float", 32, "weights"),
        # Left in float between quantized layers, and products with a bias behind them
        (Form("Conv", w="float", bias="float"), "integers", 32, "integers"),
        (Form("Conv", w="float", bias="float", shared="y"), "float", 32, "float"),
        (Form("Gemm", w="float", bias="int32"), "float", 32, "float"),
        (Form("MatMul", y="float"), "integers", 32, "integers"),
        (Form("MatMul", y="float", then="Add"), "float", 32, "float"),
        (Form("MatMul", y="float", then="Add", shared="y"), "integers", 32, "integers"),
        (Form("MatMul", w="float", then="Add"), "integers", 32, "integers"),
    ],
)  # fmt: skip
def test_each_onnxruntime_version_has_its_own_rules(
    form: Form, before: str, since: int, then: str, tmp_path: Path
) -> None:
    path = tmp_path / "form.onnx"
    onnx.save(built(form), path)
    versions = f"1.{since - 1}.9", f"1.{since}.0"
    assert [expected(path, Onnxruntime(each)) for each in versions] == [before, then]


def test_a_remedy_has_the_number_for_which_it_suffices() -> None:
    clamped = BEHIND.replace("(a,", "(r,").replace("aq", "rq").replace("y =", "y2 =")
    second = f"[op2] c = Conv (d, dw, b) r = Relu (c) {clamped} "
    _, (found,) = in_float(INT8_BIAS.replace("[op]", f"{second}[op]"))
    why = f"{OWN_BIAS} would change 1 of 2, 1 also need the lowest code as zero point behind the Relu or Clip"
    assert found.text == f"the bias is int8 (Conv 2, the first 'op2'; {why})"


@pytest.mark.parametrize(
    ("asked", "kind", "found"),
    [
        ("float16", "MatMul", "float32"),
        ("bfloat16", "MatMul", "no kernel"),
        ("float64", "MatMul", "float64"),
        ("float32", "MatMul", "float32"),
    ],
)
def test_half_floats_have_few_kernels(asked: str, kind: str, found: str) -> None:
    name = {"float64": "double", "float32": "float"}.get(asked, asked)
    cost = analyze(
        onnx.parser.parse_model(
            f'<ir_version: 10, opset_import: ["": 21]> g ({name}[4, 8] x, {name}[8, 2] w) => '
            f"({name}[4, 2] y) {{ y = {kind} (x, w) }}"
        )
    )
    assert (cost.precision, cost.expected_precision) == ({asked: 1.0}, {found: 1.0})
    assert bool(cost.runtime) == (asked != found)


@pytest.mark.parametrize(
    ("runtime", "title"),
    [
        (Onnxruntime("1.31.1"), "onnxruntime 1.31.1 on an x86-64 CPU"),
        (Onnxruntime("9.0.0", arm=True), f"onnxruntime 9.0.0 on an Arm CPU (by the rules of {NEWEST}, the newest that is known)"),
        (Onnxruntime(installed=False),
         f"onnxruntime {NEWEST} on an x86-64 CPU (none is installed; this is the newest that is known)"),
    ],
)  # fmt: skip
def test_the_report_names_the_version_and_processor_of_its_rules(
    runtime: Onnxruntime, title: str
) -> None:
    assert runtime.title == title


def test_an_unknown_version_has_the_rules_of_the_nearest() -> None:
    assert Onnxruntime("1.9.0").rules == Onnxruntime("1.22.0").rules
    assert Onnxruntime("9.0.0").rules == Onnxruntime(NEWEST).rules


def test_the_report_begins_with_operators_in_float_and_json_has_them(
    tmp_path: Path, command: Commands
) -> None:
    path, other = tmp_path / "int8_bias.onnx", tmp_path / "int32_bias.onnx"
    path.write_bytes(model(INT8_BIAS))
    other.write_bytes(model(INT32_BIAS))
    stored = "types: weights stored in float32 66.67 %, int8 25.00 %, uint8 8.33 %"
    of_int32_bias = (
        "types: weights stored in float32 42.11 %, int32 42.11 %, int8 10.53 %, uint8 5.26 %"
    )
    runs = "contractions ask for int8 100.00 %, expected to run in"
    line = (
        f"{stored}; {runs} float32 100.00 % by {runtime_here().title}, because the bias is int8 (Conv 1, the "
        f"first 'op'; {OWN_BIAS} would change it)"
    )
    printed = command.output("cost", path, "--by", "total").splitlines()
    assert printed[0].endswith("; 0.0 % of its contractions are expected to run in integers.")
    assert printed[3] == line
    rows = [row.split("  ") for row in printed if row.startswith("contractions ")]
    assert [(row[0], row[-1].strip()) for row in rows] == [
        ("contractions ask for", "int8 100.00 %"),
        ("contractions expected to run in", "float32 100.00 %"),
    ]
    printed = command.output("cost", other, path, "--by", "comparison").splitlines()
    assert printed[8:10] == [
        f"{other}: {of_int32_bias}; {runs} int8 100.00 % by {runtime_here().title}", f"{path}: {line}"
    ]  # fmt: skip
    # Both are named, also if one has no reason.
    assert [re.split("  +", row) for row in printed if row.startswith("contractions in")] == [
        ["contractions in int8 (asked, run)", "100.00 %, 100.00 %", "100.00 %, 0.00 %",
         "+0.00, -100.00 points"],
        ["contractions in float32 (asked, run)", "0.00 %, 0.00 %", "0.00 %, 100.00 %",
         "+0.00, +100.00 points"],
    ]  # fmt: skip
    models = json.loads(command.output("cost", other, path, "--format", "json"))["models"]
    assert [found["expected_precision"] for found in models] == [{"int8": 1.0}, {"float32": 1.0}]
    node = {"first": "op", "reason": "the bias is int8", "remedy": OWN_BIAS}
    in_float = {"of": 1, "nodes": [{"ops": {"Conv": 1}, **node}]}
    assert [found.get("in_float") for found in models] == [None, in_float]
