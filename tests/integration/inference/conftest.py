"""What the tests of `otel-quant inference` and `bench` share."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from otel_quant.inference.measure import measure_files
from otel_quant.inference.results import ModelResult
from otel_quant.inference.subjects import Options
from tests.fixtures.programs import run as run_command
from tests.integration.inference.planted import float_matmuls, quantized_matmuls


def run(folder: Path, *arguments: str, code: int = 0, **environment: str) -> tuple[str, str]:
    """Runs a command with a folder for temporary files; nothing but torch's own may be left in it."""
    temporary = folder / "temporary"
    temporary.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "otel_quant", *arguments]
    done = run_command(command, folder, os.environ | {"TMPDIR": str(temporary), **environment})
    left = [each.name for each in temporary.iterdir() if not each.name.startswith("torchinductor")]
    assert (done.returncode, left) == (code, []), done.stderr
    return done.stdout, done.stderr


def measured(paths: Sequence[Path], options: Options, at_once: int = 7) -> Iterator[ModelResult]:
    """Measures files, some at once: all models of a call are loaded at once."""
    for start in range(0, len(paths), at_once):
        names = [str(path) for path in paths[start : start + at_once]]
        yield from measure_files(names, options).models


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
