"""Models written with inferred shapes are valid, and onnxruntime runs them as the originals."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from otel_quant.cost import analyze, write_with_shapes
from tests.integration.cost.exporting import Case
from tests.integration.cost.models import FAMILY


def results(path: Path, case: Case) -> list[np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    found: list[np.ndarray] = onnxruntime.InferenceSession(str(path), options).run(None, case.feeds)
    return found


def is_valid(path: Path) -> bool:
    try:
        onnx.checker.check_model(str(path), full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError):
        return False
    return True


# onnxruntime has no kernels for bfloat16 on a CPU.
@pytest.mark.parametrize("name", [name for name in FAMILY if name != "bfloat16"])
def test_a_model_with_its_shapes_written_is_valid_and_gives_the_same(
    family: Callable[[str], Case], name: str
) -> None:
    case = family(name)
    cost = analyze(case.path, inputs=case.given, tensors=True)
    out = case.path.with_name("shaped.onnx")  # external weights are in its folder
    write_with_shapes(case.path, cost, out)

    assert is_valid(out) == is_valid(case.path)  # the float16 converter's has nodes in no order
    graph = onnx.load(out, load_external_data=False).graph
    written = {info.name for info in (*graph.value_info, *graph.output)}
    known = {tensor.name for tensor in cost.tensors or () if tensor.shape and not tensor.in_body}
    assert known <= written
    for before, after in zip(results(case.path, case), results(out, case), strict=True):
        np.testing.assert_array_equal(before, after)
