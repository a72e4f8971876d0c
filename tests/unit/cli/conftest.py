"""What tests of several commands have in their folder."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from tests.fixtures.commands import Commands
from tests.unit.cli.costed_models import (
    FLOAT,
    FLOAT_WEIGHTS,
    QUANTIZED,
    QUANTIZED_WEIGHTS,
    Cost,
    save,
)
from tests.unit.cli.shown_profiles import Show


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every command runs in an empty folder."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def two_models() -> None:
    """There are a float model and a quantized one."""
    save(Path("float.onnx"), FLOAT, FLOAT_WEIGHTS)
    save(Path("quantized.onnx"), QUANTIZED, QUANTIZED_WEIGHTS)


@pytest.fixture
def show(command: Commands) -> Show:
    return partial(command.output, "show")


@pytest.fixture
def cost(command: Commands) -> Cost:
    """Runs `otel-quant cost`; returns what it prints, its exit code and complaint as expected."""

    def cost(*arguments: str, code: int = 0, error: str = "") -> str:
        found, out, err = command("cost", *arguments)
        assert (found, err) == (code, error)
        return out

    return cost
