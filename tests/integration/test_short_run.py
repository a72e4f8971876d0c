"""A run that is shorter than the metrics' export interval still shows its live figures."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fixtures.otlp_receiver import OtlpReceiver, Protocol


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
def test_live_metrics_of_a_short_run_arrive(
    tmp_path: Path, otlp: OtlpReceiver, protocol: Protocol
) -> None:
    script = tmp_path / "quantize.py"
    script.write_text("import otel_quant\nwith otel_quant.step('Calibration'):\n    pass\n")
    subprocess.run(
        ["opentelemetry-instrument", sys.executable, str(script)],
        env={**os.environ, **otlp.environment(protocol)},
        check=True,
        timeout=300,
    )

    usage = otlp.point("quant.run.memory.usage").value
    limit = otlp.point("quant.run.memory.limit").value
    assert 5e6 < usage < limit
    assert (
        otlp.point(
            "quant.step.active",
            **dict.fromkeys(("quant.step.kind", "quant.step.name"), "Calibration"),
        ).value
        == 0
    )
    assert {
        point.attributes["disk.io.direction"] for point in otlp.latest_points("quant.run.disk.io")
    } == {"read", "write"}
