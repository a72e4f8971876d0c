"""Which runs are found below folders, and that nothing in them stops the list."""

from __future__ import annotations

from pathlib import Path

from otel_quant.recordings.reader import read
from otel_quant.recordings.runs.fields import NAMES
from otel_quant.recordings.runs.pivot import pivot
from otel_quant.recordings.runs.reading import Unreadable, find, read_all, row_of
from otel_quant.views.html import page_text
from otel_quant.views.runs import document
from tests.unit.recordings.runs.fleet import (
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


def test_the_page_lists_a_thousand_runs_and_says_how_many_more_there_are(tmp_path: Path) -> None:
    row = row_of(read(write_recording(tmp_path / "one")), NAMES)
    rows = [{**row, "path": f"run {number}"} for number in range(1003)]
    table = pivot(rows, "model", "status", "duration")
    html = page_text(document(rows, (), table, (), "below runs", is_page=True))
    assert html.count('<th scope="row" class="t">run ') == 1000
    assert "3 more are left out; --where chooses." in html
    assert '<td class="heat-0" title="median of 1,003 runs">60.00</td>' in html
