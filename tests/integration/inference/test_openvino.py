"""A provider that compiles, for real: where onnxruntime-openvino is installed (scripts/test.py --libraries openvino)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

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
        f"- Det `det` ran on CPUExecutionProvider and not on {_PROVIDER}, which took no Det of the file",
        f"- {_PROVIDER} has compiled 7 of 8 nodes of the file into 2 kernels: which types they ran in "
        "and what was fused there is not known",
    ]
    assert "(6 nodes, compiled) OpenVINO-EP-subgraph" in out
    assert "(1 node, compiled) OpenVINO-EP-subgraph" in out
