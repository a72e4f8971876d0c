"""What `otel-quant run` notes of the git repository in which a program starts."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fixtures.git import git, new_repository
from tests.fixtures.programs import Launched


def changed(folder: Path) -> None:
    (folder / "a.txt").write_text("b\n")


def staged(folder: Path) -> None:
    (folder / "new.txt").write_text("c\n")
    git(folder, "add", ".")


def untracked(folder: Path) -> None:
    (folder / "new.txt").write_text("c\n")


def damaged(folder: Path) -> None:
    (folder / ".git" / "index").write_bytes(b"x" * 500)


@pytest.mark.parametrize(
    ("change", "is_dirty"), [(changed, True), (staged, True), (untracked, False), (damaged, None)]
)
def test_uncommitted_changes_are_those_at_the_start_of_the_program(
    tmp_path: Path, change: Callable[[Path], None], is_dirty: bool | None
) -> None:
    repository = new_repository(tmp_path / "repository")
    change(repository)
    launched = Launched(repository)
    assert launched.run(["true"], "--out", str(tmp_path / "r")).returncode == 0
    manifest = json.loads((tmp_path / "r" / "manifest.json").read_text())
    assert manifest["origin"].get("quant.vcs.dirty") is is_dirty


@pytest.mark.parametrize("programs", ["", None], ids=["without git", "outside of a repository"])
def test_where_git_cannot_tell_nothing_is_noted(launched: Launched, programs: str | None) -> None:
    if programs is not None:
        new_repository(launched.folder / "repository")
    variables = {} if programs is None else {"PATH": programs}
    where = Launched(launched.folder / "repository") if programs is not None else launched
    ended = where.run(["/bin/true"], "--out", "r", variables=variables)
    assert (ended.returncode, len(ended.stderr.splitlines())) == (0, 2)
    manifest = json.loads((where.folder / "r" / "manifest.json").read_text())
    assert manifest["origin"].keys() == {"process.command_line"}
