"""Fixtures: the real servers, where they are built."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.servers import build
from tests.fixtures.otlp_receiver import OtlpReceiver
from tests.stack.processes import Secrets, free_port, make_secrets

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
