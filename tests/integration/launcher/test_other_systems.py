"""What Linux alone has is missing elsewhere, and nothing else: a run is recorded, shown and compared."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.programs import FLOAT_MODEL, Finished, clean_environment, run

ELSEWHERE = Path(__file__).parents[2] / "fixtures" / "elsewhere"

PROGRAM = """
import os, sys, time
from otel_quant import step

with step("Model Quantization"):
    with step("Calibration"):
        held = bytearray(80_000_000)
        time.sleep(3 if sys.argv[1] == "vanishes" else 0.3)  # on a busy machine, 0.3 s may pass without a sample
        if sys.argv[1] == "raises":
            raise ValueError("wrong scale")
        if sys.argv[1] == "vanishes":
            os._exit(9)
print(sys.platform)
"""


@pytest.fixture(params=["darwin", "win32"])
def system(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


class Elsewhere:
    """Runs commands in a folder as on another system."""

    def __init__(self, system: str, folder: Path) -> None:
        self._folder = folder
        self._environ = clean_environment({
            "TEST_ON_SYSTEM": system, "PYTHONPATH": str(ELSEWHERE), "PROCESSOR_ARCHITECTURE": "AMD64",
            "PYTHONIOENCODING": "ascii", "OTEL_SDK_DISABLED": "true",
        })  # fmt: skip

    def __call__(self, *arguments: str) -> Finished:
        command = [sys.executable, "-m", "otel_quant", *arguments]
        return run(command, self._folder, self._environ)

    def shown(self, command: str, *arguments: str) -> Any:
        """Returns what a command prints as JSON."""
        ended = self(command, *arguments, "--format", "json")
        assert (ended.returncode, ended.stderr) == (0, "")
        return json.loads(ended.stdout)


@pytest.fixture
def elsewhere(system: str, tmp_path: Path) -> Elsewhere:
    (tmp_path / "program.py").write_text(PROGRAM)
    return Elsewhere(system, tmp_path)


ENDS = {
    "returns": (0, "ended", "ok", "program.py finished in "),
    "raises": (1, "failed", "ValueError", "\nValueError: wrong scale, at <module> (program.py:"),
    "vanishes": (9, "failed", "open", "program.py failed with exit code 9 after "),
}


@pytest.mark.parametrize("end", ENDS)
def test_a_run_is_recorded_with_its_steps_memory_and_end(
    elsewhere: Elsewhere, system: str, end: str, tmp_path: Path
) -> None:
    code, state, status, said = ENDS[end]
    ended = elsewhere("run", "--out", "r", "--", sys.executable, "program.py", end)
    assert (ended.returncode, ended.stdout) == (code, f"{system}\n" if code == 0 else "")
    assert said in ended.stderr
    assert "otel-quant: " not in ended.stderr
    assert "and is skipped" not in ended.stderr
    [shown] = elsewhere.shown("show", "r")
    assert (shown["recording"]["state"], shown["recording"]["problems"]) == (state, [])
    after = [
        ("(after the last step)", 0, "outside")
    ]  # there is none where the program ended in one
    assert [(each["step"], each["depth"], each["status"]) for each in shown["steps"]] == [
        ("(before the first step)", 0, "outside"), ("Model Quantization", 0, status),
        ("Calibration", 1, status), *(after if end != "vanishes" else []),
    ]  # fmt: skip
    assert 80e6 < shown["recording"]["memory_peak"] < 300e6
    assert (tmp_path / "r" / "report.html").stat().st_size > 10_000


def test_the_commands_that_read_recordings_work(elsewhere: Elsewhere, tmp_path: Path) -> None:
    for name in ("a", "b"):
        elsewhere("run", "--out", name, "--", sys.executable, "program.py", "returns")
    run([sys.executable, "-c", FLOAT_MODEL], tmp_path, clean_environment())
    for command in (
        ["report", "a", "-o", "a.html"], ["compare", "a", "b"], ["runs", "."], ["watch", "--once", "a"], ["stacks", "a"],
        ["cost", "float.onnx"], ["cost", "float.onnx", "--format", "html"], ["estimate", "float.onnx"],
    ):  # fmt: skip
        ended = elsewhere(*command)
        assert (ended.returncode, ended.stderr) == (0, ""), command


def test_missing_features_of_a_system_are_named(
    elsewhere: Elsewhere, system: str, tmp_path: Path
) -> None:
    run([sys.executable, "-c", FLOAT_MODEL], tmp_path, clean_environment())
    ended = elsewhere("inference", "float.onnx", "--runs", "3")
    if system == "win32":
        assert (ended.returncode, ended.stderr) == (
            1,
            "otel-quant: models are measured in separate processes, which cannot be started here; "
            "expected Linux or macOS\n",
        )
    else:
        assert (ended.returncode, ended.stderr) == (0, "")
