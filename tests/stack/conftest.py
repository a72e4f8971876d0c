"""Fixtures: the real servers, where they are built."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from scripts.servers import build
from tests.fixtures.otlp_receiver import OtlpReceiver
from tests.stack.processes import ROOT, Collector, free_port

HERE = Path(__file__).parent
NOT_BUILT = "the servers are not built here: python scripts/servers/build.py builds them in minutes"
NO_TEMPO = "TEMPO_BIN names no Tempo 3.0 binary"


@pytest.fixture(scope="session")
def binaries() -> dict[str, str]:
    """Returns the path of each server's binary; skips where they are not built."""
    found = build.listing()
    if None in found.values():
        pytest.skip(NOT_BUILT)
    return {name: path for name, path in found.items() if path is not None}


@pytest.fixture(scope="session")
def tempo_binary() -> str:
    """Returns Tempo's binary; skips where there is none."""
    named = os.environ.get("TEMPO_BIN", "")
    if not named:
        pytest.skip(NO_TEMPO)
    assert Path(named).is_file(), f"TEMPO_BIN={named}: no such file; expected a Tempo 3.0 binary"
    return named


@pytest.fixture
def receiver() -> Iterator[OtlpReceiver]:
    """Yields what is Tempo to a Collector, not started; its port is known all the same."""
    made = OtlpReceiver(grpc_port=free_port())
    yield made
    made.stop()


JOB = "stack-test"
"""The service that the quantizations report as."""

TellRun = Callable[..., str]
Quantize = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture(scope="session")
def quantize(tmp_path_factory: pytest.TempPathFactory) -> Quantize:
    """Returns what starts a real, instrumented quantization that reports to a Collector."""
    folder = tmp_path_factory.mktemp("quark")  # Quark leaves a report where it runs

    def start(
        made: Collector, *arguments: str, environment: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [
                str(Path(sys.executable).with_name("opentelemetry-instrument")),
                sys.executable,
                str(HERE / "quark_run.py"),
                *arguments,
            ],
            env={
                **os.environ,
                **(environment or made.environment),
                "PYTHONPATH": str(ROOT),
                "OTEL_SERVICE_NAME": JOB,
                "OTEL_METRIC_EXPORT_INTERVAL": "1000",
                "OTEL_BSP_SCHEDULE_DELAY": "500",
            },
            cwd=folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    return start


@pytest.fixture(scope="session")
def tell_run() -> TellRun:
    """Returns what tells one run to a Collector and gives back its trace id."""

    def tell(environment: dict[str, str], *arguments: str, kill_after: float | None = None) -> str:
        process = subprocess.Popen(
            [sys.executable, str(HERE / "told_run.py"), *arguments],
            env={**os.environ, **environment, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            out, _ = process.communicate(timeout=kill_after or 120)
        except subprocess.TimeoutExpired:
            process.kill()
            out, _ = process.communicate()
        return out.split()[0]

    return tell
