"""An agent on one host and a gateway with the stores on another, as docs/scaling.md sets them up.

A network namespace with its own addresses stands for the host that quantizes; a cable that is pulled is between them.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.fixtures.otlp_receiver import OtlpReceiver
from tests.stack.processes import (
    CONFIGS,
    WORKER,
    Backends,
    collector,
    eventually,
    free_port,
    loki,
    make_secrets,
    prometheus,
    started,
)
from tests.stack.test_collector import DURATIONS, checkpoints, sample

pytestmark = [pytest.mark.servers, pytest.mark.slow]

STEP = "import otel_quant, time\nwith otel_quant.step('Calibration'): time.sleep(12)"


@dataclass(frozen=True)
class Host:
    """A network namespace that one pair of virtual interfaces connects with this one."""

    name: str
    here: str  # Address at this end
    there: str  # Address at the other end

    def within(self, *command: str) -> list[str]:
        """Returns a command that runs another one on the host."""
        return ["ip", "netns", "exec", self.name, *command]

    def connect(self, state: str) -> None:
        """Plugs the cable in (`up`), or pulls it (`down`)."""
        ip("link", "set", self.name, state)


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


@pytest.fixture
def host() -> Iterator[Host]:
    """Yields a host that is connected."""
    made = Host(f"quant{WORKER}", f"198.18.{WORKER}.1", f"198.18.{WORKER}.2")
    try:
        ip("netns", "add", made.name)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no network namespace can be made here: {error}")
    try:
        ip("link", "add", made.name, "type", "veth", "peer", "eth0", "netns", made.name)
        ip("address", "add", f"{made.here}/30", "dev", made.name)
        made.connect("up")
        for command in (
            ("link", "set", "lo", "up"),
            ("address", "add", f"{made.there}/30", "dev", "eth0"),
            ("link", "set", "eth0", "up"),
        ):
            ip("-n", made.name, *command)
        yield made
    finally:
        ip("netns", "delete", made.name)


def test_what_a_run_sends_while_the_network_is_away_arrives_once_on_the_other_host(
    binaries: dict[str, str], tmp_path: Path, receiver: OtlpReceiver, host: Host
) -> None:
    ports, port, health = Backends(tempo_otlp=receiver.grpc_port), free_port(), free_port()
    secrets = make_secrets(tmp_path, host.here)
    program, config = binaries["otelcol-quant"], CONFIGS / "gateway.yaml"
    gateway = collector(
        program, tmp_path, config, ports, "gateway", secrets, OTELCOL_OTLP_GRPC=f"{host.here}:{port}",
        OTELCOL_AFTER_ROOT="1s", OTELCOL_KEEP_PERCENT="100",
    )  # fmt: skip
    agent = collector(
        program, tmp_path, CONFIGS / "agent.yaml", ports, "agent", secrets, OTELCOL_GATEWAY_HOST=host.here,
        OTELCOL_GATEWAY_PORT=str(port), OTELCOL_HEALTH=f"{host.there}:{health}",
    )  # fmt: skip
    agent.server.command = host.within(*agent.server.command)
    agent.server.ready = f"http://{host.there}:{health}/"
    stores = [
        prometheus(binaries["prometheus"], tmp_path, ports),
        loki(binaries["loki"], tmp_path, ports),
    ]
    servers = [gateway.server, agent.server, *stores]
    run = None
    try:
        for server in (receiver, *servers):
            server.start()
        instrument = str(Path(sys.executable).with_name("opentelemetry-instrument"))
        command = host.within(instrument, sys.executable, "-c", STEP)
        run = started(replace(agent, secrets=None), *command, OTEL_METRIC_EXPORT_INTERVAL="1000")
        eventually(
            lambda: sample(ports, "quant_step_active") == [1], "an open step on the other host"
        )
        host.connect("down")
        assert run.wait(60) == 0
        # What it sent since is on the agent's disk; its host is restarted.
        agent.server.kill()
        assert (sample(ports, DURATIONS), receiver.spans) == ([], [])
        host.connect("up")
        agent.server.start()
        eventually(lambda: sample(ports, DURATIONS) == [1], "the step's duration", 300)
        eventually(lambda: len(receiver.spans) >= 2, "the run's spans", 300)
        (trace,) = {span.trace_id for span in receiver.spans}
        names = ["Start", "Calibration Start", "Calibration End", "End"]
        eventually(lambda: checkpoints(ports, trace) == names, "the run's checkpoints", 300)
    finally:
        if run is not None:
            run.kill()
        for server in servers:
            server.kill()
    assert sorted(span.name for span in receiver.spans) == ["Calibration", "quantization"]
