"""What the tests of `otel-quant inference` and `bench` share."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.inference.planted import float_matmuls, quantized_matmuls


def run(folder: Path, *arguments: str, code: int = 0, **environment: str) -> tuple[str, str]:
    """Runs a command with a folder for temporary files; nothing but torch's own may be left in it."""
    temporary = folder / "temporary"
    temporary.mkdir(exist_ok=True)
    done = subprocess.run(
        [sys.executable, "-m", "otel_quant", *arguments],
        cwd=folder, env=os.environ | {"TMPDIR": str(temporary), **environment},
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    left = [each.name for each in temporary.iterdir() if not each.name.startswith("torchinductor")]
    assert (done.returncode, left) == (code, []), done.stderr
    return done.stdout, done.stderr


def until(holds: Callable[[], bool]) -> None:
    """Waits until something holds."""
    last = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < last
        time.sleep(0.01)


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    """A float model and a quantized one in the folder of the test."""
    float_matmuls().save(tmp_path / "float.onnx")
    quantized_matmuls().save(tmp_path / "int8.onnx")
    return "float.onnx", "int8.onnx"


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """Threads that wait for each other on a busy machine take a hundred times as long."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
