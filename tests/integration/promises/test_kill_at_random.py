"""SIGKILL at random moments: the file holds all that had begun, the endpoint all but a second.

The script writes what has begun to a file, after it has: that is what must have survived.
"""

from __future__ import annotations

import random
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from otel_quant.recordings.profile_reader import parse
from tests.fixtures.otlp_receiver import OtlpReceiver
from tests.fixtures.programs import Workshop

pytestmark = pytest.mark.alone

RUNS = 3
MANY_RUNS = 30
AT_ONCE = 2
LOST_AT_MOST = 1_000_000_000
"""Nanoseconds before the kill from which on log records may be missing."""

STEPS = """
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


@dataclass(frozen=True)
class Killed:
    """What had begun in a run, and when, as far as was known when it was killed.

    Times are nanoseconds of the wall clock.
    """

    begun: dict[str, int]
    killed_ns: int
    pid: int


def killed_after(process: subprocess.Popen[str], said: Path, seconds: float) -> Killed:
    """Kills a script some time after its first step has begun, which loads what measures."""
    while not (said.exists() and said.stat().st_size):
        assert process.poll() is None, "the script has ended by itself"
        time.sleep(0.05)
    time.sleep(seconds)
    process.send_signal(signal.SIGKILL)
    killed_ns = time.time_ns()
    process.communicate()
    lines = (line.partition("@") for line in said.read_text().splitlines())
    return Killed({name: int(moment) for name, _, moment in lines}, killed_ns, process.pid)


def records_of_ours(path: Path) -> list[str]:
    """Returns the names of records; what made the run is before them, and no record is cut but the last."""
    content: dict[str, Any] = yaml.safe_load(path.read_text())
    assert list(content) == ["run", "memory_usage"]
    script = path.with_name(path.name.replace("profile", "script")).with_suffix(".py")
    assert content["run"]["command"] == f"python {script}"
    assert content["run"]["memory_limit_source"] in ("cgroup", "physical")
    *whole, last = content["memory_usage"]
    assert {tuple(record) for record in whole} <= {tuple(content["memory_usage"][0])}
    assert list(last) == list(content["memory_usage"][0])[: len(last)]
    assert not parse(path.read_text()).complete
    return [record["step"] for record in content["memory_usage"]]


@pytest.mark.parametrize("runs", [RUNS, pytest.param(MANY_RUNS, marks=pytest.mark.slow)])
def test_a_killed_run_has_all_checkpoints_before_the_kill(
    workshop: Workshop, otlp: OtlpReceiver, runs: int
) -> None:
    chance = random.Random(4711)

    def run(number: int, seconds: float) -> Killed:
        script = workshop.script(STEPS.format(seed=number), f"script{number}.py")
        process = script.start(
            {**otlp.environment("http/protobuf"), "OTEL_QUANT_PROFILE": f"profile{number}.yaml"}
        )
        return killed_after(process, workshop.folder / f"begun{number}", seconds)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        moments = [chance.uniform(0, 2.5) for _ in range(runs)]
        ended = list(pool.map(run, range(runs), moments))

    arrived: dict[int, set[str]] = {}
    for record in otlp.records_of("quant.checkpoint.taken"):
        names = arrived.setdefault(record.attributes["process.pid"], set())
        names.add(record.attributes["quant.checkpoint.name"])

    assert sum(len(killed.begun) for killed in ended) > runs
    late: dict[tuple[int, float], list[str]] = {}
    for number, killed in enumerate(ended):
        written = records_of_ours(workshop.folder / f"profile{number}.yaml")
        assert written[: len(killed.begun) + 1] == ["Start", *killed.begun]
        assert len(set(written)) == len(written)
        due = [
            name
            for name, moment in killed.begun.items()
            if moment < killed.killed_ns - LOST_AT_MOST
        ]
        missing = [name for name in due if name not in arrived.get(killed.pid, set())]
        if missing:
            late[number, moments[number]] = missing
    assert late == {}
