"""Programs that quantize with a real library under ``opentelemetry-instrument``."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fixtures.otlp_receiver import OtlpReceiver

PROGRAMS = Path(__file__).parent / "programs"


class Program:
    """Runs programs in a folder of its own, and gives access to what they sent."""

    def __init__(self, cwd: Path, otlp: OtlpReceiver) -> None:
        self.cwd = cwd
        self.otlp = otlp
        self.stderr = ""

    def __call__(self, program: str, *arguments: str, **environ: str) -> str:
        """Runs one of the programs to its end, which has to be a good one."""
        inherited = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("OTEL_", "QUARK_"))
            and name not in ("TRACEPARENT", "PYTHONPATH")
        }
        done = subprocess.run(
            [Path(sys.executable).with_name("opentelemetry-instrument"), sys.executable,
             PROGRAMS / program, *arguments],
            cwd=self.cwd, env={**inherited, **self.otlp.environment(), **environ},
            capture_output=True, text=True, timeout=900, check=False,
        )  # fmt: skip
        self.stderr = done.stderr
        assert done.returncode == 0, done.stderr
        assert "is skipped; the program goes on" not in done.stderr, done.stderr
        return done.stdout


@pytest.fixture
def program(tmp_path: Path, otlp: OtlpReceiver) -> Program:
    """Runs programs in this test's folder."""
    return Program(tmp_path, otlp)
