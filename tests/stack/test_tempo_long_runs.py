"""Runs of many hours, and spans that come late, in the real Tempo with the committed settings."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from otel_quant.schema import semconv
from tests.stack.conftest import NO_TEMPO, tempo_binary
from tests.stack.processes import Backends, eventually, fetch, tempo

pytestmark = pytest.mark.servers

MINUTE, HOUR = 60, 3600
RUNS = {
    "of a minute": (MINUTE, 0),
    "of 25 minutes": (25 * MINUTE, 0),
    "of 12 hours": (12 * HOUR, 0),
    "20 minutes late": (40 * MINUTE, 20 * MINUTE),
    "2 hours late, of 12 hours": (14 * HOUR, 2 * HOUR),
    "a day late": (30 * HOUR, 29 * HOUR),
}
"""How many seconds before they were sent the runs began, and how many before they ended."""

RUN, LABEL = semconv.ROOT_SPAN, "test.run"


@dataclass(frozen=True)
class Sent:
    """Runs in Tempo."""

    url: str  # Address of Tempo
    at: float  # When they were sent, in seconds since the epoch
    of_12_hours: str  # Trace id of the run of 12 hours, a step of which was sent long before

    def searched(self, start: float, end: float, name: str = RUN) -> set[str]:
        """Returns the runs with a span of a name that a search in a time range finds."""
        answer = fetch(
            f"{self.url}/search",
            q=f'{{ name="{name}" }} | select(span.{LABEL})',
            start=int(start),
            end=int(end),
            limit=100,
        )
        return {
            attribute["value"]["stringValue"]
            for found in answer.get("traces", [])
            for spans in found["spanSets"]
            for span in spans["spans"]
            for attribute in span.get("attributes", [])
            if attribute["key"] == LABEL
        }

    def measured(self, start: float, end: float) -> set[str]:
        """Returns the runs whose own span is in TraceQL metrics of a time range."""
        query = f'{{ name="{RUN}" }} | max_over_time(span.{semconv.MEMORY_PEAK}) by (span.{LABEL})'
        answer = fetch(f"{self.url}/metrics/query", q=query, start=int(start), end=int(end))
        return {
            label["value"]["stringValue"]
            for series in answer.get("series", [])
            for label in series["labels"]
            if label["key"] == f"span.{LABEL}"
        }


@pytest.fixture(scope="module")
def sent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sent]:
    binary = tempo_binary()
    if binary is None:
        pytest.skip(NO_TEMPO)
    folder: Path = tmp_path_factory.mktemp("tempo")
    ports = Backends()
    server = tempo(binary, folder, ports)
    provider = TracerProvider(resource=Resource.create({"service.name": "long"}))
    provider.add_span_processor(
        SimpleSpanProcessor(OTLPSpanExporter(f"http://127.0.0.1:{ports.tempo_otlp}"))
    )
    tracer = provider.get_tracer("test")
    server.start()
    try:
        yield send(tracer, f"http://127.0.0.1:{ports.tempo}/api")
    finally:
        provider.shutdown()
        server.kill()


def send(tracer: trace.Tracer, url: str) -> Sent:
    """Sends a step of the run of 12 hours, and all runs once that is in a block of its own."""
    at = time.time()

    def start(name: str, ago: float, run: str, **more: Any) -> trace.Span:
        attributes = {LABEL: run, semconv.MEMORY_PEAK: 1 << 30}
        return tracer.start_span(name, start_time=nanoseconds(ago), attributes=attributes, **more)

    def nanoseconds(ago: float) -> int:
        return int((at - ago) * 1e9)

    roots = {run: start(RUN, began, run) for run, (began, _) in RUNS.items()}
    root = roots["of 12 hours"]
    step = start("step", 11 * HOUR, "of 12 hours", context=trace.set_span_in_context(root))
    step.end(nanoseconds(10 * HOUR))
    made = Sent(url, at, f"{root.get_span_context().trace_id:032x}")
    in_a_block = (at - 11 * HOUR - MINUTE, at - 10 * HOUR)
    eventually(lambda: made.searched(*in_a_block, name="step") == {"of 12 hours"}, "the step")
    for run, (_, ended) in RUNS.items():
        roots[run].end(nanoseconds(ended))
    return made


def test_every_run_is_in_searches_and_metrics_of_the_time_in_which_it_began(sent: Sent) -> None:
    now = sent.at + 5 * MINUTE
    eventually(lambda: sent.searched(now - 48 * HOUR, now) == RUNS.keys(), "all in a search")
    eventually(lambda: sent.measured(now - 48 * HOUR, now) == RUNS.keys(), "all in metrics")
    for run, (began, _) in RUNS.items():
        around = sent.at - began - MINUTE, sent.at - began + MINUTE
        eventually(lambda r=run, a=around: r in sent.searched(*a), f"{run} in a search")
        eventually(lambda r=run, a=around: r in sent.measured(*a), f"{run} in metrics")


def test_a_run_is_one_trace_though_its_steps_came_hours_before_its_own_span(sent: Sent) -> None:
    def names() -> list[str]:
        whole = fetch(f"{sent.url}/v2/traces/{sent.of_12_hours}")["trace"]["resourceSpans"]
        return sorted(s["name"] for r in whole for scope in r["scopeSpans"] for s in scope["spans"])

    eventually(lambda: names() == [RUN, "step"], "the run and its step")


def test_metrics_count_a_span_when_it_began_and_searches_while_it_lasted(sent: Sent) -> None:
    """What is impossible according to docs/scaling.md: a run of 12 hours in metrics of the last hour."""
    last_hour = sent.at - HOUR, sent.at + 5 * MINUTE
    began = {run for run, (began, _) in RUNS.items() if began < HOUR}
    lasted = {run for run, (_, ended) in RUNS.items() if ended < HOUR}
    eventually(lambda: sent.measured(*last_hour) == began, "metrics of the last hour")
    eventually(lambda: sent.searched(*last_hour) == lasted, "a search in the last hour")
    assert lasted - began == {"of 12 hours"}
