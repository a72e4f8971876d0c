"""Programs that a signal ends at once: what is on disk, and what has been sent, by then.

The script of random moments writes what has begun to a file, after it has: that is what must have
survived.
"""

from __future__ import annotations

import json
import random
import signal
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from otel_quant.recordings.profile_reader import parse
from otel_quant.schema import semconv
from otel_quant.schema.units import size
from tests.fixtures.commands import Commands
from tests.fixtures.otlp_messages import Record
from tests.fixtures.otlp_receiver import OtlpReceiver
from tests.fixtures.programs import Ran, Workshop, steps_in

RUNS = 3
MANY_RUNS = 30
AT_ONCE = 2
LOST_AT_MOST = 1_000_000_000
"""Nanoseconds before the kill from which on log records may be missing."""

PROGRAM = """
import random, time
import otel_quant

said = open("begun{seed}", "w", buffering=1)

def begun(name):
    said.write(f"{{name}}@{{time.time_ns()}}\\n")

chance = random.Random({seed})
for number in range(100_000):
    with otel_quant.step(f"outer {{number}}"):
        begun(f"outer {{number}} Start")
        time.sleep(chance.uniform(0, 0.01))
        with otel_quant.step(f"inner {{number}}"):
            begun(f"inner {{number}} Start")
            time.sleep(chance.uniform(0, 0.01))
        begun(f"inner {{number}} End")
    begun(f"outer {{number}} End")
"""


@pytest.mark.alone
@pytest.mark.parametrize("runs", [RUNS, pytest.param(MANY_RUNS, marks=pytest.mark.slow)])
def test_a_killed_run_has_all_checkpoints_before_the_kill(
    workshop: Workshop, otlp: OtlpReceiver, runs: int
) -> None:
    chance = random.Random(4711)

    def arrived(pid: int) -> set[str]:
        records = otlp.records_of(semconv.CHECKPOINT_EVENT)
        taken = [each.attributes for each in records if each.attributes["process.pid"] == pid]
        return {each[semconv.CHECKPOINT_NAME] for each in taken}

    def missing(number: int, seconds: float) -> set[str]:
        """Kills a run some time after its first step has begun, which loads what measures."""
        script = workshop.script(PROGRAM.format(seed=number), f"script{number}.py")
        said, profile = workshop.folder / f"begun{number}", workshop.folder / f"{number}.yaml"
        process = script.start(
            {**otlp.environment("http/protobuf"), "OTEL_QUANT_PROFILE": str(profile)}
        )
        while not (said.exists() and said.stat().st_size):
            assert process.poll() is None, "the script has ended by itself"
            time.sleep(0.05)
        time.sleep(seconds)
        process.send_signal(signal.SIGKILL)
        killed_ns = time.time_ns()
        process.communicate()
        begun = dict(line.split("@") for line in said.read_text().splitlines())
        written = steps_in(profile)
        assert written[: len(begun) + 1] == ["Start", *begun]
        assert len(set(written)) == len(written)
        assert not parse(profile.read_text()).complete
        due = {name for name, moment in begun.items() if int(moment) < killed_ns - LOST_AT_MOST}
        otlp.wait_for(lambda _: due <= arrived(process.pid))
        return due - arrived(process.pid)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        moments = [chance.uniform(0, 2.5) for _ in range(runs)]
        assert list(pool.map(missing, range(runs), moments)) == [set()] * runs


MIB = 1 << 20
SIZE = 400 * MIB
TOLERANCE = 0.02 * SIZE

SCRIPT = """
import sys
import otel_quant
from otel_quant.export.otel import logs

logs._SPACING = 10**9  # nanoseconds: a second instead of half a minute

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


def test_the_last_reading_is_on_disk_and_at_the_endpoint_and_show_prints_it(
    workshop: Workshop, otlp: OtlpReceiver, command: Commands
) -> None:
    script, profile = workshop.script(SCRIPT), workshop.folder / "profile.yaml"
    # Quark's file as Quark writes it has no more of a step than its start; what is beside it has.
    variables = {"OTEL_QUANT_PROFILE": str(profile), "OTEL_QUANT_YAML_STRICT": "true"}
    process = script.start({**otlp.environment("http/protobuf"), **variables})
    assert process.stdout is not None
    held = int(process.stdout.readline())

    def sent() -> list[Record]:
        readings = otlp.records_of(semconv.READING_EVENT)
        return [
            each for each in readings if each.attributes[semconv.READING_MEMORY] > held - TOLERANCE
        ]

    assert otlp.wait_for(lambda _: bool(sent()), 100)
    process.send_signal(signal.SIGKILL)
    process.communicate()

    (path,) = workshop.folder.glob("profile.*.last_reading.json")
    reading = json.loads(path.read_text())
    memory = reading["attributes"][semconv.READING_MEMORY]
    assert memory == pytest.approx(held, abs=TOLERANCE)
    assert [step["index"] for step in reading["steps"]] == [0, 1]
    (document,) = json.loads(command.output("show", profile, "--format", "json"))
    last = document["last_reading"]
    assert last["age_secs"] >= 0
    assert last["timestamp"] == pytest.approx(reading["time"] / 1e9, abs=2e-6)
    assert last["cpu_memory_mb"] * MIB == pytest.approx(memory, abs=MIB / 100)
    assert last["open_steps"] == [{"step": "Model Quantization"}, {"step": "Calibration"}]
    lines = command.output("show", profile).splitlines()
    assert [line.split()[0] for line in lines if line.endswith("  open")] == [
        "Model",
        "Calibration",
    ]
    [last] = [line for line in lines if line.startswith("last reading  ")]
    assert size(memory) in last

    attributes = sent()[0].attributes
    assert attributes["process.pid"] == process.pid
    assert attributes[semconv.STEP_NAME] == "Calibration"
    assert list(attributes[semconv.READING_OPEN_STEPS]) == ["Model Quantization", "Calibration"]
    assert attributes[semconv.READING_MEMORY] == pytest.approx(held, abs=TOLERANCE)
    start = otlp.records_of(semconv.CHECKPOINT_EVENT)[-1].attributes[semconv.CHECKPOINT_MEMORY]
    assert start < SIZE / 2, "without the record, the start of the step would be what is known"


def test_each_span_of_a_run_or_worker_has_a_start_record_with_its_attributes(
    ran: Ran, otlp: OtlpReceiver
) -> None:
    ran(
        """
        import multiprocessing
        import otel_quant

        def work(number):
            with otel_quant.step("work"):
                return number

        if __name__ == "__main__":
            with multiprocessing.get_context("fork").Pool(1) as pool:
                pool.map(work, range(3), chunksize=1)
        """
    )
    roots = {span.span_id: span for span in otlp.spans_named("quantization")}
    worked = [span.parent_id for span in otlp.spans_named("work")]
    assert len(worked) == 3
    assert set(worked) <= roots.keys()
    started = otlp.records_of(semconv.RUN_STARTED_EVENT)
    assert {record.span_id for record in started} == roots.keys()
    names = {
        semconv.RUN_ID, semconv.RUN_NAME, "process.pid", semconv.MEMORY_LIMIT,
        semconv.MEMORY_LIMIT_SOURCE,
    }  # fmt: skip
    made_by = {"process.command_line", "process.runtime.version", "host.name", "os.description"}
    for record in started:
        assert (record.body, record.severity) == ("quantization started", "INFO")
        assert record.attributes.keys() - semconv.ORIGIN == names
        assert made_by <= record.attributes.keys()
        root = roots[record.span_id]
        assert record.resource == root.resource
        assert (record.trace_id, record.time_ns) == (root.trace_id, root.start_ns)
        assert {**root.attributes, **record.attributes} == root.attributes
