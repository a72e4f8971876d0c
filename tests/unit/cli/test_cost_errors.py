"""``otel-quant cost`` with a wrong command line, a bad model or unknown figures."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from otel_quant.cli import main
from tests.unit.cli.costed_models import FLOAT, FLOAT_WEIGHTS, HOSTILE, printed, save


@pytest.mark.usefixtures("two_models")
@pytest.mark.parametrize(
    ("arguments", "code", "error"),
    [
        (
            ("missing.onnx",),
            1,
            "missing.onnx: cannot be opened: No such file or directory; expected an ONNX file",
        ),
        (
            ("float.onnx", "--input", "image"),
            2,
            "--input: 'image' is not understood; "
            "expected name=1x3x224x224 or name:f32:1x3x224x224[:values]",
        ),
        (
            ("float.onnx", "--input", "image:i64:1x3x8x8"),
            1,
            "float.onnx: input 'image' is given type int64 (--input 'image:i64:1x3x8x8'); "
            "expected float32 as the model declares it",
        ),
        (
            ("float.onnx", "--by", "comparison"),
            2,
            "--by comparison: one model is given; expected two or more",
        ),
        ((".",), 1, ".: is not a regular file; expected an ONNX file"),
        (
            ("a\n\x1b[31m.onnx",),
            1,
            "a\\n\\x1b[31m.onnx: cannot be opened: No such file or directory; expected an ONNX file",
        ),
    ],
)
def test_an_error_is_one_line_and_an_exit_code(
    arguments: tuple[str, ...], code: int, error: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert printed(capsys, *arguments, code=code, error=f"otel-quant: {error}\n") == ""


@pytest.mark.usefixtures("two_models")
@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--top", "0"), "argument --top: '0' is not a number of lines from 1"),
        (("--top", "-1"), "argument --top: '-1' is not a number of lines from 1"),
        (("--top", "\x1b[31m"), r"argument --top: '\x1b[31m' is not a number of lines from 1"),
        (
            ("--time-limit", "nan"),
            "argument --time-limit: 'nan' is not a number of seconds above 0, at most 86400",
        ),
        (("--rules", "exact"), "argument --rules: invalid choice: 'exact'"),
        (("--format", "xml"), "argument --format: invalid choice: 'xml'"),
    ],
)
def test_a_wrong_command_line_exits_with_2(
    arguments: tuple[str, ...], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["cost", "float.onnx", *arguments])

    written = capsys.readouterr()
    assert caught.value.code == 2
    assert written.out == ""
    last = written.err.splitlines()[-1]
    assert last.startswith(f"otel-quant cost: error: {complaint}")


@pytest.mark.usefixtures("two_models")
def test_one_bad_model_among_others_is_an_error_and_the_others_are_costed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = printed(
        capsys, "float.onnx", "missing.onnx", "quantized.onnx", "--format", "json", code=1,
        error="otel-quant: missing.onnx: cannot be opened: No such file or directory; "
        "expected an ONNX file\n",
    )  # fmt: skip

    document = json.loads(out)
    assert [model["path"] for model in document["models"]] == ["float.onnx", "quantized.onnx"]
    assert "comparison" not in document


def test_strict_makes_unknown_figures_an_error_with_exit_code_3(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    save(Path("odd.onnx"), HOSTILE, {})
    save(Path("float.onnx"), FLOAT, FLOAT_WEIGHTS)

    printed(capsys, "float.onnx", "--strict", "--dim", "N=1")
    printed(
        capsys, "float.onnx", "--strict", code=3,
        error="otel-quant: float.onnx: assumed N = 1: --dim N=1 sets it\n",
    )  # fmt: skip
    printed(capsys, "odd.onnx")
    out = printed(
        capsys, "odd.onnx", "--strict", code=3,
        error="otel-quant: odd.onnx: nodes without known MACs: 1, results of unknown size: 1; "
        "the totals leave them out\n",
    )  # fmt: skip
    assert out.startswith("odd.onnx (rules: corrected, view: fused)\n")
