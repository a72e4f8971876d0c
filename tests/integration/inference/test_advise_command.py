"""`otel-quant advise`: what it names is what the quantizer takes, and what it forecasts is what comes of that."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import otel_quant
from otel_quant.recordings.reader import read
from otel_quant.schema import semconv
from tests.fixtures.advised import float_net
from tests.fixtures.onnx_builder import Builder
from tests.fixtures.programs import run as run_program
from tests.integration.inference.conftest import run

SHORT = ("--seconds", "0.3", "--samples", "8")
SCRIPT = f"{sys.executable} quantize.py"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a float model, its script, and the quantized model."""
    float_net(tmp_path)
    run_program([sys.executable, "quantize.py"], tmp_path, {"PATH": "/usr/bin:/bin"})
    return tmp_path


def advised(folder: Path, *arguments: str, code: int = 0) -> Any:
    words = ("advise", "float.onnx", "int8.onnx", *arguments, *SHORT, "--format", "json")
    return json.loads(run(folder, *words, code=code)[0])


def files(folder: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in folder.iterdir() if each.is_file()}


def test_a_rerun_has_what_was_forecast_and_leaves_the_users_files_alone(folder: Path) -> None:
    before = files(folder)
    result = advised(folder, "--rerun", SCRIPT)
    assert result["left"] == ["c2"]
    assert result["option"][0] == 'for quantize_static: nodes_to_exclude=["c2"]'
    # Between quantized layers: onnxruntime would quantize it again.
    assert result["disabled_optimizers"] == ["WeightBiasQuantization"]
    found = {each["path"]: each for each in result["measured"]["models"]}
    assert list(found) == ["float", "quantized", "forecast", "rerun"]
    sqnrs = [
        found[it]["accuracy"]["outputs"][0]["sqnr"] for it in ("quantized", "forecast", "rerun")
    ]
    assert sqnrs[1] == pytest.approx(sqnrs[2], abs=0.2)
    assert sqnrs[1] > sqnrs[0] + 3
    first, *others = result["nodes"]
    assert (first["name"], first["is_left"], first["weights_noise"] > 0.6) == ("c2", True, True)
    assert not any(each["is_left"] for each in others)
    assert files(folder) == before


@pytest.mark.parametrize(
    ("scopes", "option"),
    [
        ("['', 'body', 'body.1', 'conv2d']", 'for torchao, of modules: set_module_name_qconfig(NAME, None) for each of ["body.1"]'),
        ("['', 'conv2d']", 'for the quantizer, of nodes: ["c2"]'),
        (None, 'for the quantizer, of nodes: ["c2"]'),
    ],
)  # fmt: skip
def test_of_an_exported_model_of_torch_modules_are_named(
    folder: Path, scopes: str | None, option: str
) -> None:
    for name in ("float.onnx", "int8.onnx"):
        model = onnx.load(folder / name)
        model.producer_name = "pytorch"
        node = next(each for each in model.graph.node if each.name == "c2")
        if scopes:
            node.metadata_props.add(key="pkg.torch.onnx.name_scopes", value=scopes)
        onnx.save(model, folder / name)
    assert advised(folder)["option"][0] == option


def test_what_the_option_names_stays_in_float_and_the_recording_says_that_arguments_were_changed(
    folder: Path,
) -> None:
    plain = onnx.load(folder / "int8.onnx").graph.node
    recorded = {}
    for out, names in (("without", ""), ("with", '["c2"]')):
        changed = {"OTEL_QUANT_EXCLUDE": names} if names else {}
        words = ("run", "--quiet", "--out", out, "--", sys.executable, "quantize.py")
        run_program([sys.executable, "-m", "otel_quant", *words], folder, os.environ | changed)
        steps = [step for each in read(folder / out).runs for step in each.steps]
        told = [step.attributes.get(semconv.CONFIG_EXCLUDED) for step in steps]
        recorded[out] = (
            {tuple(it) for it in told if it},
            len(onnx.load(folder / "int8.onnx").graph.node),
        )
    assert recorded["without"] == (set(), len(plain))
    assert recorded["with"] == ({("c2",)}, len(plain) - 2)  # its weights and its bias
    report = (folder / "with" / "report.html").read_text()
    assert "arguments were changed: 1 node left in float" in report


@pytest.mark.parametrize(
    ("arguments", "left", "why"),
    [
        (("--budget", "sqnr>=5dB"), [], "the budget is met as it is"),
        (("--budget", "latency<=0.5x"), [], "no node gains enough by it"),
        pytest.param(
            ("--budget", "sqnr>=150dB"),
            ["c1", "c2", "c3", "pool"],
            "the budget is not met: no list that was measured comes closer",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_budget_that_is_met_or_cannot_be_is_said(
    folder: Path, arguments: tuple[str, ...], left: list[str], why: str
) -> None:
    result = advised(folder, *arguments, code=1)
    assert (result["left"], result["why"]) == (left, why)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("int8.onnx", "float.onnx"), "float.onnx: has no QuantizeLinear"),
        (("none.onnx", "int8.onnx"), "none.onnx: loading it failed"),
        (
            ("float.onnx", "int8.onnx", "--budget", "sqnr>=3ms"),
            "budget 'sqnr>=3ms' for accuracy: expected",
        ),
        (("float.onnx", "int8.onnx", "--target", "size"), "budget '' for size: expected"),
        pytest.param(
            ("float.onnx", "int8.onnx", "--rerun", f"{sys.executable} -c 1"),
            "it calls no quantize_static",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            ("float.onnx", "int8.onnx", "--rerun", f"{sys.executable} none.py"),
            "it has exited with 2",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_what_cannot_be_advised_on_is_one_line(
    folder: Path, arguments: tuple[str, ...], says: str
) -> None:
    before = files(folder)
    _, error = run(folder, "advise", *arguments, *SHORT, code=1)
    assert says in error.splitlines()[-1]
    assert files(folder) == before


@pytest.mark.slow
def test_an_option_that_makes_it_no_faster_is_not_there_to_be_pasted(folder: Path) -> None:
    files = (folder / "float.onnx", folder / "int8.onnx")
    found = otel_quant.advise(*files, target="latency", seconds=0.3)
    is_of_use = bool(found.left) and found.why != "it is not told apart as faster"
    assert bool(found.option) is is_of_use


def test_from_python(folder: Path) -> None:
    paths = (folder / "float.onnx", folder / "int8.onnx")
    result = otel_quant.advise(*paths, target="size", budget="sqnr>=+3dB", seconds=0.3)
    assert result.left == ("c2",)
    growth = next(each.growth for each in result.nodes if each.name == "c2")
    assert growth == 3 * 32 * 32 * 9


def test_a_model_of_operators_on_integers_is_refused_with_the_form_that_is_expected(
    folder: Path,
) -> None:
    graph = Builder([2, 8])
    how = graph.how("s", np.uint8(0), 0.1)
    codes = graph.node("QuantizeLinear", ["x", *how], "q")
    made = graph.node("QLinearSigmoid", [codes, *how, *how], "sig", domain="com.microsoft")
    graph.output(graph.node("DequantizeLinear", [made, *how], "y"))
    graph.save(folder / "operators.onnx")
    _, said = run(folder, "advise", "float.onnx", "operators.onnx", code=1)
    expected = "has operators on integers; expected quant_format=QuantFormat.QDQ of the quantizer"
    assert said == f"otel-quant: operators.onnx: {expected}\n"
