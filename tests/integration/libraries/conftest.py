"""Programs that quantize with a real library under ``opentelemetry-instrument``."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.figures import BEGINNINGS
from tests.fixtures.otlp_messages import Span
from tests.fixtures.otlp_receiver import OtlpReceiver

PROGRAMS = Path(__file__).parent / "programs"

# What differs from run to run, or from machine to machine: figures, times, identifiers.
_MEASURED = (
    *BEGINNINGS, "quant.gpu.",
    "quant.calibration.sample_rate", "quant.run.id", "quant.run.name", "quant.step.index", "thread.",
)  # fmt: skip


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

    def stable_attributes(self, span: Span) -> dict[str, Any]:
        """Returns the attributes of a span that are the same in every run."""
        return {
            name: value
            for name, value in span.attributes.items()
            if not name.startswith(_MEASURED)
        }  # fmt: skip


@pytest.fixture
def program(tmp_path: Path, otlp: OtlpReceiver) -> Program:
    """Runs programs in this test's folder."""
    return Program(tmp_path, otlp)


def steps_below(program: Program, span: Span) -> list[Any]:
    """Returns what is known of each step below a span, with the steps within it.

    A step is its name, its attributes without those that repeat the name, and a list of
    the same for the steps within it. Spans of model cost are their paths.
    """
    return [
        ("model cost", child.attributes["quant.model.path"])
        if child.name == "model cost"
        else (
            child.name,
            {
                name: value
                for name, value in program.stable_attributes(child).items()
                if name not in ("quant.step.name", "quant.step.kind")
            },
            steps_below(program, child),
        )
        for child in program.otlp.children(span)
    ]


def steps_by(distribution: str, prefix: str = "") -> Callable[..., Any]:
    """Returns what makes the steps of a library, as `steps_below` finds them."""
    version = importlib.metadata.version(distribution)

    def step(named: tuple[str, str], known: dict[str, Any], *within: Any) -> Any:
        name, function = named
        return name, {
            "code.function.name": prefix + function,
            "quant.library.name": distribution,
            "quant.library.version": version,
            **known,
        }, list(within)  # fmt: skip

    return step
