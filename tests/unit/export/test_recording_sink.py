"""What a program leaves in its recording, tried with real programs that really end and die."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from otel_quant.base.files import PAGE
from otel_quant.capture.recorder.attributes import FigureAttributes
from otel_quant.export.otel.logs import LogsSink
from otel_quant.export.recording_sink import RecordingSink
from otel_quant.format import fields
from otel_quant.format.event_file import StateFile
from otel_quant.format.series import TOTALS
from otel_quant.recordings.model import Recording
from otel_quant.recordings.reader import read
from otel_quant.schema import semconv
from otel_quant.schema.code_lines import Place, Spot
from otel_quant.schema.events import EVENTS, Event, EventKind
from otel_quant.schema.figures import RESOURCES
from otel_quant.schema.readings import Count, Counts, Limits, MemoryReading, Reading
from otel_quant.sending.identifiers import Identifiers
from otel_quant.sending.replay import Replay
from tests.fixtures import programs
from tests.fixtures.programs import Finished, clean_environment, run_script
from tests.fixtures.recording_schema import check_recording
from tests.unit.export.otel.literal_run import LATER, PEAKS, RUN, START, STEP, send_run

ENERGY = {"gpu.energy", "cpu.energy"}
"""Totals that few machines have."""


WORK = """
import os, signal, sys, time
import otel_quant
from otel_quant.capture.runtime import RUNTIME
from otel_quant.schema import semconv

def calibrate(total, count, before=lambda: None):
    with otel_quant.step("Model Quantization", attributes={semconv.CONFIG_NAME: "XINT8"}):
        with otel_quant.step("Calibration"):
            step = RUNTIME.current_step()
            RUNTIME.recorder.expect(step, "sample", total)
            for _ in range(count):
                before()
                RUNTIME.recorder.count_sample(step, 2)
            yield step
"""


def run(code: str, record: Path | str, folder: Path | str = ".", **environ: str) -> Finished:
    """Runs a program with a recording, in a folder."""
    variables = {"OTEL_QUANT_RECORD": str(record), **environ}
    command = [sys.executable, "-c", WORK + code]
    return programs.run(command, folder, clean_environment(variables), 60)


def recording_at(folder: Path) -> Recording:
    """Reads a recording that is held to the schema."""
    check_recording(folder)
    recording = read(folder)
    assert recording.problems == ()
    return recording


def test_a_run_is_recorded_with_steps_errors_metrics_and_checkpoints(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "r"
    code = """
from otel_quant.export.quark_yaml.metrics import CheckpointMetric
class Accuracy(CheckpointMetric):
    name = "accuracy"
    def get_definition(self): return ""
    def collect(self, context): return 0.5
RUNTIME.metrics.checkpoint_metrics.append(Accuracy())
for step in calibrate(8, 8): pass
RUNTIME.recorder.point("Model Loaded")
try:
    with otel_quant.step("Export"):
        raise ValueError("no room\\nleft")
except ValueError:
    pass
"""
    done = run(code, folder)
    assert (done.returncode, done.stderr) == (0, "")
    recording = recording_at(folder)
    (run_,) = recording.runs
    assert (recording.state, run_.state, run_.error) == ("ended", "ended", None)
    steps = [(s.name, s.parent, s.state, s.counts.get("sample"), s.error, s.error_message)
             for s in run_.steps]  # fmt: skip
    assert steps == [
        ("Model Quantization", None, "ended", None, None, None),
        ("Calibration", 0, "ended", (8, 8), None, None),
        ("Export", None, "failed", None, "ValueError", "no room left"),
    ]
    outer = run_.steps[0].attributes
    assert outer[semconv.CONFIG_NAME] == "XINT8"
    assert outer[semconv.MEMORY_PEAK] >= outer[semconv.MEMORY_START] > 1 << 20
    assert run_.steps[1].attributes[semconv.CALIBRATION_ITEM_COUNT] == 16
    names = ["Start", "Model Quantization Start", "Calibration Start", "Calibration End",
             "Model Quantization End", "Model Loaded", "Export Start", "Export End", "End"]  # fmt: skip
    assert [checkpoint.name for checkpoint in run_.checkpoints] == names
    assert run_.custom == {"accuracy": 0.5}
    assert {point.attributes["quant.custom.accuracy"] for point in run_.checkpoints} == {0.5}
    assert run_.attributes[semconv.RUN_STEPS] == 3
    assert recording.origin["process.command_line"].startswith("python")
    assert (folder / "quark_profile.yaml").read_text().count('\n- step: "') == len(names)
    assert list(folder.glob("*.last_reading.json")) == []
    curve = recording.curves[run_.process].curve
    highest = max(bucket.levels["memory"].highest for bucket in curve.buckets.values())
    assert highest <= run_.attributes[semconv.MEMORY_PEAK]


def test_steps_and_the_run_have_what_they_used_of_each_gpu(tmp_path: Path) -> None:
    figures = FigureAttributes(RESOURCES)
    sink = RecordingSink(tmp_path, lambda step: None, is_launched=False, interval=0.05)
    send_run(sink)
    sink.forget()
    (run_,) = recording_at(tmp_path).runs
    used = tuple(figures.of_devices(START, LATER, PEAKS))
    assert [device["hw.id"] for device in used] == ["GPU-0", "GPU-1"]
    assert used[0][semconv.GPU_ALLOCATED_PEAK] == 11
    assert run_.steps[0].devices == used
    assert run_.devices == used


@pytest.mark.parametrize("count", [1, 37, 300])
def test_the_current_sample_is_known_after_a_kill(tmp_path: Path, count: int) -> None:
    folder = tmp_path / "r"
    code = f"""
ended = []
def end_steps():
    while len(ended) < 200:  # more than the state has room for
        with otel_quant.step("over"):
            ended.append(1)
for step in calibrate(512, {count}, end_steps):
    os.kill(os.getpid(), signal.SIGKILL)
"""
    assert run(code, folder).returncode == -signal.SIGKILL
    recording = recording_at(folder)
    (run_,) = recording.runs
    assert (recording.state, run_.state) == ("lost", "lost")
    assert [(s.name, s.state, s.counts.get("sample")) for s in run_.steps] == [
        ("Model Quantization", "lost", None),
        ("Calibration", "lost", (count, 512)),
        *[("over", "ended", None)] * 200,
    ]


def test_the_last_reading_and_the_curve_are_less_than_2_s_old_after_a_kill(tmp_path: Path) -> None:
    folder = tmp_path / "r"
    code = """
for step in calibrate(512, 3):
    held = bytearray(200 << 20)
    time.sleep(3)
    print(time.time(), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""
    killed = float(run(code, folder).stdout)
    recording = recording_at(folder)
    (run_,) = recording.runs
    last = run_.last
    assert last is not None
    assert last.open_steps == (0, 1)
    assert last.attributes[semconv.READING_MEMORY] > 200 << 20
    assert killed - (recording.began_ns / 1e9 + last.time) < 2
    curve = recording.curves[run_.process]
    newest = max(bucket.levels["memory"].at for bucket in curve.curve.buckets.values())
    position = max(curve.curve.buckets) * curve.curve.length
    assert killed - (curve.began_ns / 1e9 + max(newest, position) / 1000) < 2
    assert max(b.levels["memory"].highest for b in curve.curve.buckets.values()) > 200 << 20
    bucket = curve.curve.buckets[max(curve.curve.buckets)]
    totals = set().union(*(bucket.totals for bucket in curve.curve.buckets.values()))
    assert totals - ENERGY == TOTALS - ENERGY - {"cpu.waits"}  # which only the launcher reads
    assert bucket.levels["memory"].last > 200 << 20


def test_a_running_run_is_read_as_running(tmp_path: Path) -> None:
    folder = tmp_path / "r"
    code = "for step in calibrate(512, 5):\n    print('there', flush=True)\n    time.sleep(60)"
    environment = clean_environment({"OTEL_QUANT_RECORD": str(folder)})
    with subprocess.Popen(
        [sys.executable, "-c", WORK + code], env=environment, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            recording = recording_at(folder)
        finally:
            process.kill()
    assert (recording.state, recording.runs[0].steps[1].samples) == ("running", 5)
    assert read(folder).state == "lost"


def test_forked_and_spawned_workers_have_files_of_their_own_in_the_same_recording(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "r"
    workers = """
import multiprocessing
import otel_quant

def work(number):
    with otel_quant.step(f"Work {number}"):
        pass

if __name__ == "__main__":
    otel_quant.QuantInstrumentor().instrument()
    with otel_quant.step("Outer"):
        for method in ("fork", "spawn"):
            process = multiprocessing.get_context(method).Process(target=work, args=(method,))
            process.start()
            process.join()
            assert process.exitcode == 0
"""
    run_script(tmp_path, workers, OTEL_QUANT_RECORD=str(folder))
    recording = recording_at(folder)
    assert {run.process: [step.name for step in run.steps] for run in recording.runs} == {
        run.process: [name]
        for run, name in zip(recording.runs, ["Outer", "Work fork", "Work spawn"], strict=True)
    }
    outer, *workers = recording.runs
    assert {worker.parent_pid for worker in workers} == {outer.pid}
    assert len({run.process for run in recording.runs}) == 3
    assert not (tmp_path / "r-1").exists()


def test_consecutive_runs_of_a_process_are_in_one_recording(tmp_path: Path) -> None:
    folder = tmp_path / "r"
    code = """
for number in range(3):
    with otel_quant.run():
        with otel_quant.step(f"Step {number}"):
            pass
"""
    assert run(code, folder).stderr == ""
    recording = recording_at(folder)
    assert [[step.name for step in run.steps] for run in recording.runs] == [
        ["Step 0"], ["Step 1"], ["Step 2"],
    ]  # fmt: skip
    assert len({run.process for run in recording.runs}) == 1
    assert list(recording.curves) == [recording.runs[0].process]


def test_ranks_of_one_launcher_share_a_recording_although_one_has_ended(tmp_path: Path) -> None:
    folder = tmp_path / "r"
    for rank in ("0", "1"):
        run("with otel_quant.step('S'): pass", folder, RANK=rank, WORLD_SIZE="2")
    assert [(run.rank, run.world_size) for run in recording_at(folder).runs] == [(0, 2), (1, 2)]
    assert sorted(path.name for path in folder.glob("*.yaml")) == [
        "quark_profile.rank0.yaml", "quark_profile.rank1.yaml",
    ]  # fmt: skip


def test_an_existing_recording_is_kept_and_the_new_one_gets_a_number(tmp_path: Path) -> None:
    folder = tmp_path / "r"
    for name in ("first", "second", "third"):
        done = run(f"with otel_quant.step('{name}'): pass", folder)
    assert f"{folder} holds another recording, which is kept" in done.stderr
    names = {path.name: read(path).runs[0].steps[0].name for path in tmp_path.iterdir()}
    assert names == {"r": "first", "r-1": "second", "r-2": "third"}


def test_a_process_id_that_is_used_again_gets_a_number(tmp_path: Path) -> None:
    folder = tmp_path / "r"
    code = """
from pathlib import Path
folder = Path(os.environ["OTEL_QUANT_RECORD"])
folder.mkdir()
(folder / f"events.{os.getpid()}.jsonl").write_text("")
with otel_quant.step("S"):
    pass
"""
    assert run(code, folder, OTEL_QUANT_LAUNCHER_PID="1").stderr == ""
    (run_,) = read(folder).runs
    assert run_.process == f"{run_.pid}-1"


def test_manifest_and_curve_are_left_to_the_launcher(tmp_path: Path) -> None:
    folder = tmp_path / "r"
    folder.mkdir()
    assert run("with otel_quant.step('S'): pass", folder, OTEL_QUANT_LAUNCHER_PID="1").stderr == ""
    assert len(read(folder).runs) == 1
    assert [*folder.glob("curve.*"), *folder.glob("manifest*")] == []


@pytest.mark.parametrize("kind", ["a file", "not writable"])
def test_an_unwritable_folder_does_not_affect_the_program(tmp_path: Path, kind: str) -> None:
    folder = Path("/proc/nowhere") if kind == "not writable" else tmp_path / "f"
    if kind == "a file":
        folder.write_text("mine")
    done = run("for step in calibrate(4, 4): pass\nprint('done')", folder)
    assert (done.returncode, done.stdout) == (0, "done\n")
    assert done.stderr.count("the program goes on without a recording") == 1
    assert done.stderr.count("\n") == 1


def test_a_full_disk_does_not_affect_the_program(tmp_path: Path) -> None:
    folder = tmp_path / "r"
    code = """
import resource
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000))
for number in range(20):
    for step in calibrate(4, 4): pass
print("done")
"""
    done = run(code, folder)
    assert (done.returncode, done.stdout) == (0, "done\n")
    assert done.stderr.count("sink recording failed and is skipped; the program goes on") == 1
    recording = read(folder)
    assert recording.runs[0].steps[0].name == "Model Quantization"
    check_recording_lines(folder)


def test_unwritable_stacks_do_not_affect_the_other_files(tmp_path: Path) -> None:
    folder = tmp_path / "r"
    code = """
import json
from pathlib import Path
with otel_quant.step("S"):
    (state,) = Path(os.environ["OTEL_QUANT_RECORD"]).glob("state.*")
    run = json.loads(state.read_text())["run"]
    (state.parent / f"stacks.{os.getpid()}.{run}.json" / "in the way").mkdir(parents=True)
    time.sleep(1)
"""
    done = run(code, folder)
    assert done.stderr.count("sink recording failed") == 1
    recording = read(folder)
    assert (recording.state, [step.state for step in recording.runs[0].steps]) == (
        "ended",
        ["ended"],
    )
    assert "ended" in json.loads((folder / "manifest.json").read_text())


def check_recording_lines(folder: Path) -> None:
    """Every line that was written whole stands alone."""
    (path,) = folder.glob("events.*.jsonl")
    whole = [line for line in path.read_text().splitlines() if line.endswith("}")]
    assert all(json.loads(line)["schema"] == 1 for line in whole)


@pytest.mark.parametrize(
    ("end", "recorded"), [(256, ["Model Quantization", "Calibration", "After"]), (5000, None)]
)
def test_a_program_that_closes_descriptors_keeps_its_files_and_recording(
    tmp_path: Path, end: int, recorded: list[str] | None
) -> None:
    folder, mine = tmp_path / "r", tmp_path / "mine"
    mine.mkdir()
    code = f"""
for step in calibrate(4, 4):
    os.closerange(3, {end})
    files = [open({str(mine)!r} + f"/{{number}}", "w") for number in range(20)]
    time.sleep(1.5)
with otel_quant.step("After"):
    pass
for file in files:
    file.close()
"""
    done = run(code, folder)
    assert done.returncode == 0
    assert {path.read_text() for path in mine.iterdir()} == {""}
    (run_,) = read(folder).runs
    assert run_.steps[1].samples == 4
    if recorded is not None:
        assert ([step.name for step in run_.steps], run_.state) == (recorded, "ended")
        assert done.stderr == ""


def test_values_without_a_json_type_are_recorded_as_text(tmp_path: Path) -> None:
    folder = tmp_path / "r"
    code = """
with otel_quant.step("S", attributes={"a": float("nan"), "b": "\\udc80é", "c": ("x", "y")}):
    pass
"""
    assert run(code, folder).stderr == ""
    attributes = recording_at(folder).runs[0].steps[0].attributes
    assert {key: attributes[key] for key in "abc"} == {"a": "nan", "b": "\udc80é", "c": ("x", "y")}


def test_no_recording_is_made_without_a_folder(tmp_path: Path) -> None:
    assert run("with otel_quant.step('S'): pass", "", tmp_path).stderr == ""
    assert list(tmp_path.iterdir()) == []


def test_a_profile_with_its_own_path_is_not_in_the_recording(tmp_path: Path) -> None:
    folder, path = tmp_path / "r", tmp_path / "p.yaml"
    run("with otel_quant.step('S'): pass", folder, OTEL_QUANT_PROFILE=str(path))
    assert path.exists()
    assert list(folder.glob("*.yaml")) == []


def test_the_lines_are_written_again_as_memory_comes_nearer_to_its_limit(tmp_path: Path) -> None:
    sink = RecordingSink(tmp_path / "r", lambda _: None, is_launched=True, interval=1)
    taken, seen = Event(kind="reading.taken", time_ns=1, clock_ns=1, run=RUN), []
    for share in (0.3, 0.54, 0.56, 0.58, 0.9, 0.6, 0.91):
        reading = Reading(0, 0, {"memory": MemoryReading(0, round(8000 * share))})
        event = replace(taken, run=replace(RUN, limits=Limits(8000)), reading=reading)
        seen.append(sink._is_nearer_to_its_limit(event))
    assert seen == [False, False, True, False, True, False, False]
    unlimited = replace(RUN, limits=Limits())
    assert not sink._is_nearer_to_its_limit(replace(taken, run=unlimited, reading=reading))


def test_the_state_stays_within_a_page_with_the_steps_that_opened_last(tmp_path: Path) -> None:
    path = tmp_path / "state.1.json"
    state = StateFile(path)
    newest = Event(kind="reading.taken", time_ns=2, clock_ns=1, run=RUN, attributes={"a": 1})
    state.write(newest, [(index, Counts(sample=Count(index)), None) for index in range(1000)])
    assert PAGE - 100 < len(path.read_bytes()) <= PAGE
    found = json.loads(path.read_bytes())
    steps = found.pop("steps")
    assert found == {"schema": 1, "time": 2, "clock": 1, "run": RUN.id, "attributes": {"a": 1}}
    assert steps == [
        {"index": index, "samples": index, "expected": None}
        for index in range(1000 - len(steps), 1000)
    ]
    line = Place(f"/{'a' * 500}.py", "f", 1, "")
    spot = Spot(Place("q.py", "get_next", 4, ""), line, "a lock")
    state.write(newest, [(index, Counts(sample=Count(index, 9)), spot) for index in range(10)])
    assert json.loads(path.read_bytes())["steps"] == [
        *({"index": index, "samples": index, "expected": 9} for index in range(9)),
        {
            "index": 9,
            "samples": 9,
            "expected": 9,
            "line": list(line),
            "own": ["q.py", "get_next", 4, ""],
            "waits_for": "a lock",
        },
    ]
    state.write(replace(newest, time_ns=4, attributes={"a": "x" * PAGE}), [])  # no page has room
    assert json.loads(path.read_bytes())["time"] == 2


def test_a_new_kind_of_event_is_written_read_and_sent_by_its_declaration_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = EventKind("a model was shared", ("run", "index", "name"), ("attributes", "rank"))
    monkeypatch.setitem(EVENTS, "model.shared", kind)
    monkeypatch.setitem(fields.EVENTS, "model.shared", fields.of_events()["model.shared"])
    sink, more = (
        RecordingSink(tmp_path, lambda _: None, is_launched=False, interval=1),
        {"run": RUN},
    )
    sink.receive(Event(kind="run.started", time_ns=1, clock_ns=1, reading=START, **more))
    more |= {"step": STEP, "name": "small", "attributes": {"a": 1}}
    sink.receive(Event(kind="step.started", time_ns=2, clock_ns=2, **more))
    sink.receive(Event(kind="model.shared", time_ns=3, clock_ns=4, **more))

    recording = read(tmp_path)
    (run_,) = recording.runs
    line = {"index": 3, "name": "small", "attributes": {"a": 1}, "rank": 1}
    at = {"time": 3, "clock": 4, "run": RUN.id}
    assert (recording.problems, run_.events) == ((), (("model.shared", at | line),))

    sent: list[object] = []
    monkeypatch.setattr(
        LogsSink, "model_shared", lambda _, event: sent.append(event), raising=False
    )
    Replay(run_, recording, Identifiers(recording)).play()
    assert [(each.time_ns, each.step.index, each.name, each.attributes) for each in sent] == [
        (3, 3, "small", {"a": 1})
    ]
