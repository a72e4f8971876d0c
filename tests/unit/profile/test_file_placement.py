"""A run's file takes its path without replacing any other file."""

from __future__ import annotations

import errno
import os
import select
from collections.abc import Callable
from pathlib import Path

import pytest

from otel_quant.base import file_locks
from otel_quant.export.quark_yaml import file_placement
from otel_quant.export.quark_yaml.file import create
from tests.fixtures.programs import child


def names(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted(folder.iterdir())}


def test_the_newest_file_that_is_kept_has_the_number_1(tmp_path: Path) -> None:
    for run in ("first\n", "second\n", "third\n", "fourth\n"):
        create(tmp_path / "p.yaml", run).close()

    assert names(tmp_path) == {
        "p.yaml": "fourth\n",
        "p.1.yaml": "third\n",
        "p.2.yaml": "second\n",
        "p.3.yaml": "first\n",
    }


def test_a_free_number_ends_the_files_that_move(tmp_path: Path) -> None:
    (tmp_path / "p.1.yaml").write_text("one\n")
    (tmp_path / "p.3.yaml").write_text("three\n")
    for run in ("first\n", "second\n"):
        create(tmp_path / "p.yaml", run).close()

    assert names(tmp_path) == {
        "p.yaml": "second\n",
        "p.1.yaml": "first\n",
        "p.2.yaml": "one\n",
        "p.3.yaml": "three\n",
    }


def test_folders_links_and_files_of_living_runs_stay_at_their_numbers(tmp_path: Path) -> None:
    (tmp_path / "p.1").mkdir()
    (tmp_path / "p.2").write_text("two\n")
    living = create(tmp_path / "p.3", "living\n")
    (tmp_path / "p.4").symlink_to(tmp_path / "nowhere")
    for run in ("first\n", "second\n"):
        create(tmp_path / "p", run).close()
    living.append("goes on\n")

    (tmp_path / "p.1").rmdir()
    assert (tmp_path / "p.4").is_symlink()
    (tmp_path / "p.4").unlink()
    assert names(tmp_path) == {
        "p": "second\n",
        "p.2": "first\n",
        "p.3": "living\ngoes on\n",
        "p.5": "two\n",
    }


class Killed(BaseException):
    """Stands for a kill: nothing of ours runs after it."""


@pytest.mark.parametrize("calls", range(8))
def test_a_kill_between_two_names_loses_no_file_and_leaves_none_twice(
    tmp_path: Path, calls: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for run in ("first\n", "second\n", "third\n"):
        create(tmp_path / "p", run).close()
    left = calls

    def until_killed(function: Callable[..., None]) -> Callable[..., None]:
        def call(*arguments: object) -> None:
            nonlocal left
            if left == 0:
                raise Killed
            left -= 1
            function(*arguments)

        return call

    new = tmp_path / "new"
    new.write_text("fourth\n")
    with monkeypatch.context() as patched:
        patched.setattr(file_placement.os, "link", until_killed(os.link))
        patched.setattr(Path, "unlink", until_killed(Path.unlink))
        patched.setattr(Path, "replace", until_killed(Path.replace))
        killed = False
        try:
            file_placement.move(new, tmp_path / "p")
        except Killed:
            killed = True
    assert killed == (calls < 7)  # the link refused, 2 x (link, unlink), the link, the replacement
    new.unlink(missing_ok=True)
    assert {*names(tmp_path).values()} >= {"first\n", "second\n", "third\n"}

    create(tmp_path / "p", "last\n").close()

    kept = (
        ["third\n", "second\n", "first\n"]
        if killed
        else ["fourth\n", "third\n", "second\n", "first\n"]
    )
    assert names(tmp_path) == {"p": "last\n"} | {
        f"p.{number}": text for number, text in enumerate(kept, 1)
    }


def test_a_file_of_another_program_is_kept_too(tmp_path: Path) -> None:
    (tmp_path / "p").write_text("notes\n")
    (tmp_path / "p.1").write_text("more notes\n")

    create(tmp_path / "p", "run\n").close()

    assert names(tmp_path) == {"p": "run\n", "p.1": "notes\n", "p.2": "more notes\n"}


def test_an_empty_file_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").touch()

    create(tmp_path / "p.yaml", "run\n").close()

    assert names(tmp_path) == {"p.yaml": "run\n"}


def test_a_living_run_keeps_its_path_and_the_next_gets_one_with_its_process_id(
    tmp_path: Path,
) -> None:
    first = create(tmp_path / "p.yaml", "first\n")

    second = create(tmp_path / "p.yaml", "second\n")
    first.append("goes on\n")
    second.close()
    third = create(tmp_path / "p.yaml", "third\n")

    assert (second.path, third.path) == (tmp_path / f"p.{os.getpid()}.yaml",) * 2
    assert names(tmp_path) == {
        "p.yaml": "first\ngoes on\n",
        f"p.{os.getpid()}.yaml": "third\n",
        f"p.{os.getpid()}.1.yaml": "second\n",
    }


def test_a_link_is_followed_and_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "p.yaml").symlink_to(tmp_path / "out" / "real.yaml")

    for run in ("first\n", "second\n"):
        create(tmp_path / "p.yaml", run).close()

    assert (tmp_path / "p.yaml").is_symlink()
    assert names(tmp_path / "out") == {"real.yaml": "second\n", "real.1.yaml": "first\n"}


@pytest.mark.parametrize("links", [True, False], ids=["with links", "without links"])
def test_many_runs_that_start_at_once_lose_no_file(
    tmp_path: Path, links: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not links:  # as on FAT

        def refuse(*_: object) -> None:
            raise OSError(errno.EPERM, "no links here")

        monkeypatch.setattr(file_placement.os, "link", refuse)  # fmt: skip
    for round_ in range(15 if links else 1):
        folder = tmp_path / str(round_)
        folder.mkdir()
        (folder / "p.yaml").write_text("old\n")
        starting, go = os.pipe()
        ending, end = os.pipe()
        written, writing = os.pipe()

        def run(
            folder: Path = folder,
            ours: tuple[int, int, int] = (starting, writing, ending),
            parents: tuple[int, int] = (go, end),
        ) -> None:
            starting, writing, ending = ours
            for descriptor in parents:
                os.close(descriptor)
            os.read(starting, 1)  # returns when the parent closes its end
            file = create(folder / "p.yaml", f"run {os.getpid()}\n")
            file.append(f"at {file.path.name}\n")
            os.write(writing, b".")
            os.read(ending, 1)  # the same: all of them live at once

        pids = [child(run) for _ in range(6 if links else 1)]
        for descriptor in (starting, writing, ending, go):
            os.close(descriptor)
        for _ in pids:
            assert select.select([written], [], [], 60)[0]
            os.read(written, 1)
        os.close(written)
        os.close(end)
        assert [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids] == [0] * len(pids)

        found = names(folder)
        kept = [text for name, text in found.items() if name == "p.1.yaml"]
        runs = {name: text for name, text in found.items() if name != "p.1.yaml"}
        assert kept == ["old\n"]
        assert sorted(text.split()[1] for text in runs.values()) == sorted(map(str, pids))
        assert {text.split()[3] for text in runs.values()} == set(runs)
        assert "p.yaml" in runs


def test_without_locks_no_file_is_replaced_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_locks, "EXIST", False)  # as on Windows
    for run in ("first\n", "second\n", "third\n"):
        create(tmp_path / "p.yaml", run).close()

    assert names(tmp_path) == {"p.yaml": "third\n", "p.1.yaml": "second\n", "p.2.yaml": "first\n"}

    def refuse(*_: object) -> None:
        raise PermissionError(errno.EACCES, "open in another process")

    monkeypatch.setattr(Path, "rename", refuse)
    create(tmp_path / "p.yaml", "fourth\n").close()
    assert names(tmp_path)[f"p.{os.getpid()}.yaml"] == "fourth\n"


def test_a_file_that_has_been_moved_is_written_under_its_new_path(tmp_path: Path) -> None:
    file = create(tmp_path / "p.yaml", "one\n")

    file.move(tmp_path / "p.otel.yaml")
    (tmp_path / "p.yaml").write_text("theirs\n")
    file.append("two\n")

    assert file.path == tmp_path / "p.otel.yaml"
    assert names(tmp_path) == {"p.yaml": "theirs\n", "p.otel.yaml": "one\ntwo\n"}
