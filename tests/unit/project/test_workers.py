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


def run(folder: Path, **files: str) -> None:
    for name, text in files.items():
        path = folder / "tests" / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-c", ROOT / "pyproject.toml", "--rootdir", folder,
         "-p", "tests.fixtures.workers", "-p", "no:cacheprovider",
         "-n", "2", "--no-loadscope-reorder", folder],
        cwd=folder, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_files_that_share_runs_of_quark_stay_in_one_process_and_come_first(tmp_path: Path) -> None:
    first, second = "integration__quark__test_b", "integration__quark__test_c"
    quark = RECORDS.format(mark="@pytest.mark.quark")
    run(tmp_path, **{"integration__test_a": RECORDS.format(mark=""), first: quark, second: quark})

    ran = [line.split() for line in (tmp_path / "ran").read_text().splitlines()]
    workers: dict[str, set[str]] = {}
    for worker, file in ran:
        workers.setdefault(Path(file).name, set()).add(worker)
    assert workers["test_b.py"] == workers["test_c.py"] == {"gw0"}
    assert len(workers["test_a.py"]) == 1


def test_the_collectors_tests_run_in_any_process(tmp_path: Path) -> None:
    run(tmp_path, stack__test_collector=MEETS)
