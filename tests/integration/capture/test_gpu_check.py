"""What scripts/gpu_check.py checks of memory, energy and several devices, with the fake driver and a torch that has its memory there."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.fixtures.fake_nvml import FakeGpu, FakeNvml
from tests.fixtures.programs import clean_environment, run

ROOT = Path(__file__).parents[3]
FAKE = ROOT / "tests" / "fixtures" / "fake_cuda"
RESERVED = 480 << 20

CHECKS = {"memory": (1, 20), "neighbour": (1, 1), "killed": (1, 1), "several": (2, 4)}
"""By check, the number of devices, and of rows."""


@pytest.mark.slow
@pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="the fake driver would hide the GPU")
@pytest.mark.parametrize("check", CHECKS)
def test_every_row_that_needs_no_kernels_holds_with_the_fake_driver(
    tmp_path: Path, check: str
) -> None:
    devices, rows = CHECKS[check]
    ids = ["aa", "bb"][:devices]
    gpus = [
        FakeGpu(
            uuid=f"GPU-{each}",
            total=(80 << 30) + RESERVED,
            reserved=RESERVED,
            util=0,
            power=60_000 if at else 300_000,
            energy=1,
        )
        for at, each in enumerate(ids)
    ]
    variables = {
        **FakeNvml(tmp_path, gpus).env,
        "FAKE_CUDA_DEVICES": ",".join(ids),
        "PYTHONPATH": f"{FAKE}:{ROOT}",
    }
    command = [sys.executable, ROOT / "scripts" / "gpu_check.py", "--here", "--only", check]
    done = run([*command, "--out", "page.md"], tmp_path, clean_environment(variables))
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    page = (tmp_path / "page.md").read_text()
    left_out = page.count("| not run |")
    assert page.splitlines()[2].startswith(
        f"**{rows - left_out} of {rows - left_out} rows hold; {left_out} not run.**"
    )
