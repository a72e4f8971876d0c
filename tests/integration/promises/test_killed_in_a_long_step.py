"""A program that grows within one step and is killed there: what is known of it afterwards."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from otel_quant.schema.units import size
from tests.fixtures.otlp_receiver import OtlpReceiver
from tests.fixtures.programs import Workshop

MIB = 1 << 20
SIZE = 400 * MIB
TOLERANCE = 0.02 * SIZE

SCRIPT = """
import sys, time
import otel_quant

def rss():
    for line in open("/proc/self/status"):
        if line.startswith("VmRSS"):
            return int(line.split()[1]) * 1024

with otel_quant.step("Model Quantization"), otel_quant.step("Calibration"):
    block = bytearray()
    while rss() < 400 << 20:
        block += b"x" * (1 << 20)
    print(rss(), flush=True)
    sys.stdin.read()
"""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the script reads /proc")


def show(path: Path, *options: str) -> str:
    shown = subprocess.run(
        [sys.executable, "-m", "otel_quant", "show", *options, str(path)],
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    return shown.stdout


def wait_until(holds: Callable[[], bool]) -> None:
    until = time.monotonic() + 100
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.05)


@pytest.mark.parametrize("strict", ["false", "true"])
def test_the_last_reading_is_on_disk_and_show_prints_it(workshop: Workshop, strict: str) -> None:
    script, profile = workshop.script(SCRIPT), workshop.folder / "profile.yaml"
    process = script.start({"OTEL_QUANT_PROFILE": str(profile), "OTEL_QUANT_YAML_STRICT": strict})
    assert process.stdout is not None
    held = int(process.stdout.readline())

    def readings() -> list[Path]:
        return list(workshop.folder.glob("profile.*.last_reading.json"))

    def is_known() -> bool:
        return any(
            json.loads(path.read_text())["cpu_memory_mb"] * MIB > held - TOLERANCE
            for path in readings()
        )

    wait_until(is_known)
    process.send_signal(signal.SIGKILL)
    process.communicate()

    (path,) = readings()
    reading = json.loads(path.read_text())
    assert reading["cpu_memory_mb"] * MIB == pytest.approx(held, abs=TOLERANCE)
    assert reading["open_steps"] == [{"step": "Model Quantization"}, {"step": "Calibration"}]
    (document,) = json.loads(show(profile, "--format", "json"))
    assert document["last_reading"].pop("age_secs") >= 0
    # A recording has its times as nanoseconds since it began: `show` has microseconds.
    times = {
        name: pytest.approx(reading[name], abs=2e-6)
        for name in ("timestamp", "relative_time_secs", "run_started")
    }
    assert document["last_reading"] == reading | times
    *_, steps, checkpoint, last = show(profile).splitlines()
    assert steps == "  open steps:      Model Quantization > Calibration"
    assert checkpoint.startswith("  last checkpoint: Calibration Start (")
    assert last.startswith("  last reading:    ")
    assert size(reading["cpu_memory_mb"] * MIB) in last


def test_a_run_that_ends_leaves_no_last_reading(workshop: Workshop) -> None:
    script, profile = workshop.script(SCRIPT), workshop.folder / "profile.yaml"
    process = script.start({"OTEL_QUANT_PROFILE": str(profile)})
    wait_until(lambda: any(workshop.folder.glob("profile.*.last_reading.json")))
    _, errors = process.communicate("\n")
    assert (process.returncode, errors) == (0, "")
    assert sorted(path.name for path in workshop.folder.iterdir()) == ["profile.yaml", "script.py"]


def test_without_a_sampler_there_is_no_reading_between_checkpoints(workshop: Workshop) -> None:
    script, profile = workshop.script(SCRIPT), workshop.folder / "profile.yaml"
    process = script.start({"OTEL_QUANT_PROFILE": str(profile), "OTEL_QUANT_SAMPLE_INTERVAL": "0"})
    assert process.stdout is not None
    process.stdout.readline()
    time.sleep(3)  # long enough for a file, if there were one
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert sorted(path.name for path in workshop.folder.iterdir()) == ["profile.yaml", "script.py"]
    assert "last reading" not in show(profile)


def test_the_last_reading_is_at_the_endpoint(workshop: Workshop, otlp: OtlpReceiver) -> None:
    process = workshop.script(SCRIPT).start(otlp.environment("http/protobuf"))
    assert process.stdout is not None
    held = int(process.stdout.readline())
    assert otlp.wait_for(lambda at: bool(at.records_of("quant.reading.taken")), 100)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    (record,) = otlp.records_of("quant.reading.taken")
    attributes = record.attributes
    assert attributes["process.pid"] == process.pid
    assert attributes["quant.step.name"] == "Calibration"
    assert list(attributes["quant.reading.open_steps"]) == ["Model Quantization", "Calibration"]
    assert attributes["quant.reading.memory"] == pytest.approx(held, abs=TOLERANCE)
    start = otlp.records_of("quant.checkpoint.taken")[-1].attributes["quant.checkpoint.memory"]
    assert start < SIZE / 2, "without the record, the start of the step would be what is known"
