"""Log records of readings between checkpoints, made from literal readings by the real SDK."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from otel_quant.schema.records import (
    GpuReading,
    MemoryReading,
    Peaks,
    Reading,
    StepInfo,
    StepProgress,
)
from tests.fixtures.sent import SentRun
from tests.unit.export.otel.literal_run import BEGAN, RUN, SECOND, STEP
from tests.unit.export.otel.signals import Signals

OUTER = StepInfo(2, "Model Quantization", "Model Quantization")


def reading(second: float, memory: int, gpu: int = 100) -> Reading:
    return Reading(
        time_ns=BEGAN + round(second * SECOND),
        clock_ns=round((50 + second) * SECOND),
        resources={
            "memory": MemoryReading(rss=memory - 10, tree_rss=memory),
            "gpu": (GpuReading(0, "GPU-0", None, gpu),),
        },
    )


START = reading(0, 1000)


class Run:
    """A run that is sent to the sink, with one step."""

    def __init__(self) -> None:
        self.sent = 0
        self.signals = Signals()
        self.sink = self.signals.logs_sink(self.count)
        self.run = SentRun(RUN, START, self.sink)
        self.run.began()

    def count(self) -> None:
        self.sent += 1

    def go_on(self, second: float, memory: int, gpu: int = 100, *steps: StepProgress) -> None:
        peaks = Peaks({"memory": memory + 500})
        self.run.went_on(reading(second, memory, gpu), peaks, *steps)

    def checkpoint(self, second: float, memory: int) -> None:
        self.run.point("Mine", reading(second, memory))

    def records(self) -> list[tuple[Any, ...]]:
        return [each for each in self.signals.records() if each[0] != "quant.checkpoint.taken"]

    def times(self) -> list[float]:
        return [(record[3] - BEGAN) / SECOND for record in self.records()]


@pytest.fixture
def run() -> Run:
    return Run()


def test_a_reading_is_a_log_record_with_memory_and_the_open_steps(run: Run) -> None:
    before = run.sent
    run.go_on(29, 1200, 300, StepProgress(OUTER), StepProgress(STEP, 37, 512))
    assert run.sent == before + 1
    assert run.records() == [
        (
            "quant.reading.taken", "My calibration", "INFO", BEGAN + 29 * SECOND,
            {
                "quant.run.id": "0123456789abcdef",
                "quant.run.name": "quantize small 2023-11-14T22:13:20.000Z",
                "process.pid": 4711,
                "quant.run.rank": 1,
                "quant.reading.elapsed": 29.0,
                "quant.reading.memory": 1200,
                "quant.reading.process_memory": 1190,
                "quant.reading.gpu_memory": 300,
                "quant.reading.memory_peak": 1700,
                "quant.reading.memory_limit": 8000,
                "quant.reading.open_steps": ("Model Quantization", "My calibration"),
                "quant.step.name": "My calibration",
                "quant.step.kind": "Calibration",
                "quant.step.index": 3,
                "quant.library.name": "amd-quark",
                "quant.calibration.sample_count": 37,
                "quant.calibration.sample_total": 512,
            },
        )
    ]  # fmt: skip


def test_a_reading_between_steps_has_no_open_step(run: Run) -> None:
    run.go_on(29, 1200)
    ((_, body, _, _, attributes),) = run.records()
    assert body == "quantization"
    assert {name for name in attributes if not name.startswith("quant.reading.")} == {
        "quant.run.id", "quant.run.name", "process.pid", "quant.run.rank",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("memory", "gpu", "times"),
    [
        (lambda second: 1000 + 10 * second, lambda second: 100, [28, 56, 84, 112]),  # it grows
        (lambda second: 1000 + second % 10, lambda second: 100, []),  # it is level
        (lambda second: 1000 if second < 100 else 1500, lambda second: 100, [100]),
        (lambda second: 1000 if second < 30 else 900, lambda second: 100, [30]),
        (lambda second: 1000, lambda second: 100 if second < 60 else 200, [60]),
    ],
)
def test_a_reading_is_sent_every_28_seconds_if_memory_has_moved(
    run: Run, memory: Callable[[int], int], gpu: Callable[[int], int], times: list[int]
) -> None:
    for second in range(1, 121):
        run.go_on(second, memory(second), gpu(second))
    assert run.times() == times


def test_a_checkpoint_counts_as_a_record_of_memory(run: Run) -> None:
    run.checkpoint(20, 5000)
    run.go_on(30, 5010)
    run.go_on(60, 5010)
    run.go_on(61, 6000)
    assert run.times() == [61]


def test_nothing_is_sent_after_the_run_has_been_dropped(run: Run) -> None:
    run.sink.forget()
    run.go_on(60, 5000)
    assert run.times() == []
