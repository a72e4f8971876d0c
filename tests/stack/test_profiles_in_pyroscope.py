"""The link from a step's span to its profiles finds them in the real Pyroscope, with the options of docker-compose.yml.

Pyroscope's module needs one that Go's proxy does not serve: PYROSCOPE_BIN names the binary, or this is left out.
"""

from __future__ import annotations

import json
import os
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import yaml

from otel_quant.recordings.reader import read, stacks_in
from tests.fixtures.otlp_messages import Span
from tests.fixtures.otlp_receiver import OtlpReceiver
from tests.fixtures.programs import Workshop
from tests.integration.export.test_profiles import PROGRAM
from tests.stack.processes import CONFIGS, ROOT, Backends, Server, collector, eventually, free_port

BINARY = os.environ.get("PYROSCOPE_BIN", "")
pytestmark = [
    pytest.mark.servers,
    pytest.mark.skipif(not BINARY, reason="PYROSCOPE_BIN names no Pyroscope binary"),
]


def pyroscope(folder: Path, port: int) -> Server:
    composed = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]["pyroscope"]
    rpc, gossip, raft = free_port(), free_port(), free_port()
    return Server(
        ["env", "-C", str(folder), BINARY, *composed["command"][1:],
         f"-server.http-listen-port={port}", f"-server.grpc-listen-port={rpc}", f"-memberlist.bind-port={gossip}",
         f"-metastore.address=localhost:{rpc}", f"-query-backend.address=localhost:{rpc}",
         f"-metastore.raft.bind-address=localhost:{raft}", f"-metastore.raft.advertise-address=localhost:{raft}"],
        f"http://127.0.0.1:{port}/ready",
        folder / "pyroscope.log",
    )  # fmt: skip


def total(port: int, profile: str, span: Span) -> int:
    """Returns the sum of the profiles that Grafana's link of a span asks for: those with the span's identifier."""
    asked = {
        "profileTypeID": profile,
        "labelSelector": f'{{service_name="{span.resource["service.name"]}"}}',
        "spanSelector": [span.attributes["pyroscope.profile.id"]],
        "start": (int(time.time()) - 3600) * 1000,
        "end": (int(time.time()) + 60) * 1000,
    }
    url = f"http://127.0.0.1:{port}/querier.v1.QuerierService/SelectMergeSpanProfile"
    request = urllib.request.Request(
        url, json.dumps(asked).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        found: dict[str, Any] = json.load(answer)
    return int(found["flamegraph"].get("total", 0))


def test_the_identifier_of_a_steps_span_finds_its_profiles_of_time_and_growth(
    binaries: dict[str, str], workshop: Workshop, receiver: OtlpReceiver
) -> None:
    receiver.start()  # for the spans
    ports = Backends(tempo_otlp=receiver.grpc_port)
    store = pyroscope(workshop.folder, port := free_port())
    made = collector(
        binaries["otelcol-quant"], workshop.folder, CONFIGS / "config.yaml", ports, "otelcol", None,
        (f"--config={CONFIGS / 'profiles.yaml'}", "--feature-gates=service.profilesSupport"),
        OTELCOL_PYROSCOPE=f"127.0.0.1:{port}",
    )  # fmt: skip
    recording = workshop.folder / "recording"
    try:
        store.start()
        made.server.start()
        done = workshop.script(PROGRAM).run(
            {
                **made.environment,
                "OTEL_TRACES_EXPORTER": "otlp",
                "OTEL_QUANT_PROFILES": "otlp",
                "OTEL_QUANT_RECORD": str(recording),
            }
        )
        assert (done.returncode, done.stderr) == (0, "")
        recorded: dict[tuple[str, str], int] = {}
        for each in stacks_in(read(recording)):
            assert each.step is not None
            for type_, value in (("time", each.seen.time), ("growth", each.seen.grown)):
                key = (each.step.step.name, type_)
                recorded[key] = recorded.get(key, 0) + value
        eventually(lambda: len(receiver.spans) == 5, "the spans")
        for name in ("Holding", "Waiting", "Working"):
            (span,) = receiver.spans_named(name)
            for type_, profile in (
                ("time", "wall:time:nanoseconds:wall:nanoseconds"),
                ("growth", "memory:growth:bytes:memory:bytes"),
            ):
                eventually(
                    lambda p=profile, s=span, v=recorded[name, type_]: total(port, p, s) == v,
                    f"the profile of {type_} of {name}",
                )
    finally:
        made.server.kill()
        store.kill()
