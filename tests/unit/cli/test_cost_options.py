"""The options of ``otel-quant cost`` for lengths, limits, unknown figures and errors."""

from __future__ import annotations

import json
import re
from pathlib import Path

import onnx
import onnx.parser
import pytest
from onnx import TensorProto, helper

import otel_quant.cli.cost
from otel_quant.cli import FAULTY
from otel_quant.cli.command import Command
from otel_quant.version import VERSION
from tests.fixtures.commands import Commands
from tests.unit.cli.costed_models import HOSTILE, Cost, save


def model(path: str, *shapes: list[str | int | None], nodes: int = 1) -> None:
    """A chain of Relu behind each of the inputs ``x0``, ``x1`` ..."""
    graph = helper.make_graph(
        [
            helper.make_node("Relu", [f"x{i}" if n == 0 else f"y{i}{n - 1}"], [f"y{i}{n}"])
            for i in range(len(shapes))
            for n in range(nodes)
        ],
        "g",
        [
            helper.make_tensor_value_info(f"x{i}", TensorProto.FLOAT, shape)
            for i, shape in enumerate(shapes)
        ],
        [],
    )
    onnx.save(helper.make_model(graph), path)


def macs(cost: Cost, *arguments: str) -> list[int]:
    models = json.loads(cost(*arguments, "--format", "json"))["models"]
    return [model["total"]["macs"] for model in models]


@pytest.mark.parametrize("by", ["node", "op", "total"])
def test_a_report_begins_with_assumptions_and_the_options_that_replace_them(
    by: str, command: Commands
) -> None:
    model("m.onnx", ["batch", 3, "?", None], ["batch", 5])
    assumed = [
        "assumed batch = 1: --dim batch=1 sets it",
        "assumed x0[2] = 1, x0[3] = 1: --input x0=1x3x1x1 sets them",
    ]
    code, out, err = command("cost", "m.onnx", "--strict", "--by", by)
    assert (code, out.splitlines()[2:6]) == (
        3, ["m.onnx (rules: corrected, view: fused)", *assumed, ""]
    )  # fmt: skip
    assert err == "".join(f"otel-quant: m.onnx: {line}\n" for line in assumed)
    options = [word for text in re.findall(r": (--.*) sets", out) for word in text.split()]
    again = command("cost", "m.onnx", "--strict", "--by", by, *options)
    assert (again[0], again[2]) == (0, "")
    assert again[1] == re.sub("assumed.*\n", "", out)


def test_a_report_names_the_branch_of_an_if_and_strict_mode_rejects_it(command: Commands) -> None:
    text = (
        '<ir_version: 10, opset_import: ["": 21]> '
        "g (float[100] x, bool flag) => (float[100] y) { [gate] y = If (flag) "
        "<then_branch = t () => (float[100] p) { p = Exp (x) },"
        " else_branch = e () => (float[100] q) { q = Neg (x) }> }"
    )
    Path("m.onnx").write_bytes(onnx.parser.parse_model(text).SerializeToString())
    line = (
        "assumed that If 'gate' takes its then branch (MACs: 3,200; of the other: 100): --input "
        "flag:bool::VALUE sets it"
    )
    code, out, err = command("cost", "m.onnx", "--strict", "--by", "total")
    assert (code, out.splitlines()[3], err) == (3, line, f"otel-quant: m.onnx: {line}\n")
    branch = {"node": "gate", "taken": "then", "macs": 3200, "other_macs": 100}
    branch |= {"option": "--input flag:bool::VALUE"}
    code, out, _ = command("cost", "m.onnx", "--format", "json")
    assert (code, json.loads(out)["models"][0]["assumed_branches"]) == (0, [branch])
    given = ("--input", "flag:bool::0")
    code, out, _ = command("cost", "m.onnx", "--strict", "--format", "json", *given)
    assert (code, json.loads(out)["models"][0]["total"]["macs"]) == (0, 100)
    assert "assumed_branches" not in json.loads(out)["models"][0]
    unknown = text.replace("Neg (x)", "Bernoulli (x)")
    Path("m.onnx").write_bytes(onnx.parser.parse_model(unknown).SerializeToString())
    out = command("cost", "m.onnx", "--by", "total")[1]
    assert "(MACs: 3,200; of the other: not known)" in out


def test_a_report_does_not_begin_with_a_thousand_lines(command: Commands) -> None:
    model("m.onnx", *([f"n{i}"] for i in range(30)))
    lines = command("cost", "m.onnx", "--by", "total")[1].splitlines()
    assert lines[22:25] == ["assumed n19 = 1: --dim n19=1 sets it", "and 10 more", ""]


def test_a_dimension_is_set_in_every_model_that_has_it(cost: Cost) -> None:
    model("a.onnx", ["N", 2])
    model("b.onnx", ["N", 3], ["M"])
    options = ("--dim", "N=4", "--dim", "M=7")
    assert macs(cost, "a.onnx", "b.onnx", *options) == [8, 19]


def test_a_dimension_that_no_model_has_is_an_error(cost: Cost) -> None:
    model("a.onnx", ["N", 2])
    error = (
        "otel-quant: --dim: no model has a dimension 'n'; expected a name from a model's inputs or "
        "results; the report lists the dimensions that were assumed\n"
    )
    cost("a.onnx", "--dim", "n=4", code=1, error=error)


@pytest.mark.parametrize("prefix", ["models/b.onnx", "b.onnx"])
def test_an_input_may_be_given_for_one_model(prefix: str, cost: Cost) -> None:
    Path("models").mkdir()
    model("a.onnx", ["N", 2])
    model("models/b.onnx", ["N", 2])
    arguments = ("a.onnx", "models/b.onnx", "--input", "x0=3x2", "--input", f"{prefix}:x0=5x2")
    assert macs(cost, *arguments) == [6, 10]


def test_an_input_of_a_file_name_that_two_models_have_needs_the_path(
    cost: Cost, command: Commands
) -> None:
    Path("models").mkdir()
    model("a.onnx", ["N", 2])
    model("models/a.onnx", ["N", 2])
    assert macs(cost, "a.onnx", "models/a.onnx", "--input", "models/a.onnx:x0=5x2") == [2, 10]
    code, _, err = command("cost", "models/a.onnx", "a.onnx", "--input", "a.onnx:x0:f16:5x2")
    assert (code, err) == (
        1,
        "otel-quant: a.onnx: input 'x0' is given type float16 (--input for a.onnx: 'x0:f16:5x2'); "
        "expected float32 as the model declares it\n",
    )


def test_nodes_without_macs_have_different_reasons(command: Commands) -> None:
    proto = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["": 21, "mine": 1]>
        g (float[N, 6] x, float[6, 4] w) => (float[M, 2] y)
        <int64[2, found] where> {
            [where] where = NonZero (x) [turn] t = Transpose (where) [f] f = Cast <to = 1> (t)
            [act] a = Relu (f) [tanh] b = Tanh (f) [act2] c = Relu (f)
            [odd] d = mine.Odd (x) [mm] e = MatMul (d, w) }
    """)
    onnx.save(proto, "m.onnx")
    _, out, _ = command("cost", "m.onnx", "--by", "total")
    assert out.splitlines()[-5:] == [
        "results of unknown size        8",
        "nodes without a rule           mine:Odd 1",
        "  the first                    node 'odd' (mine:Odd): no rule is known for this operator",
        "nodes without a known shape    Relu 2, Tanh 1, MatMul 1",
        "  the first                    node 'act', because of node 'where' (NonZero): the size of "
        "its result depends on data; --dim found=LENGTH gives it",
    ]
    given = command("cost", "m.onnx", "--by", "total", "--dim", "found=5", "--dim", "N=1")[1]
    assert given.splitlines()[-5:] == [
        "results of unknown size        2",
        "nodes without a rule           mine:Odd 1",
        "  the first                    node 'odd' (mine:Odd): no rule is known for this operator",
        "nodes without a known shape    MatMul 1",
        "  the first                    node 'mm', because of node 'odd' (mine:Odd): no rule is "
        "known for this operator",
    ]


@pytest.mark.parametrize(
    ("graph", "last"),
    [
        ("(float[4, 4] x, int64[2] to) => (float[M, N] y) { [turn] y = Reshape (x, to) }",
         ["results of unknown size        1",
          "first of unknown size          node 'turn' (Reshape): the size of its result depends on "
          "data; what it depends on is set with --input to:int64:2:VALUES; --dim M=LENGTH gives it"]),
        ("(float[1, 3, H, W] x, float[4, 3, 5, 5] w) => (float[] y) { [conv] y = Conv (x, w) }",
         ["nodes without a known shape    Conv 1",
          "  the first                    node 'conv' (Conv): a window of 5 is longer than an axis of "
          "1 with 0 of padding; lengths were assumed: --dim H=1 sets the first"]),
    ],
    ids=["a size that depends on data", "an assumed length that does not fit"],
)  # fmt: skip
def test_what_is_not_known_has_a_reason_with_the_option_that_gives_it(
    graph: str, last: list[str], cost: Cost
) -> None:
    save(Path("m.onnx"), f'<ir_version: 10, opset_import: ["": 21]> g {graph}', {})
    assert cost("m.onnx", "--by", "total").splitlines()[-2:] == last


def test_the_number_of_nodes_has_a_limit_that_can_be_set(cost: Cost, command: Commands) -> None:
    model("m.onnx", [2], nodes=20)
    assert macs(cost, "m.onnx", "--max-nodes", "20") == [40]
    assert command("cost", "m.onnx", "--max-nodes", "19") == (
        1,
        "",
        "otel-quant: m.onnx: unfolds into more than 19 operations or 5,000,000 operands and "
        "attributes, functions and bodies included; expected fewer; --max-nodes raises both "
        "limits\n",
    )
    code, _, err = command("cost", "m.onnx", "--max-nodes", "0")
    assert code == 2
    assert err.endswith("argument --max-nodes: '0' is not a number of nodes from 1 to 100000000\n")


MISSING = "missing.onnx: cannot be opened: No such file or directory; expected an ONNX file"


def fail(options: object) -> int:
    raise ZeroDivisionError("a\nb" + "c" * 400)


BROKEN = Command("fails", (), fail, "Fails.", ("", ""))


@pytest.mark.parametrize("shown", [False, True])
def test_an_error_of_our_own_is_one_line_and_its_traceback_is_shown_if_asked_for(
    shown: bool, monkeypatch: pytest.MonkeyPatch, command: Commands
) -> None:
    monkeypatch.setattr(otel_quant.cli.cost, "COMMAND", BROKEN)
    code, out, err = command("cost", *(["--traceback"] if shown else []))
    assert (code, out) == (FAULTY, "")
    assert FAULTY == 70
    *before, line = err.splitlines()
    place = f"{__file__}:{fail.__code__.co_firstlineno + 1}"
    sent = "all of this" if shown else "what --traceback shows"
    assert line == (
        f"otel-quant: ZeroDivisionError: a\\nb{'c' * 278} (at {place}); this is an error of "
        f"otel-quant {VERSION} itself: please send {sent}, the command and, if you may, the file "
        "to whoever maintains your otel-quant"
    )
    assert bool(before) is shown
    if shown:
        assert before[0] == "Traceback (most recent call last):"


def stop(options: object) -> int:
    raise KeyboardInterrupt


def test_a_command_that_is_interrupted_ends_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, command: Commands
) -> None:
    monkeypatch.setattr(BROKEN, "run", stop)
    monkeypatch.setattr(otel_quant.cli.cost, "COMMAND", BROKEN)
    assert command("cost") == (130, "", "")


@pytest.mark.usefixtures("two_models")
@pytest.mark.parametrize(
    ("arguments", "code", "error"),
    [
        (("missing.onnx",), 1, MISSING),
        (("float.onnx", "missing.onnx", "--by", "comparison"), 1, MISSING),
        (("float.onnx", "missing.onnx", "--by", "comparison", "--format", "csv"), 1, MISSING),
        (("float.onnx", "--input", "image:i64:1x3x8x8"), 1,
         "float.onnx: input 'image' is given type int64 (--input 'image:i64:1x3x8x8'); "
         "expected float32 as the model declares it"),
        (("float.onnx", "--dim", "N"), 2, "dimension: 'N' is not understood; expected name=8"),
        (("float.onnx", "--dim", "N=1", "--dim", "N=2"), 2, "dimension: 'N' is given twice"),
        (("float.onnx", "--input", "image"), 2,
         "input shape: 'image' is not understood; expected name=1x3x224x224 or name:f32:1x3x224x224[:values]"),
        (("float.onnx", "--by", "comparison"), 2, "--by comparison: one model is given; expected two or more"),
        ((".",), 1, ".: is not a regular file; expected an ONNX file"),
        (("a\n\x1b[31m.onnx",), 1, "a\\n\\x1b[31m.onnx: cannot be opened: No such file or directory; expected an ONNX file"),
    ],
)  # fmt: skip
def test_an_error_is_one_line_and_an_exit_code(
    arguments: tuple[str, ...], code: int, error: str, cost: Cost
) -> None:
    assert cost(*arguments, code=code, error=f"otel-quant: {error}\n") == ""


@pytest.mark.usefixtures("two_models")
@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--top", "0"), "argument --top: '0' is not a number of lines from 1"),
        (("--top", "\x1b[31m"), r"argument --top: '\x1b[31m' is not a number of lines from 1"),
        (("--time-limit", "nan"), "argument --time-limit: 'nan' is not a number of seconds from 0.001 to 86400"),
        (("--rules", "exact"), "argument --rules: invalid choice: 'exact'"),
        (("--format", "xml"), "argument --format: invalid choice: 'xml'"),
    ],
)  # fmt: skip
def test_a_wrong_command_line_exits_with_2(
    arguments: tuple[str, ...], complaint: str, command: Commands
) -> None:
    code, out, err = command("cost", "float.onnx", *arguments)
    assert (code, out) == (2, "")
    assert err.splitlines()[-1].startswith(f"otel-quant cost: error: {complaint}")


@pytest.mark.usefixtures("two_models")
def test_one_bad_model_among_others_is_an_error_and_the_others_are_costed(cost: Cost) -> None:
    out = cost("float.onnx", "missing.onnx", "quantized.onnx", "--format", "json", code=1,
        error=f"otel-quant: {MISSING}\n",
    )  # fmt: skip

    document = json.loads(out)
    assert [model["path"] for model in document["models"]] == ["float.onnx", "quantized.onnx"]
    assert "comparison" not in document


def test_strict_makes_unknown_figures_an_error_with_exit_code_3(cost: Cost) -> None:
    save(Path("odd.onnx"), HOSTILE, {})
    cost("odd.onnx")
    out = cost("odd.onnx", "--strict", code=3,
        error="otel-quant: odd.onnx: nodes without known MACs: 1, results of unknown size: 1; "
        "the totals leave them out\n",
    )  # fmt: skip
    assert out.startswith(
        "odd.onnx takes 125 B and has 0 parameters and at least 6 MACs.\n\nodd.onnx (rules"
    )
