"""A run of eleven minutes as a user has it: the SDK sends metrics once a minute."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.stack.grafana_panels import Shown
from tests.stack.processes import HERE, ROOT, eventually
from tests.stack.world import stores

pytestmark = [pytest.mark.servers, pytest.mark.slow]

MINUTES = 11
BEFORE_A_RATE = 2
"""Minutes in which there is no second export yet that a rate could be made of, and a little more."""
MINUTE = 60
STEP = 5
"""Seconds between two points of a chart that the tests ask for."""


def test_charts_of_a_run_at_default_intervals_have_no_gaps(
    binaries: dict[str, str], tmp_path: Path
) -> None:
    with stores(binaries, tmp_path) as (world, made):
        program = Path(sys.executable).with_name("opentelemetry-instrument")
        subprocess.run(
            [program, sys.executable, HERE / "long_run.py", str(MINUTES * MINUTE)],
            env={**os.environ, **made.environment, "PYTHONPATH": str(ROOT), "OTEL_SERVICE_NAME": "nightly"},
            check=True,
        )  # fmt: skip
        eventually(lambda: world.metric("quant_run_end_seconds"), "the run's end")
        shown = {name: world.show(name, job=".+") for name in ("run", "runs", "compare")}
    expected = (MINUTES - BEFORE_A_RATE) * MINUTE / STEP
    charts = (
        ("run", "Memory"), ("run", "Disk"), ("run", "CPU"), ("run", "Steps over time"),
        ("runs", "Memory"), ("runs", "Share of the memory limit"), ("runs", "Error rate"),
        ("compare", "Duration of ended steps"), ("compare", "Spread of durations"),
    )  # fmt: skip
    assert {chart: min(points(shown[chart[0]][chart[1]])) >= expected for chart in charts} == (
        dict.fromkeys(charts, True)
    )
    ((state, steps),) = shown["runs"]["Runs"].rows("State", "Duration")
    assert state == "ended"
    assert steps.endswith("mins")


def points(shown: Shown) -> list[int]:
    """Returns how many points each line of a chart has, those of log records left out."""
    return [
        len(frame[-1].values) for frame in shown.frames if not frame[-1].name.startswith("readings")
    ]
