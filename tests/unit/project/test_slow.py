"""Tests that only repeat others are left out by name, on one process and on several."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]

FILE = """
import pytest

@pytest.mark.parametrize("runs", [3, pytest.param(30, marks=pytest.mark.slow)])
def test_kills(runs):
    pass
"""


LEFT_OUT = ["slow tests left out (--slow runs them): 1", "  test_it.py::test_kills[30]"]


@pytest.mark.parametrize(
    ("options", "passed", "left_out"),
    [
        ([], "1 passed", LEFT_OUT),
        (["-n", "2", "--dist", "loadgroup"], "1 passed", LEFT_OUT),
        (["--slow"], "2 passed", []),
    ],
    ids=["one process", "two processes", "asked for"],
)
def test_a_slow_test_runs_only_if_asked_for_and_is_named_if_not(
    tmp_path: Path, options: list[str], passed: str, left_out: list[str]
) -> None:
    (tmp_path / "test_it.py").write_text(FILE)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-c", ROOT / "pyproject.toml", "--rootdir", tmp_path,
         "-p", "tests.fixtures.slow", "-p", "no:cacheprovider", *options, tmp_path],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert lines[-1].startswith(passed)
    named = [line for line in lines if "test_kills" in line or "left out" in line]
    assert named == left_out
