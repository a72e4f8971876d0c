"""Starts the real servers with the committed configurations, on free ports of loopback.

What a configuration fixes (ports, folders, the other servers' names) is replaced by what
the test needs, nothing else: a setting that the tests rely on is the committed one.
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, TypeVar

import yaml

from tests.fixtures.control_groups import ControlGroup, control_group

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
CONFIGS = ROOT / "collector"
START_SECONDS = 120
PATIENCE = 600
"""Seconds that a quantization may take on a machine that is busy with something else."""

T = TypeVar("T")
_GIVEN: set[int] = set()


WORKERS = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
"""Which of the processes that run these tests side by side this is."""


def free_port() -> int:
    """Returns a port below those that the kernel gives to outgoing connections.

    A server that is stopped and started again finds its port free: no client can have been
    given it in the meantime, and no other of the processes that run these tests.
    """
    while True:
        port = random.randrange(15000 + WORKER, 32000, WORKERS)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        if port not in _GIVEN:
            _GIVEN.add(port)
            return port


def eventually(get: Callable[[], T], what: str, seconds: float = 120) -> T:
    """Returns the first true answer of `get`; fails with the last answer after `seconds`."""
    deadline = time.monotonic() + seconds
    answer: Any = None
    while time.monotonic() < deadline:
        try:
            answer = get()
        except OSError as error:
            answer = error
        else:
            if answer:
                return answer
        time.sleep(0.25)
    raise AssertionError(f"{what}: still {answer!r} after {seconds} s")


class Unready(OSError):
    """A server cannot answer now; `eventually` asks again."""


def fetch(url: str, **parameters: object) -> Any:
    """Returns the JSON that a server answers."""
    query = urllib.parse.urlencode(parameters, doseq=True)
    # Grafana asks Prometheus by POST: a query with the ids of 1,000 processes is too long for an address.
    is_long = len(query) > 1 << 16
    body, url = (query.encode(), url) if is_long else (None, f"{url}?{query}" if query else url)
    try:
        with urllib.request.urlopen(url, body, timeout=150) as response:
            return json.load(response)
    except urllib.error.HTTPError as error:
        answer = f"{url} {parameters}: {error.code} {error.read().decode()}"
        raise (Unready if error.code in (429, *range(500, 600)) else AssertionError)(
            answer
        ) from None


@dataclass
class Server:
    """One server's process."""

    command: list[str]  # Program and arguments
    ready: str  # URL that answers 200 once it works
    log: Path  # File that takes its output, named as the service in docker-compose.yml
    # Variables beyond this process's own
    environment: Mapping[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None
    group: ControlGroup | None = None  # The control group that it runs in, if it has one of its own

    def start(self) -> None:
        command = self.group.within(self.command) if self.group else self.command
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command, env={**os.environ, **self.environment},
                stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
            )  # fmt: skip
        eventually(self.is_ready, f"{self.command[0]} ({self.log})", START_SECONDS)

    @contextmanager
    def within_limit(self) -> Iterator[ControlGroup]:
        """Gives it the memory that docker-compose.yml has for it; fails if it was killed for want of more."""
        composed = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
        number, unit = re.fullmatch(r"(\d+)([mg])", composed[self.log.stem]["mem_limit"]).groups()
        with control_group() as group:
            group.limit(int(number) << {"m": 20, "g": 30}[unit])
            self.group = group
            yield group
            assert group.kills == 0, self.log.stem

    def is_ready(self) -> bool:
        assert self.process is not None
        if self.process.poll() is not None:
            tail = self.log.read_text(errors="replace")[-3000:]
            raise AssertionError(f"{self.command} ended with {self.process.returncode}:\n{tail}")
        with urllib.request.urlopen(self.ready, timeout=2) as response:
            return bool(response.status == 200)

    @property
    def peak(self) -> int:
        """The most bytes that its process has held, pages of files that it maps among them."""
        assert self.process is not None
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) << 10

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()


@dataclass
class Backends:
    """Where the servers listen and the Collector shows its metrics, running or not."""

    prometheus: int = field(default_factory=free_port)
    alertmanager: int = field(default_factory=free_port)
    loki: int = field(default_factory=free_port)
    tempo: int = field(default_factory=free_port)
    tempo_otlp: int = field(default_factory=free_port)
    otelcol: int = field(default_factory=free_port)


def configured(name: str, folder: Path, places: Mapping[str, str]) -> Path:
    """Writes the committed configuration of a server with other places in it."""
    text = (CONFIGS / "backends" / f"{name}.yaml").read_text()
    for committed, own in places.items():
        assert committed in text, committed
        text = text.replace(committed, own)
    config = folder / f"{name}.yaml"
    config.write_text(text)
    return config


def prometheus(binary: str, folder: Path, ports: Backends) -> Server:
    rules = folder / "rules.yaml"
    committed = (ROOT / "grafana" / "alerts" / "quant.yaml").read_text()
    rules.write_text(re.sub(r"interval: \S+", "interval: 1s", committed))
    # The other servers are under other names and ports here.
    others = {"otelcol": 8888, "tempo": 3200, "loki": 3100, "alertmanager": 9093}
    places = {
        f"{name}:{port}": f"127.0.0.1:{getattr(ports, name)}" for name, port in others.items()
    }
    places |= {
        "localhost:9090": f"localhost:{ports.prometheus}", "/etc/prometheus/rules/*.yaml": str(rules),
    }  # fmt: skip
    config = configured("prometheus", folder, places)
    config.write_text(
        re.sub(r"(scrape|evaluation)_interval: \S+", r"\1_interval: 1s", config.read_text())
    )
    return Server(
        [
            binary, f"--config.file={config}", f"--storage.tsdb.path={folder / 'prometheus'}",
            f"--web.listen-address=127.0.0.1:{ports.prometheus}", *prometheus_flags(),
        ],
        f"http://127.0.0.1:{ports.prometheus}/-/ready",
        folder / "prometheus.log",
    )  # fmt: skip


def prometheus_flags() -> list[str]:
    """Returns the flags of docker-compose.yml that are not about places."""
    text = (ROOT / "docker-compose.yml").read_text()
    return re.findall(r"^ +- (--(?:web\.enable|enable-feature|query)\S*)$", text, re.MULTILINE)


def alertmanager(
    binary: str, folder: Path, ports: Backends, webhook: str, kind: str = "webhook"
) -> Server:
    """Returns an Alertmanager that sends alerts to a webhook after a second."""
    file = folder / "webhook"
    file.write_text(webhook)
    places = {"/etc/alertmanager/webhook": str(file), "group_wait: 10s": "group_wait: 1s"}
    config = configured(f"alertmanager-{kind}", folder, places)
    return Server(
        [
            binary, f"--config.file={config}", f"--storage.path={folder / 'alertmanager'}",
            f"--web.listen-address=127.0.0.1:{ports.alertmanager}", "--cluster.listen-address=",
        ],
        f"http://127.0.0.1:{ports.alertmanager}/-/ready",
        folder / "alertmanager.log",
    )  # fmt: skip


def loki(binary: str, folder: Path, ports: Backends) -> Server:
    places = {
        "http_listen_port: 3100": f"http_listen_port: {ports.loki}",
        # With its key: the port above may hold the same four digits.
        "grpc_listen_port: 9096": f"grpc_listen_port: {free_port()}",
        "/loki": str(folder / "loki"),
    }
    return Server(
        [
            binary, f"-config.file={configured('loki', folder, places)}",
            "-server.http-listen-address=127.0.0.1", "-server.grpc-listen-address=127.0.0.1",
            "-ingester.min-ready-duration=0s",
        ],
        f"http://127.0.0.1:{ports.loki}/ready",
        folder / "loki.log",
    )  # fmt: skip


def tempo(binary: str, folder: Path, ports: Backends) -> Server:
    places = {
        "0.0.0.0:4317": f"127.0.0.1:{ports.tempo_otlp}",
        "http_listen_port: 3200": (
            f"http_listen_port: {ports.tempo}\n  http_listen_address: 127.0.0.1\n"
            f"  grpc_listen_address: 127.0.0.1\n  grpc_listen_port: {free_port()}"
        ),
        "/var/tempo": str(folder / "tempo"),
    }
    return Server(
        [binary, "-target=all", f"-config.file={configured('tempo', folder, places)}"],
        f"http://127.0.0.1:{ports.tempo}/ready",
        folder / "tempo.log",
    )


def queries(binary: str, folder: Path, ports: Backends) -> tuple[Server, Backends]:
    """Returns the proxy through which Grafana asks the stores, and where it listens for each of them."""
    asked, health = Backends(), free_port()
    text = (CONFIGS / "backends" / "queries.caddyfile").read_text()
    places = {
        "auto_https off": "auto_https off\n\tdefault_bind 127.0.0.1",
        ":8080 {": f":{health} {{",
    }
    for name, port in {"prometheus": 9090, "loki": 3100, "tempo": 3200}.items():
        places |= {
            f"\n:{port} {{": f"\n:{getattr(asked, name)} {{",
            f"{name}:{port}": f"127.0.0.1:{getattr(ports, name)}",
        }
    for committed, own in {**places, "\n:4040 {": f"\n:{free_port()} {{"}.items():
        assert committed in text, committed
        text = text.replace(committed, own)
    config = folder / "queries.caddyfile"
    config.write_text(text)
    command = [binary, "run", f"--config={config}", "--adapter=caddyfile"]
    ready = f"http://127.0.0.1:{health}/"
    return Server(command, ready, folder / "queries.log", {"XDG_DATA_HOME": str(folder)}), asked


@dataclass(frozen=True)
class Secrets:
    """What gateways require and agents have, made as docs/scaling.md describes."""

    token: str
    certificate: Path
    of_collectors: Mapping[str, str]  # The variables of gateways and agents


def make_secrets(folder: Path, address: str = "127.0.0.1") -> Secrets:
    """Makes a certificate for an address and a token, with the commands of docs/scaling.md."""
    (commands,) = re.findall(
        r"```\n( *openssl .+?)```", (ROOT / "docs" / "scaling.md").read_text(), re.DOTALL
    )
    commands = commands.replace("DNS:gateway", f"IP:{address}")
    subprocess.run(["sh", "-ec", commands], cwd=folder, check=True, capture_output=True)
    certificate, token = folder / "tls.crt", folder / "token"
    of_collectors = {
        "OTELCOL_TLS_CERT": str(certificate),
        "OTELCOL_TLS_KEY": str(folder / "tls.key"),
        "OTELCOL_GATEWAY_CA": str(certificate),
        "OTELCOL_TOKEN_FILE": str(token),
    }
    return Secrets(token.read_text().strip(), certificate, of_collectors)


@dataclass
class Collector:
    """A Collector with one of the committed configurations."""

    server: Server  # Its process
    grpc: int  # Port for OTLP over gRPC
    http: int  # Port for OTLP over HTTP
    metrics: int  # Port of its own metrics
    # What a program needs that reports to it; None for one that asks for nothing
    secrets: Secrets | None = None

    @property
    def environment(self) -> dict[str, str]:
        """Returns what makes the SDK report to this Collector."""
        if self.secrets is not None:
            return {
                "OTEL_EXPORTER_OTLP_ENDPOINT": f"https://127.0.0.1:{self.grpc}",
                "OTEL_EXPORTER_OTLP_CERTIFICATE": str(self.secrets.certificate),
                "OTEL_EXPORTER_OTLP_HEADERS": f"authorization=Bearer {self.secrets.token}",
            }
        return {
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{self.grpc}",
            "OTEL_EXPORTER_OTLP_INSECURE": "true",
        }

    @property
    def over_http(self) -> dict[str, str]:
        """Returns the same for OTLP over HTTP."""
        return {
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{self.http}",
            "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        }


def collector(
    binary: str,
    folder: Path,
    config: Path,
    ports: Backends,
    name: str = "otelcol",
    secrets: Secrets | None = None,
    arguments: Sequence[str] = (),
    **extra: str,
) -> Collector:
    grpc, http, health = (free_port() for _ in range(3))
    metrics = ports.otelcol if name == "otelcol" else free_port()
    environment = {
        "OTELCOL_STORAGE": str(folder / name),
        "OTELCOL_OTLP_GRPC": f"127.0.0.1:{grpc}",
        "OTELCOL_OTLP_HTTP": f"127.0.0.1:{http}",
        "OTELCOL_HEALTH": f"127.0.0.1:{health}",
        "OTELCOL_METRICS_HOST": "127.0.0.1",
        "OTELCOL_METRICS_PORT": str(metrics),
        "OTELCOL_TEMPO": f"127.0.0.1:{ports.tempo_otlp}",
        "OTELCOL_PYROSCOPE": f"127.0.0.1:{ports.tempo_otlp}",
        "OTELCOL_LOKI": f"http://127.0.0.1:{ports.loki}/otlp",
        "OTELCOL_PROMETHEUS": f"http://127.0.0.1:{ports.prometheus}/api/v1/otlp",
        **(secrets.of_collectors if secrets else {}),
        **extra,
    }
    server = Server(
        [binary, f"--config={config}", *arguments],
        f"http://127.0.0.1:{health}/",
        folder / f"{name}.log",
        environment,
    )
    asks = "cert_file:" in config.read_text()
    return Collector(server, grpc, http, metrics, secrets if asks else None)


JOB = "stack-test"
"""The service that the quantizations report as."""


def instrumented(
    made: Collector,
    *arguments: str | Path,
    folder: Path | None = None,
    stdout: int = subprocess.DEVNULL,
    **variables: str,
) -> subprocess.Popen[bytes]:
    """Starts a Python program under `opentelemetry-instrument` that reports to a Collector."""
    instrument = Path(sys.executable).with_name("opentelemetry-instrument")
    command = (instrument, sys.executable, *arguments)
    return started(made, *command, folder=folder, stdout=stdout, **variables)


def started(
    made: Collector,
    *command: str | Path,
    folder: Path | None = None,
    stdout: int = subprocess.DEVNULL,
    **variables: str,
) -> subprocess.Popen[bytes]:
    """Starts a program that reports to a Collector."""
    own = {**made.environment, "PYTHONPATH": str(ROOT), "OTEL_SERVICE_NAME": JOB}
    return subprocess.Popen(
        command, env={**os.environ, **own, **variables}, cwd=folder,
        stdout=stdout, stderr=subprocess.DEVNULL,
    )  # fmt: skip


def quantize(
    made: Collector, folder: Path, *arguments: str, **variables: str
) -> subprocess.Popen[bytes]:
    """Starts a real quantization that reports to a Collector; Quark leaves a report in the folder."""
    often = {"OTEL_METRIC_EXPORT_INTERVAL": "1000", "OTEL_BSP_SCHEDULE_DELAY": "500"}
    program = HERE / "quark_run.py"
    return instrumented(made, program, *arguments, folder=folder, **often, **variables)


def send_runs(made: Collector, *ends: str) -> list[str]:
    """Sends runs that end in these ways to a Collector, from one program; returns the trace of each."""
    process = instrumented(made, HERE / "steps_run.py", *ends, stdout=subprocess.PIPE)
    printed, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == (-signal.SIGKILL if "killed" in ends else 0)
    return printed.decode().split()


class Webhook:
    """A webhook that receives the alerts of Alertmanager."""

    def __init__(self) -> None:
        told: set[tuple[str, str]] = set()
        messages: list[str] = []

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                messages.append(body)
                for alert in json.loads(body).get("alerts", ()):
                    if alert["status"] == "firing":
                        told.add((alert["labels"]["alertname"], alert["labels"]["job"]))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.told = told
        self.messages = messages
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
