"""Which models are those that an operation has read and written."""

from __future__ import annotations

import shutil
from pathlib import Path

import onnx
import pytest

from otel_quant.capture.instruments.shared.arguments import models_of


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("model_input", "model_output"),
        ("input_model", "output_model_path"),
        ("input_model_path", "output_model"),
    ],
)
def test_input_and_output_of_every_spelling_are_costed(
    model: Path, tmp_path: Path, before: str, after: str
) -> None:
    quantized = tmp_path / "quantized.onnx"
    shutil.copy(model, quantized)

    found = models_of({before: str(model), after: quantized, "per_channel": True}, None)

    assert found == [("float", str(model)), ("quantized", quantized)]


def test_result_is_the_quantized_model_where_no_file_was_asked_for(model: Path) -> None:
    result = onnx.ModelProto()
    found = models_of({"model_input": model, "model_output": None}, result)
    assert found == [("float", model), ("quantized", result)]


def test_model_that_was_quantized_in_place_is_costed_once(model: Path) -> None:
    assert models_of({"model_input": str(model), "model_output": model}, None) == [
        ("quantized", model)
    ]


def test_path_of_no_onnx_model_is_not_costed(tmp_path: Path) -> None:
    (tmp_path / "checkpoint.bin").write_bytes(b"weights")
    arguments = {
        "model_input": str(tmp_path / "checkpoint.bin"),
        "model_output": str(tmp_path / "was_never_written.onnx"),
    }
    assert models_of(arguments, None) == []
