"""Fixtures: the real servers, where they are built."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from scripts.servers import build
from tests.fixtures.otlp_receiver import OtlpReceiver
from tests.stack.processes import PATIENCE, ROOT, Collector, Secrets, free_port, make_secrets

HERE = Path(__file__).parent
NOT_BUILT = (
    "the servers are not built here: python scripts/servers/build.py builds them (10 min or more)"
)
NO_TEMPO = "TEMPO_BIN names no Tempo 3.0 binary"


@pytest.fixture(scope="session")
def binaries() -> dict[str, str]:
    """Returns the path of each server's binary; skips where they are not built."""
    found = build.listing()
    if None in found.values():
        pytest.skip(NOT_BUILT)
    return {name: path for name, path in found.items() if path is not None}


def tempo_binary() -> str | None:
    """Returns the Tempo that TEMPO_BIN names, of the release in docker-compose.yml; or None."""
    named = os.environ.get("TEMPO_BIN", "")
    if not named:
        return None
    assert Path(named).is_file(), f"TEMPO_BIN={named}: no such file; expected a Tempo 3.0 binary"
    done = subprocess.run([named, "-version"], capture_output=True, text=True, check=True)
    printed = done.stdout + done.stderr
    assert "version 3.0." in printed, f"TEMPO_BIN={named} prints {printed!r}; expected version 3.0"
    return named


@pytest.fixture
def receiver() -> Iterator[OtlpReceiver]:
    """Yields a receiver in the place of Tempo, not started; its port is known."""
    made = OtlpReceiver(grpc_port=free_port())
    yield made
    made.stop()


@pytest.fixture(scope="session")
def secrets(tmp_path_factory: pytest.TempPathFactory) -> Secrets:
    """Returns what gateways ask for and agents have."""
    return make_secrets(tmp_path_factory.mktemp("secrets"))


JOB = "stack-test"
"""The service that the quantizations report as."""

SendRun = Callable[..., str]
Quantize = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture(scope="session")
def quantize(tmp_path_factory: pytest.TempPathFactory) -> Quantize:
    """Returns what starts a real, instrumented quantization that reports to a Collector."""
    folder = tmp_path_factory.mktemp("quark")  # Quark leaves a report where it runs

    def start(made: Collector, *arguments: str, **variables: str) -> subprocess.Popen[bytes]:
        instrument = Path(sys.executable).with_name("opentelemetry-instrument")
        own = {
            "PYTHONPATH": str(ROOT),
            "OTEL_SERVICE_NAME": JOB,
            "OTEL_METRIC_EXPORT_INTERVAL": "1000",
            "OTEL_BSP_SCHEDULE_DELAY": "500",
        }
        return subprocess.Popen(
            [instrument, sys.executable, HERE / "quark_run.py", *arguments],
            env={**os.environ, **made.environment, **own, **variables},
            cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip

    return start


@pytest.fixture(scope="session")
def send_run() -> SendRun:
    """Returns a function that sends an artificial run to a Collector and returns its trace id."""

    def send(environment: dict[str, str], *arguments: str) -> str:
        process = subprocess.Popen(
            [sys.executable, str(HERE / "artificial_run.py"), *arguments],
            env={**os.environ, **environment, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        with process, process.stdout as printed:
            trace = printed.readline().strip()
            if "killed" in arguments:
                assert printed.readline() == "to be killed\n"
                process.kill()
            assert process.wait(PATIENCE) in (0, -signal.SIGKILL)
        return trace

    return send
