"""Each tool that reads a committed file finds no error in it; healthchecks see whether servers work; Grafana only reads.

What a container has beside its server is not here to be asked: so the checks are of the server's own
programs, and these are here.
"""

from __future__ import annotations

import http.client
import json
import os
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
    fetch,
    loki,
    prometheus,
    queries,
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
    "the Collector's agent of Kubernetes": (
        "otelcol-quant", "validate", f"--config={CONFIGS / 'agent.yaml'}", f"--config={CONFIGS / 'kubernetes.yaml'}",
    ),
}  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_the_tool_finds_no_error(command: tuple[str, ...], binaries: dict[str, str]) -> None:
    tool, *arguments = command
    done = subprocess.run(
        [binaries[tool], *arguments],
        capture_output=True, text=True, check=False, cwd=ROOT / "tests" / "stack",
        env={**os.environ, "NODE_NAME": "of the agent"},
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


def answered(port: int, method: str, path: str) -> int:
    """Returns the status that a server answers to a request, whose path is sent as it is."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request(method, path, b"x=1" if method == "POST" else None)
    return connection.getresponse().status


SHUTDOWN = (
    "/ingester/shutdown", "//ingester/shutdown", "/loki/api/v1/../../../ingester/shutdown",
    "/loki/api/v1/%2e%2e/%2e%2e/%2e%2e/ingester/shutdown", "/loki/api/v1/..%2f..%2f..%2fingester/shutdown",
    "/loki/api/v1%2f..%2f..%2f..%2fingester/shutdown", "/ingester/shutdown?x=/loki/api/v1/query", "/%69ngester/shutdown",
)  # fmt: skip
OF_STORES = {
    "loki": [
        *(f"{method} {path}" for method in ("GET", "POST") for path in SHUTDOWN),
        "GET /flush", "POST /ingester/prepare_shutdown", "POST /log_level?log_level=debug", "POST /otlp/v1/logs",
        "POST /loki/api/v1/push", "POST /loki/api/v1/delete", "DELETE /loki/api/v1/rules/x", "GET /config",
    ],
    "prometheus": [
        "GET /-/quit", "POST /-/quit", "PUT /-/quit", "POST /-/reload", "POST /api/v1/otlp/v1/metrics", "POST /api/v1/write",
        "POST /api/v1/admin/tsdb/delete_series", "PUT /api/v1/query", "GET /debug/pprof/profile?seconds=9", "GET /metrics",
    ],
    "tempo": [
        "GET /shutdown", "POST /shutdown", "GET /flush", "POST /live-store/prepare-downscale", "POST /api/overrides",
        "POST /live-store/prepare-partition-downscale", "GET /api/../shutdown", "POST /api/echo",
    ],
}  # fmt: skip
"""Requests that stop a store, change it, write to it or cost it much; and ways to write a path that hide it."""


def test_what_stops_or_changes_a_store_does_not_pass_from_grafana(
    binaries: dict[str, str], tmp_path: Path
) -> None:
    ports = Backends()
    proxy, asked = queries(binaries["caddy"], tmp_path, ports)
    stores = [
        loki(binaries["loki"], tmp_path, ports),
        prometheus(binaries["prometheus"], tmp_path, ports),
    ]
    from_grafana = f"http://127.0.0.1:{asked.loki}/loki/api/v1/labels"
    try:
        for server in (*stores, proxy):
            server.start()
        passed = [
            f"{store} {request}"
            for store, requests in OF_STORES.items()
            for request in requests
            if answered(getattr(asked, store), *request.split(" ", 1)) not in (403, 404, 405)
        ]
        assert passed == []
        assert [server.process.poll() for server in stores if server.process] == [None, None]
        assert fetch(from_grafana)["status"] == "success"
        for length in (60_000, 2_000_000):  # by GET, and by POST
            long = f'up{{job!="{"x" * length}"}}'
            found = fetch(f"http://127.0.0.1:{asked.prometheus}/api/v1/query", query=long)
            assert found["status"] == "success"
        # Asked directly, Loki ends: it has no setting against it.
        assert answered(ports.loki, "GET", "/ingester/shutdown") == 204
        assert stores[0].process is not None
        assert stores[0].process.wait(60) == 0
        # Prometheus does not: --web.enable-lifecycle is not set.
        assert answered(ports.prometheus, "POST", "/-/quit") == 403
    finally:
        for server in (*stores, proxy):
            server.kill()
