"""What a restart would lose is the time since the last thing on disk; runs that go on from another one are joined."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from otel_quant.recordings.continued import earlier_runs, found_beside
from otel_quant.recordings.model import Ending
from otel_quant.recordings.reader import read
from otel_quant.schema import semconv
from otel_quant.views.endings import restart_text
from otel_quant.views.show import document
from otel_quant.views.writers import terminal_text
from tests.fixtures.recorded import BEGAN, RecordedFolder


def written(folder: Path, at: float) -> str:
    """Writes what AutoRound does, at a time since the recording began."""
    path = folder / "group_0" / "resume_manifest.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"completed_blocks": ["model.layers.0"]}))
    os.utime(path, (BEGAN + at, BEGAN + at))
    return str(folder)


@pytest.mark.parametrize(
    ("at", "expected"),
    [
        (None, "a restart would lose 10 min 00 s"),  # a library that keeps nothing
        (590.0, "a restart would lose 10.0 s: 1 layer is in DIR"),
        (-50.0, "a restart would lose 10 min 00 s: 1 layer is in DIR"),  # by the run before
    ],
)
def test_what_a_restart_would_lose_is_the_time_since_the_last_thing_on_disk(
    at: float | None, expected: str, tmp_path: Path
) -> None:
    process = RecordedFolder(tmp_path / "r").process()
    process.begin()
    place = {} if at is None else {semconv.RESUME_PATH: written(tmp_path / "w", at)}
    process.step("Model Quantization", 1, attributes=place)
    process.state(600.0, [{"index": 0}])
    text = restart_text(read(tmp_path / "r"))
    assert text.replace(str(tmp_path / "w"), "DIR") == expected


def run_in(path: Path, took: float, place: str | None, done: int, *, is_killed: bool) -> Path:
    folder = RecordedFolder(path, by_launcher=True)
    process = folder.process()
    process.begin()
    attributes = {semconv.RESUME_PATH: place, semconv.RESUME_DONE: done}
    own = {name: value for name, value in attributes.items() if value}
    step = process.step("Model Quantization", 1, attributes=own)
    if is_killed:
        process.gone()
        folder.ended(Ending(time=took, signal="SIGKILL", resume=place))
    else:
        process.close(step, took)
        process.end(took, attributes=own)
        folder.ended(Ending(time=took, exit_code=0))
    return path


def test_a_run_is_joined_with_the_one_beside_it_that_it_has_gone_on_from(tmp_path: Path) -> None:
    def began(path: Path, seconds: int) -> None:
        manifest = json.loads((path / "manifest.json").read_text())
        manifest["began"] += seconds * 10**9
        (path / "manifest.json").write_text(json.dumps(manifest))

    first = run_in(tmp_path / "first", 30.0, "/w", 0, is_killed=True)
    second = run_in(tmp_path / "second", 20.0, "/w", 3, is_killed=True)
    other = run_in(tmp_path / "other", 10.0, "/elsewhere", 0, is_killed=True)
    anew = run_in(tmp_path / "anew", 10.0, "/w", 0, is_killed=False)
    last = run_in(tmp_path / "last", 5.0, "/w", 4, is_killed=False)
    for at, path in enumerate((first, second, other, anew, last)):
        began(path, 100 * at)
    assert [found_beside(each) for each in (first, second, anew, last)] == [
        None,
        str(first),
        None,
        str(second),
    ]


def test_times_of_runs_that_go_on_add_up(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("first", "second", "last")]
    for path, took, before in zip(paths, (30.0, 20.0, 5.0), (paths[2], *paths), strict=False):
        run_in(path, took, "/w", 1, is_killed=path != paths[2])
        manifest = json.loads((path / "manifest.json").read_text())
        (path / "manifest.json").write_text(json.dumps({**manifest, "continues": str(before)}))
    last = read(paths[2])
    assert [each.path for each in earlier_runs(last)] == [paths[1], paths[0]]  # and no circle
    shown = document({"last": last})
    answer = f"It continues {paths[1]}, which was killed by SIGKILL after 20.0 s: they took 55.0 s in all."
    assert answer in terminal_text(shown, 1000)
    data = next(iter(shown.data()))["recording"]
    assert (data["continues"], data["duration_in_all_seconds"]) == ([*map(str, paths[1::-1])], 55.0)
