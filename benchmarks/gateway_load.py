"""What one run costs a gateway and Prometheus: bytes, spans, series, CPU time, memory. For docs/scaling.md.

    python benchmarks/gateway_load.py [--runs 1000]

A real quantization (tests/stack/quark_run.py) reports to a recorder; what it sent is then
replayed to a gateway with the committed configuration, each time as another run, and the
gateway's own CPU time is read before and after. The stores behind it accept and forget, in
this process: their cost is not in the figures. CPU time does not depend on how fast the replay
is; on a busy machine, whose cores share their caches, it was seen half as high again. Then
traces without their root show what an undecided trace takes of the gateway's memory, and a
real Prometheus what a run's series take of its.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc
import psutil
from measuring import forgetful_server
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for the two below

from scripts.servers import build
from tests.stack.processes import (
    CONFIGS,
    Backends,
    Collector,
    Secrets,
    collector,
    eventually,
    fetch,
    free_port,
    make_secrets,
    prometheus,
)

ROOT = Path(__file__).resolve().parents[1]
REQUESTS: dict[str, Any] = {
    "traces": trace_service_pb2.ExportTraceServiceRequest,
    "metrics": metrics_service_pb2.ExportMetricsServiceRequest,
    "logs": logs_service_pb2.ExportLogsServiceRequest,
}
METHODS = {
    kind: f"/opentelemetry.proto.collector.{module}.v1.{service}Service/Export"
    for kind, module, service in (
        ("traces", "trace", "Trace"), ("metrics", "metrics", "Metrics"), ("logs", "logs", "Logs"),
    )
}  # fmt: skip


class Recorder(grpc.GenericRpcHandler):
    """Takes any OTLP request and keeps its bytes, if asked to."""

    def __init__(self, keep: bool) -> None:
        self.kept: dict[str, list[bytes]] = {kind: [] for kind in METHODS}
        self.keep = keep

    def service(self, details: Any) -> Any:
        """Returns the handler of one method."""
        kind = next(kind for kind, method in METHODS.items() if method == details.method)

        def take(request: bytes, context: grpc.ServicerContext) -> bytes:
            if self.keep:
                self.kept[kind].append(request)
            return b""  # what an empty response is, in protobuf

        return grpc.unary_unary_rpc_method_handler(take)


def serve_grpc(port: int, keep: bool) -> tuple[grpc.Server, Recorder]:
    """Starts a recorder."""
    recorder = Recorder(keep)
    server = grpc.server(futures.ThreadPoolExecutor(4))
    server.add_generic_rpc_handlers((recorder,))
    server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    return server, recorder


def record_run() -> dict[str, list[bytes]]:
    """Returns what one real run sends."""
    port = free_port()
    server, recorder = serve_grpc(port, keep=True)
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            [
                str(Path(sys.executable).with_name("opentelemetry-instrument")),
                sys.executable,
                str(ROOT / "tests/stack/quark_run.py"),
                "good",
            ],
            cwd=folder,
            env={
                **os.environ,
                "PYTHONPATH": str(ROOT),
                "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}",
                "OTEL_EXPORTER_OTLP_INSECURE": "true",
            },
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
    server.stop(1).wait()
    return recorder.kept


def as_another_run(kind: str, request: Any) -> bytes:
    """Returns a request as another process would have sent it."""
    trace, instance = os.urandom(16), str(uuid.uuid4())
    resources = getattr(request, "resource_metrics" if kind == "metrics" else
                        "resource_spans" if kind == "traces" else "resource_logs")  # fmt: skip
    for resource in resources:
        for attribute in resource.resource.attributes:
            if attribute.key == "service.instance.id":
                attribute.value.string_value = instance
        if kind == "traces":
            for scope in resource.scope_spans:
                for span in scope.spans:
                    span.trace_id = trace
    return bytes(request.SerializeToString())


def whole_export(kept: dict[str, list[bytes]]) -> bytes:
    """Returns the export with every metric; the last one lacks the metrics of the run as it was."""
    return max(kept["metrics"], key=len)


def shape(kept: dict[str, list[bytes]]) -> dict[str, Any]:
    """Returns the counts and bytes of one run."""
    spans = records = 0
    for raw in kept["traces"]:
        for resource in REQUESTS["traces"].FromString(raw).resource_spans:
            spans += sum(len(scope.spans) for scope in resource.scope_spans)
    for raw in kept["logs"]:
        for resource in REQUESTS["logs"].FromString(raw).resource_logs:
            records += sum(len(scope.log_records) for scope in resource.scope_logs)
    return {
        "spans": spans,
        "trace_bytes": sum(map(len, kept["traces"])),
        "log_records": records,
        "log_bytes": sum(map(len, kept["logs"])),
        "metric_export_bytes": len(whole_export(kept)),
    }


def channel_to(made: Collector) -> tuple[grpc.Channel, list[tuple[str, str]]]:
    """Returns a connection to a Collector, and the headers of a request."""
    address = f"127.0.0.1:{made.grpc}"
    if made.secrets is None:
        return grpc.insecure_channel(address), []
    credentials = grpc.ssl_channel_credentials(made.secrets.certificate.read_bytes())
    headers = [("authorization", f"Bearer {made.secrets.token}")]
    return grpc.secure_channel(address, credentials), headers


def replay(made: Collector, kind: str, kept: dict[str, list[bytes]], runs: int) -> None:
    """Sends a run's requests of one kind, each time as another run."""
    channel, headers = channel_to(made)
    with channel:
        send = channel.unary_unary(METHODS[kind])
        chosen = kept[kind] if kind != "metrics" else [whole_export(kept)]
        parsed = [REQUESTS[kind].FromString(raw) for raw in chosen]
        for _ in range(runs):
            for request in parsed:
                send(as_another_run(kind, request), timeout=30, metadata=headers)


def undecided_bytes(
    binary: str, folder: Path, secrets: Secrets, kept: dict[str, list[bytes]], runs: int
) -> int:
    """Returns the gateway's memory for each trace whose root has not come, in bytes."""
    ports = Backends()
    server, _ = serve_grpc(ports.tempo_otlp, keep=False)
    gateway = collector(binary, folder, CONFIGS / "gateway.yaml", ports, "undecided", secrets)
    gateway.server.start()
    assert gateway.server.process is not None
    process = psutil.Process(gateway.server.process.pid)
    open_runs = {"traces": [without_root(raw) for raw in kept["traces"]]}
    try:
        replay(gateway, "traces", open_runs, 200)
        before = process.memory_info().rss
        replay(gateway, "traces", open_runs, runs)
        return (process.memory_info().rss - before) // runs
    finally:
        gateway.server.kill()
        server.stop(0)


def without_root(raw: bytes) -> bytes:
    """Returns a request less the spans that have no parent."""
    request = REQUESTS["traces"].FromString(raw)
    for resource in request.resource_spans:
        for scope in resource.scope_spans:
            children = [span for span in scope.spans if span.parent_span_id]
            del scope.spans[:]
            scope.spans.extend(children)
    return bytes(request.SerializeToString())


def stored_series(
    binaries: dict[str, str], folder: Path, kept: dict[str, list[bytes]], runs: int
) -> dict[str, float]:
    """Returns a run's series in Prometheus, and its memory for each of them, in bytes."""
    ports = Backends()
    store = prometheus(binaries["prometheus"], folder, ports)
    made = collector(binaries["otelcol-quant"], folder, CONFIGS / "config.yaml", ports, "single")
    store.start()
    made.server.start()
    assert store.process is not None
    process = psutil.Process(store.process.pid)
    url = f"http://127.0.0.1:{ports.prometheus}/api/v1/query"

    def stored() -> int:
        found = fetch(url, query="count(quant_run_memory_usage_bytes)")["data"]["result"]
        return int(found[0]["value"][1]) if found else 0

    def head() -> int:
        found = fetch(url, query="prometheus_tsdb_head_series")["data"]["result"]
        return int(found[0]["value"][1]) if found else 0

    try:
        replay(made, "metrics", kept, 50)
        eventually(lambda: stored() >= 50 and head(), "the first runs' series")
        time.sleep(3)
        before, series = process.memory_info().rss, head()
        replay(made, "metrics", kept, runs)
        eventually(lambda: stored() >= runs + 50, "every run's series", 300)
        time.sleep(3)
        added = head() - series
        return {
            "series_in_prometheus": round(added / runs, 1),
            "prometheus_bytes_per_series": (process.memory_info().rss - before) // added,
        }
    finally:
        made.server.kill()
        store.kill()


def cpu_seconds(process: psutil.Process, work: Callable[[], None]) -> float:
    """Returns the CPU time that a process spends from before some work until it is idle."""

    def spent() -> float:
        times = process.cpu_times()
        return float(times.user + times.system)

    before = spent()
    work()
    last = spent()
    while True:
        time.sleep(3)
        now = spent()
        if now - last < 0.05:
            return now - before
        last = now


def main() -> None:
    """Prints the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1000)
    runs = parser.parse_args().runs
    kept = record_run()
    figures = shape(kept)

    web = forgetful_server()
    ports = Backends(prometheus=web, loki=web)
    traces, _ = serve_grpc(ports.tempo_otlp, keep=False)
    binaries = {name: path for name, path in build.listing().items() if path}
    binary = binaries.get("otelcol-quant")
    if binary is None or "prometheus" not in binaries:
        sys.exit("the servers are not built here: python scripts/servers/build.py")
    with tempfile.TemporaryDirectory() as folder:
        secrets = make_secrets(Path(folder))
        gateway = collector(
            binary, Path(folder), CONFIGS / "gateway.yaml", ports, "gateway", secrets,
            OTELCOL_AFTER_ROOT="1s", OTELCOL_KEEP_PERCENT="100",
        )  # fmt: skip
        gateway.server.start()
        assert gateway.server.process is not None
        process = psutil.Process(gateway.server.process.pid)
        time.sleep(3)
        try:
            for kind in METHODS:
                spent = cpu_seconds(process, functools.partial(replay, gateway, kind, kept, runs))
                figures[f"cpu_ms_{kind}"] = round(1000 * spent / runs, 3)
        finally:
            gateway.server.kill()
        figures["undecided_trace_bytes"] = undecided_bytes(
            binary, Path(folder), secrets, kept, runs * 5
        )
        figures |= stored_series(binaries, Path(folder), kept, runs // 2)
    traces.stop(0)
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
