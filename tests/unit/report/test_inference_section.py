"""A recording with `inference.json` has a section of it in its report; a damaged one is said to be so."""

from __future__ import annotations

from pathlib import Path

import pytest

from otel_quant.inference.results import InferenceResult, Latency, MemoryUse, ModelResult, Ran
from otel_quant.recordings.reader import read
from otel_quant.views.report.inference_page import part_of
from otel_quant.views.report.inference_page import render as render_page
from otel_quant.views.report.render import render
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
    for page in (_report(tmp_path / "recording", result.to_json()), render_page(result)):
        assert "Models at work" in page
        assert "Not measured: cannot be loaded &lt;script&gt;" in page
        assert _SCRIPT not in page
        assert "2 cores, load 0.50 before" in page


def test_a_model_that_failed_is_a_row_beside_the_others() -> None:
    measured = ModelResult(
        "float",
        latency=Latency(0.5, 0.25, 0.75, 9, 1.0, 0.01),
        memory=MemoryUse(7000, 1, 1, 1, 1, 600, 1),
        ran=Ran(20, 10.0, 8.0, 2.0, (), 0, 0.0, ()),
    )
    failed = ModelResult("int4", problem="ValueError: no such packing")
    part = part_of(InferenceResult((measured, failed), "2.9.0", {}, 0.5, 2, "torch"))
    columns, rows = part.tables[0].columns, part.tables[0].rows
    assert columns[-1].heading == "profiled"  # there is nothing to compare with
    assert not part.tables[1].columns[-1].is_text  # bytes, as in the other columns
    assert [(row.cells[0], row.said) for row in rows] == [
        ("float", ""), ("int4", "ValueError: no such packing")
    ]  # fmt: skip
    assert len(part.tables[1].rows) == 1


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, '{"schema": 9}', '{"schema": 1}'])
def test_a_damaged_result_is_said_to_be_damaged(text: str, tmp_path: Path) -> None:
    page = _report(tmp_path / "recording", text)
    assert "Not measured: the file is damaged, or of another version of otel-quant" in page
