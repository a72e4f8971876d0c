"""The healthchecks of docker-compose.yml, asked of the servers that they are for.

What a container has beside its server is not here to be asked: so the checks are of the
server's own programs, and these are here.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tests.stack.conftest import NO_TEMPO, tempo_binary
from tests.stack.processes import (
    ROOT,
    Backends,
    Server,
    alertmanager,
    eventually,
    loki,
    prometheus,
    tempo,
)

pytestmark = pytest.mark.servers

COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
START: dict[str, Callable[[str, Path, Backends], Server]] = {
    "prometheus": prometheus,
    "alertmanager": lambda *where: alertmanager(*where, "http://127.0.0.1/"),
    "loki": loki,
    "tempo": tempo,
}
PORTS = {"prometheus": "9090", "alertmanager": "9093", "loki": "3100", "tempo": "3200"}


@pytest.mark.parametrize("name", START)
def test_a_healthcheck_fails_only_if_its_server_does_not_work(
    name: str, binaries: dict[str, str], tmp_path: Path
) -> None:
    programs: dict[str, str | None] = {**binaries, "tempo": tempo_binary()}
    if programs[name] is None:
        pytest.skip(NO_TEMPO)
    ports = Backends()
    how, program, *arguments = COMPOSE[name]["healthcheck"]["test"]
    command = [
        str(programs[Path(program).name]),
        *(text.replace(PORTS[name], str(getattr(ports, name))) for text in arguments),
    ]
    assert (how, str(getattr(ports, name)) in command[-1]) == ("CMD", True)

    def healthy() -> bool:
        return subprocess.run(command, capture_output=True, timeout=20, check=False).returncode == 0

    server = START[name](str(programs[name]), tmp_path, ports)
    assert not healthy()
    server.start()
    try:
        eventually(healthy, "the server's health")
    finally:
        server.kill()
    assert not healthy()
