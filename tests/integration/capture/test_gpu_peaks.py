"""Peaks on a GPU from torch's allocator to the table: the fake driver, and a torch whose counters a test sets (a real one needs a GPU)."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from tests.fixtures.fake_nvml import FakeGpu, FakeNvml, FakeProcess
from tests.fixtures.programs import Launched, Workshop

MIB = 1 << 20

TORCH = """
import sys, types

class Cuda(types.ModuleType):
    reserved = peak = retries = 0
    def is_initialized(self): return True
    def device_count(self): return 1
    def get_device_properties(self, position): return types.SimpleNamespace(uuid="a")
    def memory_stats_as_nested_dict(self, position):
        both = {"all": {"current": self.reserved << 20, "peak": self.peak << 20}}
        return {"allocated_bytes": both, "reserved_bytes": both, "num_alloc_retries": self.retries}
    def spike(self, size):
        self.peak = max(self.peak, self.reserved + size)

torch = types.ModuleType("torch")
torch.version = types.SimpleNamespace(hip=None)
torch.cuda = cuda = Cuda("torch.cuda")
sys.modules.update({"torch": torch, "torch.cuda": cuda})
"""

SCRIPT = f"""{TORCH}
import otel_quant

cuda.reserved = cuda.peak = 100
cuda.spike(500)
with otel_quant.step("Outer"):
    with otel_quant.step("Spike"):
        cuda.spike(2048)
    with otel_quant.step("After"):
        cuda.retries += 2
cuda.spike(4096)
with otel_quant.step("Last"):
    pass
"""


@pytest.mark.parametrize("used", [618, "na"])
def test_a_spike_that_no_sample_has_seen_is_the_peak_of_its_step(
    launched: Launched, workshop: Workshop, used: int | str
) -> None:
    """The process has 618 MiB of the device, 100 of them reserved by torch, or the driver does not tell; others have 7."""
    own = used if isinstance(used, str) else used * MIB
    driver = FakeNvml(
        workshop.folder, [FakeGpu(uuid="GPU-a", used=625 * MIB)], [FakeProcess(used=own)]
    )
    workshop.script(SCRIPT)
    done = launched.run([sys.executable, "script.py"], variables=driver.env)
    assert done.returncode == 0, done.stderr
    shown = launched.otel_quant("show", launched.recording.name, "--format", "json")
    (run,) = json.loads(shown.stdout)
    named = {each["step"].strip(): each for each in run["steps"]}
    steps: dict[str, Any] = {name: each for name, each in named.items() if name[0] != "("}
    peaks = {name: each.get("gpu_process_memory_peak_mb") for name, each in steps.items()}
    known = used != "na"
    assert peaks == {
        "Outer": 2666.0 if known else None, "Spike": 2666.0 if known else None,
        "After": 618.0 if known else None, "Last": 618.0 if known else None,
    }  # fmt: skip
    least = {name: each.get("gpu_process_memory_least_mb") for name, each in steps.items()}
    assert (least["Spike"], least["Outer"]) == ((None, None) if known else (2148.0, 2148.0))
    text = launched.otel_quant("show", launched.recording.name).stdout
    assert "Outer > After: torch's allocator was at its limit: 2 times" in text
    assert text.count("torch's allocator") == 1
