"""What a run that ends tells of itself, in the words that its recording is shown with."""

from __future__ import annotations

from pathlib import Path

import pytest

from otel_quant.diagnosis.headline import StepTimes
from otel_quant.recordings.reader import read
from otel_quant.schema import semconv
from otel_quant.views.answer import sentences
from otel_quant.views.steps import subject_of
from tests.fixtures.recorded import RecordedFolder

GB = 10**9
S = 10**9


def test_the_program_says_what_its_recording_is_shown_with_less_what_it_cannot_know(
    tmp_path: Path,
) -> None:
    times = StepTimes()
    times.begin(10 * S)
    times.begin(11 * S)
    times.end(["Quantize", "Calibration"], 7 * S, 18 * S, 1.37 * GB)
    times.end(["Quantize"], 9 * S, 19 * S, 1.37 * GB)
    times.begin(25 * S)
    times.end(["Export"], 1 * S, 26 * S, 0.4 * GB)
    answer = times.answer(1.37 * GB, 25.3 * GB, "ValueError: no layer")
    assert answer == (
        "Failed with ValueError: no layer. "
        "Memory peaked at 1.37 GB in Quantize > Calibration: 5.4 % of the limit of 25.3 GB. "
        "3 steps took 10.0 s, most of it Quantize > Calibration: 7.00 s."
    )
    process = (
        RecordedFolder(tmp_path / "r")
        .process()
        .begin(0, attributes={semconv.MEMORY_LIMIT: 25.3 * GB})
    )
    outer, peak = process.step("Quantize", 10), {semconv.MEMORY_PEAK: 1_370_000_000}
    inner = process.step("Calibration", 11, outer)
    process.close(inner, 18, attributes=peak)
    process.close(outer, 19, attributes=peak)
    process.close(process.step("Export", 25), 26, attributes={semconv.MEMORY_PEAK: 400_000_000})
    process.end(26, attributes=peak)
    process.gone()
    recording = read(tmp_path / "r")
    shown = [*sentences(recording, subject_of(recording))]
    assert (
        "Memory peaked at 1.37 GB in Quantize > Calibration: 5.4 % of the limit of 25.3 GB."
        in shown
    )
    assert (
        "3 steps took 10.0 s of 26.0 s, most of it Quantize > Calibration: 7.00 s, 26.9 % of the run."
        in shown
    )


@pytest.mark.parametrize(
    ("peak", "limit", "said"),
    [
        # A peak after the last step is in none.
        (2 * GB, None, "Memory peaked at 2.00 GB. A took 2.00 s."),
        (1 * GB, 0.8 * GB, "Memory peaked at 1.00 GB in A: 125.0 % of the limit of 800 MB, which counts what processes share once. A took 2.00 s."),
        (None, 1 * GB, "A took 2.00 s."),
    ],
)  # fmt: skip
def test_what_is_not_known_is_left_out(peak: float | None, limit: float | None, said: str) -> None:
    times = StepTimes()
    times.begin(0)
    times.end(["A"], 2 * S, 2 * S, 1 * GB)
    assert times.answer(peak, limit, None) == said


def test_steps_beside_each_other_and_steps_without_an_end_count_no_time_twice() -> None:
    times = StepTimes()
    for clock in (0, 1 * S, 2 * S):
        times.begin(clock)
    times.drop()
    times.end(["B"], 3 * S, 4 * S, None)
    times.end(["A"], 6 * S, 6 * S, None)
    assert times.answer(None, None, None) == "2 steps took 6.00 s, most of it A: 6.00 s."
    assert StepTimes().answer(None, None, None) == ""
