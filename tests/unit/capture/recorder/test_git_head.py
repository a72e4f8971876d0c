"""Commit and branch are those that git tells, read without starting it."""

from __future__ import annotations

from pathlib import Path

import pytest

from otel_quant.capture.recorder.origin import git_head
from tests.fixtures.git import git, new_repository


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return new_repository(tmp_path / "repository")


def test_commit_and_branch(repository: Path) -> None:
    commit = git(repository, "rev-parse", "HEAD")
    assert git_head(repository / "inner") == (commit, "main")

    git(repository, "gc", "-q", "--aggressive", "--prune=now")
    assert (repository / ".git" / "packed-refs").exists()
    assert git_head(repository) == (commit, "main")

    git(repository, "worktree", "add", "-q", "-b", "other/branch", "../second")
    assert git_head(repository.parent / "second") == (commit, "other/branch")
    git(repository.parent, "clone", "-q", str(repository), "clone")
    assert git_head(repository.parent / "clone") == (commit, "main")

    git(repository, "checkout", "-q", "--detach")
    assert git_head(repository) == (commit, None)


def test_a_folder_without_a_repository_and_one_without_a_commit(tmp_path: Path) -> None:
    assert git_head(Path("/proc")) == (None, None)
    git(tmp_path, "init", "-q", "-b", "main")
    assert git_head(tmp_path) == (None, "main")
