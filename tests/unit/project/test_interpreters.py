"""The other Pythons are found where they are, and only if they run."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from scripts import interpreters

THIS = f"{sys.version_info.major}.{sys.version_info.minor}"


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder that is all of PATH, and pyenv's."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    return tmp_path


def program(path: Path, script: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


THIS_PYTHON = f'exec {sys.executable} "$@"'


def test_the_classifiers_name_the_versions() -> None:
    assert interpreters.supported() == ["3.11", "3.12", "3.13"]


def test_without_interpreters_none_is_found(nowhere: Path) -> None:
    assert interpreters.find(THIS) is None


def test_an_interpreter_on_path_is_found(nowhere: Path) -> None:
    python = program(nowhere / f"python{THIS}", THIS_PYTHON)
    assert interpreters.find(THIS) == python


def test_if_pyenvs_placeholder_does_not_run_its_newest_version_is_found(
    nowhere: Path,
) -> None:
    program(nowhere / f"python{THIS}", 'echo "pyenv: command not found" >&2; exit 127')
    for patch in ("9", "10"):
        program(nowhere / "versions" / f"{THIS}.{patch}" / "bin" / f"python{THIS}", THIS_PYTHON)
    newest = nowhere / "versions" / f"{THIS}.10" / "bin" / f"python{THIS}"
    assert interpreters.find(THIS) == str(newest)


def test_an_interpreter_of_another_version_is_not_found(nowhere: Path) -> None:
    program(nowhere / "python3.99", THIS_PYTHON)
    assert interpreters.find("3.99") is None
