"""The file with the last reading, and how it is found beside a profile."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from otel_quant.export.quark_yaml.columns import ProgramMetrics
from otel_quant.export.quark_yaml.sink import QuarkYamlSink
from otel_quant.recordings.reader import read
from otel_quant.schema import semconv
from otel_quant.schema.events import Event
from otel_quant.schema.figures import GPU, MEMORY
from otel_quant.schema.readings import (
    Count,
    Counts,
    GpuReading,
    Limits,
    MemoryReading,
    Peaks,
    Reading,
    RunInfo,
    StepInfo,
    StepProgress,
)
from tests.fixtures.figures import named, peaks_of
from tests.fixtures.programs import child
from tests.fixtures.sent import SentRun

MIB = 1 << 20
RUN = RunInfo(id="0123456789abcdef", pid=4711, limits=Limits(8000 * MIB, "cgroup"))
NAME = "profile.0123456789abcdef.last_reading.json"


def reading(second: int, memory: int) -> Reading:
    return Reading(
        time_ns=1_700_000_000_500_000_000 + second * 1_000_000_000,
        clock_ns=second * 1_000_000_000,
        resources={
            "memory": MemoryReading(rss=memory * MIB, tree_rss=memory * MIB),
            "gpu": (GpuReading(0, "GPU-0", None, 30 * MIB), GpuReading(1, "GPU-1", None, 5 * MIB)),
        },
    )


START = reading(0, 100)


def progress(second: int, memory: int, *steps: StepProgress) -> Event:
    peaks = Peaks(peaks_of((memory + 7) * MIB, 40 * MIB))
    return SentRun(RUN, START).went_on(reading(second, memory), peaks, *steps)


class Run:
    """A run that has a local file."""

    def __init__(self, path: Path) -> None:
        self.sink = QuarkYamlSink(path, ProgramMetrics((MEMORY, GPU)))

    def start(self) -> None:
        SentRun(RUN, START, self.sink).began()

    def end(self) -> None:
        SentRun(RUN, START, self.sink).ended(START)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    run = Run(tmp_path / "profile.yaml")
    run.start()
    return run


def files_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def content_of(path: Path) -> Any:
    return json.loads(path.read_text())


def memory_in(folder: Path) -> Any:
    return content_of(folder / NAME)["attributes"][semconv.READING_MEMORY] / MIB


def test_the_file_has_the_newest_reading_and_the_open_steps(run: Run, tmp_path: Path) -> None:
    assert files_in(tmp_path) == ["profile.yaml"]
    run.sink.reading_taken(progress(1, 200))
    step = StepInfo(0, "Model Quantization", "Model Quantization")
    inner = StepInfo(1, 'My "calibration"', "Calibration")
    run.sink.reading_taken(
        progress(2, 300, StepProgress(step), StepProgress(inner, Counts(sample=Count(37, 512))))
    )
    assert files_in(tmp_path) == [NAME, "profile.yaml"]
    assert content_of(tmp_path / NAME) == {
        "schema": 1, "time": 1_700_000_002_500_000_000, "clock": 2_000_000_000,
        "run": "0123456789abcdef", "began": 1_700_000_000_500_000_000,
        "attributes": {
            semconv.RUN_ID: "0123456789abcdef", "process.pid": 4711, semconv.READING_ELAPSED: 2.0,
            semconv.READING_MEMORY: 300 * MIB, named("quant.reading.process_memory"): 300 * MIB,
            semconv.READING_MEMORY_PEAK: 307 * MIB, semconv.READING_MEMORY_LIMIT: 8000 * MIB,
            named("quant.reading.gpu_memory"): 35 * MIB, named("quant.reading.gpu_memory_peak"): 40 * MIB,
            semconv.READING_OPEN_STEPS: ["Model Quantization", 'My "calibration"'],
            semconv.STEP_NAME: 'My "calibration"', semconv.STEP_KIND: "Calibration",
            semconv.STEP_INDEX: 1, semconv.CALIBRATION_SAMPLE_COUNT: 37,
            semconv.CALIBRATION_SAMPLE_TOTAL: 512,
        },
        "steps": [{"index": 0}, {"index": 1, "samples": 37, "expected": 512}],
    }  # fmt: skip


def test_the_end_of_the_run_removes_the_file_for_good(run: Run, tmp_path: Path) -> None:
    run.sink.reading_taken(progress(1, 200))
    run.end()
    assert files_in(tmp_path) == ["profile.yaml"]
    run.sink.reading_taken(progress(2, 200))  # the sampler's last, which has come late
    assert files_in(tmp_path) == ["profile.yaml"]


def test_the_file_moves_with_the_profile(run: Run, tmp_path: Path) -> None:
    run.sink.reading_taken(progress(1, 200))
    (tmp_path / "out").mkdir()
    run.sink.move(tmp_path / "out" / "other.yaml")
    run.sink.reading_taken(progress(2, 200))
    assert files_in(tmp_path) == ["out"]
    assert files_in(tmp_path / "out") == [
        "other.0123456789abcdef.last_reading.json", "other.yaml",
    ]  # fmt: skip


def test_a_forked_child_leaves_the_file_alone(run: Run, tmp_path: Path) -> None:
    run.sink.reading_taken(progress(1, 200))
    pid = os.fork()
    if pid == 0:
        run.sink.forget()
        run.sink.reading_taken(progress(2, 900))
        run.end()
        os._exit(0)
    os.waitpid(pid, 0)
    assert memory_in(tmp_path) == 200


def test_there_is_no_file_without_a_profile(tmp_path: Path) -> None:
    run = Run(tmp_path / "profile.yaml")
    run.sink.reading_taken(progress(1, 200))
    assert files_in(tmp_path) == []


def test_a_later_run_at_the_same_path_keeps_the_last_reading_of_one_that_was_killed(
    run: Run, tmp_path: Path
) -> None:
    run.sink.reading_taken(progress(1, 200))
    run.sink.forget()  # as if the process had ended
    later = QuarkYamlSink(tmp_path / "profile.yaml", ProgramMetrics((MEMORY,)))
    second = SentRun(RunInfo("later", 4712), START, later)
    second.began()
    second.went_on(reading(1, 300))
    assert files_in(tmp_path) == [
        NAME, "profile.1.yaml", "profile.later.last_reading.json", "profile.yaml",
    ]  # fmt: skip
    assert memory_in(tmp_path) == 200


def test_a_kill_at_any_moment_leaves_a_complete_record(tmp_path: Path) -> None:
    chance = random.Random(4711)
    steps = [StepProgress(StepInfo(n, "x" * 80, "x")) for n in range(16)]
    for trial in range(12):
        folder = tmp_path / str(trial)
        folder.mkdir()
        reader, writer = os.pipe()

        def write(folder: Path = folder, writer: int = writer) -> None:
            run = Run(folder / "profile.yaml")
            run.start()
            for number in range(1, 10_000_000):
                run.sink.reading_taken(progress(number, number % 1000 + 1, *steps[number % 16 :]))
                if number == 1:
                    os.write(writer, b".")

        pid = child(write)
        os.read(reader, 1)
        time.sleep(chance.uniform(0, 0.05))
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(reader)
        os.close(writer)
        content = content_of(folder / NAME)
        number = content["clock"] // 1_000_000_000
        assert len(content["steps"]) == 16 - number % 16
        assert memory_in(folder) == number % 1000 + 1
        assert files_in(folder) == [NAME, "profile.yaml"]


def profile(path: Path, *seconds: int, end: str = "") -> Path:
    """Makes a profile with checkpoints at these seconds of the run."""
    text = "# Quark Profiling Results\n\nmemory_usage:\n"
    for second in seconds:
        text += f'- step: "S{second}"\n  timestamp: {1_700_000_000.5 + second}\n'
    path.write_text(text + end)
    return path


def test_a_reading_is_found_beside_a_renamed_profile(run: Run, tmp_path: Path) -> None:
    run.sink.reading_taken(progress(5, 200))
    (tmp_path / "profile.a.last_reading.json").write_text("{")
    (tmp_path / "profile.b.last_reading.json").write_text('["began"]')
    (tmp_path / "profile.c.last_reading.json").write_text(
        '{"time": 2, "clock": 2, "run": "", "began": 1}'
    )
    last = read(profile(tmp_path / "profile.1.yaml", 0, 4)).runs[0].last
    assert last is not None
    assert (last.time, last.attributes[semconv.READING_MEMORY]) == (5, 200 * MIB)


def test_a_reading_is_not_shown_for_a_newer_complete_or_different_profile(
    run: Run, tmp_path: Path
) -> None:
    run.sink.reading_taken(progress(5, 200))
    path = tmp_path / "other.yaml"
    ended = '- step: "End"\n  timestamp: 1700000004.5\ntotal: 1\n# - step: A\n# - timestamp: A\n# - total: A\n'
    for seconds, end in (((0, 6), ""), ((0, 4), ended), ((1, 4), "")):
        assert read(profile(path, *seconds, end=end)).runs[0].last is None
