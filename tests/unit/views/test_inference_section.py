"""A recording with `inference.json` has a section of it in its report; a damaged one is said to be so."""

from __future__ import annotations

from pathlib import Path

import pytest

from otel_quant.inference.results import InferenceResult, ModelResult
from otel_quant.recordings.reader import read
from otel_quant.views.html import page_text
from otel_quant.views.inference import document
from otel_quant.views.report import render
from tests.fixtures.recorded import RecordedFolder

_SCRIPT = "<script>alert(1)</script>"


def _report(folder: Path, inference: str | None) -> str:
    RecordedFolder(folder)
    if inference is not None:
        (folder / "inference.json").write_text(inference)
    return render(read(folder))


def test_a_recording_without_a_result_has_no_section(tmp_path: Path) -> None:
    assert "Models at work" not in _report(tmp_path / "recording", None)


def test_texts_of_models_are_shown_and_never_run(tmp_path: Path) -> None:
    failed = ModelResult(_SCRIPT, problem=f"cannot be loaded {_SCRIPT}")
    result = InferenceResult((failed,), "1.31.1", {"threads": "2"}, 0.5, 2)
    for page in (_report(tmp_path / "recording", result.to_json()), page_text(document(result))):
        assert "Models at work" in page
        assert "not measured: cannot be loaded &lt;script&gt;" in page
        assert _SCRIPT not in page
        assert "2 cores, load 0.50 before" in page


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, '{"schema": 9}', '{"schema": 1}'])
def test_a_damaged_result_is_said_to_be_damaged(text: str, tmp_path: Path) -> None:
    page = _report(tmp_path / "recording", text)
    assert "inference.json is damaged, or of another version of otel-quant" in page
