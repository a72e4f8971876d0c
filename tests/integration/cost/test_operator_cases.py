"""Results of operators in onnxruntime's domain are those that it makes itself.

Where its CPU provider has no kernel, its own shape inference is asked: what we say of the results is
declared in the model, which it refuses if a length or type differs from what it infers.
"""

from __future__ import annotations

from pathlib import Path

import onnx
import onnxruntime as ort
import pytest
from onnx import helper
from onnxruntime.capi import onnxruntime_pybind11_state

from tests.integration.cost.reference import real_results
from tests.integration.cost.test_shapes import same
from tests.integration.cost.walking import walk
from tests.unit.cost.microsoft_cases import MICROSOFT
from tests.unit.cost.operator_case import Case, model_of

WITHOUT_KERNEL = {
    "SparseAttention",  # its kernel takes caches only that are both an operand and a result
    "PackedAttention",
    "PackedMultiHeadAttention",
    "PackedMultiHeadAttention in one operand",
    "PagedAttention",
    "PagedAttention normalized, with a cap",
    "PagedAttention packed, of one head for keys",
    "DecoderMaskedSelfAttention in a shared buffer",
    "LinearAttention of more state heads, in a window",
    "CausalConvWithState dilated, in a window",
    "MatMulBlockQuantizedFp4Weight",
    "MatMulBlockQuantizedFp8Weight",
    "QMoE with 8 bits in one layer",
    "RelativePositionBias",
    "RemovePadding",
    "RestorePadding",
}
NOT_INFERRED = {"RelativePositionBias"}
"""Of those without a kernel: onnxruntime infers no shape either."""

REFUSALS = (
    onnxruntime_pybind11_state.Fail,
    onnxruntime_pybind11_state.InvalidGraph,
    onnxruntime_pybind11_state.NotImplemented,
)

RUN = {key: case for key, case in MICROSOFT.items() if key not in WITHOUT_KERNEL}


@pytest.mark.parametrize("case", RUN.values(), ids=RUN)
def test_results_are_as_onnxruntime_makes_them(case: Case, tmp_path: Path) -> None:
    model = model_of(case)
    first = case.operands[0]
    assert first is not None
    real = real_results(model, {"i0": first})
    onnx.save(model, tmp_path / "m.onnx")
    values, _ = walk(tmp_path / "m.onnx", {})
    assert [values[key].shape for key in values] == [real[key].shape for key in values]
    assert [fault for key in values for fault in same(values[key], real[key])] == []


def refusal(model: onnx.ModelProto) -> str:
    """Returns why onnxruntime does not take a model; empty if it does."""
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.add_session_config_entry("session.strict_shape_type_inference", "1")
    try:
        ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except REFUSALS as error:
        return str(error)
    return ""


@pytest.mark.parametrize("name", sorted(WITHOUT_KERNEL - NOT_INFERRED))
def test_results_are_as_onnxruntime_infers_them(name: str, tmp_path: Path) -> None:
    case = MICROSOFT[name]
    onnx.save(model_of(case), tmp_path / "m.onnx")
    values, _ = walk(tmp_path / "m.onnx", {})

    def declared(longer: int) -> list[onnx.ValueInfoProto]:
        made = []
        for i in range(len(case.shapes)):
            value = values[f"o{i}"]
            assert value.shape is not None
            shape = [*value.shape[:-1], (value.shape[-1] or 0) + longer]
            made.append(helper.make_tensor_value_info(f"o{i}", value.dtype, shape))
        return made

    mismatch = "Can't merge shape info"
    assert mismatch in refusal(model_of(case, declared(1)))
    given = refusal(model_of(case, declared(0)))
    assert mismatch not in given
    assert "does not match" not in given
