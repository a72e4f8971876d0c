"""Results of operators in onnxruntime's domain are those that it makes itself."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from tests.integration.cost.reference import real_results
from tests.integration.cost.test_shapes import same, walk
from tests.unit.cost.microsoft_cases import MICROSOFT
from tests.unit.cost.operator_case import Case, model_of


@pytest.mark.parametrize("case", MICROSOFT.values(), ids=MICROSOFT)
def test_results_equal_those_from_onnxruntime(case: Case, tmp_path: Path) -> None:
    model = model_of(case)
    first = case.operands[0]
    assert first is not None
    real = real_results(model, {"i0": first})
    onnx.save(model, tmp_path / "m.onnx")
    values, _ = walk(tmp_path / "m.onnx", {})
    assert [values[key].shape for key in values] == [real[key].shape for key in values]
    assert [fault for key in values for fault in same(values[key], real[key])] == []
