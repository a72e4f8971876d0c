"""GPUs from the driver to every signal, with the real torch, and on the page of a machine that has one.

The driver is the fake one; what it answers changes while the program runs.
"""

from __future__ import annotations

import re
import shutil
import signal
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml

from otel_quant.recordings import summary
from otel_quant.recordings.reader import read
from otel_quant.schema import semconv
from tests.fixtures.fake_nvml import FakeGpu, FakeMig, FakeNvml, FakeProcess
from tests.fixtures.figures import named
from tests.fixtures.otlp_messages import Record
from tests.fixtures.otlp_receiver import OtlpReceiver
from tests.fixtures.programs import Workshop, clean_environment, run, run_script

GIB = 1 << 30
FIRST, SECOND = "GPU-11111111-aaaa", "GPU-22222222-bbbb"

SOURCE = """
import os, shutil, time
import otel_quant
from otel_quant.capture.runtime import RUNTIME

def become(name):
    shutil.copy(f"{name}/fake_nvml.txt", "new.txt")
    os.replace("new.txt", os.environ["FAKE_NVML_STATE"])

def until_sampled(used):
    until = time.monotonic() + 60
    while RUNTIME.recorder.latest.gpus[0].used != used and time.monotonic() < until:
        time.sleep(0.01)

with otel_quant.step("Calibration"):
    become("high")
    until_sampled(30 << 30)
    time.sleep(1.5)  # what the devices do is told once a second
    become("end")
"""


def state(folder: Path, used: int, ours: int) -> FakeNvml:
    """The first device in use by us among others; the driver of the second does not report by whom."""
    folder.mkdir()
    devices = [
        FakeGpu(uuid=FIRST, used=used * GIB, total=81 * GIB, reserved=GIB, name="Fake A", util=97, power=612_400, temp=71,
                sm=1755, mem=2619, reasons=0x40, energy=10**9),
        FakeGpu(uuid=SECOND, used=GIB, total=40 * GIB, name="Fake B"),
    ]  # fmt: skip
    processes = [FakeProcess(used=ours * GIB), FakeProcess(used="na", device=1)]
    return FakeNvml(folder, devices, processes)


def of_gpus(attributes: dict[str, object]) -> dict[str, object]:
    return {key[10:]: value for key, value in attributes.items() if key[:10] == "quant.gpu."}


def by_device(records: list[Record]) -> dict[object, dict[str, object]]:
    return {record.attributes["hw.id"]: of_gpus(record.attributes) for record in records}


def test_gpu_memory_by_device_and_process_tree_reaches_every_signal(
    workshop: Workshop, otlp: OtlpReceiver
) -> None:
    driver = state(workshop.folder / "start", 10, 2)
    state(workshop.folder / "high", 30, 21)
    state(workshop.folder / "end", 12, 3)

    finished = workshop.script(SOURCE).run(
        {
            **otlp.environment("http/protobuf"), **driver.env, "OTEL_QUANT_PROFILE": "profile.yaml",
            "CUDA_VISIBLE_DEVICES": f"{FIRST},{SECOND}",
        }
    )  # fmt: skip
    assert (finished.returncode, finished.stderr) == (0, "")

    usage = {
        "memory.start": 11 * GIB, "memory.end": 13 * GIB, "memory.delta": 2 * GIB,
        "memory.peak": 31 * GIB,
    }  # fmt: skip
    step, root = otlp.span("Calibration"), otlp.span("quantization")
    assert of_gpus(step.attributes) == usage
    assert of_gpus(root.attributes) == {
        **usage, "count": 2, "names": ("Fake A", "Fake B"), "memory.limit": 120 * GIB,
        "memory.source": "nvmlMemory_v2",
    }  # fmt: skip

    of_first = {
        "device.index": 0, "device.memory.limit": 80 * GIB,
        "device.memory.start": 10 * GIB, "device.memory.end": 12 * GIB,
        "device.memory.delta": 2 * GIB, "device.memory.peak": 30 * GIB,
        "device.process_memory.start": 2 * GIB, "device.process_memory.end": 3 * GIB,
        "device.process_memory.delta": GIB, "device.process_memory.peak": 21 * GIB,
        "device.utilization.peak": 0.97, "device.power.peak": 612.4,
        "device.temperature.peak": 71, "device.clock.peak": 1_755_000_000,
        "device.memory_clock.peak": 2_619_000_000,
    }  # fmt: skip
    of_second = {
        "device.index": 1, "device.memory.limit": 40 * GIB,
        "device.memory.start": GIB, "device.memory.end": GIB,
        "device.memory.delta": 0, "device.memory.peak": GIB,
    }  # fmt: skip
    devices = otlp.records_of(semconv.DEVICE_EVENT)
    for span in (step, root):
        records = [record for record in devices if record.span_id == span.span_id]
        (used,) = (
            joules
            for each in records
            if (joules := each.attributes.pop(named("quant.gpu.device.energy"), None))
        )
        assert used == pytest.approx(612.4 * (span.end_ns - span.start_ns) / 1e9, rel=0.15)
        assert by_device(records) == {FIRST: of_first, SECOND: of_second}
        assert {record.trace_id for record in records} == {span.trace_id}
    assert [record.attributes.get(semconv.STEP_KIND) for record in devices] == [
        "Calibration", "Calibration", None, None
    ]  # fmt: skip
    assert {record.attributes["hw.id"]: record.attributes["hw.name"] for record in devices} == {
        FIRST: "Fake A", SECOND: "Fake B"
    }  # fmt: skip

    records = otlp.records_of(semconv.CHECKPOINT_EVENT)
    in_use = [record.attributes[named("quant.checkpoint.gpu_memory")] for record in records]
    assert in_use == [11 * GIB, 11 * GIB, 13 * GIB, 13 * GIB]
    for device, used, limit, peak in ((FIRST, 12, 80, 30), (SECOND, 1, 40, 1)):
        in_step = dict.fromkeys((semconv.STEP_KIND, semconv.STEP_NAME), "Calibration")
        for metric, labels, value in (
            ("hw.gpu.memory.usage", {}, used),
            ("hw.gpu.memory.limit", {}, limit),
            (semconv.STEP_GPU_MEMORY_PEAK, in_step, peak),
        ):
            assert otlp.point(metric, **labels, hw__id=device).value == value * GIB
    is_gpu = {"hw.type": "gpu"}
    for metric, labels, value in (
        ("hw.gpu.utilization", {}, 0.97), ("hw.power", is_gpu, 612.4), ("hw.temperature", is_gpu, 71),
        (semconv.GPU_CLOCK, {}, 1_755_000_000), (named("quant.run.gpu.memory_clock"), {}, 2_619_000_000),
    ):  # fmt: skip
        (point,) = otlp.latest_points(metric)
        assert (point.attributes, point.value) == ({"hw.id": FIRST, **labels}, value)
    (impaired,) = otlp.records_of(semconv.IMPAIRED_EVENT)
    assert impaired.body == f"GPU 0 ({FIRST}): slowed down by heat (by hardware)"
    assert impaired.attributes[semconv.GPU_SLOWED_BY] == ("heat (by hardware)",)
    ours = otlp.point(named("quant.run.gpu.process_memory.usage"), hw__id=FIRST)
    assert ours.value == 3 * GIB

    text = (workshop.folder / "profile.yaml").read_text()
    profile = yaml.safe_load(text)
    in_file = [record["gpu_memory_mb"] for record in profile["memory_usage"]]
    assert in_file == [11 * 1024.0, 11 * 1024.0, 13 * 1024.0, 13 * 1024.0]
    assert profile["peak_gpu_memory_mb"] == 31 * 1024.0
    assert re.findall("# peak_gpu_memory_mb: ([0-9.]+)", text) == [f"{31 * 1024:.2f}"]


PLANTED = """
import os, shutil, time, torch
import otel_quant

def become(name):
    shutil.copy(f"{name}/fake_nvml.txt", "new.txt")
    os.replace("new.txt", os.environ["FAKE_NVML_STATE"])

numbers, small = torch.zeros(20_000), torch.zeros(16, 16)
wide, half = torch.zeros(1 << 20), torch.zeros(1 << 20, dtype=torch.float16)

def spin(seconds):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        pass

def fetch(): numbers.tolist()
def cast(): half.to(torch.float32)
def add():
    for _ in range(100): small + 1
def fetch_and_spin():
    spin(0.02)
    until = time.monotonic() + 0.02
    while time.monotonic() < until: numbers.tolist()

for what, gpu in ((fetch, "computes"), (fetch_and_spin, "half"), (cast, "copies"), (cast, "idle"),
                  (add, "launches"), (add, "shared"), (fetch, "fetches"), (fetch, "idle")):
    become(gpu)
    with otel_quant.step(f"{what.__name__} {gpu}"):
        until = time.monotonic() + 1.8
        while time.monotonic() < until:
            what()
"""
"""What an H200 showed, in percent and MiB a second, beside calls of the real torch that last: on a CPU, as nothing else is here."""

H200 = {
    "computes": (90, 84, 15, 4, 12), "half": (46, 41, 9, 2, 7), "copies": (0, 0, 1, 1089, 18209),
    "idle": (0, 0, 0, 0, 0), "launches": (22, 0, 0, 20, 171), "shared": (22, 0, 0, 20, 171),
    "fetches": (13, 0, 0, 16, 128),
}  # fmt: skip

BUSY = "other_programs"
"""Of the machine that runs the tests."""
NOT_THE_GPU = {"gpu_idle", "one_processor", "all_processors", "nothing_stands_out"}
VERDICTS = {
    "fetch computes": {"gpu"}, "fetch_and_spin half": {"nothing_stands_out"},
    "cast copies": {"gpu_copies"}, "cast idle": NOT_THE_GPU, "add launches": {"gpu_launches"},
    "add shared": NOT_THE_GPU, "fetch fetches": {"gpu_waits"}, "fetch idle": NOT_THE_GPU,
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.skipif(not find_spec("torch"), reason="torch is not installed")
def test_each_verdict_on_a_gpu_is_given_where_it_holds_and_not_where_it_nearly_does(
    tmp_path: Path,
) -> None:
    for name, (busy, sm, dram, sent, received) in H200.items():
        (tmp_path / name).mkdir()
        gpu = FakeGpu(
            uuid=FIRST, used=4 * GIB, util=busy, power=300_000,
            power_limit=700_000, pcie_generation=5, pcie_width=16, gpm=1, gpm_busy=busy, gpm_sm=sm,
            gpm_dram=dram, gpm_sent=sent, gpm_received=received,
        )  # fmt: skip
        others = [FakeProcess(used=2 * GIB, pid=1)] if name == "shared" else []
        driver = FakeNvml(tmp_path / name, [gpu], [FakeProcess(used=2 * GIB), *others])
    (tmp_path / "planted.py").write_text(PLANTED)
    (tmp_path / "state").mkdir()
    env = {**driver.env, "FAKE_NVML_STATE": str(tmp_path / "state" / "fake_nvml.txt")}
    shutil.copy(tmp_path / "idle" / "fake_nvml.txt", tmp_path / "state")
    command = [
        sys.executable,
        "-m",
        "otel_quant",
        "run",
        "--quiet",
        "--no-report",
        "--out",
        "R",
        "--",
    ]
    done = run([*command, sys.executable, "planted.py"], tmp_path, clean_environment(env))
    assert (done.returncode, done.stderr) == (0, "")
    (recorded,) = read(tmp_path / "R").runs
    found = {each.name: each.attributes.get(semconv.STEP_BOUND_BY) for each in recorded.steps}
    wrong = {
        name: (found[name], each.attributes.get(semconv.STEP_BOUND_EVIDENCE))
        for each in recorded.steps
        if found[name := each.name] not in {*VERDICTS[name], BUSY}
    }
    assert (wrong, set(found)) == ({}, set(VERDICTS))


KILLED = """
import os, pathlib, signal, time, otel_quant
with otel_quant.step("Calibration"):
    time.sleep(1.5)
    state = pathlib.Path(os.environ["FAKE_NVML_STATE"])
    state.write_text(state.read_text().replace(" energy=7 ", " energy=1000007 ", 1))
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_run_has_its_energy_and_what_its_gpus_did_from_outside(tmp_path: Path) -> None:
    gpus = [
        FakeGpu(uuid=FIRST, used=GIB, util=97, power=600_000, energy=7),
        FakeGpu(uuid=SECOND, used=GIB, util=3, power=100_000, energy=7),
    ]
    driver = FakeNvml(tmp_path, gpus)
    (tmp_path / "killed.py").write_text(KILLED)
    command = [sys.executable, "-m", "otel_quant", "run", "--quiet", "--out", "R", "--"]
    done = run([*command, sys.executable, "killed.py"], tmp_path, clean_environment(driver.env))
    assert done.returncode == -signal.SIGKILL
    found = read(tmp_path / "R")
    buckets = found.curves["launcher"].curve.buckets
    seen = 0.05 * (max(buckets) - min(buckets))
    # The driver is asked at the end too: its power says nothing of the last 1,000 J.
    assert summary.value(found, "gpu.energy") == pytest.approx(700 * seen + 1000, rel=0.1)
    page = (tmp_path / "R" / "report.html").read_text().replace("\xa0", " ")
    assert "GPU 0: 97.0 % on average, at most 97.0 %; GPU 1: 3.0 % on average" in page
    assert "GPU 0: 600 W on average, at most 600 W; GPU 1: 100 W on average" in page


ENDED = """
import os, pathlib, time, otel_quant
with otel_quant.step("Calibration"):
    time.sleep(1.2)
state = pathlib.Path(os.environ["FAKE_NVML_STATE"])
state.write_text(state.read_text().replace(" energy=7 ", " energy=1000007 ", 1))
"""


def test_a_run_has_the_energy_that_its_gpus_have_counted_at_its_end(tmp_path: Path) -> None:
    driver = FakeNvml(tmp_path, [FakeGpu(uuid=FIRST, used=GIB, util=97, power=100_000, energy=7)])
    (tmp_path / "ended.py").write_text(ENDED)
    command = [sys.executable, "-m", "otel_quant", "run", "--quiet", "--out", "R", "--"]
    done = run([*command, sys.executable, "ended.py"], tmp_path, clean_environment(driver.env))
    assert (done.returncode, done.stderr) == (0, "")
    found = read(tmp_path / "R")
    used = summary.value(found, "gpu.energy")
    assert 1000 + 100 * 1.1 <= used <= 1000 + 100 * (found.duration + 0.1)


UNTOUCHED = """
import json, torch
from otel_quant.capture.probes.gpu_torch import TorchCounters
from otel_quant.schema.readings import GpuReading
reading = (GpuReading(0, "GPU-aa", None, 1),)
TorchCounters("cuda").add_to(reading)
same = reading[0].torch is None
print(json.dumps([same, torch.cuda.is_initialized(), torch.cuda._is_in_bad_fork()]))
"""


def test_the_real_torch_is_left_alone_until_it_starts_cuda(tmp_path: Path) -> None:
    if not find_spec("torch"):  # to import it takes seconds
        pytest.skip("torch is not installed")
    assert run_script(tmp_path, UNTOUCHED)[0] == "[true, false, false]\n"


@pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="the fake driver would hide the GPU")
def test_the_hardware_page_lists_what_was_seen_and_what_was_not_run(tmp_path: Path) -> None:
    gpu, part = (
        FakeGpu(uuid="GPU-a", used=1 << 30, util=50, power=90_000, temp=41),
        FakeMig(uuid="MIG-b", used=1 << 29),
    )
    for name in ("whole", "parted"):
        (tmp_path / name).mkdir()
    whole = FakeNvml(tmp_path / "whole", [gpu])
    parted = FakeNvml(tmp_path / "parted", [FakeGpu(uuid="GPU-a", mig=1), part])
    (tmp_path / "parted" / "torch.py").write_text("raise ImportError")  # as if not installed
    found = {}
    for name, driver in (("whole", whole), ("parted", parted)):
        done = run(
            [sys.executable, Path(__file__).parents[3] / "scripts" / "gpu_check.py", "--here", "--out", "page.md"],
            tmp_path, clean_environment({**driver.env, "PYTHONPATH": str(tmp_path / name)}),
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, ""), done.stdout
        page = (tmp_path / "page.md").read_text()
        assert done.stdout == f"{page}\n{page.splitlines()[2]}\n"  # the last line says it again
        for line in page.splitlines()[6:]:
            what, *seen, verdict = (cell.strip() for cell in line.strip("|").split("|"))
            found.setdefault(what, []).append(("".join(seen), verdict))
        ran = page.count("| holds |")
        assert page.splitlines()[2].startswith(f"**{ran} of {ran} rows hold; ")
    assert {verdict for _, verdict in found.pop("CPU time of a sample")} == {"holds"}
    asked = "those that dashboards ask for"
    assert found.pop("metrics of GPUs") == [
        (f"{asked}hw.gpu.memory.limit 8.58993e+10, hw.gpu.memory.usage 1.07374e+09, hw.gpu.utilization 0.5, hw.power 90, hw.temperature 41; absent: none", "holds"),
        (f"{asked}hw.gpu.memory.limit 8.58993e+10, hw.gpu.memory.usage 5.36871e+08; absent: none", "holds"),
    ]  # fmt: skip
    assert found.pop("MIG devices") == [("none here", "not run")]
    assert found.pop("MIG device MIG-b") == [("has a limit512 MiB of 81,920 MiB", "holds")]
    assert found.pop("several devices") == [("one here", "not run")] * 2
    assert found.pop("memory of each device, nvidia-smi") == [("nvidia-smi is not installed", "not run")] * 2  # fmt: skip
    # What is left needs torch.
    lacked = [("torch sees no CUDA device", "not run"), ("torch is not installed", "not run")]
    assert list(found.values()) == [lacked] * 7
