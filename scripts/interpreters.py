"""Finds the Pythons that the package's classifiers name."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

from scripts.workspace import ROOT

_CLASSIFIER = re.compile(r"Programming Language :: Python :: (3\.\d+)")


def supported() -> list[str]:
    """Returns the versions that the classifiers name, such as "3.11", the oldest first."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    found = [_CLASSIFIER.fullmatch(classifier) for classifier in project["classifiers"]]
    return sorted((match[1] for match in found if match), key=_numbers)


def find(version: str) -> str | None:
    """Returns the path of a version's interpreter, from PATH or pyenv; None where none runs."""
    return next((path for path in _candidates(version) if _is(path, version)), None)


def _candidates(version: str) -> Iterator[str]:
    on_path = shutil.which(f"python{version}")
    if on_path:
        yield on_path
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    folders = sorted((pyenv / "versions").glob(f"{version}.*"), key=lambda f: _numbers(f.name))
    for folder in reversed(folders):
        yield str(folder / "bin" / f"python{version}")


def _is(path: str, version: str) -> bool:
    # pyenv puts a program of this name on PATH for every version, which fails unless the
    # version is chosen.
    command = [path, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    except OSError:
        return False
    return (done.returncode, done.stdout.strip()) == (0, version)


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)]
