"""How the processes that run the tests side by side divide them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]

RECORDS = """
import os
import pytest

@pytest.mark.parametrize("number", [1, 2])
{mark}
def test_it(number):
    with open("ran", "a") as file:
        print(os.environ["PYTEST_XDIST_WORKER"], __file__, file=file)
"""

# Each ends only if the other runs at the same time.
MEETS = """
import pathlib
import time
import pytest

@pytest.mark.parametrize("mine, other", [("one", "two"), ("two", "one")])
def test_it(mine, other):
    pathlib.Path(mine).touch()
    deadline = time.monotonic() + 30
    while not pathlib.Path(other).exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
"""


def run(folder: Path, processes: int, **files: str) -> None:
    for name, text in files.items():
        path = folder / "tests" / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-c", ROOT / "pyproject.toml", "--rootdir", folder,
         "-p", "tests.fixtures.workers", "-p", "no:cacheprovider",
         "-n", str(processes), "--no-loadscope-reorder", folder],
        cwd=folder, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def ran(folder: Path, processes: int) -> list[tuple[str, str]]:
    """Runs two files with Quark and one without; returns process and file of each test."""
    without, quark = RECORDS.format(mark=""), RECORDS.format(mark="@pytest.mark.quark")
    names = dict.fromkeys(("integration__quark__test_b", "integration__quark__test_c"), quark)
    run(folder, processes, integration__test_a=without, **names)
    lines = (folder / "ran").read_text().splitlines()
    return [(process, Path(file).name) for process, file in map(str.split, lines)]


def test_files_that_share_runs_of_quark_stay_in_one_process(tmp_path: Path) -> None:
    tests = ran(tmp_path, 2)
    assert len(tests) == 6
    assert len({process for process, name in tests if name != "test_a.py"}) == 1
    assert len({process for process, name in tests if name == "test_a.py"}) == 1


def test_tests_with_quark_come_first(tmp_path: Path) -> None:
    order = [name for _, name in ran(tmp_path, 1)]
    assert order == [name for name in ("test_b.py", "test_c.py", "test_a.py") for _ in range(2)]


def test_the_collectors_tests_run_in_any_process(tmp_path: Path) -> None:
    run(tmp_path, 2, stack__test_collector=MEETS)
