"""Libraries: which of them are instrumented, and the version of each."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from otel_quant.capture.instruments import PACKAGES
from otel_quant.capture.instruments.steps import version_of
from otel_quant.capture.instruments.tables import NEURAL_COMPRESSOR


@pytest.fixture(autouse=True)
def _not_asked_before(monkeypatch: pytest.MonkeyPatch) -> None:
    version_of.cache_clear()
    monkeypatch.delitem(sys.modules, "neural_compressor", raising=False)


def test_a_library_has_the_version_of_its_distribution_or_of_its_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unknown = dataclasses.replace(NEURAL_COMPRESSOR, distribution="of no index")
    assert version_of(unknown) is None

    version_of.cache_clear()
    package = ModuleType("neural_compressor")
    package.__version__ = "3.10+own"
    monkeypatch.setitem(sys.modules, "neural_compressor", package)
    metadata = tmp_path / "neural_compressor-3.10.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text("Metadata-Version: 2.1\nName: neural_compressor\nVersion: 3.10\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert (version_of(NEURAL_COMPRESSOR), version_of(unknown)) == ("3.10", "3.10+own")


NAMES = ", ".join(sorted(PACKAGES))


UNKNOWN = "environment variable OTEL_QUANT_LIBRARIES names 'quack'; expected names out of " + NAMES


@pytest.mark.parametrize(
    ("libraries", "warnings"),
    [
        ("hqq", []),
        ("hqq,quack", [UNKNOWN]),
        (
            "quack",
            [
                UNKNOWN,
                "no library is instrumented: environment variable OTEL_QUANT_LIBRARIES is 'quack'; "
                f"expected one or more of {NAMES}; unset it to instrument all",
            ],
        ),
    ],
)
def test_an_unknown_name_is_logged_with_the_expected_ones(
    libraries: str, warnings: list[str]
) -> None:
    finished = subprocess.run(
        [sys.executable, "-c", "import otel_quant; otel_quant.QuantInstrumentor().instrument()"],
        env={**os.environ, "OTEL_QUANT_LIBRARIES": libraries},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert finished.stderr.splitlines() == warnings
