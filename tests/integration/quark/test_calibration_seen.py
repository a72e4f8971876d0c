"""What Quark's calibrations have not seen is found, of PyTorch and of ONNX models."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fixtures.otlp_receiver import OtlpReceiver
from tests.integration.libraries.conftest import Program, check_seen

pytestmark = pytest.mark.quark


@pytest.mark.parametrize(
    ("script", "way"),
    [
        ("seen.py", ("quark",)),
        ("seen_onnx.py", ("quark", "MinMax")),
        pytest.param("seen.py", ("quark_histogram",), marks=pytest.mark.slow),
        pytest.param("seen_onnx.py", ("quark", "MinMSE"), marks=pytest.mark.slow),
    ],
)
def test_what_is_planted_is_found(
    tmp_path: Path, otlp: OtlpReceiver, script: str, way: tuple[str, ...]
) -> None:
    check_seen(Program(tmp_path, otlp), *way, script=script)
