"""Curves on one axis of time: peaks stay exact, processes are added up once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from otel_quant.format.curve import Curve, RecordedCurve
from otel_quant.format.series import MEMORY
from otel_quant.recordings.compared_runs import ComparedRun, common_time, compared_run
from otel_quant.recordings.model import RecordedRun, Recording, placed_steps, step_at
from otel_quant.recordings.reader import read
from otel_quant.views.charts import ChartSeries
from otel_quant.views.curves import bands_of, charts_of, comparison_charts, grid_of
from otel_quant.views.steps import subject_of
from tests.fixtures import recorded as built
from tests.fixtures.recorded import RecordedFolder


def curve(memory: list[int | None], *, late: float = 0.0, written: int = 0) -> RecordedCurve:
    """Returns a curve with a bucket each second."""
    made = Curve(1000)
    for second, value in enumerate(memory):
        if value is not None:
            levels = {"memory": value, "gpu.0.used": 10 * value, "gpu.0.process_used": value}
            made.add(1000 * second + 500, levels, {"disk.write": written * (second + 1)})
    return RecordedCurve(built.BEGAN_NS + round(late * 1e9), 0, made)


def test_curves_of_processes_are_added_up_except_for_shared_values() -> None:
    curves = {"1": curve([1, 5, 2], written=7), "2": curve([10, 20, None, 40], late=1.0, written=1)}
    grid = grid_of(curves, built.BEGAN_NS)
    assert grid is not None
    assert (grid.start, grid.every, len(grid.buckets), grid.parts) == (0.0, 1.0, 5, 2)
    assert grid.values("memory", "last") == (1, 15, 22, 20, 40)
    assert grid.values("gpu.0.process_used", "last") == (1, 15, 22, 20, 40)
    assert grid.values("gpu.0.used", "last") == (10, 100, 200, 200, 400)
    assert grid.peak("memory") == (40, 4.5)
    assert grid.values("disk.write") == (7, 15, 23, 23, 25)
    assert grid.rate("disk.write", 5.0) == (7.0, 15 / 2, 23 / 3, 23 / 4, 18 / 4)
    of_all = grid_of({**curves, "launcher": curve([30, 40])}, built.BEGAN_NS)
    assert of_all is not None
    assert of_all.values("memory") == (30, 40)


def test_a_long_curve_is_coarser_and_keeps_every_peak() -> None:
    grid = grid_of({"launcher": curve([100] * 12_345 + [999] + [100] * 37_654)}, built.BEGAN_NS)
    assert grid is not None
    assert len(grid.buckets) <= 1_200
    assert grid.peak("memory") == (999, 12_345.5)


def test_the_rate_of_a_total_is_even_where_readings_are_evenly_spaced() -> None:
    made = Curve(50)
    for reading in range(100):  # the first 0.2 s after the program began, and one every 62 ms
        made.add(62 * reading, {}, {"cpu": 1.5 * (0.2 + 0.062 * reading)})
    grid = grid_of(
        {"launcher": RecordedCurve(built.BEGAN_NS + 200_000_000, 0, made)}, built.BEGAN_NS
    )
    assert grid is not None
    rates = [rate for rate in grid.rate("cpu", 6.5) if rate is not None]
    assert rates == pytest.approx([1.5] * 100, rel=0.2)
    assert rates[16:] == pytest.approx([1.5] * 84, rel=0.05)


def test_a_worker_is_not_counted_twice_with_its_parent() -> None:
    run = RecordedRun(id="1", process="1", pid=1, start=0.0, end=2.0, state="ended")
    recording = Recording(
        path=Path("r"),
        began_ns=built.BEGAN_NS,
        state="ended",
        duration=2.0,
        runs=(run, replace(run, id="2", process="2", pid=2, parent_pid=1)),
        curves={"1": curve([1, 2]), "2": curve([30, 40])},
    )
    memory = charts_of(recording, subject_of(recording))[0]
    assert memory.mark is not None
    assert (memory.mark.value, memory.note) == (2, "")


@pytest.mark.parametrize(
    ("since", "highest", "at"),
    [
        (2200, "Highest 90.0 MB at 2.31 s in Calibration.", 2.31),
        (0, "Highest 90.0 MB.", None),  # of the kernel, after the program's end
    ],
)
def test_a_peak_has_a_mark_only_where_its_time_is_known(
    tmp_path: Path, since: int, highest: str, at: float | None
) -> None:
    folder = RecordedFolder(tmp_path / "r", by_launcher=True)
    process = folder.process().begin(0)
    process.close(process.step("Calibration", 1), 3)
    process.end(4)
    seen = {"memory": 90 * built.MB}, {f"{MEMORY}.since": since}
    folder.curve([(2.31, *seen), (3.5, {"memory": 40 * built.MB}, {})])
    recording = read(tmp_path / "r")
    memory = charts_of(recording, subject_of(recording))[0]
    assert memory.summary == highest
    assert (memory.mark and memory.mark.time) == (at and pytest.approx(at))


def test_a_curve_that_begins_before_its_recording_has_rates() -> None:
    grid = grid_of({"launcher": curve([1, 2, 3], late=-1.0, written=7)}, built.BEGAN_NS)
    assert grid is not None
    assert grid.rate("disk.write", 2.0) == (7.0, 7.0, 7.0)


@pytest.mark.parametrize("curves", [{}, {"1": RecordedCurve(0, 0, Curve(1000))}])
def test_no_readings_make_no_grid(curves: dict[str, RecordedCurve]) -> None:
    assert grid_of(curves, built.BEGAN_NS) is None


def test_nested_and_simultaneous_steps_have_their_own_rows() -> None:
    steps = (
        built.step(0, "outer", 0.0, 10.0),
        built.step(1, "inner", 1.0, 5.0, parent=0),
        built.step(2, "beside", 2.0, 6.0, parent=0),
        built.step(3, "after", 6.0, 9.0, parent=0),
        built.step(4, "open", 11.0, None),
    )
    run = RecordedRun(id="1", process="1", start=0.0, state="running", steps=steps)
    shown = placed_steps([run], 12.0)
    assert [(each.name, each.row, each.depth, each.end) for each in bands_of(shown)] == [
        ("outer", 0, 0, 10.0),
        ("inner", 1, 1, 5.0),
        ("beside", 2, 1, 6.0),
        ("after", 1, 1, 9.0),
        ("open", 0, 0, 12.0),
    ]
    later = placed_steps([replace(run, steps=(built.step(0, "only", 3.0, 10.0),))], 12.0)
    assert [(each.name, each.start, each.end) for each in bands_of(later)] == [
        ("(before the first step)", 0.0, 3.0),
        ("only", 3.0, 10.0),
    ]
    found = step_at(shown, 5.5)
    assert found is not None
    assert found.names == ("outer", "beside")
    assert step_at(shown, 10.5) is None


def recorded(path: Path, first_step: float) -> ComparedRun:
    """Returns a run of two steps that hold 100 and 300 MB, read every 0.4 s; the second takes 2 s."""
    folder = RecordedFolder(path, by_launcher=True)
    process = folder.process().begin(0)
    process.close(process.step("Calibration", 0), first_step)
    process.close(process.step("Post-process", first_step), first_step + 2)
    process.end(first_step + 2)
    times = [number * 0.4 for number in range(int((first_step + 2) / 0.4) + 1)]
    folder.curve(
        ((at, {"memory": (300 if at > first_step else 100) * built.MB}, {}) for at in times),
        interval=0.5,
    )
    return compared_run(path.name, read(path))


def test_the_curve_of_a_shorter_step_stays_constant_until_both_begin_the_next(
    tmp_path: Path,
) -> None:
    base, new = recorded(tmp_path / "base", 2.3), recorded(tmp_path / "new", 4.3)
    (chart,) = comparison_charts(("base", "new"), (base, new), common_time(base, new))
    assert not chart.is_flat
    assert chart._replace(is_large=False, series=[ChartSeries("same", (7.0, None, 7.1))]).is_flat
    for line in chart.series:
        before = [value for at, value in zip(chart.times, line.values, strict=True) if at < 4.29]
        after = [value for at, value in zip(chart.times, line.values, strict=True) if 4.9 < at < 6]
        assert (line.label, set(before), set(after)) == (
            line.label,
            {100 * built.MB},
            {300 * built.MB},
        )
