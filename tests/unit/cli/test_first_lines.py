"""The first lines on a run say nothing that is untrue of the whole, and nothing that nobody needs to know."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from otel_quant.recordings.model import Ending
from otel_quant.recordings.reader import read
from otel_quant.schema import semconv
from otel_quant.views.answer import outcome, sentences
from otel_quant.views.endings import ending_parts
from otel_quant.views.steps import step_table, subject_of
from tests.fixtures.recorded import BEGAN, MB, RecordedFolder

UNFINISHED = "otel_quant.capture.recorder.recorder.UnfinishedStepError"


def threads(made: RecordedFolder) -> None:
    process = made.process(1, os.getpid()).begin(0.2)
    steps = [process.step("Shard", 0.2) for _ in range(4)]
    for at, step in enumerate(steps):
        process.close(step, 1.2 + at / 10)
    process.close(process.step("Merge", 1.5), 2)
    process.end(2)
    made.ended(Ending(time=2.0, exit_code=0))


def survived(made: RecordedFolder) -> None:
    process = made.process(1, os.getpid()).begin(0.2)
    for at in (1, 2):
        outer = process.step("Model", at)
        inner = process.step("Layer", at, outer)
        process.close(inner, at + 0.5, error="ValueError", error_message=f"layer {at}")
        process.close(outer, at + 0.5, error="ValueError", error_message=f"layer {at}")
    watcher = process.step("Watcher", 3)
    process.close(watcher, 4, error=UNFINISHED, error_message="the run ended")
    process.end(4)
    made.ended(Ending(time=4.0, exit_code=0))


def nothing(made: RecordedFolder) -> None:
    made.process(1, os.getpid()).begin(0.1).end(5, error="ValueError", error_message="no file")
    made.ended(Ending(time=5.0, exit_code=1, error="ValueError", evidence="ValueError: no file."))


def outlived(made: RecordedFolder) -> None:
    program = made.process(11, os.getpid()).begin(0.1)
    program.close(program.step("Quantize", 0.1), 1)
    program.end(1)
    daemon = made.process(12, 1).begin(0.9, "b" * 16)
    daemon.close(daemon.step("Upload", 0.9), 4)
    daemon.end(4)
    made.ended(Ending(time=1.0, exit_code=0))


def pool(made: RecordedFolder) -> None:
    for pid, start in ((12, 1.0), (13, 1.1)):
        worker = made.process(pid, 11).begin(start, f"{pid:016x}")
        worker.step("Shard", start)
        worker.gone()
    broken = "concurrent.futures.process.BrokenProcessPool"
    program = made.process(11, os.getpid()).begin(1.6, "b" * 16)
    program.end(1.6, error=broken, error_message="A process was terminated abruptly")
    made.curve([(0.5, {"memory": 90 * MB}, {}), (1.5, {"memory": 300 * MB}, {})])
    began, ended = (round((BEGAN + at) * 1e9) for at in (0.9, 1.7))
    killed = {"pid": 12, "name": "python x.py", "signal": "SIGKILL", "began": began, "ended": ended}
    ending = Ending(time=1.8, exit_code=1, process="process 12", process_signal="SIGKILL")
    made.ended(ending, failed=[killed])


def killed_within(made: RecordedFolder) -> None:
    """A worker without a step is killed, of which the program's exception does not tell."""
    made.process(12, 11).begin(0.5, "a" * 16).gone()
    program = made.process(11, os.getpid()).begin(0, "b" * 16)
    error = {"error": "EOFError", "error_message": "raised at read (x.py:3)"}
    program.close(program.step("Calibration", 0), 1.6, **error)
    program.end(1.6, **error)
    began, ended = (round((BEGAN + at) * 1e9) for at in (0.5, 1.5))
    killed = {"pid": 12, "name": "python x.py", "signal": "SIGKILL", "began": began, "ended": ended}
    ending = Ending(time=1.8, exit_code=1, process="process 12", process_signal="SIGKILL")
    made.ended(ending, failed=[killed])


def together(made: RecordedFolder) -> None:
    """The highest memory is that of a step with a worker's, in which a step was open as well."""
    program = made.process(11, os.getpid()).begin(0, "b" * 16)
    of_all = program.step("All", 0)
    worker = made.process(12, 11).begin(0, "a" * 16)
    worker.close(worker.step("Shard", 1), 2, attributes={semconv.MEMORY_PEAK: 100 * MB})
    worker.end(2)
    program.close(of_all, 2, attributes={semconv.MEMORY_PEAK: 300 * MB})
    program.end(2)
    made.curve([(1.5, {"memory": 299 * MB}, {})])
    made.ended(Ending(time=2, exit_code=0))


def held(made: RecordedFolder) -> None:
    """What one step has brought is still there when the next begins, and is read there first."""
    process = made.process(1, os.getpid()).begin(0)
    for at, start in ((0, 30), (1, 300)):
        of_step = {semconv.MEMORY_START: start * MB, semconv.MEMORY_PEAK: 300 * MB}
        process.close(process.step(("Load", "Quantize")[at], at), at + 1, attributes=of_step)
    process.end(2)
    made.curve([(1.05, {"memory": 300 * MB}, {})])
    made.ended(Ending(time=2, exit_code=0))


@pytest.mark.parametrize(
    ("program", "lines", "rows"),
    [
        (held, [
            "x.py finished in 2.00 s.",
            "Memory peaked at 300 MB in Load, 1.05 s after the start.",
            "2 steps took 2.00 s of 2.00 s, the longest Load: 1.00 s, 50.0 % of the run.",
        ], ["Load", "Quantize"]),
        (threads, [
            "x.py finished in 2.00 s.",
            "5 steps took 1.80 s of 2.00 s, most of it Shard (4 times): 1.30 s, 65.0 % of the run.",
        ], ["(before the first step)", *["Shard"] * 4, "Merge"]),
        (survived, [
            "x.py finished in 4.00 s.",
            "Layer raised ValueError: layer 1; the program survived it and 1 more.",
            "Not ended when the program did: Watcher.",
            "5 steps took 2.00 s of 4.00 s, the longest Model > Layer (2 times): 1.00 s, 25.0 % of the run.",
            "1.00 of 4.00 s passed before the first step.",
            "1.00 of 4.00 s passed between steps.",
        ], ["(before the first step)", *["Model", "Layer"] * 2, "Watcher", "(between steps)"]),
        (nothing, [
            "x.py failed with exit code 1 after 5.00 s.", "ValueError: no file.", "No step was recorded.",
        ], ["(outside of steps)"]),
        (outlived, [
            "x.py finished in 1.00 s.",
            "2 steps in 2 processes took 900 ms of 1.00 s, most of it Quantize: 900 ms in one process, 90.0 % of the run.",
            "Upload went on for 3.00 s after the program had ended.",
        ], ["(before the first step)", "Quantize", "Upload"]),
        (pool, [
            "x.py failed with exit code 1 after 1.80 s.", "worker 12 was killed by SIGKILL.",
            "1.00 of 1.80 s passed before the first step.",
            "Memory of all processes peaked at 300 MB in Shard, 1.50 s after the start.",
            "2 steps in 2 processes took 800 ms of 1.80 s, most of it Shard: 700 ms in one process, 38.9 % of the run.",
        ], ["(before the first step)", "Shard", "Shard"]),
        (killed_within, [
            "x.py failed with exit code 1 after 1.80 s.", "worker 12 was killed by SIGKILL.",
            "Calibration raised EOFError: raised at read (x.py:3).",
            "Calibration took 1.60 s of 1.80 s.",
        ], ["Calibration", "(after the last step)"]),
        (together, [
            "x.py finished in 2.00 s.",
            "Memory of all processes peaked at 300 MB in Shard, 1.50 s after the start.",
            "2 steps in 2 processes took 2.00 s of 2.00 s, most of it All: 2.00 s in one process, 100.0 % of the run.",
        ], ["All", "Shard"]),
    ],
)  # fmt: skip
def test_what_is_said_first_is_true_of_the_whole(
    tmp_path: Path, program: Callable[[RecordedFolder], None], lines: list[str], rows: list[str]
) -> None:
    origin = {semconv.PROCESS_COMMAND_LINE: "python x.py"}
    program(RecordedFolder(tmp_path / "r", origin, by_launcher=True))
    recording = read(tmp_path / "r")
    subject = subject_of(recording)
    told = [
        str(value) for part in ending_parts(recording) for _, value in getattr(part, "rows", ())
    ]
    shown = [f"{outcome(recording, subject)}.", *sentences(recording, subject)]
    assert [*shown, *told] == lines
    table = step_table(recording, recording.runs)
    assert [row.cells[0] for row in table.full_rows] == rows
