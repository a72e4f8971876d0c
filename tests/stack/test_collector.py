"""What the Collector promises with the committed configurations, kept by a real Collector."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest
import yaml
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import TraceServiceStub

from tests.fixtures.otlp_messages import Span
from tests.fixtures.otlp_receiver import OtlpReceiver
from tests.stack.artificial_run import STEPS
from tests.stack.conftest import JOB, Quantize, SendRun
from tests.stack.processes import (
    CONFIGS,
    PATIENCE,
    ROOT,
    Backends,
    Collector,
    Secrets,
    Server,
    collector,
    eventually,
    fetch,
    free_port,
    loki,
    prometheus,
)

pytestmark = pytest.mark.servers

NAMES = ("config", "agent", "gateway")
WHOLE_RUN = sorted([*STEPS, "quantization", "model cost", "model cost"])
FAILED_RUN = sorted([*STEPS[:4], "quantization"])
CHECKPOINTS = ["Start", *(f"{s} {e}" for s in STEPS for e in ("Start", "End")), "End"]

StartCollector = Callable[..., Collector]


@pytest.fixture
def ports(receiver: OtlpReceiver) -> Backends:
    return Backends(tempo_otlp=receiver.grpc_port)


@pytest.fixture
def start(
    binaries: dict[str, str], tmp_path: Path, ports: Backends, secrets: Secrets
) -> Iterator[StartCollector]:
    """Yields what starts a Collector with one of the configurations."""
    started: list[Collector] = []

    def make(config: Path | str, name: str = "otelcol", **extra: str) -> Collector:
        path = CONFIGS / f"{config}.yaml" if isinstance(config, str) else config
        made = collector(binaries["otelcol-quant"], tmp_path, path, ports, name, secrets, **extra)
        made.server.start()
        started.append(made)
        return made

    yield make
    for made in started:
        made.server.kill()


@pytest.fixture
def stores(binaries: dict[str, str], tmp_path: Path, ports: Backends) -> Iterator[list[Server]]:
    """Yields Prometheus and Loki, not started."""
    made = [
        prometheus(binaries["prometheus"], tmp_path, ports),
        loki(binaries["loki"], tmp_path, ports),
    ]
    yield made
    for server in made:
        server.kill()


def span_names(receiver: OtlpReceiver, trace: str) -> list[str]:
    """Returns the names of a trace's spans, sorted.

    A Collector whose request failed in part sends all of it again: each span counts once.
    """
    found = {span.span_id: span.name for span in receiver.spans if span.trace_id == trace}
    return sorted(found.values())


def root_span(receiver: OtlpReceiver, failed: str = "", but: str = "") -> Span | None:
    """Returns a run's root span.

    Args:
        receiver: Where it is to have arrived.
        failed: Name of a failed span that the trace must hold too, if given.
        but: A trace that does not count.
    """
    with_failed = {s.trace_id for s in receiver.spans if s.name == failed and s.status == "ERROR"}
    for span in receiver.spans_named("quantization"):
        if span.trace_id != but and (not failed or span.trace_id in with_failed):
            return span
    return None


def checkpoints(ports: Backends, trace: str) -> list[str]:
    """Returns the names of a trace's checkpoints in Loki, in order."""
    answer = fetch(
        f"http://127.0.0.1:{ports.loki}/loki/api/v1/query_range",
        query=f'{{service_name=~".+"}} | trace_id="{trace}" | quant_checkpoint_name!=""',
        since="1h",
        limit=1000,
    )
    lines = [line for stream in answer["data"]["result"] for line in stream["values"]]
    return [name for _, name in sorted(lines, key=lambda line: int(line[0]))]


def sample(ports: Backends, query: str) -> list[float]:
    answer = fetch(f"http://127.0.0.1:{ports.prometheus}/api/v1/query", query=query)
    return sorted(float(series["value"][1]) for series in answer["data"]["result"])


@pytest.mark.parametrize("name", NAMES)
def test_each_configuration_is_valid(name: str, binaries: dict[str, str], tmp_path: Path) -> None:
    done = subprocess.run(
        [binaries["otelcol-quant"], "validate", f"--config={CONFIGS / name}.yaml"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@pytest.mark.parametrize("name", NAMES)
def test_starting_logs_no_deprecation_and_no_error(name: str, start: StartCollector) -> None:
    made = start(name, OTELCOL_GATEWAY_HOST="127.0.0.1", OTELCOL_GATEWAY_PORT=str(free_port()))
    # The health check succeeds a moment before the log has the line.
    eventually(lambda: "Everything is ready" in made.server.log.read_text(), "the log's last line")
    log = made.server.log.read_text()
    assert [line for line in log.splitlines() if re.search("deprecat", line, re.IGNORECASE)] == []
    assert [line for line in log.splitlines() if "\terror\t" in line] == []


@pytest.mark.quark
def test_a_real_quantization_arrives_whole_in_every_store(
    start: StartCollector,
    stores: list[Server],
    ports: Backends,
    receiver: OtlpReceiver,
    quantize: Quantize,
) -> None:
    receiver.start()
    for server in stores:
        server.start()
    # As docker-compose.yml names the host; over HTTP, since the other tests use gRPC.
    made = start("config", OTEL_RESOURCE_ATTRIBUTES="host.name=quant-host")
    assert quantize(made, "good", environment=made.over_http).wait(PATIENCE) == 0
    root = eventually(lambda: root_span(receiver), "the run's root span")
    names = eventually(lambda: ended(checkpoints(ports, root.trace_id)), "the run's checkpoints")
    steps = sorted(name.removesuffix(" End") for name in names if name.endswith(" End"))
    eventually(
        lambda: (
            span_names(receiver, root.trace_id)
            == sorted([*steps, "quantization", *["model cost"] * 2])
        ),
        "one span for each step of the checkpoints",
    )
    # What the run left out about its host is filled in; nothing else is counted of its spans.
    for query, value in (
        (f'sum(quant_step_duration_seconds_count{{job="{JOB}"}})', len(steps)),
        ('count(quant_run_memory_usage_bytes{host_name="quant-host"})', 1),
    ):
        eventually(lambda q=query, v=value: sample(ports, q) == [v], f"{query} == {value}")


def wait_for_failures(made: Collector, config: str) -> None:
    """Waits until each exporter has failed to send something, and keeps it for another try."""

    def failed(exporter: str) -> bool:
        log = made.server.log.read_text()
        return any(exporter in line for line in log.splitlines() if "Will retry" in line)

    for name in yaml.safe_load((CONFIGS / f"{config}.yaml").read_text())["exporters"]:
        eventually(lambda n=name: failed(n), f"{name} fails and tries again")


def ended(names: list[str]) -> list[str]:
    """Returns the checkpoints of a run without its own two, once it has ended."""
    return names[1:-1] if names[:1] == ["Start"] and names[-1:] == ["End"] else []


def test_stores_get_everything_after_an_outage(
    start: StartCollector,
    stores: list[Server],
    ports: Backends,
    receiver: OtlpReceiver,
    send_run: SendRun,
) -> None:
    made = start("config")
    trace = send_run(made.environment, "good", "--seconds=1")
    wait_for_failures(made, "config")
    receiver.start()
    for server in stores:
        server.start()
    eventually(lambda: span_names(receiver, trace) == WHOLE_RUN, "the run's spans")
    eventually(lambda: checkpoints(ports, trace) == CHECKPOINTS, "the run's checkpoints")
    eventually(
        lambda: sample(ports, "sum(quant_step_duration_seconds_count)") == [len(STEPS)],
        "the durations of the run's steps",
    )


def test_a_killed_collector_loses_nothing_that_it_had_accepted(
    start: StartCollector,
    stores: list[Server],
    ports: Backends,
    receiver: OtlpReceiver,
    send_run: SendRun,
) -> None:
    made = start("config")
    trace = send_run(made.environment, "good", "--seconds=1")
    made.server.kill()
    made.server.start()
    receiver.start()
    for server in stores:
        server.start()
    eventually(lambda: span_names(receiver, trace) == WHOLE_RUN, "the run's spans")
    eventually(lambda: checkpoints(ports, trace) == CHECKPOINTS, "the run's checkpoints")
    eventually(
        lambda: sample(ports, "sum(quant_step_duration_seconds_count)") == [len(STEPS)],
        "the durations of the run's steps",
    )


@pytest.mark.slow
def test_a_run_during_which_the_collector_is_away_longer_than_the_sdk_tries_arrives_whole(
    start: StartCollector, stores: list[Server], ports: Backends, receiver: OtlpReceiver
) -> None:
    receiver.start()
    for server in stores:
        server.start()
    made = start("config")
    launcher = Path(sys.executable).with_name("opentelemetry-instrument")
    with subprocess.Popen(
        [str(launcher), sys.executable, str(Path(__file__).with_name("stepping.py"))],
        env={**os.environ, **made.environment, "PYTHONPATH": str(ROOT), "OTEL_SERVICE_NAME": JOB},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        eventually(lambda: receiver.spans_named("short"), "the first steps")
        made.server.kill()
        given_up: set[str] = set()
        assert process.stderr is not None
        while given_up < {"logs", "traces"}:
            line = process.stderr.readline()
            given_up |= {name for name in ("logs", "traces") if f"Failed to export {name}" in line}
        made.server.start()
        before = len(receiver.spans)
        eventually(lambda: len(receiver.spans) > before, "spans after the outage")
        count = int(process.communicate("")[0])
    assert process.returncode == 0
    whole = sorted(["quantization", *["short"] * count])
    root = eventually(lambda: root_span(receiver), "the run's root span")
    eventually(lambda: span_names(receiver, root.trace_id) == whole, "the run's spans")
    checkpoints_of_all = ["Start", *["short Start", "short End"] * count, "End"]
    eventually(
        lambda: checkpoints(ports, root.trace_id) == checkpoints_of_all, "the run's checkpoints"
    )


@pytest.fixture
def two_gateways(start: StartCollector, tmp_path: Path) -> tuple[list[Collector], Path]:
    """Returns two gateways that decide early and keep no ordinary run, and the agent for them.

    A resolver that finds both by name needs DNS; the agent here lists their addresses.
    """
    gateways = [
        start(
            "gateway",
            f"gateway{index}",
            OTELCOL_AFTER_ROOT="1s",
            OTELCOL_LONGEST_RUN="20s",
            OTELCOL_KEEP_PERCENT="0",
        )
        for index in range(2)
    ]
    text = yaml.safe_load((CONFIGS / "agent.yaml").read_text())
    text["exporters"]["load_balancing"]["resolver"] = {
        "static": {"hostnames": [f"127.0.0.1:{gateway.grpc}" for gateway in gateways]}
    }
    agent = tmp_path / "agent.yaml"
    agent.write_text(yaml.safe_dump(text))
    return gateways, agent


@pytest.mark.quark
def test_gateways_keep_the_runs_worth_keeping_and_every_metric_and_checkpoint(
    start: StartCollector,
    stores: list[Server],
    ports: Backends,
    receiver: OtlpReceiver,
    send_run: SendRun,
    quantize: Quantize,
    two_gateways: tuple[list[Collector], Path],
) -> None:
    gateways, config = two_gateways
    receiver.start()
    for server in stores:
        server.start()
    agent = start(
        config,
        "agent",
        OTELCOL_GATEWAY_HOST="127.0.0.1",
        OTELCOL_GATEWAY_PORT=str(gateways[0].grpc),
    )
    environment = agent.environment
    real = quantize(agent, "failed")
    ordinary = [send_run(environment, "good", "--seconds=0.5") for _ in range(4)]
    failed = send_run(environment, "failed", "--seconds=0.5")
    critical = send_run(environment, "good", "--seconds=0.5", "--limit-gib=1")
    slow = send_run(environment, "good", "--seconds=0.5", "--began=3700")
    killed = send_run(environment, "killed", "--seconds=0.5")
    eventually(lambda: span_names(receiver, slow) == WHOLE_RUN, "the slow run")
    eventually(lambda: span_names(receiver, critical) == WHOLE_RUN, "the memory-critical run")
    eventually(
        lambda: span_names(receiver, failed) == FAILED_RUN,
        "the failed run",
    )
    eventually(lambda: span_names(receiver, killed) == sorted(STEPS[:2]), "the killed run")
    assert [span_names(receiver, trace) for trace in ordinary] == [[], [], [], []]
    for trace in ordinary:
        eventually(lambda t=trace: checkpoints(ports, t) == CHECKPOINTS, "an ordinary run's log")
    assert real.wait(PATIENCE) == 1
    root = eventually(
        lambda: root_span(receiver, failed="Calibration", but=failed), "the real run that failed"
    )
    eventually(
        lambda: checkpoints(ports, root.trace_id)[-2:] == ["Calibration End", "End"],
        "its checkpoints up to the step that failed",
    )
    everyone = len(ordinary) + 5
    eventually(
        lambda: sample(ports, "count(quant_run_memory_usage_bytes)") == [everyone],
        "every run's memory",
    )


def test_a_killed_gateway_loses_nothing_that_it_had_decided_on(
    start: StartCollector,
    stores: list[Server],
    ports: Backends,
    receiver: OtlpReceiver,
    send_run: SendRun,
) -> None:
    gateway = start("gateway", OTELCOL_AFTER_ROOT="1s")
    trace = send_run(gateway.environment, "failed", "--seconds=0.5")
    wait_for_failures(gateway, "gateway")
    gateway.server.kill()
    gateway.server.start()
    receiver.start()
    for server in stores:
        server.start()
    eventually(lambda: span_names(receiver, trace) == FAILED_RUN, "the run's spans")
    eventually(
        lambda: checkpoints(ports, trace)[-2:] == [f"{STEPS[3]} End", "End"],
        "the run's checkpoints",
    )
    eventually(
        lambda: sample(ports, "sum(quant_step_duration_seconds_count)") == [4],
        "the durations of the run's steps",
    )


def test_an_agent_killed_while_its_gateway_is_away_loses_nothing(
    start: StartCollector, receiver: OtlpReceiver, send_run: SendRun
) -> None:
    gateway = start("gateway", "gateway", OTELCOL_AFTER_ROOT="1s", OTELCOL_KEEP_PERCENT="0")
    gateway.server.kill()
    receiver.start()
    agent = start(
        "agent",
        "agent",
        OTELCOL_GATEWAY_HOST="127.0.0.1",
        OTELCOL_GATEWAY_PORT=str(gateway.grpc),
    )
    failed = [send_run(agent.environment, "failed", "--seconds=0.5") for _ in range(3)]
    agent.server.kill()
    agent.server.start()
    gateway.server.start()
    for trace in failed:
        eventually(
            lambda t=trace: span_names(receiver, t) == FAILED_RUN,
            f"failed run {trace}",
        )


OK, UNAUTHENTICATED = grpc.StatusCode.OK, grpc.StatusCode.UNAUTHENTICATED


def asked_with(collector: Collector, *headers: tuple[str, str]) -> grpc.StatusCode:
    """Returns how a gateway answers an export with these headers, over TLS."""
    assert collector.secrets is not None
    credentials = grpc.ssl_channel_credentials(collector.secrets.certificate.read_bytes())
    with grpc.secure_channel(f"127.0.0.1:{collector.grpc}", credentials) as channel:
        return answer(channel, *headers)


def answer(channel: grpc.Channel, *headers: tuple[str, str]) -> grpc.StatusCode:
    export = TraceServiceStub(channel).Export
    try:
        export(ExportTraceServiceRequest(), metadata=headers, timeout=20)
    except grpc.RpcError as error:
        return error.code()
    return OK


def test_a_gateway_takes_what_comes_with_its_token_over_tls_and_nothing_else(
    start: StartCollector, secrets: Secrets
) -> None:
    gateway = start("gateway")
    assert asked_with(gateway, ("authorization", f"Bearer {secrets.token}")) is OK
    assert asked_with(gateway, ("authorization", "Bearer wrong")) is UNAUTHENTICATED
    assert asked_with(gateway) is UNAUTHENTICATED
    with grpc.insecure_channel(f"127.0.0.1:{gateway.grpc}") as channel:
        assert answer(channel, ("authorization", f"Bearer {secrets.token}")) is (
            grpc.StatusCode.UNAVAILABLE
        )


@pytest.mark.parametrize("has_it", [True, False], ids=["right", "wrong"])
def test_an_agent_is_heard_by_a_gateway_if_its_token_is_right(
    has_it: bool, start: StartCollector, receiver: OtlpReceiver, send_run: SendRun, tmp_path: Path
) -> None:
    wrong = tmp_path / "token"
    wrong.write_text("wrong\n")
    receiver.start()
    gateway = start("gateway", "gateway", OTELCOL_AFTER_ROOT="1s")
    agent = start(
        "agent",
        "agent",
        OTELCOL_GATEWAY_HOST="127.0.0.1",
        OTELCOL_GATEWAY_PORT=str(gateway.grpc),
        **({} if has_it else {"OTELCOL_TOKEN_FILE": str(wrong)}),
    )
    trace = send_run(agent.environment, "failed", "--seconds=0.5")
    if has_it:
        eventually(lambda: span_names(receiver, trace) == FAILED_RUN, "the run's spans")
    else:
        eventually(
            lambda: "Unauthenticated" in agent.server.log.read_text(), "the refusal in the log"
        )
        assert receiver.spans == []


@pytest.mark.parametrize("missing", ["OTELCOL_TLS_CERT", "OTELCOL_TLS_KEY", "OTELCOL_TOKEN_FILE"])
def test_a_gateway_without_a_certificate_a_key_or_a_token_does_not_start(
    missing: str, start: StartCollector
) -> None:
    with pytest.raises(AssertionError, match=r"no such file or directory"):
        start("gateway", **{missing: "/nowhere"})
