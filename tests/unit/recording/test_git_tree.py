"""A repository is described as git describes it, from git's own files."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from otel_quant.capture.recorder.git_tree import GitTree


def git(folder: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false")
    own = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    done = subprocess.run(
        ["git", *identity, *arguments],
        cwd=folder,
        env=own,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    (folder / "inner").mkdir(parents=True)
    git(folder, "init", "-q", "-b", "main")
    (folder / "a.txt").write_text("a\n")
    (folder / "inner" / "script.sh").write_text("b\n")
    (folder / "inner" / "script.sh").chmod(0o755)
    (folder / "link").symlink_to("a.txt")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "first")
    return folder


def looked_at(folder: Path) -> GitTree:
    tree = GitTree(folder)
    tree.look()
    return tree


def changed(repository: Path) -> None:
    (repository / "a.txt").write_text("b\n")


def removed(repository: Path) -> None:
    (repository / "a.txt").unlink()


def staged(repository: Path) -> None:
    (repository / "a.txt").write_text("c\n")
    git(repository, "add", ".")


def added(repository: Path) -> None:
    (repository / "new.txt").write_text("c\n")
    git(repository, "add", ".")
    git(repository, "write-tree")


def made_executable(repository: Path) -> None:
    (repository / "a.txt").chmod(0o755)


def linked_elsewhere(repository: Path) -> None:
    (repository / "link").unlink()
    (repository / "link").symlink_to("b.txt")


def untouched(repository: Path) -> None:
    pass


def touched(repository: Path) -> None:
    os.utime(repository / "a.txt", (1, 1))


def untracked(repository: Path) -> None:
    (repository / "new.txt").write_text("c\n")


def packed(repository: Path) -> None:
    git(repository, "gc", "-q", "--aggressive", "--prune=now")


@pytest.mark.parametrize(
    ("change", "is_dirty"),
    [
        (untouched, False), (touched, False), (untracked, False), (packed, False),
        (changed, True), (removed, True), (staged, True), (added, True), (made_executable, True),
        (linked_elsewhere, True),
    ],
)  # fmt: skip
def test_commit_branch_and_whether_files_differ(
    repository: Path, change: Callable[[Path], None], is_dirty: bool
) -> None:
    change(repository)
    tree = looked_at(repository / "inner")
    assert tree.revision == git(repository, "rev-parse", "HEAD")
    assert tree.ref == "main"
    # An index that has a new file does not say what tree it makes.
    assert tree.is_dirty in ((is_dirty, None) if change in (staged,) else (is_dirty,))
    status = git(repository, "status", "--porcelain", "--untracked-files=no")
    assert bool(status) == is_dirty


def test_a_commit_without_a_branch_and_a_further_work_tree(repository: Path) -> None:
    git(repository, "worktree", "add", "-q", "-b", "other/branch", "../second")
    second = looked_at(repository.parent / "second")
    assert (second.ref, second.is_dirty) == ("other/branch", False)
    assert second.revision == git(repository, "rev-parse", "HEAD")
    git(repository, "checkout", "-q", "--detach")
    first = looked_at(repository)
    assert (first.ref, first.revision, first.is_dirty) == (None, second.revision, False)


def test_a_clone(repository: Path) -> None:
    git(repository.parent, "clone", "-q", str(repository), "clone")
    clone = looked_at(repository.parent / "clone")
    assert (clone.ref, clone.is_dirty) == ("main", False)
    assert clone.revision == git(repository, "rev-parse", "HEAD")


@pytest.mark.parametrize("content", [b"", b"DIRC", b"DIRC\0\0\0\4\0\0\0\0", b"x" * 500])
def test_an_index_that_is_not_understood_leaves_it_open(repository: Path, content: bytes) -> None:
    (repository / ".git" / "index").write_bytes(content)
    tree = looked_at(repository)
    assert (tree.ref, tree.is_dirty) == ("main", None)


def test_a_folder_without_a_repository_and_one_without_a_commit(tmp_path: Path) -> None:
    assert looked_at(Path("/proc")).revision is None
    git(tmp_path, "init", "-q", "-b", "main")
    tree = looked_at(tmp_path)
    assert (tree.revision, tree.is_dirty) == (None, None)
