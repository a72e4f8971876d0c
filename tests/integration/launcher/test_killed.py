"""A program that is killed: what the launcher prints, records and sends."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import time
from pathlib import Path
from typing import Final

import pytest

from otel_quant.recordings.model import Ending
from otel_quant.recordings.reader import read
from tests.fixtures.control_groups import ControlGroup
from tests.fixtures.programs import FLOAT_MODEL, Launched, launcher, reader, steps_in

MB = 1_000_000

PROGRAM: Final = '''
import os, sys
from onnxruntime.quantization import CalibrationMethod, quantize_static

each, total, last, pause = (float(word) for word in sys.argv[1:])

held, file = [], os.open("given", os.O_WRONLY | os.O_CREAT)

def hold(given):
    """Keeps some memory for each sample, and says how many are given away."""
    if given == last:
        os.kill(os.getpid(), signal.SIGKILL)
    if given < total:
        held.append(np.ones(int(each), np.uint8))
        time.sleep(pause)
        os.pwrite(file, b"%8d" % len(held), 0)

quantize_static("float.onnx", "int8.onnx", Reader(), calibrate_method=CalibrationMethod.MinMax)
'''


def program(folder: Path, each: int, total: int, last: int = -1, pause: float = 0.0) -> list[str]:
    """Writes a quantization; it holds ``each`` bytes for each sample and ends itself at the last."""
    holding = reader(1, 8, samples="int(total)", before_each="hold(self.given)")
    (folder / "quantize.py").write_text(FLOAT_MODEL + holding + PROGRAM)
    return ["python", "quantize.py", *map(str, (each, total, last, pause))]


def ending_in(folder: Path) -> Ending:
    recording = read(folder)
    assert recording.problems == ()
    assert recording.ending is not None
    return recording.ending


def sample_in(ending: Ending) -> tuple[int, int]:
    """Returns at which sample it was, and of how many; the line of the program may stand behind that."""
    found = re.fullmatch(r"Calibration, sample ([\d,]+) of ([\d,]+)(, at .*)?", ending.where or "")
    assert found is not None, ending.where
    return int(found[1].replace(",", "")), int(found[2].replace(",", ""))


def run_within(
    group: ControlGroup, launched: Launched, command: list[str], *options: str
) -> subprocess.CompletedProcess[str]:
    return launched.run_bare(group.within([*launcher(*options), *command]))


UNREACHABLE: Final = {
    "OTEL_EXPORTER_OTLP_ENDPOINT": "http://192.0.2.1:4317",
    "OTEL_QUANT_EXIT_TIMEOUT": "300",
}


@pytest.mark.parametrize("variables", [{}, UNREACHABLE], ids=["no endpoint", "one that hangs"])
def test_a_killed_calibration_names_its_step_and_memory_and_waits_for_no_endpoint(
    launched: Launched, variables: dict[str, str]
) -> None:
    # Slow enough that a busy machine reads the memory between samples.
    paced = program(launched.folder, 10 * MB, 512, last=120, pause=0.02)
    done = launched.run(paced, variables=variables)
    assert done.returncode == -signal.SIGKILL
    late = "the end of the program could not be sent: it took longer than 0.3 s"
    assert (late in done.stderr) == bool(variables)
    ending = ending_in(launched.recording)
    assert (launched.recording / "curve.launcher.jsonl").exists()
    assert (read(launched.recording).runs[0].trace_id is None) == (not variables)
    assert (ending.signal, ending.exit_code, ending.out_of_memory) == ("SIGKILL", None, None)
    assert sample_in(ending) == (120, 512)
    assert ending.open_steps == ("Calibration",)
    assert ending.memory_per_sample == pytest.approx(10 * MB, rel=0.1)
    assert ending.evidence is not None
    assert ending.evidence.endswith("the kernel has counted no out-of-memory kill")


def test_a_killed_child_is_reported_although_the_program_ends_by_itself(launched: Launched) -> None:
    parent = "import subprocess, sys; sys.exit(subprocess.run(sys.argv[1:]).returncode != 0)"
    # Slowly enough for a reading near the end, also on a busy machine: nobody waits for this process.
    child = program(launched.folder, 10 * MB, 512, last=60, pause=0.03)
    done = launched.run(["python", "-c", parent, *child])
    assert done.returncode == 1
    ending = ending_in(launched.recording)
    assert (ending.exit_code, ending.signal) == (1, None)
    assert sample_in(ending) == (60, 512)
    (run,) = (run for run in read(launched.recording).runs if run.steps)
    assert ending.process == f"process {run.pid}"
    assert ending.process_signal in ("SIGKILL", None)  # None if it was waited for at once
    assert ending.memory is not None
    assert ending.memory > 600 * MB


@pytest.mark.parametrize(
    "megabytes", [400, *(pytest.param(400 + 30 * n, marks=pytest.mark.slow) for n in range(20))]
)
def test_an_out_of_memory_kill_is_known_and_reported(
    launched: Launched, group: ControlGroup, megabytes: int
) -> None:
    size = megabytes * MB
    group.limit(size)
    done = run_within(group, launched, program(launched.folder, 10 * MB, 512))
    assert done.returncode == -signal.SIGKILL
    ending = ending_in(launched.recording)
    assert (ending.signal, ending.out_of_memory) == ("SIGKILL", "known")
    assert re.search(r" of 512(, at .*)?: out of memory\.\n", done.stderr)
    assert "the kernel has counted 1 out-of-memory kill: oom_kill in " in done.stderr
    sample, total = sample_in(ending)
    assert abs(sample - int((launched.folder / "given").read_text())) <= 1
    assert total == 512
    assert ending.memory_limit == pytest.approx(size, rel=0.001)
    assert ending.memory_limit_source == "cgroup"
    assert ending.memory_per_sample is not None
    assert ending.memory_per_sample > 0
    assert "for all 512 samples, with a tenth to spare" in ending.advice[0].text


def started(launched: Launched, folder: Path, command: list[str]) -> subprocess.Popen[str]:
    """Starts a calibration, recorded in a folder, and waits until a sample has been counted."""
    process = subprocess.Popen(
        [*launcher("--out", str(folder)), *command],
        env=launched.environment(), cwd=launched.folder, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    given, deadline = launched.folder / "given", time.monotonic() + 60
    # The reader prints a number before it returns that sample.
    while time.monotonic() < deadline and not (given.exists() and int(given.read_text() or 0) > 1):
        time.sleep(0.01)
    return process


@pytest.mark.parametrize(
    "after",
    [
        *(0.0, 0.031, 0.3),
        *(
            pytest.param(random.Random(turn).random(), marks=pytest.mark.slow)
            for turn in range(100)
        ),
    ],
)
def test_a_kill_at_any_moment_names_the_step_and_the_sample(
    launched: Launched, after: float
) -> None:
    folder = launched.folder / "recording"
    process = started(launched, folder, program(launched.folder, 1000, 10_000, pause=0.002))
    time.sleep(after)
    (events,) = folder.glob("events.*.jsonl")
    os.kill(int(events.name.split(".")[1]), signal.SIGKILL)
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    ending = ending_in(folder)
    assert ending.signal == "SIGKILL"
    sample, total = sample_in(ending)
    assert abs(sample - int((launched.folder / "given").read_text())) <= 1
    assert total == 10_000


def with_launcher(dies: str) -> str:
    """Returns a program that ends its launcher, once that has begun its recording, and then dies in a step."""
    return f"""
import os, time, otel_quant
while not os.path.exists("made/manifest.json"):
    time.sleep(0.01)
with otel_quant.step("Calibration"):
    os.kill(os.getppid(), 9)
    {dies}
"""


def test_a_recording_of_which_nobody_is_left_says_that_the_launcher_was_killed_too(
    launched: Launched,
) -> None:
    program = with_launcher("os.kill(os.getpid(), 9)")
    launched.run(["python", "-c", program], "--out", "made")
    (first, *_) = launched.otel_quant("show", "made").stdout.splitlines()
    assert re.fullmatch(
        r"python -c stopped without an end record after .* in Calibration.*; otel-quant run was killed too, "
        r"as when the kernel kills a whole container or the machine stops\.",
        first,
    )


def test_the_kernels_counter_shows_that_memory_was_full_where_the_launcher_was_killed_too(
    launched: Launched, group: ControlGroup
) -> None:
    group.limit(200 * MB)
    program = with_launcher("x = bytearray(400_000_000)")
    run_within(group, launched, ["python", "-c", program], "--out", "made")
    (first, *_) = launched.otel_quant("show", "made").stdout.splitlines()
    assert first.endswith(
        "; otel-quant run was killed too, and since the start the kernel has killed 1 process of its control group because memory was full."
    )
    manifest = (
        launched.folder / "made/manifest.json"
    )  # of a group that is gone, or of another machine
    manifest.write_text(re.sub(r'"oom_inode":\d+', '"oom_inode":1', manifest.read_text()))
    assert "the kernel has killed" not in launched.otel_quant("show", "made").stdout


def test_a_launcher_that_is_killed_leaves_the_program_and_the_recording(launched: Launched) -> None:
    folder = launched.folder / "recording"
    process = started(launched, folder, program(launched.folder, 1000, 300, pause=0.002))
    process.kill()
    _, said = process.communicate(timeout=60)  # until the program has closed it too
    assert "Traceback" not in said
    recording = read(folder)
    assert (recording.ending, recording.state, recording.runs[0].state) == (None, "ended", "ended")
    assert (launched.folder / "int8.onnx").exists()


def test_a_program_that_is_killed_while_the_launcher_is_stopped_is_reported(
    launched: Launched,
) -> None:
    folder = launched.folder / "recording"
    process = started(launched, folder, program(launched.folder, 1000, 512, 100, 0.002))
    os.kill(process.pid, signal.SIGSTOP)
    while (launched.folder / "given").read_text().strip() != "100":
        time.sleep(0.01)
    time.sleep(0.2)
    os.kill(process.pid, signal.SIGCONT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL, said
    assert "Traceback" not in said
    assert sample_in(ending_in(folder)) == (100, 512)


ORPHAN = """
import os, subprocess, sys, time, otel_quant
if len(sys.argv) > 1:
    while os.getppid() == int(sys.argv[1]): time.sleep(0.01)
    with otel_quant.step("Worker"): pass
    sys.exit()
subprocess.Popen([sys.executable, __file__, str(os.getpid())])
with otel_quant.step("Calibration"): os.kill(os.getpid(), 9)
"""


def test_a_worker_that_outlives_its_program_leaves_the_programs_profile_as_it_is(
    launched: Launched,
) -> None:
    (launched.folder / "q.py").write_text(ORPHAN)
    launched.run(["python", "q.py"], "--out", "made")
    folder, expected = launched.folder / "made", []
    while not expected:  # the worker goes on
        time.sleep(0.1)
        expected = [path for path in folder.glob("quark_profile.*.yaml") if "End" in steps_in(path)]
    assert steps_in(folder / "quark_profile.yaml") == ["Start", "Calibration Start"]
    assert [steps_in(path)[1] for path in expected] == ["Worker Start"]
    assert not (folder / "quark_profile.1.yaml").exists()
