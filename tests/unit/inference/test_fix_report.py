"""What `otel-quant fix` prints of a result."""

from __future__ import annotations

import pytest

from otel_quant.inference.fix.fix_results import FixResult, Proven
from otel_quant.inference.results import InferenceResult, Latency, ModelResult
from otel_quant.views.fix import document
from otel_quant.views.writers import written

RATIOS = {"int8.onnx": 1.0, "fixed.onnx": 0.5}


@pytest.mark.parametrize(("ratio", "is_told"), [(0.25, True), (0.48, False), (1.5, False)])
def test_a_float_model_that_is_faster_still_is_named(ratio: float, is_told: bool) -> None:
    ratios = {**RATIOS, "float.onnx": ratio}
    models = [ModelResult(name, latency=Latency(it, ratio=it)) for name, it in ratios.items()]
    result = FixResult(
        *("int8.onnx", "cpu", 3, 0, 3),
        output="fixed.onnx",
        float_model="float.onnx",
        measured=InferenceResult(tuple(models), "1", {}, None, 2),
        proven=tuple(Proven(name, 1) for name in ratios),
    )
    page = "".join(written(document(result), "table"))
    assert ("float.onnx is 2.0 x faster still" in page) is is_told


@pytest.mark.parametrize(("count", "says"), [(3, "int8.onnx: 0 of 3 contractions in integers; nothing helps."), (0, "int8.onnx: nothing helps.")])  # fmt: skip
def test_where_nothing_is_written_the_count_and_the_reason_are_told(count: int, says: str) -> None:
    result = FixResult("int8.onnx", "cpu", count, 0, 0, why="nothing helps")
    assert "".join(written(document(result), "table")).splitlines()[0] == says
