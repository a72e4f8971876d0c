"""The curves of two runs on one axis, on which every step begins at the same place."""

from __future__ import annotations

from pathlib import Path

from otel_quant.recordings.comparison.runs import ComparedRun, common_time, compared_run
from otel_quant.recordings.reader import read
from otel_quant.views.curves import comparison_charts
from tests.fixtures.recorded import RecordedFolder

MB = 10**6


def recorded(path: Path, first_step: float) -> ComparedRun:
    """Returns a run of two steps that hold 100 and 300 MB, read every 0.4 s; the second takes 2 s."""
    folder = RecordedFolder(path, by_launcher=True)
    process = folder.process().begin(0)
    process.close(process.step("Calibration", 0), first_step)
    process.close(process.step("Post-process", first_step), first_step + 2)
    process.end(first_step + 2)
    process.gone()
    times = [number * 0.4 for number in range(int((first_step + 2) / 0.4) + 1)]
    folder.curve(
        ((at, {"memory": (300 if at > first_step else 100) * MB}, {}) for at in times), interval=0.5
    )
    return compared_run(path.name, read(path))


def test_the_shorter_step_waits_with_its_own_memory_until_both_begin_the_next(
    tmp_path: Path,
) -> None:
    base, new = recorded(tmp_path / "base", 2.3), recorded(tmp_path / "new", 4.3)
    (chart,) = comparison_charts(("base", "new"), (base, new), common_time(base, new))
    for line in chart.series:
        before = [value for at, value in zip(chart.times, line.values, strict=True) if at < 4.29]
        after = [value for at, value in zip(chart.times, line.values, strict=True) if 4.9 < at < 6]
        assert (line.label, set(before), set(after)) == (line.label, {100 * MB}, {300 * MB})
