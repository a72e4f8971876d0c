"""The example workflow for CI, step by step as a runner executes it."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Final

import yaml

from tests.fixtures.programs import Launched

EXAMPLE: Final = Path(__file__).resolve().parents[2] / "examples" / "ci"

PROGRAM: Final = """\
import time, otel_quant

with otel_quant.step("Calibration"):
    samples = bytearray({megabytes} * 10**6)
    samples[::4096] = b"x" * len(samples[::4096])
"""


def test_the_example_workflow_rejects_a_change_that_needs_more_memory(tmp_path: Path) -> None:
    for side, size in (("base", 100), ("new", 160)):
        (tmp_path / side).mkdir()
        (tmp_path / side / "quantize.py").write_text(PROGRAM.format(megabytes=size))
    limits = tmp_path / "new" / "otel-quant.toml"
    # Time is not what is tried here, and the machine may be busy.
    text = (EXAMPLE / "otel-quant.toml").read_text().replace('  "duration = 20%",\n', "")
    limits.write_text(text)
    steps = yaml.safe_load((EXAMPLE / "quantization.yml").read_text())["jobs"]["compare"]["steps"]
    commands = {step["name"]: step["run"] for step in steps if "name" in step}
    assert list(commands) == ["Install", "Record", "Compare", "Comment"]
    summary = tmp_path / "summary.md"
    environment = Launched(tmp_path).environment({"GITHUB_STEP_SUMMARY": str(summary)})

    def exit_code(name: str) -> int:
        command = ["bash", "-e", "-c", commands[name]]
        return subprocess.run(command, cwd=tmp_path, env=environment, check=False).returncode

    assert (exit_code("Record"), exit_code("Compare")) == (0, 1)
    assert "\n\nworse: Calibration: memory.peak " in summary.read_text()
    assert {"compare.html", "compare.xml", "runs"} <= {path.name for path in tmp_path.iterdir()}
    limits.write_text(text.replace("memory.peak = 10%", "memory.peak = 90%"))
    assert exit_code("Compare") == 0
