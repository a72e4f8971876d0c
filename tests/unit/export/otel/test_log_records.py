"""Whole log records, made from literal readings by the real SDK."""

from __future__ import annotations

from typing import Any

from tests.unit.export.otel.literal_run import (
    BEGAN,
    CUSTOM,
    RUN_IDS,
    SECOND,
    STEP_IDENTITY,
    send_run,
    send_unmeasured_run,
)
from tests.unit.export.otel.signals import Signals


def checkpoint(sequence: int, name: str, phase: str, elapsed: float) -> dict[str, Any]:
    return {
        "quant.checkpoint.name": name,
        "quant.checkpoint.phase": phase,
        "quant.checkpoint.sequence": sequence,
        "quant.checkpoint.elapsed": elapsed,
        **RUN_IDS,
        "process.pid": 4711,
        "quant.run.rank": 1,
        "quant.checkpoint.memory_limit": 8000,
    }


AT_START = {
    "quant.checkpoint.memory": 1000,
    "quant.checkpoint.process_memory": 900,
    "quant.checkpoint.gpu_memory": 550,
    "quant.checkpoint.disk_read": 0,
    "quant.checkpoint.disk_write": 0,
}
AT_END = {
    "quant.checkpoint.memory": 1200,
    "quant.checkpoint.process_memory": 1100,
    "quant.checkpoint.gpu_memory": 520,
    "quant.checkpoint.disk_read": 3,
    "quant.checkpoint.disk_write": 1000,
}
OF_DEVICES = [
    {
        "hw.id": "GPU-0",
        "hw.name": "NVIDIA H200",
        "quant.gpu.device.index": 0,
        "quant.gpu.device.memory.start": 500,
        "quant.gpu.device.memory.end": 450,
        "quant.gpu.device.memory.delta": -50,
        "quant.gpu.device.memory.peak": 630,
        "quant.gpu.device.memory.limit": 10_000,
        "quant.gpu.device.process_memory.start": 100,
        "quant.gpu.device.process_memory.end": 150,
        "quant.gpu.device.process_memory.delta": 50,
        "quant.gpu.device.process_memory.peak": 160,
        "quant.gpu.device.torch_allocated.start": 7,
        "quant.gpu.device.torch_allocated.end": 9,
        "quant.gpu.device.torch_allocated.delta": 2,
        "quant.gpu.device.torch_allocated.peak": 11,
        "quant.gpu.device.torch_reserved.start": 7,
        "quant.gpu.device.torch_reserved.end": 9,
        "quant.gpu.device.torch_reserved.delta": 2,
        "quant.gpu.device.torch_reserved.peak": 12,
    },
    {
        "hw.id": "GPU-1",
        "quant.gpu.device.index": 1,
        "quant.gpu.device.memory.start": 50,
        "quant.gpu.device.memory.end": 70,
        "quant.gpu.device.memory.delta": 20,
        "quant.gpu.device.memory.peak": 70,
        "quant.gpu.device.memory.limit": 10_000,
    },
]


def of_devices(name: str, common: dict[str, Any]) -> list[tuple[Any, ...]]:
    return [
        (
            "quant.device.used",
            f"{name}: {device['hw.id']}",
            "INFO",
            BEGAN + 2 * SECOND,
            {**RUN_IDS, **common, **device},
        )
        for device in OF_DEVICES
    ]


def test_each_checkpoint_is_a_log_record_and_is_sent_at_once() -> None:
    signals = Signals()
    sent: list[None] = []
    send_run(signals.logs_sink(lambda: sent.append(None)))
    later, event = BEGAN + 2 * SECOND, "quant.checkpoint.taken"
    first, last = "My calibration Start", "My calibration End"
    assert signals.records() == [
        (event, "Start", "INFO", BEGAN, {**checkpoint(0, "Start", "start", 0.0), **AT_START}),
        (
            event,
            first,
            "INFO",
            BEGAN,
            {**checkpoint(1, first, "start", 0.0), **STEP_IDENTITY, **AT_START},
        ),
        *of_devices(last, STEP_IDENTITY),
        (
            event,
            last,
            "INFO",
            later,
            {**checkpoint(2, last, "end", 2.0), **STEP_IDENTITY, **AT_END, **CUSTOM},
        ),
        (
            "quant.model.cost",
            {"heaviest": [{"name": "/conv", "macs": 70}]},
            "INFO",
            later,
            {
                **RUN_IDS,
                "quant.model.role": "float",
                "quant.model.path": "m.onnx",
            },
        ),
        (
            "quant.model.cost_failed",
            {"message": "m.onnx is cut short"},
            "WARN",
            later,
            {**RUN_IDS, "quant.model.role": "quantized"},
        ),
        (event, "Mine", "INFO", later, {**checkpoint(3, "Mine", "point", 2.0), **AT_END}),
        *of_devices("End", {}),
        (event, "End", "INFO", later, {**checkpoint(4, "End", "end", 2.0), **AT_END}),
    ]
    assert len(sent) == 6


def test_the_record_of_a_failed_step_is_an_error() -> None:
    signals = Signals()
    send_run(signals.logs_sink(), error=MemoryError("too big"))
    severities = [(body, severity) for _, body, severity, _, _ in signals.records()]
    assert ("My calibration End", "ERROR") in severities
    (attributes,) = (a for _, body, _, _, a in signals.records() if body == "My calibration End")
    assert attributes["error.type"] == "MemoryError"


def test_a_log_record_without_figures_still_has_the_step() -> None:
    signals = Signals()
    send_unmeasured_run(signals.logs_sink())
    _, _, _, _, attributes = signals.records()[1]
    assert attributes == {
        **checkpoint(1, "Bare Start", "start", 0.0),
        "quant.step.name": "Bare",
        "quant.step.kind": "Bare",
        "quant.step.index": 4,
    }
