"""One run with literal figures, sent to a sink as the recorder does it."""

from __future__ import annotations

from typing import Final

from otel_quant.schema import semconv
from otel_quant.schema.events import Sink
from otel_quant.schema.readings import (
    AllocatorMark,
    CostedModel,
    CpuReading,
    DiskReading,
    GpuReading,
    Limits,
    MemoryReading,
    Peaks,
    Reading,
    RunInfo,
    StepInfo,
    TorchMemory,
)
from tests.fixtures.figures import peaks_of
from tests.fixtures.sent import SentRun

SECOND: Final = 1_000_000_000
BEGAN: Final = 1_700_000_000 * SECOND

RUN: Final = RunInfo(
    id="0123456789abcdef", pid=4711, name="quantize small 2023-11-14T22:13:20.000Z", model="small",
    method="Percentile", config="XINT8", limits=Limits(8000, "cgroup"), rank=1, world_size=2,
)  # fmt: skip
STEP: Final = StepInfo(
    index=3, label="My calibration", kind="Calibration", library="amd-quark",
    library_version="0.13", function="quark.onnx.run_calibration",
)  # fmt: skip
BARE: Final = StepInfo(index=4, label="Bare", kind="Bare")


def gpu(index: int, used: int, own: int | None, torch: int | None) -> GpuReading:
    return GpuReading(
        index=index, id=f"GPU-{index}", name="NVIDIA H200" if index == 0 else None, used=used,
        limit=10_000, process_used=own,
        torch=None if torch is None else TorchMemory(torch, torch, AllocatorMark(1, torch), AllocatorMark(1, torch)),
    )  # fmt: skip


START: Final = Reading(
    time_ns=BEGAN,
    clock_ns=50 * SECOND,
    resources={
        "memory": MemoryReading(rss=900, tree_rss=1000, high_water=950),
        "disk": DiskReading(read=10, write=20, read_chars=100, write_chars=200),
        "cpu": CpuReading(user=1.5, system=0.25, major_faults=2, wait=0.5),
        "gpu": (gpu(0, 500, 100, 7), gpu(1, 50, None, None)),
    },
)
LATER: Final = Reading(
    time_ns=BEGAN + 2 * SECOND,
    clock_ns=52 * SECOND,
    resources={
        "memory": MemoryReading(rss=1100, tree_rss=1200, high_water=4000),
        "disk": DiskReading(read=13, write=1020, read_chars=104, write_chars=1205),
        "cpu": CpuReading(user=3.75, system=0.5, major_faults=7, wait=1.75),
        "gpu": (gpu(0, 450, 150, 9), gpu(1, 70, None, None)),
    },
)
PEAKS: Final = Peaks(
    figures=peaks_of(4000, 700, 6000),
    sources={"memory": "kernel"},
    devices={
        "gpu": {
            0: {"memory": 630, "process_memory": 160, "torch_allocated": 11, "torch_reserved": 12},
            1: {"memory": 70},
        }
    },
    process_memory=3900,
)
UNMEASURED_START: Final = Reading(time_ns=BEGAN, clock_ns=50 * SECOND)
UNMEASURED_LATER: Final = Reading(time_ns=BEGAN + 2 * SECOND, clock_ns=52 * SECOND)
"""Readings of which every probe has failed."""

CUSTOM: Final = {"quant.custom.accuracy": 97.5, "quant.custom.note": "fine"}
NAME: Final = {semconv.RUN_NAME: "quantize small 2023-11-14T22:13:20.000Z"}
RUN_IDS: Final = {semconv.RUN_ID: "0123456789abcdef", semconv.RUN_RANK: 1, **NAME}
"""Attributes that each of the signals has."""

STEP_IDENTITY: Final = {
    semconv.STEP_NAME: "My calibration", semconv.STEP_KIND: "Calibration", semconv.STEP_INDEX: 3,
    semconv.LIBRARY_NAME: "amd-quark",
}  # fmt: skip
STEP_SPAN: Final = {
    **RUN_IDS, **STEP_IDENTITY, semconv.LIBRARY_VERSION: "0.13",
    "code.function.name": "quark.onnx.run_calibration",
}  # fmt: skip
RUN_SPAN: Final = {
    **RUN_IDS, semconv.RUN_RANK: 1, semconv.RUN_WORLD_SIZE: 2, "process.pid": 4711,
    semconv.MEMORY_LIMIT: 8000, semconv.MEMORY_LIMIT_SOURCE: "cgroup",
}  # fmt: skip
"""What the spans of the step and of the run have, whatever is measured."""

COSTED: Final = CostedModel(
    role="float",
    path="m.onnx",
    start_ns=BEGAN + SECOND,
    end_ns=BEGAN + 2 * SECOND,
    figures={
        "size": 4000,
        "params": 1000,
        "macs_contraction": 77,
        "uncosted_ops": ("Odd:1",),
        "audit.problem_count": 2,
    },
    heaviest=({"name": "/conv", "macs": 70},),
)
UNCOSTED: Final = CostedModel(
    role="quantized", path=None, start_ns=BEGAN + SECOND, end_ns=BEGAN + 2 * SECOND, figures={},
    error="m.onnx is cut short",
)  # fmt: skip


def begun(sink: Sink) -> SentRun:
    """Begins a run with an open step."""
    run = SentRun(RUN, START, sink)
    run.began()
    run.opened(STEP)
    return run


def send_run(
    sink: Sink,
    *,
    step: StepInfo = STEP,
    start: Reading = START,
    later: Reading = LATER,
    peaks: Peaks = PEAKS,
    error: Exception | None = None,
) -> None:
    """Sends a sink a run with one step, in which a custom metric gave a number and a text."""
    custom = {"accuracy": 97.5, "note": "fine", "matrix": [1, 2]}
    run = SentRun(RUN, start, sink)
    run.began()
    run.opened(step, start, {semconv.CALIBRATION_METHOD: "Percentile"}, {})
    token = sink.step_entered(step)
    run.expects(step, 8)
    sink.counted(step, "sample", 5)
    sink.step_left(step, token)
    run.closed(
        step, later, peaks, attributes={semconv.CALIBRATION_SAMPLE_TOTAL: 8}, samples=5, items=40,
        custom=custom, error=error,
    )  # fmt: skip
    run.costed(COSTED, UNCOSTED)
    run.point("Mine", later)
    run.ended(later, peaks, error=error)


def send_unmeasured_run(sink: Sink) -> None:
    """Sends a sink a run of which nothing could be measured."""
    send_run(sink, step=BARE, start=UNMEASURED_START, later=UNMEASURED_LATER, peaks=Peaks())
