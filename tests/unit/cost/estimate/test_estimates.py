"""What estimates are computed from, on a model whose tensors are counted by hand."""

from __future__ import annotations

import textwrap
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import numpy_helper

from benchmarks.estimate_models import MODELS
from otel_quant.cost import parse_inputs
from otel_quant.cost.estimate import (
    METHODS,
    Estimate,
    EstimatePart,
    Layer,
    RealRun,
    UnknownMethodError,
    estimate,
    extrapolated,
    method_of,
    methods,
    most_samples,
    read,
)
from otel_quant.schema import semconv
from otel_quant.schema.readings import OWN_MEMORY
from tests.fixtures.commands import Commands
from tests.unit.cli.costed_models import installed

NET = """
<ir_version: 9, opset_import: ["" : 17]>
net (float[N, 3, 8, 8] image) => (float[N, 10] shares) {
   [stem] c = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1], strides = [2, 2]> (image, cw, cb)
   [norm] b = BatchNormalization (c, scale, bias, mean, variance)
   [flat] f = Flatten (b)
   [head] scores = MatMul (f, hw)
   [odd] shares = Erf (scores)
}
"""
ONES = {"cw": (4, 3, 3, 3), "cb": (4,), "scale": (4,), "bias": (4,), "mean": (4,), "variance": (4,),
        "hw": (64, 10)}  # fmt: skip
WEIGHTS = 4 * (108 + 5 * 4 + 640)
IMAGE, C, B, F, SCORES = 768, 256, 256, 256, 40
"""Bytes for a batch of 1; Erf is quantized by neither library, so its result is not calibrated."""

LIVE = IMAGE + C
"""Bytes that a run holds at most: the convolution's operand and result."""


@pytest.fixture(autouse=True)
def libraries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, tmp_path, "onnxruntime", "quark")


@pytest.fixture
def net(tmp_path: Path) -> Path:
    model = onnx.parser.parse_model(NET)
    model.graph.initializer.extend(
        numpy_helper.from_array(np.ones(shape, np.float32), name) for name, shape in ONES.items()
    )
    path = tmp_path / "net.onnx"
    onnx.save(model, path)
    return path


def estimated(path: Path, method: str, samples: int) -> Estimate:
    (found,) = methods([method])
    return estimate(read(path, dims={"N": 1}), found, samples)


def sizes(found: tuple[EstimatePart, ...]) -> dict[str, int]:
    return {figure.name: figure.bytes for figure in found}


@pytest.mark.parametrize(("samples", "runs"), [(1, 1), (2, 2), (512, 2)])
def test_onnxruntime_minmax_holds_two_runs_for_any_number_of_samples(
    net: Path, samples: int, runs: int
) -> None:
    found = estimated(net, "onnxruntime:MinMax", samples)
    assert sizes(found.memory) == {
        "libraries": 84_000_000,
        "model copies": 4 * WEIGHTS,
        "session": LIVE,
        "activations kept": runs * (IMAGE + C + B + F + SCORES),
    }


def test_quark_keeps_one_sample_all_inputs_and_a_cache_on_disk(net: Path) -> None:
    # Batch normalization is folded into the convolution: its result is none that is calibrated.
    kept = IMAGE + C + F + SCORES
    found = estimated(net, "quark:MinMSE", 512)
    assert (sizes(found.memory), sizes(found.disk)) == (
        {
            "libraries": 805_000_000, "model copies": 11 * WEIGHTS, "session": LIVE,
            "activations kept": kept, "values of one tensor": 5 * IMAGE,
            "histograms": 4 * 2048 * 16, "inputs kept": 512 * IMAGE,
        },
        {"model files": 2 * WEIGHTS, "model being prepared": WEIGHTS},
    )  # fmt: skip
    wide = estimate(read(net, dims={"N": 16}), methods(["quark:MinMSE"])[0], 1)
    assert sizes(wide.disk) == {"model files": 2 * WEIGHTS, "activation cache": 16 * kept}


def test_quarks_formula_and_ours_find_the_same_largest_layer(net: Path) -> None:
    assert read(net, dims={"N": 1}).layers == {
        "quark": Layer("head", 4 * (4 * 640 + 10), "4 B x (4 x 640 parameters + 10 elements of its result)"),
        "otel-quant": Layer("head", 4 * 640 + SCORES, "its weights and results, as they are stored"),
    }  # fmt: skip


def test_an_estimate_from_a_probe_adds_the_formula_to_the_measured_peak(net: Path) -> None:
    model, [method] = read(net, dims={"N": 1}), methods(["onnxruntime:Percentile"])
    further = 8 * (IMAGE + C + B + F + SCORES + 2 * IMAGE)
    run = RealRun(method, 2, 90_000_000, torch=7, seconds=(3.0, 1.0, 2.0, 4.0))
    assert extrapolated(model, method, run, 10) == Estimate(
        "onnxruntime", "Percentile", 10,
        (
            EstimatePart("real run", 90_000_000, "measured: peak of a run of 2 samples"),
            EstimatePart("further samples", further, "what the arithmetic adds for 8 more samples"),
        ),
        estimate(model, method, 10).disk, lowest=round((90_000_000 + further) * 0.9),
        highest=round((90_000_000 + further) * 1.1) + OWN_MEMORY, probed=2, seconds=pytest.approx((0.9 * 13, 23, 1.1 * 43)),
    )  # fmt: skip


def test_a_limit_is_answered_with_yes_no_or_perhaps() -> None:
    found = Estimate("quark", "MinMax", 1, (EstimatePart("all", 100, ""),), (), 80, 110)
    unbounded = Estimate("quark", "MinMax", 1, (EstimatePart("all", 100, ""),), (), 80, None)
    assert replace(found, is_installed=False).fits(110) == "perhaps"
    answers = {79: "no", 80: "perhaps", 109: "perhaps", 110: "yes"}
    assert {limit: found.fits(limit) for limit in answers} == answers
    assert [unbounded.fits(limit) for limit in (79, 1 << 60)] == ["no", "perhaps"]


def test_the_most_samples_fit_for_sure_and_one_more_does_not(net: Path) -> None:
    model, [minmax, entropy, *_] = read(net, dims={"N": 1}), methods(["onnxruntime"])
    most = most_samples(10**9, lambda samples: estimate(model, entropy, samples)) or 0
    fits = [estimate(model, entropy, samples).fits(10**9) for samples in (most, most + 1)]
    assert fits == ["yes", "perhaps"]
    every = (
        most_samples(limit, lambda it: estimate(model, minmax, it)) for limit in (10**6, 10**9)
    )
    assert list(every) == [0, 10**12]


@pytest.mark.parametrize(
    ("names", "title"),
    [
        (("onnxruntime", "CalibrationMethod.Entropy"), "onnxruntime:Entropy"),
        (("amd-quark", "LayerWisePercentile"), "quark:LayerWisePercentile"),
        (("amd-quark", "Percentile"), "quark:Percentile"),
    ],
)
def test_a_method_is_known_by_what_recordings_call_it(names: tuple[str, str], title: str) -> None:
    library, method = names
    known = {semconv.LIBRARY_NAME: library, semconv.CALIBRATION_METHOD: method}
    assert method_of(known) == methods([title])[0]
    assert method_of(known | {semconv.LIBRARY_NAME: "llmcompressor"}) is None


def test_tensors_of_unknown_size_are_left_out_and_make_the_peak_unbounded(tmp_path: Path) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 9, opset_import: ["" : 17, "own" : 1]>\n'
        "net (float[2, 8] x) => (z) { y = own.Odd (x)  z = Relu (y) }"
    )
    (tmp_path / "odd.onnx").write_bytes(model.SerializeToString())
    found = estimated(tmp_path / "odd.onnx", "onnxruntime:MinMax", 1)
    assert read(tmp_path / "odd.onnx").unsized == 2
    assert (sizes(found.memory), found.highest) == ({"libraries": 84_000_000, "session": 64}, None)


def test_given_input_shapes_are_used(net: Path) -> None:
    model = read(net, parse_inputs(["image=4x3x8x8"]))
    assert (model.input_bytes, model.inputs[0].shape) == (4 * IMAGE, (4, 3, 8, 8))


def test_methods_are_found_by_library_by_name_and_by_both() -> None:
    titles = [method.title for method in methods(["minmax"])]
    assert titles == ["onnxruntime:MinMax", "quark:MinMax"]
    assert methods(["quark"]) == tuple(each for each in METHODS if each.library.name == "quark")
    assert methods() == METHODS
    with pytest.raises(UnknownMethodError, match="'Median' is no calibration method; expected one"):
        methods(["MinMax", "Median"])


def test_the_page_shows_the_printed_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Commands
) -> None:
    page = (Path(__file__).parents[4] / "docs" / "estimate.md").read_text()
    MODELS["segmentation"](tmp_path / "segmentation.onnx")
    monkeypatch.chdir(tmp_path)
    installed(monkeypatch, tmp_path, "onnxruntime", "quark", "torch")
    prompt = "    $ otel-quant "
    lines = [line for line in page.splitlines() if line.startswith(prompt)]
    for line in lines[:2]:  # the third one probes
        printed = textwrap.indent(command.output(*line.removeprefix(prompt).split()), "    ")
        assert f"{line}\n{printed}\n" in page
