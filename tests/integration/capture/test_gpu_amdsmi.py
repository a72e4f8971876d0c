"""The real ``amdsmi`` package, over a library that answers without a driver."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from otel_quant.schema.records import GpuReading
from tests.fixtures import fake_amdsmi
from tests.fixtures.amd_sysfs import TOTAL, add_gpu

SPEC = importlib.util.find_spec("amdsmi")
pytestmark = pytest.mark.skipif(SPEC is None, reason="amdsmi is not installed")

FIRST, SECOND = "0000:03:00.0", "0000:23:00.0"

PROGRAM = """
import json, sys
from dataclasses import astuple
from pathlib import Path
if sys.argv[2]: import amdsmi
from otel_quant.capture.probes.gpu import GpuProbe
probe = GpuProbe({}, Path(sys.argv[1]))
readings = [astuple(reading) for reading in (*probe(), *probe())]
probe.close()
print(json.dumps([readings, "amdsmi" in sys.modules]))
"""


@pytest.fixture
def two(tmp_path: Path) -> Path:
    add_gpu(tmp_path, 0, FIRST, 1)
    add_gpu(tmp_path, 1, SECOND, 2, {"product_name": "Name of the kernel"})
    return tmp_path


def run(root: Path, behaviour: str = "", imported: str = "yes") -> tuple[list[GpuReading], str]:
    """Reads twice; gives the readings and the log."""
    assert SPEC is not None
    assert SPEC.origin is not None
    fake_amdsmi.build(Path(SPEC.origin).parent, root / "rocm")
    env = {k: v for k, v in os.environ.items() if k != "ROCM_HOME"}
    env |= {
        "PYTHONPATH": os.pathsep.join(sys.path),
        "ROCM_PATH": str(root / "rocm"),
        "FAKE_AMDSMI": behaviour,
    }
    process = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(root), imported],
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    readings, is_loaded = json.loads(process.stdout)
    assert is_loaded == bool(imported)
    return [GpuReading(*fields) for fields in readings], process.stderr


def test_amdsmi_is_used_if_the_program_has_loaded_it(two: Path) -> None:
    assert run(two) == (
        [
            GpuReading(0, FIRST, "AMD Instinct MI300X", 11, TOTAL, 0),
            GpuReading(1, SECOND, "Name of the kernel", 22, TOTAL, 0),
        ]
        * 2,
        "",
    )


def test_a_device_that_amdsmi_cannot_read_is_left_out(two: Path) -> None:
    readings, log = run(two, "second")
    assert readings == [GpuReading(0, FIRST, "AMD Instinct MI300X", 11, TOTAL, 0)] * 2
    assert len(log.splitlines()) == 1
    assert log.startswith(f"AMD GPU {SECOND}: cannot read memory (left out of the telemetry): ")


FROM_THE_KERNEL = [
    GpuReading(0, FIRST, None, 1, TOTAL, 0),
    GpuReading(1, SECOND, "Name of the kernel", 2, TOTAL, 0),
] * 2


def test_if_amdsmi_does_not_start_the_kernels_files_are_read(two: Path) -> None:
    assert run(two, "init") == (FROM_THE_KERNEL, "")


def test_amdsmi_is_not_loaded_if_the_program_has_not_loaded_it(two: Path) -> None:
    assert run(two, imported="") == (FROM_THE_KERNEL, "")
