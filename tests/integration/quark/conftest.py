"""Real runs of AMD Quark that the tests of this folder look at.

Importing Quark takes up to a quarter of a minute, so a program is run once for all the
tests that look at the same run.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.fixtures.otlp_receiver import OtlpReceiver, Protocol
from tests.fixtures.programs import PROGRAMS as INSTALLED
from tests.fixtures.programs import clean_environment
from tests.fixtures.programs import run as run_command
from tests.integration.quark.float_models import write_checkpoint, write_conv, write_matmul

PROGRAMS = Path(__file__).parent / "programs"

TIMEOUT = 900
"""Seconds that one program may take, on a machine that has other things to do."""


@pytest.fixture(scope="session", autouse=True)
def _quark_is_installed() -> None:
    if find_spec("quark") is None:
        pytest.skip("amd-quark is not installed")


@dataclass(frozen=True)
class FloatModels:
    """Where the float models are: ``conv.onnx``, ``matmul.onnx``; a checkpoint for torch."""

    onnx: Path
    checkpoint: Path


@dataclass(frozen=True)
class QuarkRun:
    """A program that has run to its end."""

    cwd: Path  # Folder that it ran in; it was given ``out`` there for its output
    out: Path
    otlp: OtlpReceiver  # What it sent; empty if it was not instrumented
    output: str  # Both streams


Run = Callable[..., QuarkRun]

QUARKS = {"QUARK_PROFILING": "1"}
BOTH = {**QUARKS, "OTEL_QUANT_YAML_STRICT": "true"}
"""Quark's own profiler, and a strict file of ours beside it."""


@pytest.fixture(scope="session")
def float_models(tmp_path_factory: pytest.TempPathFactory) -> FloatModels:
    """The float models."""
    folder = tmp_path_factory.mktemp("float")
    write_conv(folder / "conv.onnx")
    write_matmul(folder / "matmul.onnx")
    write_checkpoint(folder / "checkpoint")
    return FloatModels(folder, folder / "checkpoint")


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """Runs programs of ``programs/``, each in a folder of its own; instrumented ones send to a receiver.

    What they have sent can be asked for until the session ends.
    """
    with ExitStack() as stack:

        def started(
            program: str,
            source: Path,
            *,
            instrumented: bool = True,
            protocol: Protocol = "grpc",
            python: str | Path = sys.executable,
            environment: Mapping[str, str] | None = None,
        ) -> QuarkRun:
            cwd = tmp_path_factory.mktemp("run")
            out = cwd / "out"
            out.mkdir()
            env = clean_environment()
            env["OTEL_QUANT_GPU"] = "false"  # what is tested here is the same on every machine
            otlp = OtlpReceiver()
            if instrumented:
                stack.callback(otlp.start().stop)
                env |= otlp.environment(protocol)
            before = [str(INSTALLED / "opentelemetry-instrument")] if instrumented else []
            command = [*before, str(python), str(PROGRAMS / program), str(source), str(out)]
            done = run_command(command, cwd, env | dict(environment or {}), TIMEOUT)
            assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
            return QuarkRun(cwd, out, otlp, done.stdout + done.stderr)

        yield started


@pytest.fixture(scope="session")
def onnx_run(run: Run, float_models: FloatModels) -> QuarkRun:
    """Everything ONNX, over gRPC, with Quark's own profiler and a strict file of ours."""
    return run("onnx_all.py", float_models.onnx, environment=BOTH)


@pytest.fixture(scope="session")
def onnx_quark_alone(run: Run, float_models: FloatModels) -> QuarkRun:
    """Everything ONNX, without us, with Quark's own profiler."""
    return run("onnx_all.py", float_models.onnx, instrumented=False, environment=QUARKS)


@pytest.fixture(scope="session")
def torch_run(run: Run, float_models: FloatModels) -> QuarkRun:
    """Everything torch, over HTTP, with Quark's own profiler and a strict file of ours."""
    return run("torch_all.py", float_models.checkpoint, protocol="http/protobuf", environment=BOTH)


@pytest.fixture(scope="session")
def torch_quark_alone(run: Run, float_models: FloatModels) -> QuarkRun:
    """Everything torch, without us, with Quark's own profiler."""
    return run("torch_all.py", float_models.checkpoint, instrumented=False, environment=QUARKS)
