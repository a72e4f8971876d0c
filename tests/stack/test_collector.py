"""What the Collector promises with the committed configurations, kept by a real Collector."""

from __future__ import annotations

import platform
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import grpc
import pytest
import yaml
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import TraceServiceStub

from tests.fixtures.otlp_messages import Span
from tests.fixtures.otlp_receiver import OtlpReceiver, Protocol
from tests.fixtures.programs import PROGRAMS, Workshop, clean_environment, run
from tests.integration.export.test_profiles import PROGRAM as PROFILED
from tests.integration.export.test_profiles import arrived, check_recorded, recorded
from tests.stack.processes import (
    CONFIGS,
    JOB,
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
    send_runs,
)
from tests.stack.steps_run import STEPS, WITHIN

pytestmark = pytest.mark.servers

NAMES = ("config", "agent", "gateway")
ENDED = {"good": STEPS, "failed": STEPS[:2], "killed": STEPS[:1]}
"""The steps that end in a run of each end."""

DURATIONS = "sum(quant_step_duration_seconds_count)"

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

    def make(
        config: Path | str, name: str = "otelcol", arguments: Sequence[str] = (), **extra: str
    ) -> Collector:
        path = CONFIGS / f"{config}.yaml" if isinstance(config, str) else config
        made = collector(
            binaries["otelcol-quant"], tmp_path, path, ports, name, secrets, arguments, **extra
        )
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


def reached(gateway: Collector) -> dict[str, str]:
    """Returns what has an agent send to a gateway."""
    return {"OTELCOL_GATEWAY_HOST": "127.0.0.1", "OTELCOL_GATEWAY_PORT": str(gateway.grpc)}


def span_names(receiver: OtlpReceiver, trace: str) -> list[str]:
    """Returns the names of a trace's spans, sorted.

    A Collector whose request failed in part sends all of it again: each span counts once.
    """
    found = {span.span_id: span.name for span in receiver.spans if span.trace_id == trace}
    return sorted(found.values())


def spans_of(end: str) -> list[str]:
    """Returns the names of the spans that a run of an end has, sorted."""
    of_run = [] if end == "killed" else ["quantization"]
    return sorted([*ENDED[end], WITHIN, *of_run])


def checkpoints_of(end: str) -> list[str]:
    """Returns the names of the checkpoints of a run that is not killed."""
    return ["Start", *(f"{step} {at}" for step in ENDED[end] for at in ("Start", "End")), "End"]


def root_span(receiver: OtlpReceiver) -> Span | None:
    """Returns the run's root span, once it has arrived."""
    return next(iter(receiver.spans_named("quantization")), None)


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
def test_the_collector_starts_without_deprecations_and_errors(
    name: str, start: StartCollector
) -> None:
    made = start(name, OTELCOL_GATEWAY_HOST="127.0.0.1", OTELCOL_GATEWAY_PORT=str(free_port()))
    # The health check succeeds a moment before the log has the line.
    eventually(lambda: "Everything is ready" in made.server.log.read_text(), "the log's last line")
    log = made.server.log.read_text()
    assert [line for line in log.splitlines() if re.search("deprecat", line, re.IGNORECASE)] == []
    assert [line for line in log.splitlines() if "\terror\t" in line] == []


PROGRAM = """
import otel_quant
with otel_quant.step("Model Quantization"), otel_quant.step("Calibration"):
    pass
"""


def test_a_run_over_http_arrives_completely_and_only_once_in_every_store(
    start: StartCollector,
    stores: list[Server],
    ports: Backends,
    receiver: OtlpReceiver,
    workshop: Workshop,
) -> None:
    for server in (receiver, *stores):
        server.start()
    # As docker-compose.yml names the host; over HTTP, since the other tests use gRPC.
    made = start("config", OTEL_RESOURCE_ATTRIBUTES="host.name=not-the-programs")
    signals = dict.fromkeys(
        (f"OTEL_{each}_EXPORTER" for each in ("TRACES", "METRICS", "LOGS")), "otlp"
    )
    own = {**signals, **made.over_http, "OTEL_SERVICE_NAME": JOB}
    recording = workshop.folder / "recording"
    ended = workshop.script(PROGRAM).run({**own, "OTEL_QUANT_RECORD": str(recording)})
    assert ended.returncode == 0
    steps = ["Calibration", "Model Quantization"]
    names = [
        "Start",
        *(f"{step} Start" for step in steps[::-1]),
        *(f"{step} End" for step in steps),
        "End",
    ]
    root = eventually(lambda: root_span(receiver), "the run's root span")
    eventually(lambda: checkpoints(ports, root.trace_id) == names, "the run's checkpoints")
    whole = [*steps, "quantization"]
    eventually(lambda: span_names(receiver, root.trace_id) == whole, "the run's spans")
    # Its host is the program's, not the Collector's; nothing else is counted of its spans.
    for query, value in (
        (f'sum(quant_step_duration_seconds_count{{job="{JOB}"}})', len(steps)),
        (f'count(quant_run_memory_usage_bytes{{host_name="{platform.node()}"}})', 1),
    ):
        eventually(lambda q=query, v=value: sample(ports, q) == [v], f"{query} == {value}")
    of_logs = 'sum(otelcol_exporter_sent_log_records{exporter="otlp_http/loki"})'
    (logs,) = eventually(lambda: sample(ports, of_logs), "the count of what Loki has got")
    run([PROGRAMS / "otel-quant", "send", recording], workshop.folder, clean_environment(own))
    eventually(lambda: sample(ports, of_logs) == [2 * logs], "the same records once more")
    assert checkpoints(ports, root.trace_id) == names


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
def test_profiles_pass_through_a_collector_that_accepts_them(
    start: StartCollector, receiver: OtlpReceiver, workshop: Workshop, protocol: Protocol
) -> None:
    receiver.start()
    config = f"--config={CONFIGS / 'profiles.yaml'}"
    made = start("config", arguments=(config, "--feature-gates=service.profilesSupport"))
    recording = workshop.folder / "recording"
    own = {
        **(made.environment if protocol == "grpc" else made.over_http),
        "OTEL_TRACES_EXPORTER": "otlp",
        "OTEL_QUANT_PROFILES": "otlp",
        "OTEL_QUANT_RECORD": str(recording),
    }
    done = workshop.script(PROFILED).run(own)
    assert (done.returncode, done.stderr) == (0, "")
    eventually(lambda: len(arrived(receiver.profiles)) == len(recorded(recording)), "the profiles")
    eventually(lambda: len(receiver.spans) == 5, "the spans")
    check_recorded(receiver.profiles, receiver, recording)


def test_a_collector_without_profiles_accepts_other_signals_and_is_logged_once(
    start: StartCollector, receiver: OtlpReceiver, workshop: Workshop
) -> None:
    receiver.start()
    made = start("config")
    own = {**made.environment, "OTEL_TRACES_EXPORTER": "otlp", "OTEL_QUANT_PROFILES": "otlp"}
    done = workshop.script(PROFILED).run(own)
    assert done.returncode == 0
    # The program and its child.
    assert [line.split(",")[1] for line in done.stderr.splitlines()] == [
        " error code: StatusCode.UNIMPLEMENTED"
    ] * 2
    eventually(lambda: len(receiver.spans) == 5, "the spans")


def wait_for_failures(made: Collector, config: str) -> None:
    """Waits until each exporter has failed to send something, and keeps it for another try."""

    def failed(exporter: str) -> bool:
        log = made.server.log.read_text()
        return any(exporter in line for line in log.splitlines() if "Will retry" in line)

    for name in yaml.safe_load((CONFIGS / f"{config}.yaml").read_text())["exporters"]:
        eventually(lambda n=name: failed(n), f"{name} fails and tries again")


@pytest.mark.parametrize(("config", "outcome"), [("config", "good"), ("gateway", "failed")])
def test_stores_get_all_accepted_data_after_an_outage_and_a_killed_collector(
    start: StartCollector,
    stores: list[Server],
    ports: Backends,
    receiver: OtlpReceiver,
    config: str,
    outcome: str,
) -> None:
    made = start(config, OTELCOL_AFTER_ROOT="1s")
    [trace] = send_runs(made, outcome)
    wait_for_failures(made, config)
    made.server.kill()
    made.server.start()
    for server in (receiver, *stores):
        server.start()
    taken, ended = checkpoints_of(outcome), len(ENDED[outcome])
    eventually(lambda: span_names(receiver, trace) == spans_of(outcome), "the run's spans")
    eventually(lambda: checkpoints(ports, trace) == taken, "the run's checkpoints")
    eventually(lambda: sample(ports, DURATIONS) == [ended], "the durations of the run's steps")


@pytest.fixture
def two_gateways(start: StartCollector, tmp_path: Path) -> tuple[list[Collector], Path]:
    """Returns two gateways that decide early and keep no ordinary run, and the agent for them.

    A resolver that finds both by name needs DNS; the agent here lists their addresses.
    """
    settings = {"AFTER_ROOT": "1s", "LONGEST_RUN": "20s", "KEEP_PERCENT": "0"}
    variables = {f"OTELCOL_{name}": value for name, value in settings.items()}
    gateways = [start("gateway", f"gateway{index}", **variables) for index in range(2)]
    text = yaml.safe_load((CONFIGS / "agent.yaml").read_text())
    text["exporters"]["load_balancing"]["resolver"] = {
        "static": {"hostnames": [f"127.0.0.1:{gateway.grpc}" for gateway in gateways]}
    }
    agent = tmp_path / "agent.yaml"
    agent.write_text(yaml.safe_dump(text))
    return gateways, agent


def test_gateways_keep_the_runs_worth_keeping_and_every_metric_and_checkpoint(
    start: StartCollector,
    stores: list[Server],
    ports: Backends,
    receiver: OtlpReceiver,
    two_gateways: tuple[list[Collector], Path],
) -> None:
    gateways, config = two_gateways
    for server in (receiver, *stores):
        server.start()
    agent = start(config, "agent", **reached(gateways[0]))
    ends = ["good"] * 4 + ["failed", "critical", "slow", "killed"]
    *ordinary, failed, critical, slow, killed = send_runs(agent, *ends)
    for trace, end in ((slow, "good"), (critical, "good"), (failed, "failed"), (killed, "killed")):
        eventually(lambda t=trace, e=end: span_names(receiver, t) == spans_of(e), f"{end}: {trace}")
    assert [span_names(receiver, trace) for trace in ordinary] == [[], [], [], []]
    log = checkpoints_of("good")
    for trace in ordinary:
        eventually(lambda t=trace: checkpoints(ports, t) == log, "an ordinary run's log")
    ended = sum(len(ENDED.get(end, STEPS)) for end in ends)
    eventually(lambda: sample(ports, DURATIONS) == [ended], "the durations of all steps")


def test_a_gateway_keeps_each_trace_without_the_end_of_its_run(
    start: StartCollector, receiver: OtlpReceiver, secrets: Secrets
) -> None:
    settings = {"LONGEST_RUN": "5s", "AFTER_ROOT": "1s", "KEEP_PERCENT": "0"}
    gateway = start("gateway", **{f"OTELCOL_{name}": value for name, value in settings.items()})
    receiver.start()
    traces = {  # Name, number and parent of each span
        "ended": [("Calibration", 2, 1), ("quantization", 1, 0)],
        "ended within otel-quant run": [("quantization", 1, 50), ("program", 50, 0)],
        "killed": [("Calibration", 2, 1)],
        "killed, its workers ended": [("Calibration", 2, 1), ("quantization", 10, 3)],
        "began with a TRACEPARENT": [("Calibration", 2, 1), ("quantization", 1, 99)],
    }
    request = ExportTraceServiceRequest()
    spans = request.resource_spans.add().scope_spans.add().spans
    for trace, parts in enumerate(traces.values(), 1):
        for name, number, parent in parts:
            spans.add(
                trace_id=trace.to_bytes(16, "big"), span_id=number.to_bytes(8, "big"),
                parent_span_id=parent.to_bytes(8, "big") if parent else b"", name=name,
                start_time_unix_nano=1, end_time_unix_nano=2,
            )  # fmt: skip
    trusted = grpc.ssl_channel_credentials(secrets.certificate.read_bytes())
    with grpc.secure_channel(f"127.0.0.1:{gateway.grpc}", trusted) as channel:
        metadata = (("authorization", f"Bearer {secrets.token}"),)
        TraceServiceStub(channel).Export(request, metadata=metadata, timeout=20)
    names = dict(enumerate(traces, 1))

    def kept() -> set[str]:
        return {names[int(span.trace_id, 16)] for span in receiver.spans}

    eventually(lambda: kept() == {*traces} - {"ended", "ended within otel-quant run"}, "the kept")
    assert len(receiver.spans) == 5


def test_an_agent_killed_while_its_gateway_is_away_loses_nothing(
    start: StartCollector, receiver: OtlpReceiver
) -> None:
    gateway = start("gateway", "gateway", OTELCOL_AFTER_ROOT="1s", OTELCOL_KEEP_PERCENT="0")
    gateway.server.kill()
    receiver.start()
    agent = start("agent", "agent", **reached(gateway))
    failed = send_runs(agent, *["failed"] * 3)
    agent.server.kill()
    agent.server.start()
    gateway.server.start()
    for trace in failed:
        eventually(
            lambda t=trace: span_names(receiver, t) == spans_of("failed"), f"failed run {trace}"
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


def test_a_gateway_accepts_only_requests_with_its_token_over_tls(
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


def test_a_gateway_rejects_an_agent_with_a_wrong_token(
    start: StartCollector, receiver: OtlpReceiver, tmp_path: Path
) -> None:
    wrong = tmp_path / "token"
    wrong.write_text("wrong\n")
    receiver.start()
    gateway = start("gateway", "gateway", OTELCOL_AFTER_ROOT="1s")
    agent = start("agent", "agent", **reached(gateway), OTELCOL_TOKEN_FILE=str(wrong))
    send_runs(agent, "failed")
    eventually(lambda: "Unauthenticated" in agent.server.log.read_text(), "the refusal in the log")
    assert receiver.spans == []


@pytest.mark.parametrize("missing", ["OTELCOL_TLS_CERT", "OTELCOL_TLS_KEY", "OTELCOL_TOKEN_FILE"])
def test_a_gateway_without_a_certificate_a_key_or_a_token_does_not_start(
    missing: str, start: StartCollector
) -> None:
    with pytest.raises(AssertionError, match=r"no such file or directory"):
        start("gateway", **{missing: "/nowhere"})
