"""The GPU probe with the real torch, and on a real NVIDIA GPU where the machine has one."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.fake_nvml import FakeGpu, FakeMig, FakeNvml
from tests.fixtures.programs import clean_environment, run

MIB = 1 << 20
ROOT = Path(__file__).parents[3]

PROGRAM = """
import json, os
from dataclasses import astuple
from otel_quant.capture.probes.gpu import GpuProbe
probe = GpuProbe()
def read():
    return [astuple(reading)[:8] for reading in probe()]  # its memory, not what it does
readings = [read()]
import torch
readings.append(read())
untouched = not torch.cuda.is_initialized()
kept = torch.empty(256 << 20, dtype=torch.uint8, device="cuda:0")
readings.append(read())
uuid = str(torch.cuda.get_device_properties(0).uuid)
pid = os.fork()
if pid == 0:
    os._exit(0 if len(probe()) == len(readings[0]) else 1)
child = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
readings.append(read())
print(json.dumps([readings, untouched, uuid, child]))
"""


def printed_by(program: str) -> Any:
    """Returns what a program prints as JSON."""
    pytest.importorskip("torch")
    done = run([sys.executable, "-c", program], ".", clean_environment())
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.skipif(not Path("/dev/nvidiactl").exists(), reason="this machine has no NVIDIA GPU")
def test_an_allocation_is_attributed_to_its_process() -> None:
    result = printed_by(PROGRAM)
    (before, imported, allocated, after), untouched, uuid, child = result
    assert untouched
    assert child == 0
    first, *_ = (reading for reading in allocated if reading[1].endswith(uuid))
    at_first = next(reading for reading in before if reading[1] == first[1])
    _, _, _, used, limit, process_used, torch_allocated, torch_reserved = first
    assert used - at_first[3] >= 256 * MIB
    assert used <= limit
    # The context counts as well; in a container the driver may not report it.
    assert process_used is None or process_used >= 256 * MIB
    assert at_first[5] in (0, None)
    assert (torch_allocated, torch_reserved) == (256 * MIB, 256 * MIB)
    assert all(reading[6:] == [None, None] for reading in before + imported)
    assert [reading[1] for reading in after] == [reading[1] for reading in before]


UNTOUCHED = """
import json, torch
from otel_quant.capture.probes.gpu import with_torch_memory
from otel_quant.schema.records import GpuReading
reading = (GpuReading(0, "GPU-aa", None, 1),)
same = with_torch_memory(reading, "cuda") == reading
print(json.dumps([same, torch.cuda.is_initialized(), torch.cuda._is_in_bad_fork()]))
"""


def test_the_real_torch_is_left_alone_until_it_starts_cuda() -> None:
    assert printed_by(UNTOUCHED) == [True, False, False]


@pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="the fake driver would hide the GPU")
def test_the_hardware_page_lists_what_was_seen_and_what_was_not_run(
    tmp_path: Path,
) -> None:
    gpu, part = FakeGpu(uuid="GPU-a", used=1 << 30, util=50), FakeMig(uuid="MIG-b", used=1 << 29)
    for name in ("whole", "parted"):
        (tmp_path / name).mkdir()
    whole = FakeNvml(tmp_path / "whole", [gpu])
    parted = FakeNvml(tmp_path / "parted", [FakeGpu(uuid="GPU-a", mig=1), part])
    found = {}
    for driver in (whole, parted):
        done = run(
            [sys.executable, ROOT / "scripts" / "gpu_check.py", "--here", "--out", "page.md"],
            tmp_path, {**clean_environment(), **driver.env},
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, ""), done.stdout
        page = (tmp_path / "page.md").read_text()
        assert done.stdout == f"{page}\n"
        for line in page.splitlines()[6:]:
            what, seen, verdict = line.strip("| ").split(" | ")
            found.setdefault(what, []).append((seen, verdict))
    assert found.pop("CPU time of a sample")[0][1] == "as expected"
    metrics = found.pop("metrics of GPUs")
    assert metrics == [
        ("hw.gpu.memory.limit 8.58993e+10, hw.gpu.memory.usage 1.07374e+09, hw.gpu.utilization 0.5", "as expected"),
        ("hw.gpu.memory.limit 8.58993e+10, hw.gpu.memory.usage 5.36871e+08", "as expected"),
    ]  # fmt: skip
    assert found.pop("devices that the probe reads") == [
        ("0: Fake GPU, 1,024 of 81,920 MiB", "as expected"),
        ("0: Fake GPU, 512 of 81,920 MiB", "as expected"),
    ]
    assert found.pop("MIG devices") == [("none here", "not run")]
    assert found.pop("MIG device MIG-b") == [("Fake GPU, 512 of 81,920 MiB", "as expected")]
    lacked = {
        what: {seen for seen, verdict in rows if verdict == "not run"}
        for what, rows in found.items()
    }
    torch = {"torch sees no CUDA device"}
    assert lacked == {
        "the probe and nvidia-smi": {"nvidia-smi is not installed"},
        "1 GiB kept in a step, and torch's allocator": torch,
        "2 GiB allocated and freed within a step": torch,
        "a child process on the same device": torch,
        "`inference` of torch models": torch,
        "`inference` and `bench` of ONNX models": {"onnxruntime is not onnxruntime-gpu"},
    }
