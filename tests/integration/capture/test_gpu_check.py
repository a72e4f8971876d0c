"""What scripts/gpu_check.py checks of memory, energy and several devices, with the fake driver and a torch that has its memory there."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

import pytest

from tests.fixtures.fake_nvml import FakeGpu, FakeNvml, FakeProcess
from tests.fixtures.programs import clean_environment, run

ROOT = Path(__file__).parents[3]
FAKE = ROOT / "tests" / "fixtures" / "fake_cuda"
RESERVED = 480 << 20

UNTOLD = "pid={pid} used=na"
"""How a driver lists a process in some containers: without its memory."""

CHECKS = {
    ("memory", ""): (1, 20),
    ("memory", UNTOLD): (1, 20),
    ("neighbour", ""): (1, 1),
    ("neighbour", UNTOLD): (1, 1),
    ("killed", ""): (1, 1),
    ("killed", UNTOLD): (1, 1),
    ("several", ""): (2, 4),
}
"""By check and how processes are listed, the number of devices, and of rows."""


def test_what_is_missing_is_named_before_anything_is_checked(tmp_path: Path) -> None:
    for name in ("a-1-cp36-abi3-linux.whl", "b-1-py3-none-any.whl"):
        with zipfile.ZipFile(tmp_path / name, "w") as wheel:
            package = name.partition("-")[0]
            wheel.writestr(
                f"{package}-1.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {package}\n"
            )
    (tmp_path / "c-1-cp39-cp39-linux.whl").touch()
    script = ROOT / "scripts" / "gpu_check.py"
    command = [sys.executable, "-S", script, "--here", "--packages", tmp_path]  # nothing installed
    done = run(command, tmp_path, clean_environment())
    lacking = "Jinja2, PyYAML, nvidia-ml-py, opentelemetry-api, opentelemetry-instrumentation, psutil, rich, wrapt"
    told = f"not installed, nor in --packages: {lacking}; for another Python: c-1-cp39-cp39-linux.whl\n"
    assert (done.returncode, done.stderr) == (1, told)


PAGE = """# otel-quant on a GPU

| what | truth | ours | |
|---|---|---|---|
| peak of *Spike* | 3,693 MiB | 3,684 MiB | holds |
| verdict, planted: one more | profiler: kernels 7%, copies 0%; gpu_launches | gpu_launches: the GPU computed 14 % of the time; 99 % of its time at one_more (gpu_programs.py:142) | holds |
| verdict, near miss: a loop | profiler: kernels 0%, copies 0%; gpu_idle | absent: samples saw 0.90 of 1.50 s | does NOT hold |
| remedy, gpu_waits: half | 1.4 times faster afterwards | gpu_waits: it waited; to try: fetch once | holds |
| MIG devices | none here |  | not run |
"""

TABLES = """| program | torch's profiler; what is right | said |
|---|---|---|
| planted: one more | kernels 7%, copies 0%; gpu_launches | **gpu_launches**: the GPU computed 14 % of the time; 99 % of its time at one_more |
| near miss: a loop | kernels 0%, copies 0%; gpu_idle | **absent**: samples saw 0.90 of 1.50 s (**missed**) |

| verdict | program | afterwards | said before | to try |
|---|---|---|---|---|
| gpu_waits | half | 1.4 times faster | gpu_waits | fetch once |

| what | truth | otel-quant | |
|---|---|---|---|
| peak of *Spike* | 3,693 MiB | 3,684 MiB | holds |
"""


def test_the_tables_of_the_docs_are_made_of_a_page(tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text(PAGE)
    script = ROOT / "scripts" / "gpu_check.py"
    done = run([sys.executable, script, "--tables", "page.md"], tmp_path, clean_environment())
    assert (done.returncode, done.stdout) == (0, TABLES)


@pytest.mark.slow
@pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="the fake driver would hide the GPU")
@pytest.mark.parametrize(("check", "listed"), CHECKS)
def test_every_row_that_needs_no_kernels_holds_with_the_fake_driver(
    tmp_path: Path, check: str, listed: str
) -> None:
    devices, rows = CHECKS[check, listed]
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
        **FakeNvml(tmp_path, gpus, [FakeProcess(used="na", pid=1)] if listed else []).env,
        "FAKE_CUDA_DEVICES": ",".join(ids),
        "PYTHONPATH": f"{FAKE}:{ROOT}",
        **({"FAKE_CUDA_LISTED": listed} if listed else {}),
    }
    command = [sys.executable, ROOT / "scripts" / "gpu_check.py", "--here", "--only", check]
    done = run([*command, "--out", "page.md"], tmp_path, clean_environment(variables))
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    page = (tmp_path / "page.md").read_text()
    left_out = page.count("| not run |")
    assert page.splitlines()[2] == done.stdout.splitlines()[-1]
    assert page.splitlines()[2].startswith(
        f"**{rows - left_out} of {rows - left_out} rows hold; {left_out} not run.**"
    )
