"""NVIDIA GPUs: the real ``nvidia-ml-py`` binding, in processes that find a fake driver."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import astuple, replace
from pathlib import Path

import pytest

from otel_quant.capture.probes.gpu_nvidia import INITIAL_PID_NAMESPACE
from otel_quant.schema.figures import total_used
from otel_quant.schema.readings import GpuReading
from tests.fixtures import programs
from tests.fixtures.amd_sysfs import TOTAL, add_gpu
from tests.fixtures.fake_nvml import FakeDriver, FakeGpu, FakeMig, FakeNvml, FakeProcess

NOT_SUPPORTED, NO_PERMISSION, LOST, UNKNOWN = 3, 4, 15, 999
DRIVER_NOT_LOADED, LIBRARY_MISMATCH = 9, 18
MIB, GIB = 1 << 20, 1 << 30

A = FakeGpu(uuid="GPU-aaaa1111-0000", used=2 * GIB, total=80 * GIB, name="Fake A100 80GB")
B = FakeGpu(uuid="GPU-bbbb2222-0000", used=3 * GIB, total=40 * GIB, name="Fake A30")
C = FakeGpu(uuid="GPU-cccc3333-0000", used=5 * GIB, total=40 * GIB, name="Fake A30")

PREAMBLE = """
import json, logging, os, sys
from dataclasses import astuple
from pathlib import Path
logging.basicConfig(format="%(levelname)s %(message)s", level=logging.INFO)
from otel_quant.capture.probes.gpu import GPUS as probe, GpuProbe
def read(*pids):
    return [astuple(reading) for reading in probe(pids)]
"""


class Outcome:
    """Output of a program: its value, the readings in it, and its log."""

    def __init__(self, process: programs.Finished) -> None:
        assert process.returncode == 0, process.stderr
        self.value = json.loads(process.stdout)
        self.log = process.stderr.splitlines()

    @property
    def readings(self) -> list[GpuReading]:
        return [GpuReading(*fields) for fields in self.value]


def run(driver: FakeNvml, code: str, environ: Mapping[str, str] = {}) -> Outcome:
    env = {k: v for k, v in os.environ.items() if not k.endswith("_VISIBLE_DEVICES")}
    env |= {**driver.env, "PYTHONPATH": os.pathsep.join(sys.path), **environ}
    return Outcome(programs.run([sys.executable, "-c", PREAMBLE + code], ".", env, 60))


def read(driver: FakeNvml, visible: str | None = None, pids: str = "") -> list[GpuReading]:
    environ = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    return run(driver, f"print(json.dumps(read({pids})))", environ).readings


UNLISTED = 0 if os.stat("/proc/self/ns/pid").st_ino == INITIAL_PID_NAMESPACE else None
"""Memory of a process that the driver does not list; in some containers it is unknown."""


def reading(
    index: int,
    device: FakeGpu | FakeMig,
    process_used: int | None = UNLISTED,
    processes: int | None = None,
) -> GpuReading:
    if processes is None:
        processes = int(bool(process_used))
    return GpuReading(
        index, device.uuid, device.name, device.used, device.total - device.reserved, process_used,
        source="nvmlMemory_v2", processes=processes,
    )  # fmt: skip


def alone(known: GpuReading) -> GpuReading:
    """Returns a reading of a device that no other process has memory on."""
    return replace(known, is_alone=True)


def test_every_device_is_read_with_the_memory_of_the_process_tree(tmp_path: Path) -> None:
    driver = FakeNvml(
        tmp_path,
        [A, B],
        [
            FakeProcess(used=GIB),
            FakeProcess(used=4096, pid=4_000_001),
            FakeProcess(used=7, pid=4_000_002),  # not of this tree
            FakeProcess(used=512, pid=4_000_001, device=1),
        ],
    )
    assert read(driver, pids="4000001") == [reading(0, A, GIB + 4096, 2), reading(1, B, 512)]


def test_the_process_itself_belongs_to_its_tree(tmp_path: Path) -> None:
    driver = FakeNvml(tmp_path, [A], [FakeProcess(used=GIB), FakeProcess(used=7, pid=1)])
    assert read(driver) == read(driver, pids="os.getpid()") == [reading(0, A, GIB)]


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        ("1,0", [reading(0, B), reading(1, A)]),
        ("GPU-cccc3333-0000,GPU-aaaa", [reading(0, C), reading(1, A)]),
        ("2,7,0", [reading(0, C)]),
        ("", []),
        ("-1", []),
    ],
)
def test_the_visible_devices_are_the_devices_of_cuda_in_its_order(
    tmp_path: Path, visible: str, expected: list[GpuReading]
) -> None:
    assert read(FakeNvml(tmp_path, [A, B, C]), visible) == expected


MIG_GPU = FakeGpu(uuid="GPU-dddd4444-0000", used=9 * GIB, mig=1)
MIG_1 = FakeMig(uuid="MIG-1111", used=GIB, total=10 * GIB, gpu=1, place=0, gi=7, name="MIG 1g")
MIG_2 = FakeMig(uuid="MIG-2222", used=2 * GIB, total=20 * GIB, gpu=1, place=3, gi=8, ci=1)


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        (None, [reading(0, A), reading(1, MIG_1)]),
        ("1", [reading(0, MIG_1)]),
        ("GPU-dddd4444-0000", [reading(0, MIG_1)]),
        ("MIG-2222", [reading(0, MIG_2, 77)]),
        ("MIG-2222,MIG-1111", [reading(0, MIG_2, 77), reading(1, MIG_1, 0)]),
        ("MIG-GPU-dddd4444-0000/8/1", [reading(0, MIG_2, 77)]),
        ("MIG-GPU-dddd4444-0000/8/0", []),
    ],
)
def test_a_mig_device_is_read_instead_of_its_gpu(
    tmp_path: Path, visible: str | None, expected: list[GpuReading]
) -> None:
    driver = FakeNvml(
        tmp_path,
        [A, MIG_GPU, MIG_1, MIG_2],
        [FakeProcess(used=77, device=3), FakeProcess(used=5, device=3, pid=4_000_002)],
    )
    assert read(driver, visible) == expected


@pytest.mark.parametrize(
    ("driver", "used", "limit", "source"),
    [
        (FakeDriver(), 1550 * MIB, 81_079 * MIB, "nvmlMemory_v2"),
        (FakeDriver(v2=0), 2030 * MIB, 81_559 * MIB, "nvmlMemory_v1"),
    ],
    ids=("as nvidia-smi has it", "an older driver"),
)
def test_memory_is_without_what_the_driver_reserves(
    tmp_path: Path, driver: FakeDriver, used: int, limit: int, source: str
) -> None:
    gpu = FakeGpu(uuid="GPU-h100", used=1550 * MIB, total=81_559 * MIB, reserved=480 * MIB)
    outcome = run(FakeNvml(tmp_path, [gpu], driver=driver), "print(json.dumps(read() + read()))")
    for found in outcome.readings:
        assert (found.used, found.limit, found.source) == (used, limit, source)
    assert outcome.log == []


def test_version_2_counts_only_if_its_parts_add_up(tmp_path: Path) -> None:
    gpu = FakeGpu(uuid="GPU-odd", used=5 * GIB, total=80 * GIB, reserved=GIB, lost=1)
    (found,) = read(FakeNvml(tmp_path, [gpu]))
    assert (found.used, found.limit, found.source) == (6 * GIB, 80 * GIB, "nvmlMemory_v1")


def test_a_device_that_fails_at_first_does_not_choose_the_version(tmp_path: Path) -> None:
    lost = FakeGpu(uuid="GPU-lost", reserved=GIB, memory_error=LOST)
    well = FakeGpu(uuid="GPU-well", used=GIB, reserved=GIB)
    (found,) = read(FakeNvml(tmp_path, [lost, well]))
    assert (found.used, found.source) == (GIB, "nvmlMemory_v2")


def test_processes_are_listed_again_when_memory_has_changed(tmp_path: Path) -> None:
    for name, used, own in (("same", A.used, 7), ("more", A.used + 2, 9)):
        (tmp_path / name).mkdir()
        FakeNvml(tmp_path / name, [replace(A, used=used)], [FakeProcess(used=own)])
    driver = FakeNvml(tmp_path, [A], [FakeProcess(used=5)])
    code = f"""
from otel_quant.capture.probes import gpu_devices
def become(name):
    os.replace({str(tmp_path)!r} + f"/{{name}}/fake_nvml.txt", os.environ["FAKE_NVML_STATE"])
found = [*read()]
become("same"); found += read()
gpu_devices._EVERY = 0; found += read()
gpu_devices._EVERY = 1; become("more"); found += read()
print(json.dumps(found))
"""
    found = [(each.used, each.process_used) for each in run(driver, code).readings]
    assert found == [(A.used, 5), (A.used, 5), (A.used, 7), (A.used + 2, 9)]


def test_a_process_without_a_value_makes_the_sum_of_its_device_absent(tmp_path: Path) -> None:
    driver = FakeNvml(
        tmp_path,
        [A, B],
        [
            FakeProcess(used=GIB),
            FakeProcess(used="na", pid=4_000_001),
            FakeProcess(used=1, device=1),
        ],
    )
    assert read(driver, pids="4000001") == [reading(0, A, None, 2), alone(reading(1, B, 1))]


def test_a_driver_that_has_not_told_the_memory_of_a_process_says_nothing_by_not_listing_it(
    tmp_path: Path,
) -> None:
    for name, processes in (("ours", [FakeProcess(used="na")]), ("none", [])):
        (tmp_path / name).mkdir()
        FakeNvml(tmp_path / name, [replace(A, used=len(name + name * len(processes)))], processes)
    driver = FakeNvml(tmp_path, [A], [FakeProcess(used="na", pid=1)])
    code = f"""
found = [*read()]
for name in ("ours", "none"):
    os.replace({str(tmp_path)!r} + f"/{{name}}/fake_nvml.txt", os.environ["FAKE_NVML_STATE"])
    found += read()
print(json.dumps(found))
"""
    found = [(each.used, each.process_used) for each in run(driver, code).readings]
    assert found == [(A.used, None), (8, None), (4, None)]


@pytest.mark.parametrize(
    ("device", "process_used"),
    [
        (FakeGpu(uuid="GPU-x"), 5),
        (FakeGpu(uuid="GPU-x", compute_error=NOT_SUPPORTED), None),
        (FakeGpu(uuid="GPU-x", compute_error=NO_PERMISSION), None),
    ],
)
def test_memory_of_compute_processes_is_absent_without_their_list(
    tmp_path: Path, device: FakeGpu, process_used: int | None
) -> None:
    driver = FakeNvml(tmp_path, [device], [FakeProcess(used=5)])
    known = replace(reading(0, device, process_used), processes=process_used and 1)
    known = alone(known) if process_used else known
    assert read(driver) == [known]


def test_a_device_that_does_not_support_memory_is_left_out_without_a_warning(
    tmp_path: Path,
) -> None:
    unified = FakeGpu(uuid="GPU-unified", memory_error=NOT_SUPPORTED)
    outcome = run(FakeNvml(tmp_path, [unified, B]), "print(json.dumps(read() + read()))")
    assert outcome.readings == [reading(1, B)] * 2
    assert outcome.log == []


@pytest.mark.parametrize("error", [LOST, UNKNOWN])
def test_a_device_that_starts_to_fail_is_left_out_and_logged_once(
    tmp_path: Path, error: int
) -> None:
    failing = FakeGpu(uuid="GPU-failing", used=1, memory_error=error, good_reads=2)
    outcome = run(
        FakeNvml(tmp_path, [failing, B]),
        "print(json.dumps([astuple(r) for _ in range(6) for r in probe()]))",
    )
    without = replace(reading(1, B), is_whole=False)
    assert outcome.readings == [reading(0, failing), reading(1, B)] * 2 + [without] * 4
    assert [total_used([each]) for each in (reading(1, B), without)] == [B.used, None]
    assert len(outcome.log) == 1
    assert outcome.log[0].startswith(
        "WARNING GPU 0: cannot read memory (left out of the telemetry):"
    )


def test_a_device_that_recovers_is_read_again(tmp_path: Path) -> None:
    driver = FakeNvml(tmp_path, [FakeGpu(uuid="GPU-x", memory_error=UNKNOWN)])
    (tmp_path / "well").mkdir()
    FakeNvml(tmp_path / "well", [FakeGpu(uuid="GPU-x", used=4)])
    code = f"""
before = read()
os.replace({str(tmp_path / "well" / "fake_nvml.txt")!r}, os.environ["FAKE_NVML_STATE"])
print(json.dumps([before, read()]))
"""
    well = reading(0, FakeGpu(uuid="GPU-x", used=4))
    assert run(driver, code).value == [[], [list(astuple(well))]]


def test_a_device_that_is_lost_from_the_start_keeps_its_position(tmp_path: Path) -> None:
    lost = FakeGpu(uuid="GPU-lost", handle_error=LOST)
    outcome = run(FakeNvml(tmp_path, [lost, B]), "print(json.dumps(read() + read()))")
    assert outcome.readings == [reading(1, B)] * 2
    assert len(outcome.log) == 1
    assert outcome.log[0].startswith("WARNING GPU 0: cannot be read (left out of the telemetry):")


@pytest.mark.parametrize(
    ("driver", "warnings"),
    [
        (FakeDriver(init=DRIVER_NOT_LOADED), 0),
        (FakeDriver(init=LIBRARY_MISMATCH), 1),
        (FakeDriver(count=UNKNOWN), 1),
    ],
)
def test_a_driver_that_cannot_be_used_gives_no_readings(
    tmp_path: Path, driver: FakeDriver, warnings: int
) -> None:
    outcome = run(FakeNvml(tmp_path, [A], driver=driver), "print(json.dumps(read() + read()))")
    assert (outcome.value, len(outcome.log)) == ([], warnings)


def test_energy_is_that_of_the_devices_that_count_it(tmp_path: Path) -> None:
    driver = FakeNvml(tmp_path, [replace(A, power=300_000, energy=7), B])
    code = """
import time
from otel_quant.capture.probes.energy import MachineEnergy
machine = MachineEnergy()
first, began = probe()[0].energy, time.monotonic()
time.sleep(1.1)
after, seconds = probe(), time.monotonic() - began
print(json.dumps([first, after[0].energy / seconds, after[1].energy, machine().get("gpu")]))
"""
    assert run(driver, code).value == [0, pytest.approx(300, rel=0.1), None, None]
    driver.write([replace(A, power=300_000, energy=7)])
    code = code.replace(
        "machine = MachineEnergy()", "machine = MachineEnergy(); before = machine()"
    )
    code = code.replace('machine().get("gpu")', 'machine()["gpu"] / seconds')
    code = code.replace("after[1].energy", 'before["gpu"]')
    power = pytest.approx(300, rel=0.1)
    assert run(driver, code).value == [0, power, 0, power]


WORK = """
import time
def work():
    return [reading.work and [round(each, 3) for each in reading.work] for reading in probe.sample()]
first = work(), work()  # no checkpoint yet
probe(); begun = work()
state = Path(os.environ["FAKE_NVML_STATE"])
began = f"gpm_from={time.monotonic_ns() // 1_000_000}"  # it does nothing before
state.write_text(state.read_text().replace("gpm_from=0", began))
for seconds in PAUSES:
    time.sleep(seconds); work()
print(json.dumps([*first, begun, work(), [reading.work for reading in probe()]]).replace("NaN", "null"))
"""


def test_what_a_device_does_is_averaged_from_a_checkpoint_on_though_what_it_tells_is_a_quarter_of_a_second_old(
    tmp_path: Path,
) -> None:
    counting = replace(
        A, util=99, power=350_000, power_limit=700_000, pcie_generation=5, pcie_width=16, gpm=1,
        gpm_busy=90, gpm_sm=84, gpm_dram=15, gpm_sent=4, gpm_received=1000, gpm_old=250,
    )  # fmt: skip
    older = replace(B, util=40, power=125_000, power_limit=250_000)
    ours = [FakeProcess(used=GIB, device=device) for device in range(3)]
    work = WORK.replace("PAUSES", "(0.3, 0.6)")
    found = run(FakeNvml(tmp_path, [counting, older, C], ours), work).value
    averages = [0.9, 0.84, 0.15, 1_048_576_000, pytest.approx(63e9, rel=0.01), 0.5]
    assert found[0] == found[1] == found[2] == found[4] == [None, None, None]
    assert found[3][:2] == [averages, [0.4, None, None, None, None, 0.5]]
    assert found[3][2] is None
    # Of one without our memory only the utilization is read, and not sooner than after a second.
    others, work = [FakeProcess(used=GIB, pid=1)], WORK.replace("PAUSES", "(0.3,)")
    without = run(FakeNvml(tmp_path, [counting], others), work).value
    assert without[3] == [None]


STEPS = """
import pynvml
from otel_quant.capture.probes.gpu_work import NvmlWork
pynvml.nvmlInit()
work, found, border = NvmlWork(pynvml, pynvml.nvmlDeviceGetHandleByIndex(0)), [], 0.0
for pause in (0.05, 0.1, 0.15, 0.2, 0.25, 0.28, 0.3, 0.35, 0.4, 0.44):
    for first in (0.01, pause / 3, pause):
        border += 10
        at = [border + first + pause * turn for turn in range(30) if first + pause * turn < 1.5]
        found.append(any(work.read(now, border) is not None for now in at))
print(json.dumps(found))
"""


def test_a_step_of_a_second_and_a_half_has_an_average_however_often_it_is_sampled(
    tmp_path: Path,
) -> None:
    counting = replace(A, gpm=1, power_limit=700_000, pcie_generation=5, pcie_width=16)
    assert run(FakeNvml(tmp_path, [counting]), STEPS).value == [True] * 30


FORK = """
def in_child(what):
    receive, send = os.pipe()
    if os.fork() == 0:
        os.write(send, json.dumps(what()).encode())
        os._exit(0)
    os.close(send)
    assert os.wait()[1] == 0
    return json.loads(os.read(receive, 100_000))
"""


def test_parent_and_child_can_both_read_after_a_fork(tmp_path: Path) -> None:
    driver = FakeNvml(tmp_path, [A], [FakeProcess(used=5)])
    code = """
mine = read()
theirs, pid = in_child(lambda: (read(), os.getpid()))
print(json.dumps([mine, theirs, read(), [os.getpid(), pid]]))
"""
    mine, theirs, again, (parent, child) = run(driver, FORK + code).value
    assert mine == theirs == again == [list(astuple(alone(reading(0, A, 5))))]
    # The child opens a driver of its own.
    assert driver.events == [("init", parent), ("init", child)]


HANGS = """
import threading
from otel_quant.capture.probes import gpu
gpu._LONGEST_WAIT = 0.05
inside, leave = threading.Event(), threading.Event()
class Hanging:
    count, is_whole, platform = 1, True, "cuda"
    def read(self, *_): inside.set(); leave.wait(30); return ()
probe._opened = (Hanging(),)
thread = threading.Thread(target=probe); thread.start(); inside.wait(30)
"""


def test_a_child_forked_while_the_driver_hangs_reads_no_gpus(tmp_path: Path) -> None:
    driver = FakeNvml(tmp_path, [A])
    code = """
theirs = in_child(read)
leave.set(); thread.join(30)
probe._opened = None
print(json.dumps([theirs, len(read())]))
"""
    assert run(driver, FORK + HANGS + code).value == [[], 1]


def test_a_fork_waits_for_the_reading_in_progress(tmp_path: Path) -> None:
    driver = FakeNvml(tmp_path, [A])
    code = """
import threading, time
inside = threading.Event()
class Slow:
    count, is_whole, platform = 1, True, "cuda"
    done = False
    def read(self, *_): inside.set(); time.sleep(0.1); self.done = True; return ()
slow = Slow()
probe._opened = (slow,)
thread = threading.Thread(target=probe); thread.start(); inside.wait(30)
print(json.dumps(in_child(lambda: [slow.done, len(read())])))
"""
    assert run(driver, FORK + code).value == [True, 1]


def test_loading_the_probe_imports_no_binding_and_no_torch(tmp_path: Path) -> None:
    driver = FakeNvml(tmp_path, [A])
    code = """
def loaded(): return [m for m in ("pynvml", "amdsmi", "torch") if m in sys.modules]
before = loaded(); read(); print(json.dumps([before, loaded()]))
"""
    assert run(driver, code).value == [[], ["pynvml"]]


def test_loading_the_driver_does_not_count_as_growth_of_the_first_step(tmp_path: Path) -> None:
    code = """
from otel_quant.capture.probes.readers import Probes
probes = Probes(gpu=probe)
first, second = probes.read(), probes.read()
print(json.dumps([len(first.gpus), second.memory.rss - first.memory.rss]))
"""
    gpus, growth = run(FakeNvml(tmp_path, [A]), code).value
    assert gpus == 1
    assert growth < 2_000_000  # pynvml alone takes five times as much


def test_nothing_is_imported_or_read_without_a_driver(tmp_path: Path) -> None:
    driver = FakeNvml(tmp_path, [A])
    code = """
readings = [read(), read()]
print(json.dumps([readings, [m for m in ("pynvml", "amdsmi", "torch") if m in sys.modules]]))
"""
    environ = {"LD_LIBRARY_PATH": str(tmp_path)}
    if has_real_driver():
        pytest.skip("this machine has an NVIDIA driver")
    assert run(driver, code, environ).value == [[[], []], []]


def has_real_driver() -> bool:
    return Path("/dev/nvidiactl").exists()


def test_a_missing_binding_is_logged_once(tmp_path: Path) -> None:
    code = """
sys.modules["pynvml"] = None  # makes Python raise ImportError
print(json.dumps(read() + read()))
"""
    outcome = run(FakeNvml(tmp_path, [A]), code)
    assert outcome.value == []
    assert len(outcome.log) == 1
    assert "pip install 'otel-quant[nvidia]'" in outcome.log[0]


@pytest.mark.parametrize(
    ("environ", "shown"),
    [
        ({}, ["nvidia"]),
        ({"HIP_VISIBLE_DEVICES": "0"}, ["nvidia", "amd"]),
        ({"CUDA_VISIBLE_DEVICES": "", "ROCR_VISIBLE_DEVICES": "0"}, []),
        ({"CUDA_VISIBLE_DEVICES": "5", "HIP_VISIBLE_DEVICES": "0"}, ["amd alone"]),
    ],
)
def test_amd_gpus_beside_an_nvidia_gpu_are_read_only_on_request(
    tmp_path: Path, environ: dict[str, str], shown: list[str]
) -> None:
    expected = {
        "nvidia": reading(0, A, None),  # there is no proc under that root
        # counted after both of NVIDIA
        "amd": GpuReading(2, "0000:03:00.0", None, 7, TOTAL, 0, source="amdgpu", processes=0),
        "amd alone": GpuReading(0, "0000:03:00.0", None, 7, TOTAL, 0, source="amdgpu", processes=0),
    }
    add_gpu(tmp_path, 0, "0000:03:00.0", 7)
    driver = FakeNvml(tmp_path, [A, FakeGpu(uuid="GPU-lost", handle_error=LOST)])
    code = f"probe = GpuProbe(root=Path({str(tmp_path)!r})); print(json.dumps(read()))"
    assert run(driver, code, environ).readings == [expected[name] for name in shown]


def test_a_driver_that_hangs_in_one_thread_does_not_stop_another(tmp_path: Path) -> None:
    code = """
during = [read(), read()]
leave.set(); thread.join(30)
probe._opened = None
print(json.dumps([during, len(read())]))
"""
    outcome = run(FakeNvml(tmp_path, [A]), HANGS + code)
    assert outcome.value == [[[], []], 1]
    assert outcome.log == ["WARNING A GPU driver does not respond; GPUs are not read until it does"]
