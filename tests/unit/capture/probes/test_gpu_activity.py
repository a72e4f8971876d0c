"""What GPUs do: by the real ``nvidia-ml-py`` on a fake driver, and from files as amdgpu has them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from otel_quant.capture.probes import gpu_devices
from otel_quant.capture.probes.amd import open_amd
from otel_quant.export.otel.logs import Impairments
from otel_quant.schema.records import GpuActivity, GpuReading, Reading
from tests.fixtures.amd_sysfs import add_gpu
from tests.fixtures.fake_nvml import FakeGpu, FakeNvml

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
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(later / "fake_nvml.txt")],
        env={**os.environ, **env}, cwd=tmp_path, capture_output=True, text=True, check=True,
    )  # fmt: skip
    first, soon, last = json.loads(ended.stdout)
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


def test_a_gpu_is_impaired_when_it_is_throttled_or_its_memory_fails() -> None:
    impairments = Impairments()

    def told(slowed_by: tuple[str, ...] | None, errors: int | None) -> list[tuple[str, object]]:
        activity = GpuActivity(slowed_by=slowed_by, memory_errors=errors)
        gpu = GpuReading(1, "GPU-b", "NVIDIA H200", 5, activity=activity)
        silent = GpuReading(0, "GPU-a", None, 5)
        return list(impairments.new_in(Reading(0, 0, {"gpu": (silent, gpu)})))

    device = {"hw.id": "GPU-b", "hw.name": "NVIDIA H200", "quant.gpu.device.memory_errors": 2}
    assert told((), 2) == []  # errors from before the run
    assert told(("power brake",), 2) == [
        (
            "GPU 1 (GPU-b): slowed down by power brake",
            {**device, "quant.gpu.device.slowed_by": ("power brake",)},
        )
    ]
    assert told(("power brake",), 2) == []
    assert told((), 3) == [
        (
            "GPU 1 (GPU-b): 3 errors of its memory that could not be corrected",
            {**device, "quant.gpu.device.memory_errors": 3},
        )
    ]
    assert told(None, None) == []
