"""Sums that saturate are told and mended where this processor saturates them, and nowhere else."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnxruntime.quantization import QuantType, quantize_dynamic

import otel_quant
from otel_quant.inference.measure import measure_files
from otel_quant.inference.results import Finding, ModelResult
from otel_quant.inference.subjects import Options
from otel_quant.views.layers_beside import HURTS, Beside
from tests.fixtures.onnx_builder import Builder, model_of_text
from tests.integration.inference.conftest import run

OPTION = {"session.x64quantprecision": "1"}
REMEDY = "add_session_config_entry('session.x64quantprecision', '1') of the session's options"
NARROW = "weights of 7 bits (reduce_range=True when it is quantized)"
SAMPLE = np.random.default_rng(8).standard_normal((8, 64), np.float32)


def outputs(path: Path, entries: Mapping[str, str] = {}) -> Any:
    """Runs a model as onnxruntime does, perhaps with entries of its configuration."""
    options = onnxruntime.SessionOptions()
    for entry in entries.items():
        options.add_session_config_entry(*entry)
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return session.run(None, {"x": SAMPLE})[0]


def sqnr(folder: Path, name: str, entries: Mapping[str, str] = {}) -> float:
    expected, found = outputs(folder / "float.onnx"), outputs(folder / name, entries)
    return float(10 * np.log10((expected**2).sum() / ((expected - found) ** 2).sum()))


def saturates() -> bool:
    """Whether this processor adds two of the largest products in 16 bits."""
    text = """<ir_version: 8, opset_import: ["" : 13]> product (uint8[4,32] x) => (int32[4,16] y) {
        y = MatMulInteger(x, w)
    }"""
    model = model_of_text(text, w=np.full((32, 16), 127, np.int8)).SerializeToString()
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    [found] = session.run(None, {"x": np.full((4, 32), 255, np.uint8)})
    return bool((found != 32 * 255 * 127).any())


def net(kind: str, *, most: int = 127) -> Builder:
    """Three MatMul with a Relu behind each, in floats or by weights of some type with codes up to ``most``."""
    graph, random = Builder([8, 64]), np.random.default_rng(1)
    value = "x" if kind == "float" else graph.quantized("x", np.uint8(128), 0.03)
    for name in ("m1", "m2", "m3"):
        codes, scale = random.integers(-most, most + 1, (64, 64)), np.float32(0.25 / most)
        if kind == "float":
            weight = graph.constant(f"{name}_w", (codes * scale).astype(np.float32))
        elif kind == "uint8":
            codes = graph.constant(f"{name}_w", (codes + 128).astype(np.uint8))
            weight = graph.dequantized(codes, np.uint8(128), scale)
        else:
            of = graph.constant(f"{name}_w", codes.astype(np.int8))
            zero = "zero" if kind == "shared" else f"{name}_zero"
            how = graph.constant(f"{name}_scale", scale), graph.constant(zero, np.int8(0))
            weight = graph.node("DequantizeLinear", [of, *how], f"{name}_DQ")
        operands = [value, weight]
        if kind == "int8 bias":
            bias = graph.constant(f"{name}_b", random.integers(-9, 10, 64).astype(np.int8))
            operands.append(graph.dequantized(bias, scale=0.01))
        made = graph.node("Gemm" if operands[2:] else "MatMul", operands, name)
        value = graph.node("Relu", [made], f"{name}_relu")
        value = value if kind == "float" else graph.quantized(value, np.uint8(0), 0.025)
    graph.output(value)
    return graph


def written(folder: Path, name: str) -> str:
    """Writes a float model, a quantized one and a sample; returns the quantized one's name."""
    most = 64 if name == "narrow" else 127
    net("float", most=most).save(folder / "float.onnx")
    if name in ("dynamic", "reduced"):
        paths, is_narrow = (folder / "float.onnx", folder / f"{name}.onnx"), name == "reduced"
        quantize_dynamic(*paths, weight_type=QuantType.QInt8, reduce_range=is_narrow)
    else:
        net(name, most=most).save(folder / f"{name}.onnx")
    np.savez(folder / "x.npz", x=SAMPLE)
    return f"{name}.onnx"


def measured(folder: Path, *names: str, **more: Any) -> ModelResult:
    """Returns what is known of the last of some models."""
    options = Options(runs=8, threads=1, data=str(folder / "x.npz"), **more)
    return measure_files([str(folder / name) for name in names], options).models[-1]


@pytest.mark.parametrize("kind", ["int8", "shared", "dynamic"])
def test_sums_that_saturate_are_the_finding_and_no_layer_is_blamed(
    kind: str, tmp_path: Path
) -> None:
    name = written(tmp_path, kind)
    result = measured(tmp_path, "float.onnx", name)
    found = [each for each in result.findings if each.is_about_accuracy]
    if not saturates():
        assert found == []
        return
    own, exact = sqnr(tmp_path, name), 99.0
    if kind == "shared":  # onnxruntime refuses the option
        with pytest.raises(onnxruntime.capi.onnxruntime_pybind11_state.Fail):
            outputs(tmp_path / name, OPTION)
        written(tmp_path, "int8")
        exact = sqnr(tmp_path, "int8.onnx", OPTION)
    else:
        exact = sqnr(tmp_path, name, OPTION)
    assert own + 3 < exact
    assert result.ran is not None
    kernels = [it for it in result.ran.kernels if "int8 64x64" in it.inputs]
    assert len(kernels) == 3
    micros = sum(it.micros for it in kernels)
    mend = "weights and zero points of its own for each node, and " * (kind == "shared")
    text = f"sums of uint8 by int8 saturate at 16 bits on this processor: SQNR {own:.1f} dB, and {exact:.1f} dB with sums of 32 bits, "
    [finding] = found
    assert finding.alike.startswith(text)
    time = (
        r"(in the same time, as far as rounds can tell|\d+\.\d+ x (slower|faster)( by CPU time)?)"
    )
    sentence = (
        rf"{re.escape(text)}{time} \(\d+\.\d+ % of the time\); fix: {re.escape(finding.remedy)}"
    )
    assert re.fullmatch(sentence, finding.sentence)
    share = micros / result.ran.kernel_micros
    remedy, source = f"{mend}{REMEDY}, or {NARROW}", finding.source
    of = tuple(it.name for it in sorted(kernels, key=lambda it: finding.kernels.index(it.name)))
    rewrites = "" if kind == "dynamic" else "sums"
    assert replace(finding, sentence="", alike="", micros=0.0, share=0.0) == Finding(
        "saturates", "(model)", "", remedy, 0.0, 0.0, of, source, "", True, rewrites
    )
    assert (finding.micros, finding.share) == pytest.approx((micros, share))
    first = measured(tmp_path, "float.onnx")
    beside = Beside(first, result)
    assert [it for it in beside.names if beside.pair(it, [it]).verdict == HURTS] == []


@pytest.mark.parametrize("name", ["narrow", "reduced", "uint8", "float"])
def test_sums_of_other_weights_are_no_finding(name: str, tmp_path: Path) -> None:
    result = measured(tmp_path, "float.onnx", written(tmp_path, name))
    assert (result.problem, [it for it in result.findings if it.is_about_accuracy]) == ("", [])


def test_without_a_float_model_to_compare_with_there_is_no_finding(tmp_path: Path) -> None:
    name = written(tmp_path, "int8")
    net("uint8").save(tmp_path / "uint8.onnx")
    for names in ([name], ["uint8.onnx", name]):
        result = measured(tmp_path, *names)
        assert [it.kind for it in result.findings if it.is_about_accuracy] == []


def test_the_option_in_a_file_beside_the_model_removes_the_finding(tmp_path: Path) -> None:
    name = written(tmp_path, "int8")
    (tmp_path / "int8.session.json").write_text(json.dumps({"session_config": OPTION}))
    result = measured(tmp_path, "float.onnx", name, session=True)
    assert [it.kind for it in result.findings if it.is_about_accuracy] == []
    assert result.accuracy is not None
    assert result.accuracy.lowest_sqnr == pytest.approx(sqnr(tmp_path, name, OPTION), abs=0.01)


def test_fix_has_sums_of_32_bits_only_where_they_are_closer_to_the_float_model(
    tmp_path: Path,
) -> None:
    for kind in ("int8", "shared", "narrow"):
        name, fixed = written(tmp_path, kind), tmp_path / f"{kind}.fixed.onnx"
        found = otel_quant.fix(
            tmp_path / name, fixed, float_model=tmp_path / "float.onnx", seconds=0.5, threads=1,
            data=str(tmp_path / "x.npz"),
        )  # fmt: skip
        is_mended = saturates() and kind != "narrow"
        assert [(it.kind, it.state) for it in found.rewrites] == [("sums", "written")] * is_mended
        assert found.session_config == (OPTION if is_mended else {})
        beside = fixed.with_suffix("").with_suffix(".fixed.session.json")
        assert fixed.exists() is beside.exists() is is_mended
        if is_mended:
            assert json.loads(beside.read_text()) == {"session_config": OPTION}
            [rewrite] = found.rewrites
            exact = sqnr(tmp_path, fixed.name, OPTION)
            assert rewrite.sqnr_gain == pytest.approx(exact - sqnr(tmp_path, name), abs=0.01)
            assert found.proven[1].sqnr_float == pytest.approx(exact, abs=0.01)


def test_without_the_float_model_fix_says_nothing_of_sums_that_the_file_has_already(
    tmp_path: Path,
) -> None:
    name = written(tmp_path, "int8")
    found = otel_quant.fix(tmp_path / name, tmp_path / "fixed.onnx", seconds=0.3, threads=1)
    assert (found.rewrites, found.why) == ((), "there is nothing to rewrite")


def test_without_the_float_model_fix_offers_sums_that_would_saturate_only_then(
    tmp_path: Path,
) -> None:
    """Biases of int8 keep this file in float, where nothing saturates."""
    net("int8 bias").save(tmp_path / "int8.onnx")
    found = otel_quant.fix(tmp_path / "int8.onnx", tmp_path / "fixed.onnx", seconds=0.3, threads=1)
    told = {it.kind: (it.state, it.why.partition(":")[0]) for it in found.rewrites}
    if saturates():
        assert re.fullmatch(
            r"outputs are at \d+\.\d dB to those of the input file; expected 40 or more",
            told.pop("bias")[1],
        )
        assert told == {"sums": ("offered", "what saturates here no longer does")}
    else:
        assert told.keys() == {"bias"}


def test_advise_leaves_nothing_in_float_for_what_sums_of_32_bits_mend(tmp_path: Path) -> None:
    written(tmp_path, "int8")
    own, exact = (sqnr(tmp_path, "int8.onnx", it) for it in ({}, OPTION))
    words = ("--budget", f"sqnr>={exact - 0.5:.1f}dB", "--seconds", "0.3", "--threads", "1")
    arguments = ("float.onnx", "int8.onnx", *words, "--data", "x.npz", "--format", "json")
    found = json.loads(run(tmp_path, "advise", *arguments, code=1)[0])
    line = f"where the model is loaded, since sums of uint8 by int8 saturate at 16 bits on this processor: {REMEDY}, which alone gives {exact:.1f} dB, not {own:.1f} dB"
    told = ("the budget is met with sums of 32 bits", [line], OPTION)
    expected = told if saturates() else ("the budget is met as it is", [], {})
    assert (found["why"], found["option"], found["session_config"]) == expected
    assert found["left"] == []
