"""Which runs are found below folders, what is read of them in brief, and that nothing in them stops the list."""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from otel_quant.format.curve import read_curve
from otel_quant.recordings.reader import read
from otel_quant.recordings.runs import (
    NAMES,
    Unreadable,
    find,
    parse,
    pivot,
    read_all,
    row_of,
    select,
)
from otel_quant.recordings.summary import CACHE_PEAK, GPU_PEAK, PROCESS_PEAK
from otel_quant.schema import semconv
from otel_quant.views.html import page_text
from otel_quant.views.runs import document
from tests.fixtures.figures import named
from tests.fixtures.programs import Launched
from tests.fixtures.recorded import RecordedFolder
from tests.fixtures.recording_schema import check_recording
from tests.unit.recordings.runs.fleet import QUARKS, write_fleet, write_profile, write_recording

EVERY_NAME = (
    *NAMES, PROCESS_PEAK, "cpu.time", named("disk.read"), "host.name", "libraries",
    "model.float.size", "model.float.memory", GPU_PEAK, CACHE_PEAK, "run.steps",
)  # fmt: skip


def found(*tops: Path) -> list[str]:
    return [
        str(Path(each).relative_to(tops[0]))
        for each in find([str(top) for top in tops])
        if isinstance(each, str)
    ]


def test_recordings_and_profiles_are_found_once_and_other_files_are_not(tmp_path: Path) -> None:
    write_fleet(tmp_path)
    assert found(tmp_path, tmp_path / "nightly") == [
        "bert/quark_profile.yaml", "bert-cut/named.yaml", "empty/quark_profile.yaml", "newer",
        "nightly/broken", "nightly/killed", "nightly/resnet", "nightly/yolo",
        "quarks/quark_profile.1.yaml",
    ]  # fmt: skip


def test_a_recording_and_a_profile_themselves_are_found(tmp_path: Path) -> None:
    recording = write_recording(tmp_path / "one")
    write_profile(tmp_path / "two" / "any.txt", QUARKS)
    rows, unreadable = read_all([str(recording), str(tmp_path / "two" / "any.txt")], ())
    assert [row["path"] for row in rows] == [str(recording), str(tmp_path / "two" / "any.txt")]
    assert unreadable == []


def test_a_row_is_the_same_with_and_without_the_steps(tmp_path: Path) -> None:
    for each in find([str(write_fleet(tmp_path))]):
        path = Path(str(each))
        if path.name in ("newer", "broken") or "empty" in path.parts:
            continue
        in_brief = row_of(read(path, in_brief=True), EVERY_NAME)
        assert in_brief == row_of(read(path), EVERY_NAME), path
        assert in_brief["path"] == str(path)


def test_a_run_is_found_by_what_each_of_its_steps_has(tmp_path: Path) -> None:
    write_recording(tmp_path / "a", method="MinMax, Entropy")
    process = RecordedFolder(tmp_path / "b").process().begin(1)
    for kind in ("QInt8", "QInt4", "QInt8"):
        attributes = {
            semconv.WEIGHT_TYPE: kind,
            semconv.BITS: int(kind[4:]),
            semconv.INPUT_PATH: f"in/{kind}.onnx",
        }
        process.close(process.step("Quantization (Static)", 2, attributes=attributes), 3)
    process.end(4)

    def found_by(condition: str) -> list[str]:
        asked = parse(condition)
        rows, _ = read_all([str(tmp_path)], [asked.name])
        return [Path(str(row["path"])).name for row in select(rows, [asked])]

    assert [
        found_by(f"weight.type={kind}") for kind in ("QInt8", "QInt4", "QInt8, QInt4", "Q")
    ] == [["b"], ["b"], ["b"], []]
    assert [found_by(f"calibration.method{it}") for it in ("=Entropy", "!=MinMax")] == [
        ["a"],
        ["b"],
    ]
    assert found_by("bits=8") == ["b"]
    assert row_of(read(tmp_path / "b"), ["model"]) == {"model": "QInt8"}  # of several the first


def test_more_runs_than_one_process_reads_are_read_in_order(tmp_path: Path) -> None:
    for number in range(1100):
        write_profile(tmp_path / f"{number:04}" / "quark_profile.yaml", QUARKS)
    write_profile(tmp_path / "9999" / "quark_profile.yaml", "")
    rows, unreadable = read_all([str(tmp_path)], ())
    assert [row["path"] for row in rows] == [
        str(tmp_path / f"{number:04}" / "quark_profile.yaml") for number in range(1100)
    ]
    empty = "the file is empty; expected the records of a run, which writes the first as it begins"
    assert unreadable == [Unreadable(str(tmp_path / "9999" / "quark_profile.yaml"), empty)]


def test_the_page_lists_a_thousand_runs_and_the_number_of_others(tmp_path: Path) -> None:
    row = row_of(read(write_recording(tmp_path / "one")), NAMES)
    rows = [{**row, "path": f"run {number}"} for number in range(1003)]
    table = pivot(rows, "model", "status", "duration")
    html = page_text(document(rows, (), table, (), "below runs", is_page=True))
    assert html.count('<th scope="row" class="t">run ') == 1000
    assert "3 runs left out." in html
    assert '<td title="median of 1,003 runs">60.00</td>' in html


PROGRAM = """
import time, otel_quant
from otel_quant.schema import semconv
from otel_quant.schema.readings import CostedModel
from otel_quant.capture.runtime import RUNTIME
for method in ("MinMax", "Entropy"):
    with otel_quant.step("Calibration", attributes={semconv.CALIBRATION_METHOD: method}):
        kept = bytearray(40_000_000)
        time.sleep(0.2)
RUNTIME.recorder.models_costed([
    CostedModel("float", "m/resnet50.onnx", 1, 2, {"size": 5, "memory": 7}, ({"node": "n", "macs": 1},)),
    CostedModel("quantized", None, 1, 2, {}, error="not readable"),
])
"""  # fmt: skip
OF_RUN = {
    semconv.LIBRARY_NAME, semconv.CALIBRATION_METHOD, semconv.INPUT_PATH,
    "quant.model.float.size", "quant.model.float.memory",
}  # fmt: skip


@pytest.fixture(scope="module")
def a_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The recording of a real run."""
    folder = tmp_path_factory.mktemp("run")
    (folder / "program.py").write_text(PROGRAM)
    done = Launched(folder).run([sys.executable, "program.py"], "--quiet", "--out", "r")
    assert done.returncode == 0, done.stderr
    check_recording(folder / "r")
    return folder / "r"


@pytest.fixture
def folder(a_run: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return shutil.copytree(a_run, tmp_path / "r")


def test_the_list_of_runs_needs_only_the_end_record_and_the_manifest(folder: Path) -> None:
    (events,) = folder.glob("events.*.jsonl")
    last = json.loads(events.read_bytes().splitlines()[-1])
    assert last["kind"] == "run.ended"
    assert {name: last["attributes"][name] for name in OF_RUN - {semconv.LIBRARY_NAME}} == {
        semconv.CALIBRATION_METHOD: "MinMax, Entropy", semconv.INPUT_PATH: "m/resnet50.onnx",
        "quant.model.float.size": 5, "quant.model.float.memory": 7,
    }  # fmt: skip
    curve = read_curve(folder / "curve.launcher.jsonl").curve
    assert json.loads((folder / "manifest.json").read_bytes())["summary"] == {
        name: value
        for name, value in curve.summary().items()
        if not name.startswith(("process.", "memory.since"))
    }
    whole, brief = read(folder), read(folder, in_brief=True)
    (run,) = whole.runs
    assert brief == replace(
        whole,
        curves=brief.curves,
        runs=(replace(run, steps=(), checkpoints=brief.runs[0].checkpoints, models=()),),
    )
    summary = brief.curves["launcher"].curve.summary()
    assert summary == {name: curve.summary()[name] for name in summary}
    assert summary["memory"] > 40_000_000


def test_a_recording_of_a_killed_launcher_is_read_with_its_curve(folder: Path) -> None:
    manifest = json.loads((folder / "manifest.json").read_bytes())
    for name in ("summary", "ending", "ended"):
        del manifest[name]
    (folder / "manifest.json").write_text(json.dumps(manifest))
    whole, brief = read(folder), read(folder, in_brief=True)
    assert brief.curves.keys() == {"launcher"}
    assert brief.curves["launcher"].curve.summary() == whole.curves["launcher"].curve.summary()
    assert (brief.state, brief.duration) == (whole.state, whole.duration)


def test_a_run_that_has_not_ended_is_read_with_its_steps(folder: Path) -> None:
    (events,) = folder.glob("events.*.jsonl")
    lines = events.read_bytes().splitlines(keepends=True)
    events.write_bytes(b"".join(lines[:-1]) + lines[-1][:200])
    whole, brief = read(folder), read(folder, in_brief=True)
    assert brief.runs == whole.runs
    assert [step.name for step in brief.runs[0].steps] == ["Calibration", "Calibration"]
