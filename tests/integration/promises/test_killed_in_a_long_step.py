"""A program that grows within one step and is killed there: what is known of it afterwards."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from otel_quant.schema.units import size
from tests.fixtures.otlp_messages import Record
from tests.fixtures.otlp_receiver import OtlpReceiver
from tests.fixtures.programs import Workshop

MIB = 1 << 20
SIZE = 400 * MIB
TOLERANCE = 0.02 * SIZE

SCRIPT = """
import sys
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


def show(path: Path, *options: str) -> str:
    shown = subprocess.run(
        [sys.executable, "-m", "otel_quant", "show", *options, str(path)],
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    return shown.stdout


def test_the_last_reading_is_on_disk_and_at_the_endpoint_and_show_prints_it(
    workshop: Workshop, otlp: OtlpReceiver
) -> None:
    script, profile = workshop.script(SCRIPT), workshop.folder / "profile.yaml"
    # Quark's file as Quark writes it has no more of a step than its start; what is beside it has.
    variables = {"OTEL_QUANT_PROFILE": str(profile), "OTEL_QUANT_YAML_STRICT": "true"}
    process = script.start({**otlp.environment("http/protobuf"), **variables})
    assert process.stdout is not None
    held = int(process.stdout.readline())

    def sent() -> list[Record]:
        return otlp.records_of("quant.reading.taken")

    # It is sent every half minute. The file has it every second.
    assert otlp.wait_for(lambda _: bool(sent()), 100)
    process.send_signal(signal.SIGKILL)
    process.communicate()

    (path,) = workshop.folder.glob("profile.*.last_reading.json")
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

    attributes = sent()[0].attributes
    assert attributes["process.pid"] == process.pid
    assert attributes["quant.step.name"] == "Calibration"
    assert list(attributes["quant.reading.open_steps"]) == ["Model Quantization", "Calibration"]
    assert attributes["quant.reading.memory"] == pytest.approx(held, abs=TOLERANCE)
    start = otlp.records_of("quant.checkpoint.taken")[-1].attributes["quant.checkpoint.memory"]
    assert start < SIZE / 2, "without the record, the start of the step would be what is known"
