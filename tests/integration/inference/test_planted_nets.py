"""Planted defects of time and accuracy are named with node, reason and what removes them; healthy nets have none."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from otel_quant.inference.fix.rewriting import rewritten
from otel_quant.inference.results import Finding, ModelResult
from otel_quant.inference.subjects import Options
from tests.integration.inference.conftest import measured
from tests.integration.inference.planted_nets import (
    HEALTHY,
    PLANTED,
    Samples,
    float_net,
    loop_net,
    saved,
)

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("nets")


def _compared(folder: Path, net: str, paths: list[Path], **options: Path) -> list[ModelResult]:
    """Measures quantized nets beside the float one, a few at once."""
    model = loop_net() if net == "loop" else float_net(net)
    onnx.save(model, folder / f"{net}.onnx")
    np.savez(folder / f"{net}.npz", **Samples(model).get_next())
    told, found = Options(runs=3, data=str(folder / f"{net}.npz"), **options), []
    for i in range(0, len(paths), 6):
        found += [*measured([folder / f"{net}.onnx", *paths[i : i + 6]], told)][1:]
    return found


@pytest.fixture(scope="module")
def results(folder: Path) -> dict[str, tuple[Path, ModelResult]]:
    return {
        name: (path, result)
        for net, named in saved(folder).items()
        for (name, path), result in zip(
            named, _compared(folder, net, [path for _, path in named]), strict=True
        )
    }


def _of(name: str, result: ModelResult) -> list[Finding]:
    assert result.problem == ""
    kind, node = PLANTED[name].kind, PLANTED[name].node
    return [each for each in result.findings if (each.kind, each.node) == (kind, node)]


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_defect_is_named_with_node_and_reason_and_what_it_offers_removes_it(
    name: str, folder: Path, results: dict[str, tuple[Path, ModelResult]]
) -> None:
    planted, (path, result) = PLANTED[name], results[name]
    [found] = [each for each in _of(name, result) if planted.says in each.sentence]
    others = {each.node for each in result.findings if each.kind not in ("inserted", "slower")}
    assert others <= {planted.node, *planted.beside}, result.findings
    if planted.kind == "undone":
        options = {"disabled": ("WeightBiasQuantization",)}
        [mended] = _compared(folder, planted.net, [path], **options)
    elif planted.mended is None:
        model = rewritten(onnx.load(path), folder, found.rewrites.split(", and "), {}, {}).model
        onnx.save(model, folder / "mended.onnx")
        [mended] = _compared(folder, planted.net, [folder / "mended.onnx"])
    else:
        _, mended = results[f"mended: {name}"]
    assert found.remedy
    assert _of(name, mended) == []


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_net_has_no_false_finding(
    name: str, results: dict[str, tuple[Path, ModelResult]]
) -> None:
    _, result = results[f"healthy: {name}"]
    found = [(each.kind, each.node) for each in result.findings if each.kind != "slower"]
    assert (result.problem, found) == ("", [])
