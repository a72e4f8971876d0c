"""GPUs as the launcher reads them from outside: while the program is blind, and while the driver hangs."""

from __future__ import annotations

import sys

import pytest

from otel_quant.recordings.model import LAUNCHER
from otel_quant.recordings.reader import read
from tests.fixtures.fake_nvml import FakeGpu, FakeNvml
from tests.fixtures.programs import PYTHON, Launched, Workshop

BECOME = """
import os, time

def become(used, hang=0):
    with open("new.txt", "w") as file:
        file.write(f"driver hang={hang}\\n")
        file.write(f"gpu uuid=GPU-a total=80000000000 used={used + 200_000_000} name=Fake\\n")
        file.write(f"process device=0 pid={os.getpid()} used={used}\\n")
    os.replace("new.txt", os.environ["FAKE_NVML_STATE"])
"""

KILLED = f"""{BECOME}
import ctypes, signal
import otel_quant

with otel_quant.step("Calibration"):
    become(1_150_000_000)
    time.sleep(1.2)
    become(2_600_000_000)
    ctypes.PyDLL(None).usleep(600_000)  # holds Python's lock: no thread of the program can look
    os.kill(os.getpid(), signal.SIGKILL)
"""

HANGS = f"""{BECOME}
become(1_000_000_000)
time.sleep(0.5)
become(1_000_000_000, hang=1)
began = time.time() + 0.3
time.sleep(1.2)
with open("hung.txt", "w") as file:
    print(began, time.time(), file=file)
become(2_000_000_000)
time.sleep(0.5)
"""


def test_memory_that_a_killed_program_could_not_read_itself_is_the_launchers(
    launched: Launched, workshop: Workshop
) -> None:
    driver = FakeNvml(workshop.folder, [FakeGpu(uuid="GPU-a", total=80 * 10**9)])
    workshop.script(KILLED)
    launched.run([sys.executable, "script.py"], variables=driver.env)
    shown = launched.otel_quant("show", launched.recording.name).stdout
    assert "GPU memory peaked at 2.60 GB in Calibration: 3.2 % of the limit of 80.0 GB.\n" in shown
    (row,) = (line for line in shown.splitlines() if line.startswith("Calibration   "))
    assert " 2,600.0 " in row


@pytest.mark.parametrize("from_the_start", [False, True])
def test_a_driver_that_hangs_does_not_make_the_launcher_hang(
    launched: Launched, workshop: Workshop, from_the_start: bool
) -> None:
    driver = FakeNvml(workshop.folder, [FakeGpu(uuid="GPU-a")])
    source = HANGS.replace("become(1_000_000_000)", "become(1_000_000_000, hang=1)") if from_the_start else HANGS  # fmt: skip
    (workshop.folder / "script.py").write_text(source)
    done = launched.run([*PYTHON, "script.py"], variables=driver.env)
    assert done.returncode == 0
    recording = read(launched.recording)
    began, curve = recording.curve(LAUNCHER)
    hung, until = (
        float(each) - recording.began_ns / 1e9
        for each in (workshop.folder / "hung.txt").read_text().split()
    )
    seen: dict[str, list[float]] = {"memory": [], "gpu.0.process_used": []}
    highest = 0.0
    for bucket in curve.buckets.values():
        for name, times in seen.items():
            if name in bucket.levels:
                times.append(began + bucket.levels[name].at / 1000)
                highest = max(highest, bucket.levels[name].highest)
    during = [sum(hung < time < until for time in times) for times in seen.values()]
    assert during[0] > 5
    assert during[1] == 0
    assert highest == 2_000_000_000


def test_the_launcher_reads_no_gpu_where_that_is_switched_off(
    launched: Launched, workshop: Workshop
) -> None:
    driver = FakeNvml(workshop.folder, [FakeGpu(uuid="GPU-a")])
    variables = {**driver.env, "OTEL_QUANT_GPU": "false"}
    launched.run([*PYTHON, "-c", "import time; time.sleep(1.5)"], variables=variables)
    _, curve = read(launched.recording).curve(LAUNCHER)
    names = {name for bucket in curve.buckets.values() for name in bucket.levels}
    assert "memory" in names
    assert not any(name.startswith("gpu.") for name in names)
    assert driver.events == []
