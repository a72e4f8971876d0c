"""AMD GPUs, on a tree of files as the amdgpu driver shows them."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from otel_quant.capture.probes import amd, gpu
from otel_quant.capture.probes.amd import open_amd
from otel_quant.capture.probes.gpu import GpuProbe
from otel_quant.schema.records import GpuReading
from tests.fixtures.amd_sysfs import TOTAL, add_gpu, add_node

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
    return GpuReading(index, address, name, used, TOTAL, process_used)


def read(root: Path, *pids: int, **environ: str) -> tuple[GpuReading, ...]:
    devices = open_amd(environ, root)
    assert devices is not None
    return devices.read(pids)


def test_no_process_is_read_if_no_device_is_visible(
    three: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_at: list[object] = []
    monkeypatch.setattr(gpu, "open_nvml", lambda environ, root: None)
    monkeypatch.setattr(amd, "vram_by_device", lambda root, pids: looked_at.append(pids))
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


def test_devices_without_the_compute_driver_are_read_in_bus_order(
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


def test_the_key_of_newer_kernels_is_read(three: Path) -> None:
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
