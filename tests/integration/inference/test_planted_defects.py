"""Each planted defect is named with its node and share; a clean model has no findings."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import onnx
import pytest

from otel_quant.inference import subjects
from otel_quant.inference.measure import measure_files
from otel_quant.inference.results import ModelResult
from otel_quant.inference.subjects import Options
from otel_quant.schema.units import share_text, speed_text
from tests.fixtures.onnx_builder import Builder
from tests.integration.inference.conftest import measured
from tests.integration.inference.planted import (
    CLEAN,
    DEFECTS,
    float_convolutions,
    float_matmuls,
    quantized_convolutions,
    quantized_matmuls,
)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ModelResult]:
    folder = tmp_path_factory.mktemp("planted")
    builders = {name: each.build for name, each in DEFECTS.items()} | CLEAN
    paths = [
        build().save(folder / f"{number}.onnx") for number, build in enumerate(builders.values())
    ]
    return dict(zip(builders, measured(paths, Options(runs=4)), strict=True))


@pytest.mark.parametrize("name", DEFECTS)
def test_a_planted_defect_is_named_with_its_node_and_its_share_of_the_profile(
    name: str, results: dict[str, ModelResult]
) -> None:
    planted, result = DEFECTS[name], results[name]
    assert result.problem == ""
    found = [
        each
        for each in result.findings
        if (each.kind, each.node) == (planted.kind, planted.node) and planted.says in each.sentence
    ]
    assert [set(each.kernels) for each in found] == [set(planted.kernels)], result.findings
    assert result.ran is not None
    of_it = sum(each.micros for each in result.ran.kernels if each.name in planted.kernels)
    assert found[0].share == pytest.approx(of_it / result.ran.kernel_micros)


@pytest.mark.parametrize("name", CLEAN)
def test_a_clean_model_has_no_findings(name: str, results: dict[str, ModelResult]) -> None:
    # That it is slower than another model, which happens to be the first, is none of its own.
    own = [each for each in results[name].findings if each.kind != "slower"]
    assert (results[name].problem, own) == ("", [])


def test_a_node_that_fell_back_from_the_requested_provider_is_named(tmp_path: Path) -> None:
    path = float_matmuls().save(tmp_path / "float.onnx")
    options = Options(runs=2, providers=(("AzureExecutionProvider", {}),))
    [result] = measured([path], options)
    assert result.assigned == {"CPUExecutionProvider": 3}
    assert sorted((each.kind, each.node) for each in result.findings) == [
        ("fallback", "m1"),
        ("fallback", "relu"),
    ]
    assert sum(each.share for each in result.findings) == pytest.approx(1)
    said = {each.node: each.sentence.partition(" (")[0] for each in result.findings}
    where = "ran on CPUExecutionProvider and not on AzureExecutionProvider, which took no"
    assert said["relu"] == f"Relu `relu` {where} Relu of the file and gives no reason"
    assert said["m1"] == f"MatMul `m1` and `m2` {where} MatMul of the file and gives no reason"


def test_kernels_are_joined_by_name_without_the_optimized_graph(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = DEFECTS["transpose"].build().save(tmp_path / "transpose.onnx")
    monkeypatch.setattr(subjects, "_MOST_SAVED", 0)
    [result] = measured([path], Options(runs=2))
    assert result.ran is not None
    assert result.memory is not None
    assert result.memory.weights_in_memory is None
    nodes = {each.node: each.op_type for each in result.ran.kernels if each.node in ("c1", "c2")}
    assert nodes == {"c1": "QLinearConv", "c2": "QLinearConv"}
    kinds = {each.kind for each in result.findings}
    assert kinds == {"unfused", "inserted"}
    assert ("unfused", "pool") in {(each.kind, each.node) for each in result.findings}


@pytest.mark.parametrize("build", [float_convolutions, quantized_convolutions, quantized_matmuls])
def test_kernels_of_nodes_without_names_are_joined_by_their_tensors(
    build: Callable[[], Builder], tmp_path: Path
) -> None:
    """Those in NCHWc too, of which no node of the file has the name, nor any tensor."""
    named = build().save(tmp_path / "named.onnx")
    model = onnx.load(named)
    tensors = [*(name for node in model.graph.node for name in node.output),
               *(each.name for each in model.graph.initializer)]  # fmt: skip
    new = {name: f"t{i}" for i, name in enumerate(tensors)}
    for node in model.graph.node:
        node.name = ""
        for names in (node.input, node.output):
            names[:] = [new.get(name, name) for name in names]
    for each in (*model.graph.initializer, *model.graph.output):
        each.name = new[each.name]
    onnx.save(model, tmp_path / "unnamed.onnx")
    found = [
        sorted((each.op_type, each.node is not None, each.macs or 0) for each in result.ran.kernels)
        for result in measured([named, tmp_path / "unnamed.onnx"], Options(runs=2))
        if result.ran is not None
    ]
    assert found[0] == found[1]
    assert {is_joined for op_type, is_joined, _ in found[0] if "Conv" in op_type} <= {True}


def test_a_quantized_model_that_is_slower_than_the_float_one_has_a_finding(tmp_path: Path) -> None:
    island = Builder([1, 16, 64, 64])
    value = island.quantized("x")
    for name in ("first", "second", "third", "fourth"):
        value = island.quantized(island.node("Exp", [value], name))
    island.output(value)
    plain = Builder([1, 16, 64, 64])
    plain.output(plain.node("Relu", ["x"], "relu"))
    paths = [plain.save(tmp_path / "float.onnx"), island.save(tmp_path / "int8.onnx")]
    before, after = measure_files(list(map(str, paths)), Options(runs=80)).models
    assert before.findings == ()
    assert after.latency is not None
    ratio = after.latency.ratio or 0
    [slower] = [each for each in after.findings if each.kind == "slower"]
    assert slower.sentence.startswith(f"it is {speed_text(ratio)} than the float model, where")
    assert slower.share == pytest.approx(1 - 1 / ratio)
    assert after.converting
    assert slower.sentence.endswith(
        f"{share_text(after.converting)} of the time of its kernels only converts"
    )
