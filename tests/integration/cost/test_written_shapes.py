"""Models written with inferred shapes are valid, and onnxruntime runs them as the originals."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from otel_quant.cost import analyze, write_with_shapes
from tests.integration.cost.models import FAMILY, Case


def results(path: Path, case: Case) -> list[np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    found: list[np.ndarray] = onnxruntime.InferenceSession(str(path), options).run(None, case.feeds)
    return found


@pytest.mark.parametrize("name", FAMILY)
def test_a_model_with_its_shapes_written_is_valid_and_gives_the_same(
    family: Callable[[str], Case], name: str, tmp_path: Path
) -> None:
    case = family(name)
    cost = analyze(case.path, inputs=case.given, tensors=True)
    out = tmp_path / "out.onnx"
    write_with_shapes(case.path, cost, out)

    onnx.checker.check_model(
        str(out), full_check="com.microsoft" not in out.read_bytes().decode(errors="replace")
    )
    named = {info.name for info in onnx.load(out).graph.value_info}
    known = {
        each.name for each in cost.tensors or () if not each.in_body and each.shape is not None
    }
    outputs = {info.name for info in onnx.load(out).graph.output}
    assert known - named <= outputs
    for before, after in zip(results(case.path, case), results(out, case), strict=True):
        np.testing.assert_array_equal(before, after)
