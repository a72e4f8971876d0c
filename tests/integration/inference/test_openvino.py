"""A provider that compiles, for real: where onnxruntime-openvino is installed (scripts/test.py --libraries openvino)."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.fixtures.onnx_builder import Builder
from tests.integration.inference.conftest import run
from tests.integration.inference.planted import CLEAN, DEFECTS, compiled_in_part

_PROVIDER = "OpenVINOExecutionProvider"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    onnxruntime = pytest.importorskip("onnxruntime")
    if _PROVIDER not in onnxruntime.get_available_providers():
        pytest.skip(f"this onnxruntime has no {_PROVIDER}")
    return tmp_path_factory.mktemp("openvino")


def _printed(folder: Path, *arguments: str) -> str:
    asked = ("--runs", "4", "--provider", f"{_PROVIDER}:device_type=CPU")
    return run(folder, "inference", *asked, *arguments)[0]


def test_a_finding_explains_what_cannot_be_measured_in_a_compiled_model(folder: Path) -> None:
    builders = {f"{i}.onnx": build for i, build in enumerate(CLEAN.values())}
    builders |= {f"planted_{i}.onnx": each.build for i, each in enumerate(DEFECTS.values())}
    for name, build in builders.items():
        build().save(folder / name)
    models: list[dict[str, Any]] = []
    for start in range(0, len(builders), 6):  # all models of a command are loaded at once
        names = list(builders)[start : start + 6]
        models += json.loads(_printed(folder, *names, "--format", "json"))["models"]
    for model in models:
        [kernel] = model["ran"]["kernels"]
        assert kernel["is_compiled"]
        assert kernel["nodes"] > 0
        finding = next(each for each in model["findings"] if each["kind"] == "compiled")
        nodes = f"{_PROVIDER} has compiled {kernel['nodes']} of "
        assert finding["sentence"].startswith(nodes)
        assert finding["share"] == pytest.approx(1)
    assert "- nothing" not in _printed(folder, next(iter(builders)))


def test_operators_outside_the_compiled_part_are_named(folder: Path) -> None:
    compiled_in_part().save(folder / "mixed.onnx")
    out = _printed(folder, "mixed.onnx")
    said = out.partition(": findings\n")[2].partition("\n\n")[0]
    assert [line.partition(" (")[0] for line in sorted(said.splitlines())] == [
        f"- Det `det` ran on CPUExecutionProvider and not on {_PROVIDER}, which took no Det of the file and gives no reason",
        f"- {_PROVIDER} has compiled 7 of 8 nodes of the file into 2 kernels: it gives no times of their layers; "
        "oneDNN reports f32 convolution x 1 and f32 softmax x 1 in a run",
    ]
    assert "(6 nodes, compiled) OpenVINO-EP-subgraph" in out
    assert "(1 node, compiled) OpenVINO-EP-subgraph" in out
    assert re.search(r"^session +made in \d\S* \S+, and again in \d", out, re.MULTILINE)
    assert "contractions ask for int8 100.00 %, ran in what was not seen 100.00 %" in out


@pytest.mark.parametrize(
    ("zero", "dtype", "remedy"),
    [
        (np.int8(-4), "f32", "uint8 for activations"),
        (np.int8(0), "s8", ""),
        (np.uint8(128), "u8", ""),
    ],
)
def test_int8_with_a_zero_point_is_convolved_in_float_and_what_mends_it_does(
    zero: np.generic, dtype: str, remedy: str, folder: Path
) -> None:
    graph = Builder([1, 16, 32, 32])
    value = graph.quantized("x", zero)
    for name in ("c1", "c2"):
        weight = graph.dequantized(graph.weights(f"{name}_w", 16, 16, 3, 3))
        value = graph.quantized(graph.node("Conv", [value, weight], name, pads=[1] * 4), zero)
    graph.output(value)
    graph.save(folder / "net.onnx")
    [model] = json.loads(_printed(folder, "net.onnx", "--format", "json"))["models"]
    [finding] = [each for each in model["findings"] if each["kind"] == "compiled"]
    assert f"oneDNN reports {dtype} convolution x 2 in a run" in finding["sentence"]
    assert finding["remedy"].startswith(remedy)
    assert bool(finding["remedy"]) == bool(remedy)
