"""AMD GPUs, on a tree of files as the amdgpu driver shows them."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from otel_quant.probes.amd import open_amd
from otel_quant.readings import GpuReading
from tests.fixtures import fake_nvml

GIB = 1 << 30
TOTAL = 192 * GIB

FIRST, SECOND, THIRD = "0000:03:00.0", "0000:23:00.0", "0001:c3:00.0"


def add_gpu(
    root: Path,
    card: int,
    address: str,
    used: int,
    files: Mapping[str, str] = {},
    node: int | None = None,
) -> None:
    """Adds a GPU as sysfs shows it; with ``node``, to the compute topology as well."""
    folder = root / "sys/devices" / address
    folder.mkdir(parents=True)
    own = {"mem_info_vram_used": used, "mem_info_vram_total": TOTAL, **files}
    for name, text in own.items():
        (folder / name).write_text(f"{text}\n")
    entry = root / f"sys/class/drm/card{card}"
    entry.mkdir(parents=True)
    (entry / "device").symlink_to(folder)
    (entry.parent / f"card{card}-DP-1").mkdir()  # a connector is no card
    if node is not None:
        domain, bus, place = address.split(":")
        device, function = place.split(".")
        location = int(bus, 16) << 8 | int(device, 16) << 3 | int(function, 16)
        add_node(root, node, f"simd_count 304\ndomain {int(domain, 16)}\nlocation_id {location}\n")


def add_node(root: Path, node: int, properties: str) -> None:
    folder = root / f"sys/class/kfd/kfd/topology/nodes/{node}"
    folder.mkdir(parents=True)
    (folder / "properties").write_text(properties)


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
    """Three GPUs, which the compute runtime counts in another order than the bus does."""
    add_node(tmp_path, 0, "cpu_cores_count 96\nsimd_count 0\nlocation_id 0\n")
    add_gpu(tmp_path, 2, SECOND, 2 * GIB, {"unique_id": "bbbb222222222222"}, node=10)
    add_gpu(tmp_path, 0, FIRST, GIB, {"unique_id": "aaaa111111111111"}, node=2)
    add_gpu(tmp_path, 1, THIRD, 3 * GIB, {"product_name": "AMD Instinct MI300X"}, node=1)
    return tmp_path


def reading(
    index: int, address: str, used: int, name: str | None = None, process_used: int | None = None
) -> GpuReading:
    return GpuReading(index, address, name, used, TOTAL, process_used)


def read(root: Path, *pids: int, **environ: str) -> tuple[GpuReading, ...]:
    devices = open_amd(environ, root)
    assert devices is not None
    return devices.read(pids)


def test_devices_are_read_in_the_order_of_the_compute_runtime(three: Path) -> None:
    assert read(three) == (
        reading(0, THIRD, 3 * GIB, "AMD Instinct MI300X"),
        reading(1, FIRST, GIB),
        reading(2, SECOND, 2 * GIB),
    )


def test_without_the_compute_driver_devices_are_read_in_the_order_of_the_bus(
    tmp_path: Path,
) -> None:
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
def test_devices_are_those_that_the_runtimes_see(
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


def test_newer_kernels_call_it_resident(three: Path) -> None:
    info = client(FIRST, 7, "8192", key="drm-resident-vram")
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
def test_memory_of_the_process_tree_is_absent_if_the_kernel_does_not_tell(
    three: Path, info: str
) -> None:
    add_open_file(three, 100, 5, "/dev/dri/renderD128", client(SECOND, 1, "1 KiB"))
    add_open_file(three, 100, 6, "/dev/dri/renderD128", info)
    assert [r.process_used for r in read(three, 100)] == [None, None, None]


def test_memory_of_the_process_tree_is_absent_if_a_process_may_not_be_read(three: Path) -> None:
    (three / "proc/100").mkdir(parents=True)
    (three / "proc/100/fd").touch()  # no folder: fails as one without permission does
    assert [r.process_used for r in read(three, 100)] == [None, None, None]


def test_without_pids_the_memory_of_the_process_tree_is_absent(three: Path) -> None:
    assert [r.process_used for r in read(three)] == [None, None, None]


def test_a_device_that_fails_half_way_is_left_out_and_logged_once(
    three: Path, caplog: pytest.LogCaptureFixture
) -> None:
    devices = open_amd({}, three)
    assert devices is not None
    before = devices.read(())
    (three / "sys/devices" / FIRST / "mem_info_vram_used").unlink()
    with caplog.at_level(logging.DEBUG, "otel_quant"):
        assert devices.read(()) == devices.read(()) == (before[0], before[2])
    assert len(caplog.messages) == 1
    assert caplog.messages[0].startswith(f"AMD GPU {FIRST} does not tell its memory")


def test_a_compute_device_whose_memory_is_not_shown_keeps_its_position(tmp_path: Path) -> None:
    add_node(tmp_path, 1, "simd_count 304\nlocation_id 1\n")
    add_gpu(tmp_path, 0, FIRST, 7, node=2)
    assert read(tmp_path) == (reading(1, FIRST, 7),)


def test_without_an_amd_gpu_there_is_no_probe(tmp_path: Path) -> None:
    (tmp_path / "sys/class/drm/card0/device").mkdir(parents=True)  # another vendor's
    assert open_amd({}, tmp_path) is None


FAKE_AMDSMI = '''
"""Answers as amdsmi 6.2 and later does, with the names of its functions and exceptions."""
import os
from enum import IntEnum

class AmdSmiException(Exception): pass
class AmdSmiLibraryException(AmdSmiException):
    def __init__(self, err_code): super().__init__(err_code); self.err_code = err_code
class AmdSmiInitFlags(IntEnum): INIT_AMD_GPUS = 2
class AmdSmiMemoryType(IntEnum): VRAM = 0

GPUS = {"0000:03:00.0": (11, "AMD Instinct MI300X"), "0000:23:00.0": (22, "N/A")}
calls = []

def amdsmi_init(flag):
    assert flag is AmdSmiInitFlags.INIT_AMD_GPUS
    calls.append("init")
    if os.environ.get("FAKE_AMDSMI") == "init fails": raise AmdSmiLibraryException(34)

def amdsmi_shut_down(): calls.append("shut_down")
def amdsmi_get_processor_handles(): return sorted(GPUS)
def amdsmi_get_gpu_device_bdf(handle): return handle.upper()
def amdsmi_get_gpu_asic_info(handle): return {"market_name": GPUS[handle][1]}

def amdsmi_get_gpu_memory_usage(handle, mem_type):
    assert mem_type is AmdSmiMemoryType.VRAM
    if os.environ.get("FAKE_AMDSMI") == "second fails" and GPUS[handle][0] == 22:
        raise AmdSmiLibraryException(2)
    return GPUS[handle][0]
'''

PROGRAM = """
import json, sys
from dataclasses import astuple
from pathlib import Path
from otel_quant.probes.gpu import GpuProbe
import os
probe = GpuProbe(dict(os.environ), Path(sys.argv[1]))
readings = [astuple(reading) for reading in (*probe(), *probe())]
probe.close()
smi = sys.modules.get("amdsmi")
print(json.dumps([readings, getattr(smi, "calls", None)]))
"""


def run(
    root: Path, behaviour: str = "", library: Path | None = None
) -> tuple[list[tuple[int, int, str | None]], list[str] | None, list[str]]:
    """Reads twice in a process that has ``amdsmi``; gives index, used and name, calls, log.

    ``library`` is what stands where amdsmi looks for its own: any library will do.
    """
    package = root / "site/amdsmi"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(FAKE_AMDSMI)
    if library is not None:
        (root / "lib").mkdir()
        (root / "lib/libamd_smi.so").symlink_to(library)
    hidden = ("_VISIBLE_DEVICES", "ROCM_HOME")
    env = {k: v for k, v in os.environ.items() if not k.endswith(hidden)}
    env |= {
        "PYTHONPATH": os.pathsep.join([str(root / "site"), *sys.path]),
        "ROCM_PATH": str(root),
        "FAKE_AMDSMI": behaviour,
    }
    process = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(root)],
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    readings, calls = json.loads(process.stdout)
    return [(r[0], r[3], r[2]) for r in readings], calls, process.stderr.splitlines()


@pytest.fixture
def two(tmp_path: Path) -> Path:
    add_gpu(tmp_path, 0, FIRST, 1)
    add_gpu(tmp_path, 1, SECOND, 2, {"product_name": "Radeon of the kernel"})
    return tmp_path


def test_amdsmi_is_asked_where_it_works(two: Path) -> None:
    assert run(two, library=fake_nvml.library()) == (
        [(0, 11, "AMD Instinct MI300X"), (1, 22, "Radeon of the kernel")] * 2,
        ["init", "shut_down"],
        [],
    )


def test_amdsmi_failing_on_a_device_leaves_that_one_out(two: Path) -> None:
    readings, _, log = run(two, "second fails", library=fake_nvml.library())
    assert readings == [(0, 11, "AMD Instinct MI300X")] * 2
    assert log == ["AMD GPU 0000:23:00.0 does not tell its memory, which stays absent: 2"]


FROM_THE_KERNEL = [(0, 1, None), (1, 2, "Radeon of the kernel")] * 2


def test_where_amdsmi_does_not_start_the_kernels_files_are_read(two: Path) -> None:
    readings, calls, log = run(two, "init fails", library=fake_nvml.library())
    assert (readings, calls, log) == (FROM_THE_KERNEL, ["init"], [])


def test_without_amdsmis_library_it_is_not_imported(two: Path) -> None:
    assert run(two) == (FROM_THE_KERNEL, None, [])
