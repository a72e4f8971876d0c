"""The time outside of steps has rows like steps: their time, their memory and their CPU time are the curve's."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from otel_quant.format.series import SINCE
from otel_quant.recordings import summary
from otel_quant.recordings.model import PlacedStep, Recording
from otel_quant.recordings.outside import outside_of, row_of, words_of
from otel_quant.recordings.reader import read
from otel_quant.schema import semconv
from otel_quant.schema.code_lines import AFTER, BEFORE, BETWEEN
from otel_quant.views.answer import sentences
from otel_quant.views.steps import subject_of
from tests.fixtures.recorded import MB, RecordedFolder

CURVE = [
    (0.5, {"memory": 10 * MB}, {"cpu": 0.4}),
    (3.0, {"memory": 90 * MB}, {"cpu": 2.0}),
    (3.9, {"memory": 60 * MB}, {"cpu": 3.0}),
    (5.0, {"memory": 200 * MB}, {"cpu": 5.0}),
    (6.5, {"memory": 70 * MB}, {"cpu": 5.5}),
    (8.0, {"memory": 150 * MB}, {"cpu": 6.0}),
    (9.5, {"memory": 250 * MB}, {"cpu": 8.0}),
    (9.9, {"memory": 80 * MB}, {"cpu": 8.0}),
]
"""Steps are from 4 to 6 and from 7 to 9 s."""


def rows(recording: Recording) -> Sequence[PlacedStep]:
    return outside_of(recording)


def shown(recording: Recording) -> dict[str, tuple[float | None, ...]]:
    """Returns the seconds, the memory at start, end and peak in MB, and the CPU time of each row."""
    names = (semconv.MEMORY_START, semconv.MEMORY_END)
    found = {}
    for each in rows(recording):
        known = summary.StepSummary(recording, each.run)
        figures = [each.step.attributes.get(name) for name in names]
        figures.append(known.value(each.step, summary.MEMORY_PEAK))
        in_mb = [None if figure is None else float(figure) / MB for figure in figures]
        cpu = known.value(each.step, summary.CPU_TIME)
        found[each.step.name] = (each.duration, *in_mb, cpu and round(cpu, 2))
    return found


def lines(recording: Recording) -> dict[int | None, list[str | None]]:
    """Returns to which row belongs what each process has seen before, between and after its steps."""
    found = {
        run.pid: [row_of(recording, run, index) for index in (BEFORE, BETWEEN, AFTER)]
        for run in recording.runs
    }
    return {
        pid: [row and words_of(row).split()[0] for row in every] for pid, every in found.items()
    }


def two_steps(folder: Path, *, process: str = "launcher") -> Recording:
    made = RecordedFolder(folder, by_launcher=process == "launcher")
    steps = made.process(4711, os.getpid()).begin(4)
    for at in (4, 7):
        steps.close(steps.step("Calibration", at), at + 2)
    steps.end(10)
    made.curve(CURVE, process, interval=0.1)
    return read(folder)


@pytest.mark.parametrize("process", ["launcher", "4711"])
def test_the_rows_have_the_time_and_the_figures_of_the_curve(tmp_path: Path, process: str) -> None:
    assert shown(two_steps(tmp_path / "r", process=process)) == {
        "(before the first step)": (4.0, None, 60.0, 90.0, 3.0),
        "(between steps)": (1.0, 200.0, 70.0, 200.0, 0.5),
        "(after the last step)": (1.0, 150.0, 80.0, 250.0, 2.0),
    }


def test_what_was_before_a_processes_own_curve_is_not_known(tmp_path: Path) -> None:
    recording = two_steps(tmp_path / "r", process="4711")
    recording.curves["4711"] = replace(
        recording.curves["4711"], began_ns=recording.began_ns + 10**9
    )
    assert shown(recording)["(before the first step)"] == (4.0, None, 90.0, None, None)


def test_an_old_recording_without_a_curve_has_times_alone(tmp_path: Path) -> None:
    recording = two_steps(tmp_path / "r")
    (tmp_path / "r" / "curve.launcher.jsonl").unlink()
    assert shown(read(recording.path)) == {
        "(before the first step)": (4.0, None, None, None, None),
        "(between steps)": (1.0, None, None, None, None),
        "(after the last step)": (1.0, None, None, None, None),
    }


def test_the_headline_has_the_row_of_most_of_the_time_and_of_the_peak(tmp_path: Path) -> None:
    recording = two_steps(tmp_path / "r")
    assert list(sentences(recording, subject_of(recording)))[:3] == [
        "4.00 of 10.0 s passed before the first step.",
        "Memory peaked at 250 MB after the last step, 9.50 s after the start.",
        "2 steps took 4.00 s of 10.0 s, most of it Calibration (2 times): 4.00 s, 40.0 % of the run.",
    ]


@pytest.mark.parametrize(
    ("mark", "known", "said"),
    [
        (100 * MB, {semconv.MEMORY_PROCESS_PEAK: 260 * MB}, (300.0, " after the last step")),
        (320 * MB, {semconv.MEMORY_PROCESS_PEAK: 260 * MB}, (250.0, "")),  # before the step
        (100 * MB, {semconv.MEMORY_PROCESS_PEAK: 295 * MB}, (250.0, "")),  # perhaps the same mark
        (100 * MB, {}, (250.0, "")),
    ],
)
def test_a_mark_that_is_known_at_the_end_alone_is_of_the_row_after_the_steps_or_of_none(
    mark: int, known: dict[str, int], said: tuple[float, str], tmp_path: Path
) -> None:
    made = RecordedFolder(tmp_path / "r", by_launcher=True)
    steps = made.process(4711, os.getpid()).begin(4)
    steps.close(steps.step("Calibration", 4, mark=mark), 6)
    steps.end(10, attributes=known)
    made.curve([*CURVE, (10.0, {"memory": 300 * MB}, {SINCE: 0})], interval=0.1)
    recording = read(tmp_path / "r")
    peak, where = said
    assert shown(recording)["(after the last step)"][3] == peak
    assert f"Memory peaked at 300 MB{where}." in list(sentences(recording, subject_of(recording)))


def test_the_time_outside_of_all_steps_is_that_of_the_process_that_started_the_workers(
    tmp_path: Path,
) -> None:
    made = RecordedFolder(tmp_path / "r", by_launcher=True)
    above = made.process(1, os.getpid()).begin(1, "a" * 16)
    for pid, start in ((2, 3), (3, 5)):
        worker = made.process(pid, 1).begin(start, f"{pid:016x}")
        worker.close(worker.step("Calibration", start), start + 3)
        worker.end(start + 3)
    above.end(10)
    recording = read(tmp_path / "r")
    assert {name: figures[0] for name, figures in shown(recording).items()} == {
        "(before the first step)": 3.0,
        "(after the last step)": 2.0,
    }
    assert all(each.run.pid == 1 for each in rows(recording))
    assert lines(recording) == {1: [None] * 3, 2: ["before", None, None], 3: [None, None, "after"]}


def test_lines_of_stages_are_of_their_time_and_of_ranks_those_of_the_first_and_the_last(
    tmp_path: Path,
) -> None:
    for name, second in (("stages", 6), ("ranks", 2)):
        made = RecordedFolder(tmp_path / name, by_launcher=True)
        for pid, start in ((2, 1), (3, second)):
            process = made.process(pid).begin(start, f"{pid:016x}")
            process.close(process.step("Calibration", start), start + 3)
            process.end(start + 4)
    stages, ranks = read(tmp_path / "stages"), read(tmp_path / "ranks")
    assert {name: figures[0] for name, figures in shown(stages).items()} == {
        "(before the first step)": 1.0,
        "(between steps)": 2.0,
        "(after the last step)": 1.0,
    }
    assert lines(stages) == {
        2: ["before", "between", "between"],
        3: ["between", "between", "after"],
    }
    assert lines(ranks) == {2: ["before", None, None], 3: [None, None, "after"]}


def test_a_run_without_a_step_has_one_row(tmp_path: Path) -> None:
    made = RecordedFolder(tmp_path / "r", by_launcher=True)
    made.process(1, os.getpid()).begin(5.2).end(5.2, error="ValueError")
    made.curve(CURVE[:4])
    assert shown(read(tmp_path / "r")) == {"(outside of steps)": (5.2, None, 200.0, 200.0, 5.0)}


def test_steps_and_the_time_around_them_name_their_largest_child_processes(tmp_path: Path) -> None:
    made = RecordedFolder(tmp_path / "r", by_launcher=True)
    steps = made.process(4711, os.getpid()).begin(4)
    steps.close(steps.step("Calibration", 4), 6)
    steps.end(8)
    worker = made.process(4, 4711).begin(5, "b" * 16)  # has a run of its own
    worker.end(6)
    every = {
        "python q.py (4711)": 0.5,
        "cc1plus (2)": 1,
        "cc1plus (3)": 2,
        "python q.py (4)": 5,
        "sh (5)": 7,
    }
    made.curve((at, {f"process.{name}": MB}, {}) for name, at in every.items())
    recording = read(tmp_path / "r")
    (run, _) = recording.runs
    known = summary.StepSummary(recording, run)
    of_rows = {each.step.name: known.children(each.step) for each in rows(recording)}
    assert of_rows == {"(before the first step)": "cc1plus x 2", "(after the last step)": "sh"}
    assert known.children(run.steps[0]) == ""


def test_rows_come_to_no_more_than_the_run_without_its_steps(tmp_path: Path) -> None:
    folder = RecordedFolder(tmp_path / "r", by_launcher=True)
    process = folder.process(parent=os.getpid()).begin(0)
    process.close(process.step("Calibration", 4), 4.5, attributes={semconv.DISK_WRITE: 90})
    process.end(10)
    folder.curve([(1, {}, {"disk.write": 10}), (9, {}, {"disk.write": 110})], interval=5)
    written = [row.step.attributes[semconv.DISK_WRITE] for row in rows(read(tmp_path / "r"))]
    assert sum(written) == pytest.approx(20)
