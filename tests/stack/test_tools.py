"""Each tool that reads a committed file finds no error in it; healthchecks see whether servers work.

What a container has beside its server is not here to be asked: so the checks are of the server's own
programs, and these are here.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import jsonschema
import pytest
import yaml

from tests.stack.conftest import NO_TEMPO, tempo_binary
from tests.stack.processes import (
    CONFIGS,
    ROOT,
    Backends,
    Server,
    alertmanager,
    eventually,
    loki,
    prometheus,
    tempo,
)
from tests.unit.stack.dashboards import FILES

pytestmark = pytest.mark.servers

WORKFLOWS = [*(ROOT / ".github" / "workflows").glob("*.yml"), ROOT / "examples/ci/quantization.yml"]
LINT = ("--lint=all", "--lint-fatal")
COMMANDS = {
    "prometheus' configuration": ("promtool", "check", "config", *LINT, CONFIGS / "backends/prometheus.yaml"),
    "rules": ("promtool", "check", "rules", *LINT, ROOT / "grafana/alerts/quant.yaml"),
    "alerts": ("promtool", "test", "rules", ROOT / "tests/stack/alerts.test.yaml"),
    # It would run shellcheck and pyflakes too, where they happen to be installed.
    "workflows": ("actionlint", "-no-color", "-shellcheck=", "-pyflakes=", *sorted(WORKFLOWS)),
    **{
        f"the Collector's {name}": ("otelcol-quant", "validate", f"--config={CONFIGS / name}.yaml")
        for name in ("config", "agent", "gateway")
    },
}  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_the_tool_finds_no_error(command: tuple[str, ...], binaries: dict[str, str]) -> None:
    tool, *arguments = command
    done = subprocess.run(
        [binaries[tool], *arguments],
        capture_output=True, text=True, check=False, cwd=ROOT / "tests" / "stack",
    )  # fmt: skip
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert said == "" or tool == "promtool"


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_grafanas_linter_finds_only_exceptions_with_a_reason(file: Path) -> None:
    linter = shutil.which("dashboard-linter")
    if linter is None:
        pytest.skip("no dashboard-linter on PATH")
    done = subprocess.run(
        [linter, "lint", "--strict", file], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_compose_file_matches_the_docker_compose_schema(binaries: dict[str, str]) -> None:
    schema = json.loads(Path(binaries["compose-spec.json"]).read_text())
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    found = jsonschema.validators.validator_for(schema)(schema).iter_errors(compose)
    assert [error.message for error in found] == []


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


def test_no_request_deletes_what_loki_has(binaries: dict[str, str], tmp_path: Path) -> None:
    ports = Backends()
    server = loki(binaries["loki"], tmp_path, ports)
    everything = "query=%7Bservice_name%3D~%22.%2B%22%7D&start=1000000000"
    url = f"http://127.0.0.1:{ports.loki}/loki/api/v1/delete?{everything}"
    try:
        server.start()
        with pytest.raises(urllib.error.HTTPError, match="403"):
            urllib.request.urlopen(urllib.request.Request(url, method="POST"), timeout=30)
    finally:
        server.kill()
