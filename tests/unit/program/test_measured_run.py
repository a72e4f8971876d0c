"""The figures of a run as data."""

from __future__ import annotations

from otel_quant.program.measured_run import KeptRun, RunStep
from otel_quant.schema.figures import TREE_MEMORY
from otel_quant.schema.readings import (
    CpuReading,
    DiskReading,
    GpuReading,
    MemoryReading,
    Peaks,
    Reading,
    RunInfo,
    StepInfo,
)
from tests.fixtures.figures import named, peaks_of
from tests.fixtures.sent import SentRun


def reading(second: int) -> Reading:
    return Reading(
        time_ns=0,
        clock_ns=10**12 + second * 10**9,
        resources={
            "memory": MemoryReading(rss=1, tree_rss=100 + second),
            "disk": DiskReading(read=10 * second, write=20 * second),
            "cpu": CpuReading(user=second / 2, system=second / 4),
            "gpu": tuple(GpuReading(index, f"GPU-{index}", None, second) for index in range(2)),
        },
    )


def test_steps_have_bytes_and_seconds_and_are_sorted_by_opening() -> None:
    kept = KeptRun()
    run = SentRun(RunInfo("f00d", 1), reading(0), kept)
    run.began()
    inner = StepInfo(1, "Mine", "User-Defined", 0, "torch", "2.4")
    peaks = Peaks(peaks_of(500, 60, 70), {TREE_MEMORY.name: "kernel"})
    run.opened(inner, reading(2))
    run.closed(inner, reading(4), peaks, samples=8, items=64, error=KeyError("a\nb"))
    outer = StepInfo(0, "Calibration", "Calibration")
    run.opened(outer, reading(1))
    run.closed(outer, Reading(0, 10**12 + 5 * 10**9))

    known = {
        "duration": 2.0, "memory.start": 102, "memory.end": 104, "memory.delta": 2,
        "memory.peak": 500, "memory.peak_source": "kernel", "gpu.memory.start": 4,
        "gpu.memory.end": 8, "gpu.memory.delta": 4, "gpu.memory.peak": 60, "disk.read": 20,
        "disk.write": 40, "cache.disk.peak": 70, "cpu.user": 1.0, "cpu.system": 0.5,
    }  # fmt: skip
    figures, started = (
        {named(name).replace(".", "_"): value for name, value in each.items()}
        for each in (known, {"memory.start": 101, "gpu.memory.start": 2})
    )
    assert kept.steps() == (
        RunStep(
            index=0, name="Calibration", kind="Calibration", parent=None, library=None,
            library_version=None, start=1.0, samples=None, items=None, error=None,
            error_message=None, duration=4.0, **started,  # the others were not measured
        ),
        RunStep(
            index=1, name="Mine", kind="User-Defined", parent=0, library="torch",
            library_version="2.4", start=2.0, samples=8, items=64,
            error="KeyError", error_message="'a\\nb'", **figures,
        ),
    )  # fmt: skip
    assert kept.total is None
