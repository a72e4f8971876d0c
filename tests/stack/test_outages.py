"""While a server of the stack is away, or its disk is full: no alert of a run that is well, and one of the stack."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from tests.fixtures.control_groups import ControlGroup
from tests.fixtures.disks import small_disk
from tests.stack.many_runs import send
from tests.stack.processes import (
    CONFIGS,
    Backends,
    Collector,
    Webhook,
    alertmanager,
    collector,
    eventually,
    fetch,
    instrumented,
    loki,
    prometheus,
    started,
)
from tests.stack.world import stores
from tests.unit.stack.dashboards import RULES

pytestmark = pytest.mark.servers

EXPRESSIONS = {
    rule["alert"]: rule["expr"] for group in RULES for rule in group["rules"] if "alert" in rule
}
RECORDED = {
    rule["record"]: rule["expr"] for group in RULES for rule in group["rules"] if "record" in rule
}
MINUTE = 2
"""Seconds that stand for a minute of a rule here."""
STEP = "import otel_quant, sys, time\nwith otel_quant.step('Calibration'): time.sleep(float(sys.argv[1]))"


def in_seconds(alert: str) -> str:
    """Returns the expression of a rule, with those of the series that it has recorded, and with seconds for its minutes."""
    expression = EXPRESSIONS[alert]
    while of := next((name for name in RECORDED if re.search(rf"\b{name}\b", expression)), None):
        expression = re.sub(rf"\b{of}\b(\[\d+m)\]", rf"({RECORDED[of]})\1:30s]", expression)
        expression = re.sub(rf"\b{of}\b", f"({RECORDED[of]})", expression)
    expression = re.sub(r":30s\]", ":1s]", expression)
    return re.sub(r"(\[|offset )(\d+)m", lambda m: f"{m[1]}{int(m[2]) * MINUTE}s", expression)


def start(made: Collector, name: str, seconds: float) -> subprocess.Popen[bytes]:
    every_second = {"OTEL_METRIC_EXPORT_INTERVAL": "1000", "OTEL_QUANT_EXIT_TIMEOUT": "1000"}
    return instrumented(made, "-c", STEP, str(seconds), OTEL_QUANT_RUN_NAME=name, **every_second)


@pytest.mark.slow
@pytest.mark.parametrize("away", ["prometheus", "otelcol"])
def test_healthy_runs_are_not_reported_as_lost_after_an_outage(
    binaries: dict[str, str], tmp_path: Path, away: str
) -> None:
    ports = Backends()
    made = collector(binaries["otelcol-quant"], tmp_path, CONFIGS / "config.yaml", ports)
    store = prometheus(binaries["prometheus"], tmp_path, ports)
    server = {"prometheus": store, "otelcol": made.server}[away]
    url = f"http://127.0.0.1:{ports.prometheus}/api/v1"
    try:
        for each in (store, made.server):
            each.start()
        began = time.time()
        alive, ended = start(made, "alive", 600), start(made, "ended", 35)
        steps = "count(quant_step_active == 1)"
        eventually(
            lambda: [each["value"][1] for each in fetch(f"{url}/query", query=steps)["data"]["result"]] == ["2"],
            "both runs in Prometheus",
        )  # fmt: skip
        time.sleep(max(0.0, began + 32 - time.time()))
        server.kill()
        time.sleep(7 * MINUTE)
        server.start()
        assert ended.wait(30) == 0
        time.sleep(20 * MINUTE)
        alive.kill()
        alive.wait()
        time.sleep(12 * MINUTE)
        found = fetch(
            f"{url}/query_range", query=in_seconds("QuantizationRunVanished"), start=began,
            end=time.time(), step=1,
        )["data"]["result"]  # fmt: skip
    finally:
        for process in (alive, ended):
            process.kill()
        for each in (store, made.server):
            each.kill()
    # The one that was killed in the end, and none before.
    assert [each["metric"]["quant_run_name"] for each in found] == ["alive"]
    (alert,) = found
    assert alert["values"][0][0] > time.time() - 12 * MINUTE


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk that is soon full."""
    with small_disk(tmp_path, "2m") as folder:
        yield folder


@pytest.mark.slow  # seconds as a rule; now and then the Collector takes minutes until it sends what it kept
def test_a_full_collector_disk_raises_an_alert_and_loses_no_accepted_data(
    binaries: dict[str, str], tmp_path: Path, disk: Path
) -> None:
    ports = Backends()
    made = collector(
        binaries["otelcol-quant"], tmp_path, CONFIGS / "config.yaml", ports,
        OTELCOL_STORAGE=str(disk),
    )  # fmt: skip
    store, logs = (
        prometheus(binaries["prometheus"], tmp_path, ports),
        loki(binaries["loki"], tmp_path, ports),
    )
    alerts = f"http://127.0.0.1:{ports.prometheus}/api/v1/query"

    def firing() -> set[str]:
        return {
            alert
            for alert in ("StackDiskFull", "StackDataRefused")
            if fetch(alerts, query=EXPRESSIONS[alert])["data"]["result"]
        }

    try:
        for each in (made.server, store):
            each.start()
        with pytest.raises(grpc.RpcError, match="no space left on device"):
            send(made.grpc, 5000)
        eventually(lambda: firing() == {"StackDiskFull", "StackDataRefused"}, "the alerts")
        logs.start()
        queue = 'max(otelcol_exporter_queue_size{exporter="otlp_http/loki"}) == 0'
        eventually(lambda: fetch(alerts, query=queue)["data"]["result"], "an empty queue", 600)
        send(made.grpc, 1)
    finally:
        for each in (made.server, store, logs):
            each.kill()


@pytest.mark.parametrize("kind", ["webhook", "slack", "teams"])
def test_an_alert_message_has_instructions_and_a_link_to_the_dashboard(
    binaries: dict[str, str], tmp_path: Path, kind: str
) -> None:
    ports, webhook = Backends(), Webhook()
    server = alertmanager(binaries["alertmanager"], tmp_path, ports, webhook.url, kind)
    dashboard = "http://grafana.example/d/quant-run/run?var-run=nightly+1"
    alert = {
        "labels": {"alertname": "QuantizationRunVanished", "job": "nightly"},
        "annotations": {
            "summary": "nightly is silent", "runbook": "See dmesg.", "dashboard": dashboard,
            "runbook_url": "http://grafana.example/d/quant-alerts/alerts",
        },
    }  # fmt: skip
    try:
        server.start()
        request = urllib.request.Request(
            f"http://127.0.0.1:{ports.alertmanager}/api/v2/alerts",
            json.dumps([alert]).encode(),
            {"Content-Type": "application/json"},
        )
        urllib.request.urlopen(request, timeout=20).close()
        eventually(lambda: webhook.messages, "a message")
    finally:
        server.kill()
        webhook.stop()
    told = json.dumps(json.loads(webhook.messages[0]))
    for part in (*alert["annotations"].values(), "QuantizationRunVanished"):
        assert part in told


FILLS = """
import otel_quant, psutil, time
with otel_quant.step("Calibration"):
    kept = bytearray(400_000_000 * 95 // 100 - psutil.Process().memory_info().rss)
    kept[::4096] = b"1" * len(kept[::4096])
    time.sleep(600)
"""


def test_a_run_near_the_limit_of_its_group_reaches_the_webhook(
    binaries: dict[str, str], tmp_path: Path, group: ControlGroup
) -> None:
    group.limit(400_000_000)
    webhook = Webhook()
    with stores(binaries, tmp_path, webhook) as (_, made):
        command = group.within([sys.executable, "-c", FILLS])
        instrument = Path(sys.executable).with_name("opentelemetry-instrument")
        run = started(
            made,
            *command[:-3],
            str(instrument),
            *command[-3:],
            OTEL_SERVICE_NAME="fills",
            OTEL_METRIC_EXPORT_INTERVAL="1000",
        )
        try:
            eventually(
                lambda: ("QuantizationMemoryNearLimit", "fills") in webhook.told, "the alert"
            )
            assert run.poll() is None
        finally:
            run.kill()
            run.wait()
            webhook.stop()
