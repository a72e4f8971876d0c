"""A recording is read as it was written, whatever a kill, a full disk or a version has done to it."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from otel_quant.export.recording import layout
from otel_quant.export.recording.event_file import NewerSchemaError
from otel_quant.recordings.model import (
    Ending,
    LastReading,
    RecordedCheckpoint,
    RecordedRun,
    RecordedStep,
    Recording,
)
from otel_quant.recordings.reader import read
from tests.fixtures.recorded import BEGAN_NS, RecordedFolder, RecordedProcess

MIB = 1 << 20


def in_calibration(folder: RecordedFolder) -> RecordedProcess:
    """Returns a process whose run is in a calibration, at sample 37 of 512."""
    process = folder.process()
    process.begin(0.5, rank=3, world_size=4, trace_id="ab" * 16, span_id="cd" * 8)
    outer = process.step("Model Quantization", 1, checkpoint={"quant.checkpoint.memory": 100})
    inner = process.step("Calibration", 2, outer, attributes={"quant.library.name": "amd-quark"})
    process.expect(inner, 512, 2)
    process.heartbeat(32, {inner: 18}, **{"quant.reading.memory": 200})
    process.state(
        39.5,
        [{"index": outer}, {"index": inner, "samples": 37, "expected": 512}],
        **{"quant.reading.memory": 300},
    )
    return process


def test_a_killed_run_has_its_open_steps_and_last_readings(tmp_path: Path) -> None:
    folder = RecordedFolder(tmp_path / "r", {"process.command_line": "x.py"}, by_launcher=True)
    in_calibration(folder).gone()
    ending = Ending(
        time=40.0,
        signal="SIGKILL",
        out_of_memory="known",
        where="Calibration, sample 37 of 512",
        open_steps=("Model Quantization", "Calibration"),
        processes=(("python", 7 * MIB),),
    )
    folder.ended(ending)
    assert read(folder.path) == Recording(
        path=folder.path,
        began_ns=BEGAN_NS,
        state="killed",
        duration=40.0,
        origin={"process.command_line": "x.py"},
        launcher=os.getpid(),
        runs=(
            RecordedRun(
                id="0123456789abcdef",
                process="4711",
                pid=4711,
                parent_pid=1,
                rank=3,
                world_size=4,
                start=0.5,
                state="killed",
                attributes={"quant.library.name": "amd-quark"},
                steps=(
                    RecordedStep(
                        index=0,
                        name="Model Quantization",
                        kind="Model Quantization",
                        start=1.0,
                        state="killed",
                    ),
                    RecordedStep(
                        index=1,
                        name="Calibration",
                        kind="Calibration",
                        parent=0,
                        start=2.0,
                        state="killed",
                        attributes={"quant.library.name": "amd-quark"},
                        samples=37,
                        expected_samples=512,
                        progress=((32.0, 18), (39.5, 37)),
                    ),
                ),
                checkpoints=(
                    RecordedCheckpoint(
                        name="Start", time=0.5, phase="start", wall_ns=BEGAN_NS + 500_000_000
                    ),
                    RecordedCheckpoint(
                        name="Model Quantization Start",
                        time=1.0,
                        step=0,
                        phase="start",
                        attributes={"quant.checkpoint.memory": 100},
                        wall_ns=BEGAN_NS + 10**9,
                    ),
                    RecordedCheckpoint(
                        name="Calibration Start",
                        time=2.0,
                        step=1,
                        phase="start",
                        wall_ns=BEGAN_NS + 2 * 10**9,
                    ),
                ),
                last=LastReading(
                    time=39.5, attributes={"quant.reading.memory": 300}, open_steps=(0, 1)
                ),
                trace_id="ab" * 16,
                span_id="cd" * 8,
            ),
        ),
        ending=ending,
    )


def test_an_ended_run_has_the_values_of_its_spans(tmp_path: Path) -> None:
    folder = RecordedFolder(tmp_path / "r")
    process = folder.process().begin(attributes={"quant.run.id": "0123456789abcdef"})
    step = process.step("Calibration", 1, attributes={"quant.calibration.method": "MinMax"})
    process.consume(step, 4, 2)
    process.close(
        step, 3, samples=8, attributes={"quant.memory.peak": 5}, error="ValueError",
        error_message="no",
    )  # fmt: skip
    process.checkpoint("here", 4, custom={"accuracy": 0.5})
    process.models(5, {"role": "float", "figures": {"macs": 7}})
    process.end(6, attributes={"quant.memory.peak": 9})
    process.gone()
    recording = read(folder.path)
    (run,) = recording.runs
    assert (recording.state, recording.duration, run.state, run.end) == ("ended", 6.0, "ended", 6.0)
    assert run.attributes == {
        "quant.run.id": "0123456789abcdef",
        "quant.calibration.method": "MinMax",
        "quant.model.float.macs": 7,
        "quant.memory.peak": 9,
    }
    assert run.custom == {"accuracy": 0.5}
    assert run.models == ({"role": "float", "figures": {"macs": 7}},)
    assert run.steps == (
        RecordedStep(
            index=0,
            name="Calibration",
            kind="Calibration",
            start=1.0,
            end=3.0,
            state="failed",
            attributes={"quant.calibration.method": "MinMax", "quant.memory.peak": 5},
            samples=8,
            progress=((2.0, 4), (3.0, 8)),
            error="ValueError",
            error_message="no",
        ),
    )
    names = ["Start", "Calibration Start", "Calibration End", "here", "End"]
    assert [checkpoint.name for checkpoint in run.checkpoints] == names


def test_a_run_is_running_while_its_file_is_locked_and_lost_afterwards(tmp_path: Path) -> None:
    folder = RecordedFolder(tmp_path / "r")
    process = in_calibration(folder)
    assert {read(folder.path).state, read(folder.path).runs[0].state} == {"running"}
    process.gone()
    recording = read(folder.path)
    assert {recording.state, recording.runs[0].state} == {"lost"}
    assert [step.state for step in recording.runs[0].steps] == ["lost", "lost"]


@pytest.mark.parametrize(
    ("ending", "whole", "run"),
    [
        (Ending(time=50, exit_code=0), "ended", "lost"),
        (Ending(time=50, exit_code=3), "failed", "failed"),
        (Ending(time=50, signal="SIGTERM"), "killed", "killed"),
    ],
)
def test_a_run_without_an_end_record_ends_as_the_launcher_observed(
    tmp_path: Path, ending: Ending, whole: str, run: str
) -> None:
    folder = RecordedFolder(tmp_path / "r", by_launcher=True)
    in_calibration(folder).gone()
    folder.ended(ending)
    recording = read(folder.path)
    assert (recording.state, recording.runs[0].state) == (whole, run)


def test_a_full_disk_does_not_hide_how_the_program_ended(tmp_path: Path) -> None:
    RecordedFolder(tmp_path / "r", by_launcher=True).process().begin(0).gone()
    assert read(tmp_path / "r").state == "lost"
    assert read(tmp_path / "r", Ending(time=1.0, exit_code=0)).state == "ended"


def test_a_recording_cut_anywhere_by_a_kill_is_readable(tmp_path: Path) -> None:
    folder = RecordedFolder(tmp_path / "r")
    process = in_calibration(folder)
    process.close(1, 41, samples=512)
    process.gone()
    path = layout.events_path(folder.path, "4711")
    whole = path.read_bytes()
    found = []
    for end in range(len(whole) + 1):
        path.write_bytes(whole[:end])
        recording = read(folder.path)
        found.append(sum(len(run.steps) for run in recording.runs))
    assert found == sorted(found)
    assert found[-1] == 2


@pytest.mark.parametrize("name", ["manifest.json", "state.4711.json", "curve.4711.jsonl"])
def test_a_file_cut_by_a_kill_leaves_the_others_readable(tmp_path: Path, name: str) -> None:
    folder = RecordedFolder(tmp_path / "r")
    in_calibration(folder).gone()
    folder.curve([(0, {"memory": 5}, {}), (1, {"memory": 7}, {"cpu": 1})], "4711")
    path = folder.path / name
    whole = path.read_bytes()
    for end in range(len(whole)):
        path.write_bytes(whole[:end])
        recording = read(folder.path)
        assert [step.name for step in recording.runs[0].steps] == [
            "Model Quantization",
            "Calibration",
        ]


@pytest.mark.parametrize("name", ["manifest.json", "events.4711.jsonl", "state.4711.json"])
def test_a_missing_file_loses_only_its_own_values(tmp_path: Path, name: str) -> None:
    folder = RecordedFolder(tmp_path / "r")
    in_calibration(folder).gone()
    (folder.path / name).unlink()
    recording = read(folder.path)
    (run,) = recording.runs
    steps = [(step.name, step.samples) for step in run.steps]
    expected = {
        "manifest.json": [("Model Quantization", None), ("Calibration", 37)],
        "events.4711.jsonl": [],
        "state.4711.json": [("Model Quantization", None), ("Calibration", 18)],
    }
    assert steps == expected[name]
    assert (run.last is not None, run.last and run.last.open_steps) == (True, (0, 1))


@pytest.mark.parametrize("name", ["manifest.json", "events.4711.jsonl", "state.4711.json",
                                  "curve.4711.jsonl"])  # fmt: skip
def test_the_error_for_a_newer_schema_names_the_remedy(tmp_path: Path, name: str) -> None:
    folder = RecordedFolder(tmp_path / "r")
    in_calibration(folder).gone()
    folder.curve([(0, {"memory": 5}, {})], "4711")
    path = folder.path / name
    first, *rest = path.read_text().splitlines(keepends=True)
    path.write_text("".join((json.dumps({**json.loads(first), "schema": 2}) + "\n", *rest)))
    with pytest.raises(NewerSchemaError, match=r"schema 2; .*read it with a newer one"):
        read(folder.path)


def test_unknown_events_and_fields_are_ignored(tmp_path: Path) -> None:
    folder = RecordedFolder(tmp_path / "r")
    process = in_calibration(folder)
    process._event("planet.aligned", 3, index=1)
    process._event("step.ended", 3, index=99)
    process.gone()
    recording = read(folder.path)
    assert len(recording.runs[0].steps) == 2
    assert recording.problems == (
        "events.4711.jsonl: not readable and left out: step.ended of what has not started",
    )


def test_runs_of_all_processes_are_sorted_by_start(tmp_path: Path) -> None:
    folder = RecordedFolder(tmp_path / "r")
    for pid, at in ((20, 3.0), (3, 1.0), ("20-1", 2.0)):
        process = folder.process(pid).begin(at, run=f"run of {pid}")
        process.end(at + 5)
        process.gone()
    again = RecordedFolder(tmp_path / "r").process(5).begin(9, run="first")
    again.end(10)
    again.begin(11, run="second")
    again.end(12)
    again.gone()
    runs = read(folder.path).runs
    assert [run.id for run in runs] == ["run of 3", "run of 20-1", "run of 20", "first", "second"]
    assert [run.pid for run in runs] == [3, 20, 20, 5, 5]


PROFILE = """\
# Quark Profiling Results

run:
  id: "0123456789abcdef"
  command: "x.py --n 1"
  host: "box"
  memory_limit_mb: 8000.0
  memory_limit_source: "cgroup"

memory_usage:
- step: "Start"
  timestamp: 1700000000.5
  relative_time_secs: 0.0
  cpu_memory_mb: 100.0
- step: "Model Quantization Start"
  timestamp: 1700000001.5
  relative_time_secs: 1.0
  cpu_memory_mb: 101.5
- step: "Load Model Start"
  timestamp: 1700000001.5
  relative_time_secs: 1.0
  cpu_memory_mb: 101.5
- step: "Load Model End"
  timestamp: 1700000002.0
  relative_time_secs: 1.5
  cpu_memory_mb: 111.5
  # peak_memory_mb: 120.00
- step: "Calibration Start"
  timestamp: 1700000002.5
  relative_time_secs: 2.0
  cpu_memory_mb: 153.0
"""


MADE_BY = {
    "quant.run.id": "0123456789abcdef",
    "process.command_line": "x.py --n 1",
    "host.name": "box",
}


def test_a_profile_of_a_killed_run_is_a_recording(tmp_path: Path) -> None:
    path = tmp_path / "quark_profile.yaml"
    path.write_text(PROFILE)
    attributes = {
        "process.pid": 4711,
        "quant.reading.elapsed": 62.0,
        "quant.reading.memory": round(403.25 * MIB),
        "quant.reading.memory_peak": round(410.5 * MIB),
        "quant.reading.open_steps": ["Model Quantization", "Calibration"],
    }
    steps = [{"index": 0, "samples": 0}, {"index": 1, "samples": 37, "expected": 512}]
    times = {"time": 1700000062500000000, "clock": 0, "began": 1700000000500000000}
    reading = {"run": "f00d", **times, "attributes": attributes, "steps": steps}
    (tmp_path / "p.x.last_reading.json").write_text(json.dumps(reading))
    recording = read(path)
    (run,) = recording.runs
    assert (recording.began_ns, recording.duration) == (1700000000500000000, 62.0)
    assert recording.origin == {"process.command_line": "x.py --n 1", "host.name": "box"}
    assert run.attributes == {
        **MADE_BY,
        "quant.memory.limit": 8000 * MIB,
        "quant.memory.limit_source": "cgroup",
    }
    assert [(s.name, s.parent, s.start, s.end, s.samples, s.expected_samples) for s in run.steps] == [
        ("Model Quantization", None, 1.0, None, None, None),
        ("Load Model", 0, 1.0, 1.5, None, None),
        ("Calibration", 0, 2.0, None, 37, 512),
    ]  # fmt: skip
    assert run.steps[1].attributes == {
        "quant.memory.start": round(101.5 * MIB),
        "quant.memory.end": round(111.5 * MIB),
        "quant.memory.delta": 10 * MIB,
        "quant.memory.peak": 120 * MIB,
    }
    assert run.last == LastReading(
        time=62.0,
        attributes={
            **attributes,
            "quant.reading.open_steps": ("Model Quantization", "Calibration"),
        },
        open_steps=(0, 2),
    )


def test_a_complete_profile_has_the_totals_of_its_summary(tmp_path: Path) -> None:
    path = tmp_path / "quark_profile.yaml"
    end = '- step: "End"\n  timestamp: 1700000009.5\n  relative_time_secs: 9.0\n'
    figures = "peak_memory_mb: 512.0\npeak_gpu_memory_mb: 64.0\ntotal_disk_read_mb: 1.5\n"
    figures += "total_disk_write_mb: 2.5\npeak_cache_dir_disk_usage_mb: 8.0\n"
    path.write_text(f"{PROFILE}{end}\n# Summary Metrics\n{figures}")
    assert read(path).runs[0].attributes == {
        **MADE_BY,
        "quant.memory.limit": 8000 * MIB,
        "quant.memory.limit_source": "cgroup",
        "quant.memory.process_peak": 512 * MIB,
        "quant.gpu.memory.peak": 64 * MIB,
        "quant.disk.read": round(1.5 * MIB),
        "quant.disk.write": round(2.5 * MIB),
        "quant.cache.disk.peak": 8 * MIB,
    }


def test_a_copied_recording_is_read_like_the_original(tmp_path: Path) -> None:
    folder = RecordedFolder(tmp_path / "r")
    in_calibration(folder).gone()
    shutil.copytree(folder.path, tmp_path / "copy")
    assert read(tmp_path / "copy").runs == read(folder.path).runs
