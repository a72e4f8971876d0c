"""The limited process that the tests of this folder send their models to."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[4]
WORKER = Path(__file__).with_name("limited_worker.py")


class Limited:
    """A worker, started anew if a model has killed it."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def cost(self, path: Path, *, rules: str = "corrected", sparsity: bool = False) -> Any:
        """Returns the worker's answer for a model; fails if the model was too much for it."""
        process = self._process
        if process is None or process.poll() is not None:
            process = self._process = subprocess.Popen(
                [sys.executable, str(WORKER)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                text=True, env={**os.environ, "PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1"},
            )  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps([str(path), rules, sparsity]) + "\n")
        process.stdin.flush()
        line = process.stdout.readline()
        assert line, f"the model killed the process: {process.wait()}"
        return json.loads(line)

    def close(self) -> None:
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._process.wait(60)


@pytest.fixture(scope="session")
def limited() -> Iterator[Limited]:
    worker = Limited()
    yield worker
    worker.close()
