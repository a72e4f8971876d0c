"""What tests of several commands have in their folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.cli.costed_models import FLOAT, FLOAT_WEIGHTS, QUANTIZED, QUANTIZED_WEIGHTS, save


@pytest.fixture
def two_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a float model and a quantized one."""
    save(tmp_path / "float.onnx", FLOAT, FLOAT_WEIGHTS)
    save(tmp_path / "quantized.onnx", QUANTIZED, QUANTIZED_WEIGHTS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def folder_without_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A working directory of a repository that has no file of limits."""
    (tmp_path / ".git").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
