"""GPU memory the whole way: from the driver to the spans, the meter, the log records, the file.

The driver is the fake one; what it answers changes while the program runs.
"""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from tests.fixtures.fake_nvml import FakeGpu, FakeNvml, FakeProcess
from tests.fixtures.instrumented import Workshop
from tests.fixtures.otlp_receiver import OtlpReceiver

GIB = 1 << 30
FIRST, SECOND = "GPU-11111111-aaaa", "GPU-22222222-bbbb"

SOURCE = """
import os, shutil, time
import otel_quant
from otel_quant.runtime import RUNTIME

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
    become("end")
"""


def state(folder: Path, used: int, ours: int) -> FakeNvml:
    """The first device in use by us among others; the second's driver does not say by whom."""
    folder.mkdir()
    devices = [
        FakeGpu(uuid=FIRST, used=used * GIB, name="Fake A"),
        FakeGpu(uuid=SECOND, used=GIB, total=40 * GIB, name="Fake B"),
    ]
    processes = [FakeProcess(used=ours * GIB), FakeProcess(used="na", device=1)]
    return FakeNvml(folder, devices, processes)


def test_gpu_memory_by_device_and_process_tree_reaches_every_signal(
    workshop: Workshop, otlp: OtlpReceiver
) -> None:
    driver = state(workshop.folder / "start", 10, 2)
    state(workshop.folder / "high", 30, 21)
    state(workshop.folder / "end", 12, 3)

    finished = workshop.script(SOURCE).run(
        {
            **otlp.environment("http/protobuf"),
            **driver.env,
            "OTEL_QUANT_PROFILE": "profile.yaml",
            "CUDA_VISIBLE_DEVICES": f"{FIRST},{SECOND}",
        }
    )
    assert (finished.returncode, finished.stderr) == (0, "")

    def gpu(name: str) -> dict[str, object]:
        attributes = otlp.span(name).attributes
        return {key[10:]: value for key, value in attributes.items() if key[:10] == "quant.gpu."}

    usage = {
        "memory.start": 11 * GIB, "memory.end": 13 * GIB, "memory.delta": 2 * GIB,
        "memory.peak": 31 * GIB,
        "0.memory.start": 10 * GIB, "0.memory.end": 12 * GIB, "0.memory.delta": 2 * GIB,
        "0.memory.peak": 30 * GIB,
        "0.process_memory.start": 2 * GIB, "0.process_memory.end": 3 * GIB,
        "0.process_memory.delta": GIB, "0.process_memory.peak": 21 * GIB,
        "1.memory.start": GIB, "1.memory.end": GIB, "1.memory.delta": 0, "1.memory.peak": GIB,
    }  # fmt: skip
    assert gpu("Calibration") == usage
    assert gpu("quantization") == {
        **usage,
        "count": 2, "memory.limit": 120 * GIB,
        "0.id": FIRST, "0.name": "Fake A", "0.memory.limit": 80 * GIB,
        "1.id": SECOND, "1.name": "Fake B", "1.memory.limit": 40 * GIB,
    }  # fmt: skip

    records = otlp.records_of("quant.checkpoint")
    in_use = [record.attributes["quant.checkpoint.gpu_memory"] for record in records]
    assert in_use == [11 * GIB, 11 * GIB, 13 * GIB, 13 * GIB]
    for device, used in ((FIRST, 12), (SECOND, 1)):
        assert otlp.point("quant.run.gpu.memory.usage", hw__id=device).value == used * GIB

    text = (workshop.folder / "profile.yaml").read_text()
    profile = yaml.safe_load(text)
    in_file = [record["gpu_memory_mb"] for record in profile["memory_usage"]]
    assert in_file == [11 * 1024.0, 11 * 1024.0, 13 * 1024.0, 13 * 1024.0]
    assert profile["peak_gpu_memory_mb"] == 31 * 1024.0
    assert re.findall("# peak_gpu_memory_mb: ([0-9.]+)", text) == [f"{31 * 1024:.2f}"]
