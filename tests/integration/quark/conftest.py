"""Real runs of AMD Quark that the tests of this folder look at.

Importing Quark takes up to a quarter of a minute, so a program is run once for all the
tests that look at the same run.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.fixtures.otlp_receiver import OtlpReceiver, Protocol
from tests.fixtures.programs import clean_environment
from tests.integration.quark.float_models import write_checkpoint, write_conv, write_matmul

PROGRAMS = Path(__file__).parent / "programs"

TIMEOUT = 900
"""Seconds that one program may take, on a machine that has other things to do."""


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


Run = Callable[..., QuarkRun]


@pytest.fixture(scope="session")
def float_models(tmp_path_factory: pytest.TempPathFactory) -> FloatModels:
    """The float models."""
    folder = tmp_path_factory.mktemp("float")
    write_conv(folder / "conv.onnx")
    write_matmul(folder / "matmul.onnx")
    write_checkpoint(folder / "checkpoint")
    return FloatModels(folder, folder / "checkpoint")


def command(
    program: str | Path,
    *arguments: str | Path,
    instrumented: bool,
    python: str | Path = sys.executable,
) -> list[str]:
    """Returns the command of a program, behind ``opentelemetry-instrument`` if wanted."""
    script = [str(python), str(PROGRAMS / program), *map(str, arguments)]
    if not instrumented:
        return script
    return [str(Path(sys.executable).with_name("opentelemetry-instrument")), *script]


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
            started = command(program, source, out, instrumented=instrumented, python=python)
            process = subprocess.Popen(
                started, cwd=cwd, env=env | dict(environment or {}),
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            )  # fmt: skip
            try:
                output, _ = process.communicate(timeout=TIMEOUT)
            finally:
                process.kill()
            assert process.returncode == 0, output[-4000:]
            return QuarkRun(cwd, out, otlp)

        yield started


@pytest.fixture(scope="session")
def onnx_run(run: Run, float_models: FloatModels) -> QuarkRun:
    """Everything ONNX, over gRPC, with Quark's own profiler and a strict file of ours."""
    environment = {"QUARK_PROFILING": "1", "OTEL_QUANT_YAML_STRICT": "true"}
    return run("onnx_all.py", float_models.onnx, environment=environment)


@pytest.fixture(scope="session")
def onnx_quark_alone(run: Run, float_models: FloatModels) -> QuarkRun:
    """Everything ONNX, without us, with Quark's own profiler."""
    environment = {"QUARK_PROFILING": "1"}
    return run("onnx_all.py", float_models.onnx, instrumented=False, environment=environment)


@pytest.fixture(scope="session")
def torch_run(run: Run, float_models: FloatModels) -> QuarkRun:
    """Everything torch, over HTTP, with Quark's own profiler and a strict file of ours."""
    return run(
        "torch_all.py",
        float_models.checkpoint,
        protocol="http/protobuf",
        environment={"QUARK_PROFILING": "1", "OTEL_QUANT_YAML_STRICT": "true"},
    )


@pytest.fixture(scope="session")
def torch_quark_alone(run: Run, float_models: FloatModels) -> QuarkRun:
    """Everything torch, without us, with Quark's own profiler."""
    environment = {"QUARK_PROFILING": "1"}
    return run("torch_all.py", float_models.checkpoint, instrumented=False, environment=environment)
