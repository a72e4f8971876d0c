"""AMD GPUs, on a tree of files as the amdgpu driver shows them; which GPUs a process sees and uses, and what they do.

The torch here is a replacement: a real one needs a GPU.
"""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from otel_quant.capture.probes import gpu, gpu_amd, gpu_devices, gpu_torch
from otel_quant.capture.probes.gpu import GpuProbe
from otel_quant.capture.probes.gpu_amd import open_amd
from otel_quant.capture.probes.gpu_devices import select_visible
from otel_quant.capture.probes.gpu_torch import TorchCounters
from otel_quant.export.otel.logs import Impairments
from otel_quant.schema import semconv
from otel_quant.schema.readings import AllocatorMark, GpuActivity, GpuReading, Reading, TorchMemory
from tests.fixtures.amd_sysfs import TOTAL, add_gpu, add_node
from tests.fixtures.fake_nvml import FakeGpu, FakeNvml
from tests.fixtures.programs import run_script

GIB = 1 << 30

FIRST, SECOND, THIRD = "0000:03:00.0", "0000:23:00.0", "0001:c3:00.0"


def add_open_file(root: Path, pid: int, number: int, target: str, fdinfo: str | None) -> None:
    for folder in ("fd", "fdinfo"):
        (root / f"proc/{pid}/{folder}").mkdir(parents=True, exist_ok=True)
    (root / f"proc/{pid}/fd/{number}").symlink_to(target)
    if fdinfo is not None:
        (root / f"proc/{pid}/fdinfo/{number}").write_text(fdinfo)


def client(address: str, number: int, vram: str, key: str = "drm-memory-vram") -> str:
    return (
        "pos:\t0\nflags:\t02100002\nmnt_id:\t26\nino:\t1234\n"
        f"drm-driver:\tamdgpu\ndrm-client-id:\t{number}\ndrm-pdev:\t{address}\npasid:\t32770\n"
        f"{key}:\t{vram}\ndrm-memory-gtt: \t2048 KiB\n"
    )


@pytest.fixture
def three(tmp_path: Path) -> Path:
    """Three GPUs; the compute runtime numbers them in another order than the bus."""
    add_node(tmp_path, 0, "cpu_cores_count 96\nsimd_count 0\nlocation_id 0\n")
    add_gpu(tmp_path, 2, SECOND, 2 * GIB, {"unique_id": "bbbb222222222222"}, node=10)
    add_gpu(tmp_path, 0, FIRST, GIB, {"unique_id": "aaaa111111111111"}, node=2)
    add_gpu(tmp_path, 1, THIRD, 3 * GIB, {"product_name": "AMD Instinct MI300X"}, node=1)
    return tmp_path


def reading(
    index: int, address: str, used: int, name: str | None = None, process_used: int | None = 0
) -> GpuReading:
    return GpuReading(index, address, name, used, TOTAL, process_used, source="amdgpu", processes=0)


def read(root: Path, *pids: int, **environ: str) -> tuple[GpuReading, ...]:
    devices = open_amd(environ, root)
    assert devices is not None
    return devices.read(pids)


def test_no_process_is_read_if_no_device_is_visible(
    three: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_at: list[object] = []
    monkeypatch.setattr(gpu, "open_nvml", lambda environ, root: None)
    monkeypatch.setattr(gpu_amd, "vram_by_device", lambda root, pids: looked_at.append(pids))
    assert GpuProbe({"ROCR_VISIBLE_DEVICES": "-1"}, three)([1]) == ()
    assert looked_at == []
    assert len(GpuProbe({}, three)([1])) == 3
    assert len(looked_at) == 1


def test_devices_are_read_in_the_order_of_the_compute_runtime(three: Path) -> None:
    assert read(three) == (
        reading(0, THIRD, 3 * GIB, "AMD Instinct MI300X"),
        reading(1, FIRST, GIB),
        reading(2, SECOND, 2 * GIB),
    )


def test_devices_without_the_compute_driver_are_read_in_bus_order(tmp_path: Path) -> None:
    add_gpu(tmp_path, 0, SECOND, 2)
    add_gpu(tmp_path, 1, FIRST, 1)
    assert read(tmp_path) == (reading(0, FIRST, 1), reading(1, SECOND, 2))


@pytest.mark.parametrize(
    ("environ", "addresses"),
    [
        ({"HIP_VISIBLE_DEVICES": "2,0"}, [SECOND, THIRD]),
        ({"CUDA_VISIBLE_DEVICES": "1"}, [FIRST]),
        ({"HIP_VISIBLE_DEVICES": "2", "CUDA_VISIBLE_DEVICES": "1"}, [SECOND]),
        ({"ROCR_VISIBLE_DEVICES": "1,2"}, [FIRST, SECOND]),
        ({"ROCR_VISIBLE_DEVICES": "GPU-bbbb222222222222,GPU-aaaa"}, [SECOND, FIRST]),
        ({"ROCR_VISIBLE_DEVICES": "2,1", "HIP_VISIBLE_DEVICES": "1"}, [FIRST]),
        ({"ROCR_VISIBLE_DEVICES": "0", "HIP_VISIBLE_DEVICES": "1"}, []),
        ({"HIP_VISIBLE_DEVICES": ""}, []),
        ({"HIP_VISIBLE_DEVICES": "-1"}, []),
    ],
)
def test_the_visible_devices_are_the_devices_of_the_runtime(
    three: Path, environ: dict[str, str], addresses: list[str]
) -> None:
    readings = read(three, **environ)
    assert [(r.index, r.id) for r in readings] == list(enumerate(addresses))


def test_memory_of_the_process_tree_counts_each_client_once(three: Path) -> None:
    mine = client(FIRST, 7, "1024 KiB")
    add_open_file(three, 100, 0, "/dev/null", "pos:\t0\n")
    add_open_file(three, 100, 5, "/dev/dri/renderD128", mine)
    add_open_file(three, 100, 6, "/dev/dri/renderD128", mine)  # duplicated
    add_open_file(three, 101, 5, "/dev/dri/renderD128", mine)  # inherited
    add_open_file(three, 101, 6, "/dev/dri/card0", client(FIRST, 8, "3 MiB"))
    add_open_file(three, 101, 7, "/dev/dri/renderD130", client(SECOND, 7, "512 KiB"))
    add_open_file(three, 101, 8, "/dev/dri/renderD131", "drm-driver:\ti915\ndrm-client-id: 9\n")
    add_open_file(three, 101, 9, "/dev/dri/renderD128", None)  # closed meanwhile
    add_open_file(three, 102, 5, "/dev/dri/renderD128", client(FIRST, 9, "99 MiB"))
    assert [r.process_used for r in read(three, 100, 101, 999)] == [0, 4 << 20, 512 << 10]


@pytest.mark.parametrize(
    "more",
    ["", "drm-memory-vram:\t8 KiB\n", "drm-total-vram:\t99 KiB\n"],
    ids=("alone", "beside its former name", "beside what is not resident"),
)
def test_the_key_of_newer_kernels_is_read(three: Path, more: str) -> None:
    info = client(FIRST, 7, "8192", key="drm-resident-vram") + more
    add_open_file(three, 100, 5, "/dev/dri/renderD128", info)
    found = read(three, 100)
    assert [(r.process_used, r.processes) for r in found] == [(0, 0), (8192, 1), (0, 0)]


def test_a_device_of_several_parts_has_the_memory_of_all(three: Path) -> None:
    info = client(FIRST, 7, "4096", key="drm-resident-vram0") + "drm-resident-vram1:\t4 KiB\n"
    add_open_file(three, 100, 5, "/dev/dri/renderD128", info)
    assert [r.process_used for r in read(three, 100)] == [0, 8192, 0]


@pytest.mark.parametrize(
    "info",
    [
        "pdev:\t0000:03:00.0\npasid:\t32770\nvram mem:\t15452 kB\n",  # kernel 5.14
        "drm-driver:\tamdgpu\ndrm-client-id:\t4\ndrm-pdev:\t0000:03:00.0\n",
        client(FIRST, 4, "2 parsecs"),
    ],
)
def test_memory_of_the_process_tree_is_absent_if_the_kernel_does_not_show_it(
    three: Path, info: str
) -> None:
    add_open_file(three, 100, 5, "/dev/dri/renderD128", client(SECOND, 1, "1 KiB"))
    add_open_file(three, 100, 6, "/dev/dri/renderD128", info)
    assert [r.process_used for r in read(three, 100)] == [None, None, None]


def test_memory_of_the_process_tree_is_absent_if_a_process_may_not_be_read(three: Path) -> None:
    (three / "proc/100").mkdir(parents=True)
    (three / "proc/100/fd").touch()  # not a folder: cannot be listed
    assert [r.process_used for r in read(three, 100)] == [None, None, None]


def test_a_device_that_starts_to_fail_is_left_out_and_logged_once(
    three: Path, caplog: pytest.LogCaptureFixture
) -> None:
    devices = open_amd({}, three)
    assert devices is not None
    before = devices.read(())
    (three / "sys/devices" / FIRST / "mem_info_vram_used").unlink()
    with caplog.at_level(logging.DEBUG, "otel_quant"):
        assert devices.read(()) == devices.read(()) == (before[0], before[2])
    assert len(caplog.messages) == 1
    assert caplog.messages[0].startswith(f"AMD GPU {FIRST}: cannot read memory")


def test_a_compute_device_whose_memory_is_not_shown_keeps_its_position(tmp_path: Path) -> None:
    add_node(tmp_path, 1, "simd_count 304\nlocation_id 1\n")
    add_gpu(tmp_path, 0, FIRST, 7, node=2)
    assert read(tmp_path) == (reading(1, FIRST, 7),)


def test_no_file_is_opened_without_an_amd_gpu(tmp_path: Path) -> None:
    (tmp_path / "sys/class/drm/card0/device").mkdir(parents=True)  # another vendor's
    assert open_amd({}, tmp_path) is None


def readings() -> tuple[GpuReading, ...]:
    return GpuReading(0, "GPU-aa", "A", 10), GpuReading(1, "GPU-bb", "B", 20)


def counted(modules: dict[str, ModuleType]) -> list[TorchMemory | None]:
    found = readings()
    TorchCounters("cuda", modules).add_to(found)
    assert [replace(each, torch=None) for each in found] == list(readings())
    return [each.torch for each in found]


class Cuda(ModuleType):
    """``torch.cuda`` of a process with two devices; any other attribute is an error."""

    def __init__(self, uuids: list[str | None], initialized: bool = True) -> None:
        super().__init__("torch.cuda")
        self._uuids = uuids
        self._initialized = initialized

    def is_initialized(self) -> bool:
        return self._initialized

    def device_count(self) -> int:
        return len(self._uuids)

    def get_device_properties(self, position: int) -> Any:
        uuid = self._uuids[position]
        return SimpleNamespace() if uuid is None else SimpleNamespace(uuid=uuid)

    def memory_stats_as_nested_dict(self, position: int) -> dict[str, Any]:
        return {
            "allocated_bytes": {"all": {"current": 100 + position, "peak": 998}},
            "reserved_bytes": {"all": {"current": 200 + position, "peak": 999}},
            "num_alloc_retries": 3,
        }


def loaded(cuda: ModuleType, hip: str | None = None) -> dict[str, ModuleType]:
    torch = ModuleType("torch")
    torch.version = SimpleNamespace(hip=hip)
    return {"torch": torch, "torch.cuda": cuda}


def memory_of(position: int | None) -> TorchMemory | None:
    if position is None:
        return None
    return TorchMemory(
        100 + position, 200 + position, AllocatorMark(1, 998), AllocatorMark(1, 999), 3
    )


@pytest.mark.parametrize(
    ("uuids", "positions"),
    [
        pytest.param(["aa", "bb"], (0, 1), id="same order"),
        pytest.param(["bb", "aa"], (1, 0), id="CUDA puts the fastest device first"),
        pytest.param(["bb"], (None, 0), id="torch sees one of them"),
        pytest.param([None, None], (0, 1), id="torch has no UUIDs"),
        pytest.param([None], (0, None), id="torch has no UUIDs and sees one"),
    ],
)
def test_values_are_assigned_to_their_device(
    uuids: list[str | None], positions: tuple[int | None, ...]
) -> None:
    assert counted(loaded(Cuda(uuids))) == [memory_of(each) for each in positions]


@pytest.mark.parametrize(
    "modules",
    [
        pytest.param({}, id="not imported"),
        pytest.param({"torch": ModuleType("torch")}, id="half imported"),
        pytest.param(loaded(ModuleType("torch.cuda")), id="torch.cuda half imported"),
        pytest.param({"torch": ModuleType("torch"), "torch.cuda": Cuda(["aa", "bb"])}, id="no torch.version yet"),
        pytest.param(loaded(Cuda(["aa", "bb"], initialized=False)), id="CUDA not started"),
        pytest.param(loaded(Cuda(["aa", "bb"]), hip="6.2"), id="built for the other vendor"),
    ],
)  # fmt: skip
def test_a_torch_that_does_not_use_a_gpu_is_not_called(modules: dict[str, ModuleType]) -> None:
    assert counted(modules) == [None, None]


def test_an_allocator_without_counters_gives_no_figures() -> None:
    class Pluggable(Cuda):
        def memory_stats_as_nested_dict(self, position: int) -> dict[str, Any]:
            raise RuntimeError("the allocator of the program does not support memory stats")

    assert counted(loaded(Pluggable(["aa", "bb"]))) == [None, None]


def test_the_allocators_marks_are_numbered_by_their_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    held = {"allocated": (10, 20), "reserved": (30, 40)}
    asked = 0

    class Moving(Cuda):
        def memory_stats_as_nested_dict(self, position: int) -> dict[str, Any]:
            nonlocal asked
            asked += 1
            return {
                f"{name}_bytes": {"all": {"current": now, "peak": peak}}
                for name, (now, peak) in held.items()
            }

    now = 100.0
    monkeypatch.setattr(gpu_torch.time, "monotonic", lambda: now)
    counters = TorchCounters("cuda", loaded(Moving(["aa"])))

    def taken(**to: Any) -> TorchMemory | None:
        found = readings()[:1]
        counters.add_to(found, **to)
        return found[0].torch

    first = TorchMemory(10, 30, AllocatorMark(1, 20), AllocatorMark(1, 40))
    assert taken() == taken() == first
    held["reserved"] = (30, 90)
    assert taken(is_brief=True) == first  # a sample asks no more than once a second
    assert asked == 2
    assert taken() == first._replace(reserved_mark=AllocatorMark(2, 90))
    held["allocated"] = (10, 15)  # the program has reset it
    now += 1
    assert taken(is_brief=True) == TorchMemory(10, 30, AllocatorMark(2, 15), AllocatorMark(2, 90))


NAMES = {"GPU-aa11": 0, "GPU-aa22": 1, "GPU-bb33": 2, "MIG-cc44": 3, "MIG-GPU-bb33/1/0": 3}


@pytest.mark.parametrize(
    ("value", "selected"),
    [
        (None, (0, 1, 2)), ("0", (0,)), ("2,0", (2, 0)), (" 1 , 2 ", (1, 2)), ("", ()),
        ("-1", ()), ("0,2,-1,1", (0, 2)), ("0,3,1", (0,)),
        ("0,,1", (0,)), ("99999999999999999999", ()), ("0,0", ()), ("1,GPU-aa11", (1,)),
        ("NoDevFiles", ()), ("GPU-bb33,GPU-aa11", (2, 0)), ("GPU-b", (2,)), ("GPU-aa", ()),
        ("GPU-bb,GPU-aa", (2,)), ("GPU-bb33,GPU-b", ()), ("GPU-zz,GPU-aa11", ()),
        ("GPU-aa11,0", (0,)), ("GPU-aa11,", (0,)), ("MIG-cc44", (3,)), ("MIG-GPU-bb33/1/0", (3,)),
        ("MIG-GPU-bb33/2/0", ()),
    ],
)  # fmt: skip
def test_the_selected_devices_are_the_devices_of_cuda(
    value: str | None, selected: tuple[int, ...]
) -> None:
    assert select_visible(value, 3, NAMES) == selected


PROGRAM = """
import json, os, shutil, sys
from dataclasses import asdict
from otel_quant.capture.probes import gpu_devices
from otel_quant.capture.probes.gpu import GpuProbe
probe = GpuProbe()
first = probe()
shutil.copy(sys.argv[1], "new.txt")
os.replace("new.txt", os.environ["FAKE_NVML_STATE"])
soon = probe()
gpu_devices._EVERY = 0
later = probe()
print(json.dumps([[asdict(gpu)["activity"] for gpu in read] for read in (first, soon, later)]))
"""
BUSY = {"util": 97, "power": 612_400, "temp": 71, "sm": 1755, "mem": 2619}


def test_activity_of_nvidia_gpus_is_read_once_a_second(tmp_path: Path) -> None:
    env = FakeNvml(
        tmp_path, [FakeGpu("GPU-a", **BUSY, reasons=0x4 | 0x40 | 0x80, ecc=3), FakeGpu("GPU-b")]
    ).env
    later = tmp_path / "later"
    later.mkdir()
    FakeNvml(later, [FakeGpu("GPU-a", **BUSY, reasons=0), FakeGpu("GPU-b", util=5)])
    printed, _ = run_script(tmp_path, PROGRAM, str(later / "fake_nvml.txt"), **env)
    first, soon, last = json.loads(printed)
    known = {
        "utilization": 0.97, "power": 612.4, "temperature": 71, "clock": 1_755_000_000,
        "memory_clock": 2_619_000_000,
    }  # fmt: skip
    slowed = {"slowed_by": ["heat (by hardware)", "power brake"], "memory_errors": 3}
    # Values that a device does not report are absent.
    assert first == soon == [{**known, **slowed}, None]
    assert last == [
        {**known, "slowed_by": [], "memory_errors": None},
        {**dict.fromkeys(first[0]), "utilization": 0.05},
    ]


def test_activity_of_amd_gpus_is_read_from_the_kernel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_gpu(tmp_path, 0, "0000:03:00.0", 5, {"gpu_busy_percent": "97"})
    add_gpu(tmp_path, 1, "0000:04:00.0", 5)
    sensors = tmp_path / "sys/devices/0000:03:00.0/hwmon/hwmon4"
    sensors.mkdir(parents=True)
    for name, text in {
        "power1_input": "612400000", "temp1_input": "71000", "freq1_input": "1755000000",
        "freq2_input": "asleep",
    }.items():  # fmt: skip
        (sensors / name).write_text(text + "\n")
    monkeypatch.setattr(gpu_devices, "_EVERY", 0)
    devices = open_amd({}, tmp_path)
    assert devices is not None
    assert [gpu.activity for gpu in devices.read(())] == [
        GpuActivity(utilization=0.97, power=612.4, temperature=71, clock=1_755_000_000),
        None,
    ]


def test_energy_of_amd_gpus_is_what_the_kernel_counts(tmp_path: Path) -> None:
    for card in range(2):
        add_gpu(tmp_path, card, f"0000:0{card}:00.0", 5)
    counter = tmp_path / "sys/devices/0000:00:00.0/hwmon/hwmon4/energy1_input"
    counter.parent.mkdir(parents=True)
    counter.write_text("5000000\n")
    counter.with_name("power1_input").write_text("0\n")
    devices = open_amd({}, tmp_path)
    assert devices is not None
    assert [gpu.energy for gpu in devices.read(())] == [0, None]
    counter.write_text("9000000\n")
    devices.ask_for_energy()
    assert [gpu.energy for gpu in devices.read(())] == [4, None]


def test_a_gpu_is_impaired_when_it_is_throttled_or_its_memory_fails() -> None:
    impairments = Impairments()

    def told(slowed_by: tuple[str, ...] | None, errors: int | None) -> list[tuple[str, object]]:
        activity = GpuActivity(slowed_by=slowed_by, memory_errors=errors)
        gpu = GpuReading(1, "GPU-b", "NVIDIA H200", 5, activity=activity)
        silent = GpuReading(0, "GPU-a", None, 5)
        return list(impairments.new_in(Reading(0, 0, {"gpu": (silent, gpu)})))

    device = {"hw.id": "GPU-b", "hw.name": "NVIDIA H200", semconv.GPU_MEMORY_ERRORS: 2}
    assert told((), 2) == []  # errors from before the run
    assert told(("power brake",), 2) == [
        (
            "GPU 1 (GPU-b): slowed down by power brake",
            {**device, semconv.GPU_SLOWED_BY: ("power brake",)},
        )
    ]
    assert told(("power brake",), 2) == []
    assert told((), 3) == [
        (
            "GPU 1 (GPU-b): 3 errors of its memory that could not be corrected",
            {**device, semconv.GPU_MEMORY_ERRORS: 3},
        )
    ]
    assert told(None, None) == []
