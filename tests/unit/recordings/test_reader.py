"""A recording is read as it was written, whatever a kill, a full disk or a version has done to it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from otel_quant.format.event_file import NewerSchemaError, process_file
from otel_quant.recordings.model import (
    Ending,
    LastReading,
    RecordedCheckpoint,
    RecordedRun,
    Recording,
    steps_in,
)
from otel_quant.recordings.reader import read
from otel_quant.schema import semconv
from otel_quant.schema.readings import Count, Counts
from tests.fixtures.commands import Commands
from tests.fixtures.recorded import BEGAN_NS, CUT_PROFILE, RecordedFolder, RecordedProcess, step

MIB = 1 << 20


def in_calibration(folder: RecordedFolder) -> RecordedProcess:
    """Returns a process whose run is in a calibration, at sample 37 of 512."""
    process = folder.process()
    process.begin(0.5, rank=3, world_size=4, trace_id="ab" * 16, span_id="cd" * 8)
    outer = process.step("Model Quantization", 1, checkpoint={semconv.CHECKPOINT_MEMORY: 100})
    inner = process.step("Calibration", 2, outer, attributes={semconv.LIBRARY_NAME: "amd-quark"})
    process.expect(inner, 512, 2)
    process.heartbeat(32, {inner: 18}, **{semconv.READING_MEMORY: 200})
    process.state(
        39.5,
        [{"index": outer}, {"index": inner, "samples": 37, "expected": 512}],
        **{semconv.READING_MEMORY: 300},
    )
    return process


@pytest.mark.parametrize("is_launched", [True, False])
def test_a_daemon_that_outlives_the_program_does_not_lengthen_it(
    tmp_path: Path, *, is_launched: bool
) -> None:
    folder = RecordedFolder(tmp_path / "r", by_launcher=is_launched)
    program, daemon = folder.process(4711, os.getpid()), folder.process(4712, 4711)
    for process, until in ((program, 2.0), (daemon, 9.0)):
        process.begin(0, run=f"{until:016}")
        process.close(process.step("Calibration", 1), until - 0.5)
        process.end(until)
    if is_launched:
        folder.ended(Ending(time=2.5, exit_code=0))
    expected = 2.5 if is_launched else 2.0
    assert read(tmp_path / "r").duration == expected
    assert read(tmp_path / "r", in_brief=True).duration == expected


def test_what_a_full_disk_has_cut_off_is_not_time_of_the_last_step(
    tmp_path: Path, command: Commands
) -> None:
    folder = RecordedFolder(tmp_path / "r", by_launcher=True)
    process = folder.process(parent=os.getpid()).begin(0)
    process.close(process.step("First", 1), 2)
    process.step("Second", 2.5)
    process.state(28)
    process.gone()
    state = process_file(tmp_path / "r", "state", "4711")
    state.write_text(
        json.dumps({**json.loads(state.read_text()), "problem": "No space left on device"})
    )
    folder.ended(Ending(time=31.5, exit_code=0))
    recording = read(tmp_path / "r")
    (run,) = recording.runs
    assert (recording.state, run.state, run.is_broken, run.cut) == ("ended", "ended", False, 2.5)
    assert [each.duration for each in steps_in(recording)] == [1, 0]
    said = "the process could not write all of its events: No space left on device. Nothing is recorded after 2.50 s"
    assert recording.problems == (f"events.4711.jsonl: {said}",)
    shown = command.output("show", tmp_path / "r")
    assert "not recorded after 2.50 s" in shown
    for wrong in ("29.0", "after the last step", "did not end well"):
        assert wrong not in shown


def test_a_killed_run_has_its_open_steps_and_last_readings(tmp_path: Path) -> None:
    folder = RecordedFolder(tmp_path / "r", {"process.command_line": "x.py"}, by_launcher=True)
    in_calibration(folder).gone()
    ending = Ending(
        time=40.0, signal="SIGKILL", out_of_memory="known", where="Calibration, sample 37 of 512",
        open_steps=("Model Quantization", "Calibration"), processes=(("python", 7 * MIB),),
    )  # fmt: skip
    folder.ended(ending)
    library = {semconv.LIBRARY_NAME: "amd-quark"}
    steps = (
        step(0, "Model Quantization", 1.0, None, state="killed"),
        step(
            1, "Calibration", 2.0, None, state="killed", parent=0, attributes=library,
            counts=Counts(sample=Count(37, 512)), progress=((2.0, 0), (32.0, 18), (39.5, 37)),
        ),
    )  # fmt: skip
    checkpoints = (
        taken("Start", 0.5),
        taken("Model Quantization Start", 1.0, step=0, attributes={semconv.CHECKPOINT_MEMORY: 100}),
        taken("Calibration Start", 2.0, step=1),
    )
    last = LastReading(time=39.5, attributes={semconv.READING_MEMORY: 300}, open_steps=(0, 1))
    run = RecordedRun(
        id="0123456789abcdef", process="4711", pid=4711, parent_pid=1, rank=3, world_size=4,
        trace_id="ab" * 16, span_id="cd" * 8, start=0.5, state="killed", attributes=library,
        steps=steps, checkpoints=checkpoints, last=last,
    )  # fmt: skip
    assert read(folder.path) == Recording(
        path=folder.path, began_ns=BEGAN_NS, state="killed", duration=40.0, runs=(run,),
        origin={"process.command_line": "x.py"}, launcher=os.getpid(), ending=ending,
    )  # fmt: skip


def taken(name: str, time: float, **fields: Any) -> RecordedCheckpoint:
    """A checkpoint at the start of a run or a step."""
    wall_ns = BEGAN_NS + round(time * 10**9)
    return RecordedCheckpoint(name=name, time=time, phase="start", wall_ns=wall_ns, **fields)


def test_an_ended_run_has_the_values_of_its_spans(tmp_path: Path) -> None:
    folder = RecordedFolder(tmp_path / "r")
    process = folder.process().begin(attributes={semconv.RUN_ID: "0123456789abcdef"})
    index = process.step("Calibration", 1, attributes={semconv.CALIBRATION_METHOD: "MinMax"})
    process.consume(index, 4, 2)
    process.close(
        index, 3, samples=8, attributes={semconv.MEMORY_PEAK: 5}, error="ValueError",
        error_message="no",
    )  # fmt: skip
    process.checkpoint("here", 4, custom={"accuracy": 0.5})
    process.models(5, {"role": "float", "figures": {"macs": 7}})
    process.end(6, attributes={semconv.MEMORY_PEAK: 9})
    recording = read(folder.path)
    (run,) = recording.runs
    assert (recording.state, recording.duration, run.state, run.end) == ("ended", 6.0, "ended", 6.0)
    assert run.attributes == {
        semconv.RUN_ID: "0123456789abcdef", semconv.CALIBRATION_METHOD: "MinMax",
        "quant.model.float.macs": 7, semconv.MEMORY_PEAK: 9,
    }  # fmt: skip
    assert run.custom == {"accuracy": 0.5}
    assert run.models == ({"role": "float", "figures": {"macs": 7}},)
    known = {semconv.CALIBRATION_METHOD: "MinMax", semconv.MEMORY_PEAK: 5}
    assert run.steps == (
        step(
            0, "Calibration", 1.0, 3.0, state="failed", attributes=known, error="ValueError",
            error_message="no", counts=Counts(sample=Count(8)), progress=((2.0, 4), (3.0, 8)),
        ),
    )  # fmt: skip
    names = ["Start", "Calibration Start", "Calibration End", "here", "End"]
    assert [checkpoint.name for checkpoint in run.checkpoints] == names


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
    path = process_file(folder.path, "events", "4711")
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
    again = RecordedFolder(tmp_path / "r").process(5).begin(9, run="first")
    again.end(10, goes_on=True)
    again.begin(11, run="second")
    again.end(12)
    runs = read(folder.path).runs
    assert [run.id for run in runs] == ["run of 3", "run of 20-1", "run of 20", "first", "second"]
    assert [run.pid for run in runs] == [3, 20, 20, 5, 5]


def test_a_complete_profile_has_the_totals_of_its_summary(tmp_path: Path) -> None:
    path = tmp_path / "quark_profile.yaml"
    end = '- step: "End"\n  timestamp: 1700000009.5\n  relative_time_secs: 9.0\n'
    figures = "peak_memory_mb: 512.0\npeak_gpu_memory_mb: 64.0\ntotal_disk_read_mb: 1.5\n"
    figures += "total_disk_write_mb: 2.5\npeak_cache_dir_disk_usage_mb: 8.0\n"
    path.write_text(f"{CUT_PROFILE}{end}\n# Summary Metrics\n{figures}")
    assert read(path).runs[0].attributes == {
        semconv.MEMORY_PROCESS_PEAK: 512 * MIB, semconv.GPU_MEMORY_PEAK: 64 * MIB,
        semconv.DISK_READ: round(1.5 * MIB), semconv.DISK_WRITE: round(2.5 * MIB),
        semconv.CACHE_GROWTH: 8 * MIB,
    }  # fmt: skip


def test_layers_are_counted_by_loop_and_known_of_short_steps_and_former_versions(
    tmp_path: Path,
) -> None:
    process = RecordedFolder(tmp_path / "r").process().begin()
    former = process.step("Model Quantization", 1)
    process.close(former, 2, attributes={semconv.LAYER_COUNT: 7})
    short = process.step("Advanced Algorithms", 2)
    process.expect(short, 3, 2, "layers")
    process.close(short, 3, attributes={semconv.LAYER_COUNT: 3, semconv.LAYER_TOTAL: 3})
    index = process.step("Advanced Algorithms", 3)
    process.expect(index, 3, 4, "layers")
    process.begin_layer(index, 3, 5)
    process.expect(index, 32, 6, "layers")
    process.begin_layer(index, 2, 7)
    process.state(8, [{"index": index, "layers": 17, "expected_layers": 32}])
    steps = read(tmp_path / "r").runs[0].steps
    assert [(str(step.counts), step.progress) for step in steps] == [
        ("layer 7", ((2, 7),)),
        ("layer 3 of 3", ((2, 0), (3, 3))),
        ("layer 17 of 32", ((6, 0), (7, 2), (8, 17))),
    ]
