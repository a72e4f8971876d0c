"""Whole log records, of checkpoints and of readings between them, and what each signal shows of a forecast."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from otel_quant.export.recording_sink import RecordingSink
from otel_quant.recordings.reader import read
from otel_quant.schema import semconv
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
from tests.fixtures.figures import named, peaks_of
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
        semconv.CHECKPOINT_NAME: name, semconv.CHECKPOINT_PHASE: phase,
        semconv.CHECKPOINT_SEQUENCE: sequence, semconv.CHECKPOINT_ELAPSED: elapsed,
        semconv.CHECKPOINT_MEMORY_LIMIT: 8000, **RUN_IDS, "process.pid": 4711,
    }  # fmt: skip


def device(index: int, **figures: tuple[int, int, int, int]) -> dict[str, Any]:
    """What is known of a GPU; each figure at the start and at the end, the difference, and the peak."""
    known = {
        f"{name}.{part}": value
        for name, values in figures.items()
        for part, value in zip(("start", "end", "delta", "peak"), values, strict=True)
    }
    prefixed = {named(f"quant.gpu.device.{name}"): value for name, value in known.items()}
    limit = {named("quant.gpu.device.index"): index, named("quant.gpu.device.memory.limit"): 10_000}
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
    event, later = semconv.DEVICE_EVENT, BEGAN + 2 * SECOND
    return [
        (event, f"{name}: {each['hw.id']}", "INFO", later, {**RUN_IDS, **common, **each})
        for each in OF_DEVICES
    ]


ANSWER = "Memory peaked at 4.00 kB: 50.0 % of the limit of 8.00 kB."


def test_each_checkpoint_is_a_log_record_and_is_sent_at_once() -> None:
    signals = Signals()
    sent: list[None] = []
    send_run(signals.logs_sink(lambda: sent.append(None)))
    later, event = BEGAN + 2 * SECOND, semconv.CHECKPOINT_EVENT
    first, last = "My calibration Start", "My calibration End"
    assert signals.records() == [
        (event, "Start", "INFO", BEGAN, {**checkpoint(0, "Start", "start", 0.0), **AT_START}),
        (event, first, "INFO", BEGAN, {**checkpoint(1, first, "start", 0.0), **STEP_IDENTITY, **AT_START}),
        *of_devices(last, STEP_IDENTITY),
        (event, last, "INFO", later, {**checkpoint(2, last, "end", 2.0), **STEP_IDENTITY, **AT_END, **CUSTOM}),
        (semconv.MODEL_COST_EVENT, {"heaviest": [{"name": "/conv", "macs": 70}]}, "INFO", later,
         {**RUN_IDS, semconv.MODEL_ROLE: "float", semconv.MODEL_PATH: "m.onnx"}),
        (semconv.COST_FAILED_EVENT, {"message": "m.onnx is cut short"}, "WARN", later,
         {**RUN_IDS, semconv.MODEL_ROLE: "quantized"}),
        (event, "Mine", "INFO", later, {**checkpoint(3, "Mine", "point", 2.0), **AT_END}),
        *of_devices("End", {}),
        (semconv.ANSWER_EVENT, ANSWER, "INFO", later, {**RUN_IDS, semconv.RUN_ANSWER: ANSWER}),
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
        **checkpoint(1, "Bare Start", "start", 0.0), semconv.STEP_NAME: "Bare",
        semconv.STEP_KIND: "Bare", semconv.STEP_INDEX: 4,
    }  # fmt: skip


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
        peaks = Peaks(peaks_of(memory + 500))
        self.run.went_on(reading(second, memory, gpu), peaks, *steps)

    def checkpoint(self, second: float, memory: int) -> None:
        self.run.point("Mine", reading(second, memory))

    def records(self) -> list[tuple[Any, ...]]:
        return [each for each in self.signals.records() if each[0] != semconv.CHECKPOINT_EVENT]

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
            semconv.READING_EVENT, "My calibration", "INFO", BEGAN + 29 * SECOND,
            {
                **RUN_IDS, "process.pid": 4711, **STEP_IDENTITY,
                semconv.READING_ELAPSED: 29.0, semconv.READING_MEMORY: 1200,
                named("quant.reading.process_memory"): 1190, named("quant.reading.gpu_memory"): 300,
                semconv.READING_MEMORY_PEAK: 1700, semconv.READING_MEMORY_LIMIT: 8000,
                semconv.READING_OPEN_STEPS: ("Model Quantization", "My calibration"),
                semconv.CALIBRATION_SAMPLE_COUNT: 37, semconv.CALIBRATION_SAMPLE_TOTAL: 512,
            },
        )
    ]  # fmt: skip


def test_a_reading_between_steps_has_no_open_step(run: Run) -> None:
    run.go_on(29, 1200)
    ((_, body, _, _, attributes),) = run.records()
    assert body == "quantization"
    assert {name for name in attributes if not name.startswith("quant.reading.")} == {
        semconv.RUN_ID, semconv.RUN_NAME, "process.pid", semconv.RUN_RANK,
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
LABELS: Final = {semconv.STEP_KIND: "Calibration", semconv.LIBRARY_NAME: "amd-quark"}


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
        semconv.FORECAST_MEMORY: 31_000_000_000,
        semconv.FORECAST_MEMORY_PER_SAMPLE: 56_600_000,
        semconv.FORECAST_MEMORY_LIMIT: 25_770_000_000,
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
        semconv.FORECAST_TIME_LEFT: [(LABELS, 60.5)],
        semconv.FORECAST_MEMORY: [(LABELS, 7_000)],
        semconv.FORECAST_GPU_MEMORY: [({**LABELS, "hw.id": "GPU-1"}, 90_000_000_000)],
    }
    go_on(run, time_left=None, stalled=65.2)
    assert shown() == {semconv.FORECAST_STALLED: [(LABELS, 65.2)]}
    run.closed(STEP, LATER)
    assert shown() == {}


def test_a_warning_is_one_log_record() -> None:
    signals = Signals()
    run = begun(signals.logs_sink())
    for growth in (FITS, EXCEEDS, EXCEEDS):
        go_on(run, growth)
    assert [record[1:] for record in signals.records() if record[0] == semconv.FORECAST_EVENT] == [
        (
            WORDS, "WARN", BEGAN + 2 * SECOND,
            {
                **RUN_IDS, **STEP_IDENTITY, semconv.FORECAST_TIME_LEFT: 60.5,
                semconv.CALIBRATION_SAMPLE_COUNT: 37, semconv.CALIBRATION_SAMPLE_TOTAL: 512,
                semconv.FORECAST_MEMORY: 31_000_000_000,
                semconv.FORECAST_MEMORY_PER_SAMPLE: 56_600_000,
                semconv.FORECAST_MEMORY_LIMIT: 25_770_000_000,
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
        semconv.FORECAST_GPU_MEMORY: 90_000_000_000,
        semconv.FORECAST_GPU_MEMORY_PER_SAMPLE: 104_000_000,
        semconv.FORECAST_GPU_MEMORY_LIMIT: 85_900_000_000,
        "hw.id": "GPU-1",
    }
