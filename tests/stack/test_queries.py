"""Every query of every dashboard and alert, asked of real servers after real runs.

Four quantizations with AMD Quark (one good, one of another model with another method, one
that fails, one that is killed) and one run that is told, since it uses a GPU and more memory
than it may, and there is neither here.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from otel_quant import semconv
from tests.stack.conftest import JOB, NO_TEMPO, Quantize, TellRun
from tests.stack.processes import (
    CONFIGS,
    Backends,
    Collector,
    Server,
    collector,
    eventually,
    fetch,
    loki,
    prometheus,
    tempo,
)
from tests.unit.stack.dashboards import QUERIES, Query

pytestmark = [pytest.mark.servers, pytest.mark.quark]


BIG = ("--gpu", "--seconds=2", "--limit-gib=1")
"""The told run: it begins with 1 GiB."""

# Queries that have nothing to show after these runs, and why that is right.
RIGHTLY_EMPTY = {
    ("Quantization runs", "Vanished"): "a run counts as vanished after five minutes' silence",
    ("alerts", "QuantizationRunVanished"): "a run counts as vanished after five minutes' silence",
    ("alerts", "QuantizationRunSlow"): "a baseline takes four runs with steps over a minute",
}


@dataclass(frozen=True)
class World:
    """What the queries are asked of.

    Attributes:
        ports: Where the stores listen.
        began: Seconds since the epoch before the first run.
        has_tempo: Whether Tempo is among them.
        killed: The killed run's trace, from its first checkpoint.
        good: The good run's trace.
    """

    ports: Backends
    began: float
    has_tempo: bool
    killed: str
    good: str

    def ask(self, query: Query) -> list[Any]:
        """Returns the rows or series that a query gives, as Grafana would ask it."""
        text = filled(query, self.good)
        now = time.time()
        if query.ref == "variable":
            return self.values(text)
        if query.store == "prometheus":
            url = f"http://127.0.0.1:{self.ports.prometheus}/api/v1/query"
            if query.instant:
                answer = fetch(url, query=text)
            else:
                answer = fetch(f"{url}_range", query=text, start=self.began, end=now, step=5)
            return answer["data"]["result"]
        if query.store == "loki":
            url = f"http://127.0.0.1:{self.ports.loki}/loki/api/v1/query_range"
            if query.instant:
                url = url.removesuffix("_range")
            answer = fetch(url, query=text, start=int(self.began), end=int(now + 1), limit=1000)
            return answer["data"]["result"]
        url = f"http://127.0.0.1:{self.ports.tempo}/api"
        window = {"start": int(self.began), "end": int(now + 1)}
        if text == self.good:
            return fetch(f"{url}/v2/traces/{text}")["trace"]["resourceSpans"]
        if query.instant:  # Tempo leaves out a list that is empty
            return fetch(f"{url}/metrics/query", q=text, **window).get("series", [])
        return fetch(f"{url}/search", q=text, limit=200, spss=100, **window).get("traces", [])

    def values(self, query: str) -> list[str]:
        """Returns what `label_values(selector, label)` gives."""
        selector, label = query.removeprefix("label_values(").removesuffix(")").rsplit(", ", 1)
        url = f"http://127.0.0.1:{self.ports.prometheus}/api/v1/label/{label}/values"
        return fetch(url, **{"match[]": selector})["data"]


def filled(query: Query, trace: str) -> str:
    """Returns a query's text with Grafana's variables as the dashboards set them at first."""
    text = query.text
    for name, value in {
        "$__rate_interval": "1m",
        "$__range": "1h",
        # Loki's is the whole range in a query for one moment.
        "$__auto": "1h" if query.instant else "1m",
        "${trace}": trace,
        "$job": ".+",
        "$instance": ".+",
        "$baseline": ".+",
    }.items():
        text = text.replace(name, value)
    assert "$" not in text, text
    return text


@pytest.fixture(scope="module")
def world(
    binaries: dict[str, str],
    tmp_path_factory: pytest.TempPathFactory,
    tell_run: TellRun,
    quantize: Quantize,
) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("world")
    ports = Backends()
    servers = [
        prometheus(binaries["prometheus"], folder, ports),
        loki(binaries["loki"], folder, ports),
    ]
    if os.environ.get("TEMPO_BIN"):
        servers.append(tempo(os.environ["TEMPO_BIN"], folder, ports))
    made = collector(binaries["otelcol-quant"], folder, CONFIGS / "config.yaml", ports)
    servers.append(made.server)
    try:
        for server in servers:
            server.start()
        yield run_all(made, ports, servers, quantize, tell_run)
    finally:
        for server in servers:
            server.kill()


def run_all(
    made: Collector, ports: Backends, servers: list[Server], quantize: Quantize, tell_run: TellRun
) -> World:
    began = time.time() - 1
    killed = quantize(made, "killed")
    good = quantize(made, "good")
    assert good.wait(180) == 0
    wait_for_calibration(ports)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    failed = quantize(made, "failed")
    assert quantize(made, "good", "--model=wide", "--preset=S8S8_AAWS").wait(180) == 0
    assert failed.wait(180) == 1
    tell_run({**made.environment, "OTEL_SERVICE_NAME": "told"}, "good", *BIG)
    first = World(ports, began, len(servers) == 4, "", "")
    traces = eventually(lambda: traces_by_end(first), "the runs' checkpoints")
    return World(ports, began, first.has_tempo, killed=traces["killed"], good=traces["good"])


def wait_for_calibration(ports: Backends) -> None:
    """Waits until the run that is to be killed calibrates; the good one has ended."""
    query = 'quant_step_active{quant_step_name="Calibration"} == 1'
    url = f"http://127.0.0.1:{ports.prometheus}/api/v1/query"
    eventually(lambda: fetch(url, query=query)["data"]["result"], "an open calibration", 120)


def traces_by_end(world: World) -> dict[str, str]:
    """Returns the trace of a run that ended and of one that did not, from the checkpoints."""
    query = Query(
        ("test", "checkpoints"),
        "A",
        "loki",
        f'{{service_name="{JOB}"}} | quant_checkpoint_name != ""',
    )
    runs: dict[str, list[str]] = {}
    for stream in world.ask(query):
        labels = stream["stream"]
        runs.setdefault(labels["trace_id"], []).append(labels["quant_checkpoint_name"])
    good = [trace for trace, names in runs.items() if {"End", "Post-process End"} <= set(names)]
    killed = [trace for trace, names in runs.items() if "End" not in names]
    return {"good": good[0], "killed": killed[0]} if len(good) == 2 and killed else {}


@pytest.mark.parametrize("query", QUERIES, ids=str)
def test_every_query_finds_what_the_runs_left(world: World, query: Query) -> None:
    if query.store == "tempo" and not world.has_tempo:
        pytest.skip(NO_TEMPO)
    if query.place in RIGHTLY_EMPTY:
        assert world.ask(query) == []
        return
    eventually(lambda: world.ask(query), f"{query}: {query.text}", 30)


def test_a_failed_step_and_a_run_near_its_limit_set_off_their_alerts(world: World) -> None:
    url = f"http://127.0.0.1:{world.ports.prometheus}/api/v1/alerts"
    alerts = eventually(
        lambda: len(found := fetch(url)["data"]["alerts"]) == 2 and found, "two alerts"
    )
    labels = ("alertname", "job", "quant_step_name", "error_type")
    assert sorted([alert["labels"].get(key) for key in labels] for alert in alerts) == [
        ["QuantizationMemoryNearLimit", "told", None, None],
        ["QuantizationStepFailed", JOB, "Calibration", "RuntimeError"],
    ]


def test_the_killed_run_tells_what_it_did_last(world: World) -> None:
    query = Query(
        ("test", "killed"), "A", "loki", f'{{service_name="{JOB}"}} | trace_id="{world.killed}"'
    )
    found = [stream["stream"] for stream in world.ask(query)]
    last = max(found, key=lambda labels: int(labels["quant_checkpoint_sequence"]))
    assert last["quant_checkpoint_name"] == "Calibration Start"
    assert int(last["quant_checkpoint_memory"]) > 1 << 20


def test_prometheus_names_every_metric_as_the_dashboards_expect(world: World) -> None:
    generator = pytest.importorskip("grafana.generator.names")
    url = f"http://127.0.0.1:{world.ports.prometheus}/api/v1/label/__name__/values"
    found = {name for name in fetch(url)["data"] if name.startswith("quant_")}
    expected = {
        name
        for metric in semconv.METRICS
        if "<" not in metric.name
        for name in generator.prometheus(metric.name)
    }
    # The told run sends one custom metric.
    assert found == expected | {"quant_custom_accuracy"}


def test_an_exemplar_leads_from_a_bucket_to_its_trace(world: World) -> None:
    url = f"http://127.0.0.1:{world.ports.prometheus}/api/v1/query_exemplars"
    answer = fetch(
        url,
        query="quant_step_duration_seconds_bucket",
        start=world.began,
        end=time.time(),
    )
    traces = {e["labels"]["trace_id"] for series in answer["data"] for e in series["exemplars"]}
    assert world.good in traces
