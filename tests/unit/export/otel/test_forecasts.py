"""What each signal shows of a forecast, by the real SDK."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from otel_quant.export.recording.sink import RecordingSink
from otel_quant.recordings.reader import read
from otel_quant.schema.events import Sink
from otel_quant.schema.records import (
    Forecast,
    GrowthForecast,
    StepProgress,
)
from tests.fixtures.sent import SentRun
from tests.unit.export.otel.literal_run import BEGAN, LATER, RUN, SECOND, START, STEP
from tests.unit.export.otel.signals import Signals

FITS: Final = GrowthForecast("memory", at_end=7_000, per_sample=10, limit=8_000)
EXCEEDS: Final = GrowthForecast(
    "memory", at_end=31_000_000_000, per_sample=56_600_000, limit=25_770_000_000, is_warning=True
)
GPU: Final = GrowthForecast("gpu", 90_000_000_000, 104_000_000, 85_900_000_000, "GPU-1", True)
WORDS: Final = (
    "My calibration, sample 37 of 512: memory grows by 56.6 MB with each sample and would be "
    "31,000 MB after the last one (estimated); the limit (cgroup) is 25,770 MB. Fewer or smaller "
    "samples, or a calibration method that keeps less, would help"
)
LABELS: Final = {"quant.step.kind": "Calibration", "quant.library.name": "amd-quark"}


def begun(sink: Sink) -> SentRun:
    run = SentRun(RUN, START, sink)
    run.began()
    run.opened(STEP)
    return run


def go_on(
    run: SentRun,
    *growths: GrowthForecast,
    time_left: float | None = 60.5,
    stalled: float | None = None,
) -> None:
    forecast = Forecast(time_left, growths, stalled)
    run.went_on(LATER, None, StepProgress(STEP, 37, 512, forecast))


def test_a_recording_has_the_warning_on_its_step_as_the_span_has(tmp_path: Path) -> None:
    sink = RecordingSink(
        tmp_path,
        lambda step: None,
        takes_curve=False,
        interval=0,
    )
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
                "quant.run.id": "0123456789abcdef",
                "quant.run.name": "quantize small 2023-11-14T22:13:20.000Z",
                "quant.run.rank": 1,
                "quant.step.name": "My calibration",
                "quant.step.kind": "Calibration",
                "quant.step.index": 3,
                "quant.library.name": "amd-quark",
                "quant.calibration.sample_count": 37,
                "quant.calibration.sample_total": 512,
                "quant.forecast.time_left": 60.5,
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
