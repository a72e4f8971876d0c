"""Which runs are found below folders, and that nothing in them stops the list."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from otel_quant.recordings.reader import read
from otel_quant.recordings.runs.fields import NAMES
from otel_quant.recordings.runs.pivot import pivot
from otel_quant.recordings.runs.reading import Unreadable, find, read_all, row_of
from otel_quant.views.html import page_text
from otel_quant.views.runs import document
from tests.unit.recordings.runs.fleet import (
    OURS,
    QUARKS,
    write_fleet,
    write_profile,
    write_recording,
)

EVERY_NAME = (
    *NAMES, "memory.process_peak", "cpu.time", "disk.read", "host.name", "libraries",
    "model.float.size", "model.float.memory", "gpu.memory.peak", "cache.disk.peak", "run.steps",
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
        "bert/quark_profile.yaml",
        "bert-cut/named.yaml",
        "empty/quark_profile.yaml",
        "newer",
        "nightly/broken",
        "nightly/killed",
        "nightly/resnet",
        "nightly/yolo",
        "quarks/quark_profile.1.yaml",
    ]


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


def test_more_runs_than_one_process_reads_are_read_in_order(tmp_path: Path) -> None:
    for number in range(1100):
        write_profile(tmp_path / f"{number:04}" / "quark_profile.yaml", QUARKS)
    write_profile(tmp_path / "9999" / "quark_profile.yaml", "")
    rows, unreadable = read_all([str(tmp_path)], ())
    assert [row["path"] for row in rows] == [
        str(tmp_path / f"{number:04}" / "quark_profile.yaml") for number in range(1100)
    ]
    assert unreadable == [
        Unreadable(
            str(tmp_path / "9999" / "quark_profile.yaml"),
            "the file is empty; expected the records of a run, which writes the first as it begins",
        )
    ]


JUNK = (
    b"", b"\0" * 1000, b"[" * 100_000, b"{}", b"[]", b"null", b"1", b'"text"',
    b'{"schema": "one", "began": "now", "ending": {"time": "late"}, "summary": {"memory": "much"}}',
    b'{"schema": 1, "began": 1, "origin": [], "ending": [], "summary": []}',
    b'{"schema": 1, "began": 1, "ended": {}, "ending": {"time": null, "advice": 1, "disk": 5}}',
    b'{"schema": 1, "time": 1e400, "clock": 1, "kind": "run.ended", "run": [], "attributes": 3}\n',
    b'{"schema":1,"time":1,"clock":1,"kind":"run.started","run":"a","attributes":{"quant.input.path":7,'
    b'"quant.memory.peak":"much","quant.model.float.memory":[1]}}\n'
    b'{"schema":1,"time":2,"clock":2,"kind":"run.ended","run":"a"}\n',
    OURS.encode()[:300], OURS.replace("90.0", "1e999").encode(), OURS.replace("17", "-9e30").encode(),
)  # fmt: skip


@pytest.mark.parametrize("name", ["manifest.json", "events.4711.jsonl", "curve.launcher.jsonl"])
@pytest.mark.parametrize("junk", JUNK, ids=range(len(JUNK)))
def test_what_stands_in_place_of_a_file_is_skipped(name: str, junk: bytes, tmp_path: Path) -> None:
    write_recording(tmp_path / "damaged")
    good = write_recording(tmp_path / "good")
    (tmp_path / "damaged" / name).write_bytes(junk)
    shutil.copytree(tmp_path / "damaged", tmp_path / "also" / "damaged")
    (tmp_path / "profile").mkdir()
    (tmp_path / "profile" / "quark_profile.yaml").write_bytes(junk)
    for names in ((), ("weight.type",)):
        rows, unreadable = read_all([str(tmp_path)], names)
        told = [row["path"] for row in rows] + [each.path for each in unreadable]
        assert sorted(map(str, told)) == sorted(
            str(tmp_path / path)
            for path in ("also/damaged", "damaged", "good", "profile/quark_profile.yaml")
        )
        assert str(good) in [row["path"] for row in rows]
        assert all(isinstance(each.problem, str) and each.problem for each in unreadable)


def test_the_page_lists_a_thousand_runs_and_says_how_many_more_there_are(tmp_path: Path) -> None:
    row = row_of(read(write_recording(tmp_path / "one")), NAMES)
    rows = [{**row, "path": f"run {number}"} for number in range(1003)]
    table = pivot(rows, "model", "status", "duration")
    html = page_text(document(rows, (), table, (), "below runs", is_page=True))
    assert html.count('<th scope="row" class="t">run ') == 1000
    assert "3 more are left out; --where chooses." in html
    assert '<td class="heat-0" title="median of 1,003 runs">60.00</td>' in html
