"""The benchmarks run and print their ratio. Its value depends on the machine and is not tested."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests.fixtures.programs import clean_environment, run

ROOT = Path(__file__).parents[2]
RATIO = re.compile(r"^ratio: \d+\.\d+ ", re.MULTILINE)


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(("step_cost.py", "--rounds", "1"), marks=pytest.mark.quark),
        ("sampler.py", "--rounds", "1", "--seconds", "0.2", "--interval", "10"),
        ("memory.py", "--rounds", "1", "--steps", "1", "20"),
        ("many_runs.py", "--rounds", "1", "--runs", "20"),
        ("many_steps.py", "--rounds", "1", "--steps", "200"),
        ("gate.py", "--gates", "2"),
        pytest.param(("ranks.py", "--of", "1"), marks=pytest.mark.slow),
        ("process_context.py", "--rounds", "1"),
        pytest.param(("audit.py", "--rounds", "1"), marks=pytest.mark.slow),
        ("startup.py", "--rounds", "1"),
        ("observers.py", "--rounds", "2"),
    ],
    ids=lambda command: command[0],
)
def test_a_benchmark_runs_to_its_end_and_prints_its_ratio(
    command: tuple[str, ...], tmp_path: Path
) -> None:
    program, *options = command
    benchmark = [sys.executable, ROOT / "benchmarks" / program, *options]
    finished = run(benchmark, tmp_path, clean_environment({"PYTHONPATH": str(ROOT)}), 900)
    assert finished.returncode == 0, finished.stderr
    assert "Traceback" not in finished.stderr
    if program == "sampler.py" and "none without mprof" in finished.stdout:
        return
    assert RATIO.search(finished.stdout), finished.stdout
