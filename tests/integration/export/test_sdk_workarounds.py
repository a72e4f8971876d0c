"""Faults of OpenTelemetry's SDK: each is still there, and each workaround can be undone.

A test of the SDK alone that fails means that the SDK has fixed the fault: its message names the
record in ``otel_quant/export/otel/sdk_workarounds.py`` to delete, with the test.
"""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from otel_quant.export.otel.sdk_workarounds import RECORDS
from tests.fixtures.otlp_receiver import Mode, OtlpReceiver, Protocol
from tests.fixtures.programs import Workshop, run_script

DRAWS = """
import random
def draws(act):
    random.seed(42)
    before = random.getstate()
    act()
    return random.getstate() != before
"""
# Span ids are drawn from Python's global generator.
IDENTIFIERS = """
from opentelemetry.sdk.trace import TracerProvider
print(draws(lambda: TracerProvider().get_tracer("bare").start_span("span").end()))
"""
# And exemplars.
EXEMPLARS = """
from opentelemetry.sdk.metrics import AlwaysOnExemplarFilter, MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
provider = MeterProvider([InMemoryMetricReader()], exemplar_filter=AlwaysOnExemplarFilter())
counter = provider.get_meter("bare").create_counter("counter")
print(draws(lambda: [counter.add(1) for _ in range(2)]))
"""
PAUSES = """
import sys
if sys.argv[1] == "grpc":
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
else:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
span = TracerProvider().get_tracer("bare").start_span("span")
span.end()
exporter = OTLPSpanExporter(timeout=1)
print(draws(lambda: exporter.export([span])))
"""
CONNECTIONS = """
import os
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
span = TracerProvider().get_tracer("bare").start_span("span")
span.end()
exporter = OTLPSpanExporter()
exporter.export([span])
child = os.fork()
if child == 0:
    exporter.export([span])
    os._exit(0)
os.waitpid(child, 0)
"""
# A child that is forked during an export hangs in its own.
FORKS = """
import os, threading
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import (
    MetricExporter, MetricExportResult, PeriodicExportingMetricReader,
)
exporting, forked = threading.Event(), threading.Event()

class Exporter(MetricExporter):
    def export(self, metrics_data, timeout_millis=0, **kwargs):
        exporting.set()
        forked.wait()
        return MetricExportResult.SUCCESS
    def force_flush(self, timeout_millis=0):
        return True
    def shutdown(self, timeout_millis=0, **kwargs):
        pass

provider = MeterProvider([PeriodicExportingMetricReader(Exporter())], shutdown_on_exit=False)
provider.get_meter("bare").create_counter("counter").add(1)
threading.Thread(target=provider.force_flush).start()
exporting.wait()
child = os.fork()
forked.set()
if child == 0:
    flush = threading.Thread(target=provider.force_flush, daemon=True)
    flush.start()
    flush.join(1)
    os._exit(flush.is_alive())
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1)
"""
# The export timeout, of 0.1 s here, is ignored at exit.
EXIT = """
import time
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

exported = False

class Exporter(SpanExporter):
    def export(self, spans):
        global exported
        time.sleep(2)
        exported = True
        return SpanExportResult.SUCCESS

provider = TracerProvider(shutdown_on_exit=False)
provider.add_span_processor(BatchSpanProcessor(Exporter()))
provider.get_tracer("bare").start_span("span").end()
provider.shutdown()
print(exported)
"""

REPLACED = """
import json, sys
import opentelemetry.exporter.otlp.proto.grpc.exporter
import opentelemetry.exporter.otlp.proto.http.trace_exporter
import opentelemetry.sdk.metrics
import opentelemetry.sdk.trace
from otel_quant import QuantInstrumentor, run, step
from otel_quant.export.otel.sdk_workarounds import RECORDS

def attributes():
    found = {}
    for name in (name for record in RECORDS for name in record.modules):
        module = sys.modules.get(name)
        holders = [module, getattr(module, "RandomIdGenerator", None)]
        for holder in holders:
            if holder is not None:
                for attribute, value in vars(holder).items():
                    found[f"{name}.{attribute}"] = value
    return found

def differing(one, other):
    return sorted(name for name in one if one[name] is not other[name])

before = attributes()
QuantInstrumentor().instrument()
hooked = attributes()
with run(), step("step"):
    pass
applied = attributes()
QuantInstrumentor().uninstrument()
undone = attributes()
QuantInstrumentor().instrument()
again = attributes()
QuantInstrumentor().uninstrument()
with run(), step("step"):
    pass
print(json.dumps({
    "by instrument() before a run": differing(before, hooked),
    "by a run": differing(before, applied),
    "left by uninstrument()": differing(before, undone),
    "by instrument() after it": differing(before, again),
    "by a later run": differing(before, attributes()),
}))
"""
LATE_IMPORT = """
import random
from otel_quant import QuantInstrumentor, run, step
QuantInstrumentor().instrument()
with run(), step("step"):
    pass
QuantInstrumentor().uninstrument()
from opentelemetry.sdk.trace import id_generator
from opentelemetry.exporter.otlp.common import http
print(id_generator.RandomIdGenerator.generate_span_id.__module__ == id_generator.__name__)
print(http.random is random)
"""

CLOSED = """
import requests
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from otel_quant.export.otel.sdk_workarounds import WORKAROUNDS, close_inherited_connections

class Session(requests.Session):
    closed = 0
    def close(self):
        self.closed += 1

session = Session()
provider = TracerProvider(shutdown_on_exit=False)
provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(session=session)))
for act in (WORKAROUNDS.apply, WORKAROUNDS.undo, WORKAROUNDS.apply):
    act()
    session.closed = 0
    close_inherited_connections([provider])
    print(session.closed)
"""
UNBOUNDED = """
from otel_quant import QuantInstrumentor, step
with step("step"):
    pass
QuantInstrumentor().uninstrument()
"""


def gone(name: str) -> str:
    """Returns what is to be done when a fault is not there any more."""
    assert name in {record.name for record in RECORDS}
    return f"the fault is gone: delete the workaround {name!r} in sdk_workarounds.py, and this test"


def test_every_workaround_documents_its_fault_versions_report_and_remedy() -> None:
    for record in RECORDS:
        assert all((record.fault, record.versions, record.remedy)), record.name
        assert record.report.startswith(
            ("https://github.com/open-telemetry/", "no report known on 20")
        ), record.name


@pytest.mark.parametrize(
    ("name", "script"),
    [
        ("identifiers", DRAWS + IDENTIFIERS),
        ("exemplars", DRAWS + EXEMPLARS),
        ("forks", FORKS),
        ("exit", EXIT),
    ],
)
def test_the_sdk_still_has_the_fault(tmp_path: Path, name: str, script: str) -> None:
    said = run_script(tmp_path, script, OTEL_BSP_EXPORT_TIMEOUT="100")
    assert said[0] == "True\n", gone(name)


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
def test_exporters_still_draw_pauses_from_pythons_global_generator(
    tmp_path: Path, otlp: OtlpReceiver, protocol: Protocol
) -> None:
    otlp.become(Mode.UNAVAILABLE)
    output, _ = run_script(tmp_path, DRAWS + PAUSES, protocol, **otlp.environment(protocol))
    assert output == "True\n", gone("pauses")


def test_a_forked_child_still_sends_over_its_parents_connection(tmp_path: Path) -> None:
    ports: list[int] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            ports.append(self.client_address[1])
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        endpoint = f"http://127.0.0.1:{server.server_address[1]}"
        run_script(tmp_path, CONNECTIONS, OTEL_EXPORTER_OTLP_ENDPOINT=endpoint)
        server.shutdown()

    assert len(ports) == 2
    assert ports[0] == ports[1], gone("connections")


def test_uninstrument_restores_what_a_run_replaced_and_the_next_run_replaces_it_again(
    tmp_path: Path,
) -> None:
    output, errors = run_script(tmp_path, REPLACED)
    replaced = [
        "opentelemetry.exporter.otlp.common.http.random",
        "opentelemetry.exporter.otlp.proto.grpc.exporter.random",
        "opentelemetry.sdk.metrics._internal.exemplar.exemplar_reservoir.randrange",
        "opentelemetry.sdk.trace.id_generator.generate_span_id",
        "opentelemetry.sdk.trace.id_generator.generate_trace_id",
    ]
    assert errors == ""
    assert json.loads(output) == {
        "by instrument() before a run": [], "by a run": replaced, "left by uninstrument()": [],
        "by instrument() after it": [], "by a later run": replaced,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("script", "printed"),
    [(LATE_IMPORT, "True\nTrue\n"), (CLOSED, "1\n0\n1\n")],
    ids=[
        "a module that is imported after it is left as it is",
        "connections are closed until then",
    ],
)
def test_after_uninstrument(tmp_path: Path, script: str, printed: str) -> None:
    assert run_script(tmp_path, script) == (printed, "")


def test_after_uninstrument_the_sdk_waits_for_its_exporters_at_exit_again(
    workshop: Workshop, otlp: OtlpReceiver
) -> None:
    environment = otlp.environment("http/protobuf")
    otlp.become(Mode.HANG)
    finished = workshop.script(UNBOUNDED).run(
        {**environment, "OTEL_QUANT_EXIT_TIMEOUT": "0", "OTEL_EXPORTER_OTLP_TIMEOUT": "1"}
    )
    assert finished.returncode == 0
    # The exporter logs this when its own timeout is over, so the exit has waited for that.
    assert "Failed to export spans batch due to timeout" in finished.stderr
