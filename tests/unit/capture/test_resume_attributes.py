"""A step has where its library keeps what it goes on from after a kill, and how much of that was there already."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from otel_quant.capture.instruments.steps import attributes_of
from otel_quant.schema import semconv

SOURCES = (("checkpoint.path", semconv.RESUME_PATH),)


@pytest.mark.parametrize("paths", ["true", "false"])
def test_a_step_has_where_it_goes_on_from(
    paths: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_QUANT_PATHS", paths)
    monkeypatch.chdir(tmp_path)

    def found(path: object) -> dict[str, object]:
        return {**attributes_of({"checkpoint": SimpleNamespace(path=path)}, SOURCES)}

    here = {semconv.RESUME_PATH: str(tmp_path / "ck")} if paths == "true" else {}
    assert found("ck") == here
    (tmp_path / "ck").mkdir()
    manifest = {"last_completed_layer": 2, "num_layers": 6}
    (tmp_path / "ck" / "manifest.json").write_text(json.dumps(manifest))
    assert found(Path("ck")) == here | ({semconv.RESUME_DONE: 3} if here else {})
    assert [found(each) for each in ("auto", None, 7)] == [{}, {}, {}]
