"""Every remedy that is printed is applied to a real model and removes its finding."""

from __future__ import annotations

import ast
import inspect
import json
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import onnx
import onnxruntime
import pytest

from otel_quant.cost import fused, obstacles
from otel_quant.cost.graph import ModelGraph, Onnxruntime
from otel_quant.inference import onnx_findings
from otel_quant.inference.onnx_session import OnnxSession
from otel_quant.inference.results import Finding, ModelResult
from otel_quant.inference.subjects import Options
from scripts.onnxruntime_rules import Form, built
from tests.fixtures.onnx_builder import model_of_text
from tests.integration.inference.conftest import measured
from tests.integration.inference.planted import quantized_matmuls
from tests.integration.inference.remedies import REMEDIES


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[ModelResult, ModelResult]]:
    folder = tmp_path_factory.mktemp("remedies")
    paths: dict[bytes, Path] = {}  # several remedies lead to one model

    def saved(model: onnx.ModelProto) -> Path:
        content = model.SerializeToString(deterministic=True)
        path = paths.setdefault(content, folder / f"{len(paths)}.onnx")
        path.write_bytes(content)
        return path

    pairs = [(saved(remedy.defect()), saved(remedy.mended())) for remedy in REMEDIES]
    found = dict(zip(paths.values(), measured(list(paths.values()), Options(runs=2)), strict=True))
    return [(found[defect], found[mended]) for defect, mended in pairs]


@pytest.mark.parametrize("number", range(len(REMEDIES)), ids=lambda i: REMEDIES[i].text)
def test_a_remedy_that_is_applied_removes_its_finding(
    number: int, results: list[tuple[ModelResult, ModelResult]]
) -> None:
    text, (defect, mended) = REMEDIES[number].text, results[number]
    assert (defect.problem, mended.problem) == ("", "")
    before = [each for each in defect.findings if each.remedy == text]
    assert before, defect.findings
    assert all(each.sentence.endswith(f"; fix: {text}") for each in before)
    assert not {map(_of, before)} & {map(_of, mended.findings)}, mended.findings
    assert not any(each.remedy for each in mended.findings), mended.findings


def _of(finding: Finding) -> tuple[str, str]:
    """Returns what a finding is of; names of nodes that were made have a number at their end."""
    return finding.kind, finding.node.partition("_")[0]


def test_a_level_without_fusion_is_named_as_the_reason_and_a_higher_one_removes_the_findings(
    tmp_path: Path,
) -> None:
    path = quantized_matmuls().save(tmp_path / "model.onnx")
    for level in ("disable", "basic"):
        [low] = measured([path], Options(runs=2, level=level))
        found = [(each.kind, each.node, each.remedy) for each in low.findings]
        assert sorted(found) == [("in_float", m, "level extended or all") for m in ("m1", "m2")]
        why = f"the level of graph optimization is {level}"
        assert all(why in each.sentence for each in low.findings)
    for level in ("extended", "all"):
        [high] = measured([path], Options(runs=2, level=level))
        assert high.findings == ()


def _product(operator: str, x: str, w: str) -> onnx.ModelProto:
    shape, weights, node = "64,256", (256, 256), "QLinearMatMul(a, s, z, w, s, wz, s, z)"
    last = "DequantizeLinear(b, s, z)"
    if operator:
        shape, weights, node, last = (
            "1,64,16,16",
            (64, 64, 1, 1),
            "ConvInteger(a, w)",
            "Cast<to=1>(b)",
        )
    text = f"""<ir_version: 8, opset_import: ["" : 17]> product (float[{shape}] x) => (float[{shape}] y) {{
        [first] a = QuantizeLinear(x, s, z)
        [product] b = {node}
        [last] y = {last}
    }}"""
    drawn = np.random.default_rng(2).integers(0, 99, weights).astype(w)
    zeros = {"z": np.zeros((), x), **({} if operator else {"wz": np.zeros((), w)})}
    return model_of_text(text, s=np.float32(0.5), w=drawn, **zeros)


@pytest.mark.parametrize(
    ("operator", "x", "w", "remedy"),
    [
        ("", "int8", "int8", "uint8 for what is not a weight"),
        ("", "uint8", "uint8", "int8 weights (weight_type=QuantType.QInt8)"),
        ("", "uint8", "int8", None),
        ("ConvInteger", "uint8", "int8", "uint8 weights (weight_type=QuantType.QUInt8)"),
        ("ConvInteger", "uint8", "uint8", None),
    ],
)
def test_products_of_types_that_are_slow_on_this_machine_are_named_and_other_types_are_not(
    operator: str, x: str, w: str, remedy: str | None, tmp_path: Path
) -> None:
    onnx.save(_product(operator, x, w), tmp_path / "model.onnx")
    [result] = measured([tmp_path / "model.onnx"], Options(runs=2))
    found = [(each.kind, each.node, each.remedy) for each in result.findings]
    [(times, _)] = OnnxSession(tmp_path).products([[operator, x, w]])
    if remedy and times > 3:
        assert ("slow_types", "product", remedy) in found
    elif not remedy or times < 1.5:  # on another processor
        assert "slow_types" not in {kind for kind, _, _ in found}


@pytest.mark.parametrize("version", ["1.31.1", "1.32.0"])
def test_the_remedy_for_a_16_bit_convolution_is_8_bits_in_every_version(
    version: str, tmp_path: Path
) -> None:
    onnx.save(built(Form("Conv", "uint16", y="uint16")), tmp_path / "model.onnx")
    graph = ModelGraph(str(tmp_path / "model.onnx"), {}, {}, Onnxruntime(version))
    [[obstacle]] = graph.fused.obstacles.values()
    assert obstacle.remedy == obstacles.EIGHT_BITS


def test_an_optimizer_that_is_disabled_does_not_change_what_was_asked_for(tmp_path: Path) -> None:
    path, remedy = tmp_path / "model.onnx", obstacles.ON_LOADING.remedy.text
    onnx.save(built(Form("Conv", w="float")), path)
    for disabled, kernel in ([], "QLinearConv"), (re.findall(r"\['(\w+)'\]", remedy), "Conv"):
        assert kernel in _operators_run(path, disabled)


def _operators_run(path: Path, disabled: list[str]) -> set[str]:
    options = onnxruntime.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = str(path.with_suffix(""))
    session = onnxruntime.InferenceSession(
        path, options, providers=["CPUExecutionProvider"], disabled_optimizers=disabled
    )
    session.run(None, {each.name: np.ones(each.shape, np.float32) for each in session.get_inputs()})
    events = json.loads(Path(session.end_profiling()).read_text())
    return {event["args"]["op_name"] for event in events if "op_name" in event.get("args", {})}


ELSEWHERE = {
    # Above: options of a session
    "level extended or all",
    obstacles.REWRITES["session"].text,
    # test_saturated_sums.py: whether it is of use is the processor's
    obstacles.REWRITES["sums"].text,
    # test_real_quantizers.py: it needs Quark's operators
    "QuantizeLinear and DequantizeLinear",
    # test_fix_remedies.py applies it, and no finding names it
    obstacles.REWRITES["pairs"].text,
    # tests/integration/cost/test_left_in_float.py quantizes otherwise
    *(
        each.remedy.text
        for each in (
            obstacles.NO_CONSTANT,
            obstacles.IN_BODY,
            obstacles.EXCLUDED,
            obstacles.NOTHING,
        )
    ),
    obstacles.RENAMED.text,
}


def test_every_remedy_in_the_code_is_tested() -> None:
    texts = {remedy.text for remedy in REMEDIES} | ELSEWHERE
    patterns = [
        each for module in (fused, obstacles, onnx_findings) for each in _remedies_in(module)
    ]
    patterns += [re.escape(each.text) for each in obstacles.REWRITES.values()]
    assert len(patterns) > 20
    assert [each for each in patterns if not any(re.fullmatch(each, text) for text in texts)] == []


def _remedies_in(module: ModuleType) -> Iterator[str]:
    """Yields patterns of the texts that a module gives a `Remedy`, or a `Found` as its remedy."""
    for call in ast.walk(ast.parse(inspect.getsource(module))):
        if not isinstance(call, ast.Call):
            continue
        name = getattr(call.func, "id", getattr(call.func, "attr", ""))
        place = {"Remedy": 0, "Found": 3}.get(name, len(call.args))
        for text in call.args[place : place + 1]:
            if isinstance(text, ast.Name) and hasattr(module, text.id):
                yield re.escape(getattr(module, text.id))
            elif isinstance(text, ast.Constant) and text.value:
                yield re.escape(text.value)
            elif isinstance(text, ast.JoinedStr):
                parts = (getattr(part, "value", None) for part in text.values)
                yield "".join(re.escape(p) if isinstance(p, str) else ".+" for p in parts)
