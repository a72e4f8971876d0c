"""The version of a library is known under whatever name the package index has its build."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from types import ModuleType

import pytest

from otel_quant.capture.instruments.shared.steps import version_of
from otel_quant.capture.instruments.tables import NEURAL_COMPRESSOR


@pytest.fixture(autouse=True)
def _not_asked_before(monkeypatch: pytest.MonkeyPatch) -> None:
    version_of.cache_clear()
    monkeypatch.delitem(sys.modules, "neural_compressor", raising=False)


def install(distribution: str, version: str, folder: Path) -> None:
    metadata = folder / f"{distribution}-{version}.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n")


@pytest.mark.parametrize("distribution", ["neural_compressor", "neural_compressor_pt"])
def test_every_build_of_a_library_has_its_version(
    distribution: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(distribution, "3.10", tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert version_of(NEURAL_COMPRESSOR) == "3.10"


def test_a_build_that_no_table_names_has_the_version_that_its_package_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    unknown = dataclasses.replace(
        NEURAL_COMPRESSOR, distribution="of no index", other_distributions=()
    )
    assert version_of(unknown) is None

    version_of.cache_clear()
    package = ModuleType("neural_compressor")
    package.__version__ = "3.10+own"
    monkeypatch.setitem(sys.modules, "neural_compressor", package)
    assert version_of(unknown) == "3.10+own"
