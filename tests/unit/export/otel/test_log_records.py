"""Whole log records, of checkpoints and of readings between them, and what each signal shows of a forecast."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from otel_quant.export.recording_sink import RecordingSink
from otel_quant.recordings.reader import read
from otel_quant.schema.readings import (
    Count,
    Counts,
    Forecast,
    GpuReading,
    GrowthForecast,
    MemoryReading,
    Peaks,
    Reading,
    StepInfo,
    StepProgress,
)
from tests.fixtures.sent import SentRun
from tests.unit.export.otel.literal_run import (
    BEGAN,
    CUSTOM,
    LATER,
    RUN,
    RUN_IDS,
    SECOND,
    STEP,
    STEP_IDENTITY,
    begun,
    send_run,
    send_unmeasured_run,
)
from tests.unit.export.otel.signals import Signals


def taken(*values: int) -> dict[str, int]:
    names = ("memory", "process_memory", "gpu_memory", "disk_read", "disk_write")
    return {f"quant.checkpoint.{name}": v for name, v in zip(names, values, strict=True)}


AT_START, AT_END = taken(1000, 900, 550, 0, 0), taken(1200, 1100, 520, 3, 1000)


def checkpoint(sequence: int, name: str, phase: str, elapsed: float) -> dict[str, Any]:
    return {
        "quant.checkpoint.name": name, "quant.checkpoint.phase": phase,
        "quant.checkpoint.sequence": sequence, "quant.checkpoint.elapsed": elapsed,
        "quant.checkpoint.memory_limit": 8000, **RUN_IDS, "process.pid": 4711,
    }  # fmt: skip


def device(index: int, **figures: tuple[int, int, int, int]) -> dict[str, Any]:
    """What is known of a GPU; each figure at the start and at the end, the difference, and the peak."""
    known = {
        f"{name}.{part}": value
        for name, values in figures.items()
        for part, value in zip(("start", "end", "delta", "peak"), values, strict=True)
    }
    prefixed = {f"quant.gpu.device.{name}": value for name, value in known.items()}
    limit = {"quant.gpu.device.index": index, "quant.gpu.device.memory.limit": 10_000}
    return {"hw.id": f"GPU-{index}", **limit, **prefixed}


OF_DEVICES = (
    {
        "hw.name": "NVIDIA H200",
        **device(
            0, memory=(500, 450, -50, 630), process_memory=(100, 150, 50, 160),
            torch_allocated=(7, 9, 2, 11), torch_reserved=(7, 9, 2, 12),
        ),
    },
    device(1, memory=(50, 70, 20, 70)),
)  # fmt: skip


def of_devices(name: str, common: dict[str, Any]) -> list[tuple[Any, ...]]:
    event, later = "quant.device.used", BEGAN + 2 * SECOND
    return [
        (event, f"{name}: {each['hw.id']}", "INFO", later, {**RUN_IDS, **common, **each})
        for each in OF_DEVICES
    ]


def test_each_checkpoint_is_a_log_record_and_is_sent_at_once() -> None:
    signals = Signals()
    sent: list[None] = []
    send_run(signals.logs_sink(lambda: sent.append(None)))
    later, event = BEGAN + 2 * SECOND, "quant.checkpoint.taken"
    first, last = "My calibration Start", "My calibration End"
    assert signals.records() == [
        (event, "Start", "INFO", BEGAN, {**checkpoint(0, "Start", "start", 0.0), **AT_START}),
        (event, first, "INFO", BEGAN, {**checkpoint(1, first, "start", 0.0), **STEP_IDENTITY, **AT_START}),
        *of_devices(last, STEP_IDENTITY),
        (event, last, "INFO", later, {**checkpoint(2, last, "end", 2.0), **STEP_IDENTITY, **AT_END, **CUSTOM}),
        ("quant.model.cost", {"heaviest": [{"name": "/conv", "macs": 70}]}, "INFO", later,
         {**RUN_IDS, "quant.model.role": "float", "quant.model.path": "m.onnx"}),
        ("quant.model.cost_failed", {"message": "m.onnx is cut short"}, "WARN", later,
         {**RUN_IDS, "quant.model.role": "quantized"}),
        (event, "Mine", "INFO", later, {**checkpoint(3, "Mine", "point", 2.0), **AT_END}),
        *of_devices("End", {}),
        (event, "End", "INFO", later, {**checkpoint(4, "End", "end", 2.0), **AT_END}),
    ]  # fmt: skip
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


FIRST = reading(0, 1000)


class Run:
    """A run that is sent to the sink, with one step."""

    def __init__(self) -> None:
        self.sent = 0
        self.signals = Signals()
        self.sink = self.signals.logs_sink(self.count)
        self.run = SentRun(RUN, FIRST, self.sink)
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
    run.go_on(29, 1200, 300, StepProgress(OUTER), StepProgress(STEP, Counts(sample=Count(37, 512))))
    assert run.sent == before + 1
    assert run.records() == [
        (
            "quant.reading.taken", "My calibration", "INFO", BEGAN + 29 * SECOND,
            {
                **RUN_IDS, "process.pid": 4711, **STEP_IDENTITY,
                "quant.reading.elapsed": 29.0, "quant.reading.memory": 1200,
                "quant.reading.process_memory": 1190, "quant.reading.gpu_memory": 300,
                "quant.reading.memory_peak": 1700, "quant.reading.memory_limit": 8000,
                "quant.reading.open_steps": ("Model Quantization", "My calibration"),
                "quant.calibration.sample_count": 37, "quant.calibration.sample_total": 512,
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


FITS: Final = GrowthForecast("memory", at_end=7_000, per_unit=10, limit=8_000)
EXCEEDS: Final = GrowthForecast(
    "memory", at_end=31_000_000_000, per_unit=56_600_000, limit=25_770_000_000, is_warning=True
)
GPU: Final = GrowthForecast("gpu", 90_000_000_000, 104_000_000, 85_900_000_000, "GPU-1", True)
WORDS: Final = (
    "My calibration, sample 37 of 512: memory grows by 56.6 MB with each sample and would be "
    "31,000 MB after the last one (estimated); the limit (cgroup) is 25,770 MB. Fewer or smaller "
    "samples, or a calibration method that keeps less, would help"
)
LABELS: Final = {"quant.step.kind": "Calibration", "quant.library.name": "amd-quark"}


def go_on(
    run: SentRun,
    *growths: GrowthForecast,
    time_left: float | None = 60.5,
    stalled: float | None = None,
) -> None:
    forecast = Forecast(time_left, growths, stalled)
    run.went_on(LATER, None, StepProgress(STEP, Counts(sample=Count(37, 512)), forecast))


def test_a_recording_has_the_warning_on_its_step_as_the_span_has(tmp_path: Path) -> None:
    sink = RecordingSink(tmp_path, lambda step: None, is_launched=False, interval=0)
    run = begun(sink)
    go_on(run, EXCEEDS)
    go_on(run, FITS)
    run.closed(STEP, LATER)
    (step,) = read(tmp_path).runs[0].steps
    assert {k: v for k, v in step.attributes.items() if k.startswith("quant.forecast.")} == {
        "quant.forecast.memory.at_end": 31_000_000_000,
        "quant.forecast.memory.per_sample": 56_600_000,
        "quant.forecast.memory.limit": 25_770_000_000,
    }


def test_gauges_show_the_newest_forecast_until_the_step_ends() -> None:
    signals = Signals()

    def shown() -> dict[str, list[tuple[dict[str, Any], float]]]:
        points = signals.points().items()
        return {name: found for (name, _), found in points if name.startswith("quant.forecast.")}

    run = begun(signals.metrics_sink())
    assert shown() == {}
    go_on(run, time_left=None)
    assert shown() == {}
    go_on(run, FITS, GPU)
    assert shown() == {
        "quant.forecast.time_left": [(LABELS, 60.5)],
        "quant.forecast.memory.at_end": [(LABELS, 7_000)],
        "quant.forecast.gpu.memory.at_end": [({**LABELS, "hw.id": "GPU-1"}, 90_000_000_000)],
    }
    go_on(run, time_left=None, stalled=65.2)
    assert shown() == {"quant.forecast.stalled": [(LABELS, 65.2)]}
    run.closed(STEP, LATER)
    assert shown() == {}


def test_a_warning_is_one_log_record() -> None:
    signals = Signals()
    run = begun(signals.logs_sink())
    for growth in (FITS, EXCEEDS, EXCEEDS):
        go_on(run, growth)
    assert [record[1:] for record in signals.records() if record[0] == "quant.forecast.exceeded"] == [
        (
            WORDS, "WARN", BEGAN + 2 * SECOND,
            {
                **RUN_IDS, **STEP_IDENTITY, "quant.forecast.time_left": 60.5,
                "quant.calibration.sample_count": 37, "quant.calibration.sample_total": 512,
                "quant.forecast.memory.at_end": 31_000_000_000,
                "quant.forecast.memory.per_sample": 56_600_000,
                "quant.forecast.memory.limit": 25_770_000_000,
            },
        )
    ]  # fmt: skip


def test_a_warning_is_on_the_span_of_its_step() -> None:
    signals = Signals()
    run = begun(signals.spans_sink())
    go_on(run, FITS)
    go_on(run, GPU)
    go_on(run, GrowthForecast("gpu", 91_000_000_000, 1, 2, "GPU-1", True))
    run.closed(STEP, LATER)
    (span,) = signals.all_spans()
    assert {
        name: value
        for name, value in (span.attributes or {}).items()
        if name.startswith(("quant.forecast.", "hw."))
    } == {
        "quant.forecast.gpu.memory.at_end": 90_000_000_000,
        "quant.forecast.gpu.memory.per_sample": 104_000_000,
        "quant.forecast.gpu.memory.limit": 85_900_000_000,
        "hw.id": "GPU-1",
    }
