"""Whose a peak is that the launcher knows from the kernel alone: of the step that held it, and of no other."""

from __future__ import annotations

from pathlib import Path

import pytest

from otel_quant.recordings import summary
from otel_quant.recordings.model import steps_in
from otel_quant.recordings.reader import read
from tests.fixtures.programs import Launched

MB = 1_000_000
EMPTY = 60 * MB
"""More than a program without data holds, in bytes."""

BEGINS = "import os, otel_quant, time\nstep, held = otel_quant.step, []\ntime.sleep(0.3)\n"
KILL = "os.kill(os.getpid(), 9)"


def peaks_of(folder: Path) -> dict[str, float]:
    """Returns the peaks of the steps beyond what Python itself holds, in units of 50 MB; 0 for what is not known."""
    recording = read(folder)
    of = summary.steps_of(recording)
    peaks = {
        each.step.name: of(each).value(each.step, summary.MEMORY_PEAK)
        for each in steps_in(recording)
    }
    return {name: max(0, (peak or 0) - 20 * MB) // (50 * MB) for name, peak in peaks.items()}


def whose(folder: Path) -> str:
    peak = summary.peak(read(folder))
    assert peak is not None
    assert peak.step is not None
    return peak.step.name


def ran(launched: Launched, code: str, interval: int) -> Path:
    (launched.folder / "steps.py").write_text(BEGINS + code)
    folder = launched.folder / "r"
    options = ("--quiet", "--interval", str(interval), "--out", "r")
    launched.run(["python", "steps.py"], *options)
    return folder


@pytest.mark.parametrize("interval", [50, 1000])
def test_a_step_has_not_the_peak_of_the_step_before_it(launched: Launched, interval: int) -> None:
    folder = ran(launched, """
for size in (150, 250):
    with step(f"Spike {size}"):
        held = b"x" * (size * 1_000_000); del held
    with step(f"Quiet after {size}"):
        time.sleep(0.4)
""", interval)  # fmt: skip
    assert peaks_of(folder) == {
        "Spike 150": 3, "Quiet after 150": 0, "Spike 250": 5, "Quiet after 250": 0,
    }  # fmt: skip
    assert whose(folder) == "Spike 250"


@pytest.mark.parametrize("interval", [50, 1000])
@pytest.mark.parametrize(
    ("code", "expected", "name"),
    [
        (f"with step('Outer'), step('Big'):\n  held = b'x' * 300_000_000; {KILL}", {"Spike": 3, "Outer": 6, "Big": 6}, "Big"),
        (f"with step('High'):\n  held = b'x' * 300_000_000; del held\nwith step('Idle'):\n  {KILL}", {"Spike": 3, "High": 6, "Idle": 0}, "High"),
        (f"held = b'x' * 300_000_000; del held\nwith step('Idle'):\n  {KILL}", {"Spike": 3, "Idle": 0}, None),
    ],
    ids=["in the step", "in the step before", "outside of steps"],
)  # fmt: skip
def test_a_killed_step_has_the_peak_that_only_the_launcher_knows(
    launched: Launched, interval: int, code: str, expected: dict[str, int], name: str | None
) -> None:
    spike = "with step('Spike'):\n  held = b'x' * 150_000_000; del held\n"
    folder = ran(launched, spike + code, interval)
    assert peaks_of(folder) == expected
    highest = summary.value(read(folder), summary.MEMORY_PEAK)
    assert highest is not None
    assert 300 * MB < highest < 300 * MB + EMPTY
    if name is not None:
        assert whose(folder) == name


def test_a_step_keeps_a_peak_that_its_own_process_has_not_seen(launched: Launched) -> None:
    folder = ran(launched, """
import subprocess, sys
with step("Child"):
    child = subprocess.Popen(
        [sys.executable, "-c", "import time; x = b'x' * 200_000_000; time.sleep(0.5); del x; time.sleep(0.3)"])
    sum(range(60_000_000))
    child.wait()
""", 50)  # fmt: skip
    assert peaks_of(folder)["Child"] >= 4
