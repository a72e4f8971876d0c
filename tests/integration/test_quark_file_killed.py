"""``kill -9`` at any moment of a run, with AMD Quark's own profiler as the control."""

from __future__ import annotations

import os
import random
import shlex
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml

import otel_quant
from otel_quant.recordings.profile_reader import parse

SCRIPT = """
import os
from {profiler} import GlobalProfiler
profiler = GlobalProfiler("p.yaml")
for number in range(1_000_000):
    with profiler.scope(f"Outer {{number}}"):
        os.write(1, b".")
        with profiler.scope("Inner"):
            os.write(1, b".")
"""


def killed(folder: Path, profiler: str, after: float) -> int:
    """Runs the script, kills it some seconds after its first step; returns steps begun."""
    folder.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT.format(profiler=profiler)],
        cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        env={**os.environ, "QUARK_PROFILING": "1", "PYTHONPATH": str(Path(otel_quant.__file__).parents[1])},
    )  # fmt: skip
    assert process.stdout is not None
    begun = len(process.stdout.read(1))
    time.sleep(after)
    process.send_signal(signal.SIGKILL)
    begun += len(process.stdout.read())
    assert process.wait(60) == -signal.SIGKILL
    process.stdout.close()
    return begun


def test_the_file_of_a_killed_run_is_valid_and_has_all_checkpoints_before_the_kill(
    tmp_path: Path,
) -> None:
    text = SCRIPT.format(profiler="otel_quant.quark")
    for trial in range(12):
        begun = killed(tmp_path / str(trial), "otel_quant.quark", random.uniform(0, 0.1))

        data = (tmp_path / str(trial) / "p.yaml").read_bytes()
        content = yaml.load(data, yaml.CSafeLoader)
        records = content["memory_usage"]
        assert list(content) == ["run", "memory_usage"]  # what made the run outlives it
        assert content["run"]["command"] == " ".join(f"python -c {shlex.quote(text)}".split())
        assert content["run"]["memory_limit_source"] in ("cgroup", "physical")
        steps = [record["step"] for record in records]
        assert sum(step.endswith(" Start") for step in steps) >= begun
        expected = [
            name
            for number in range(begun)
            for name in (f"Outer {number} Start", "Inner Start", "Inner End", f"Outer {number} End")
        ]
        assert steps == ["Start", *expected[: len(steps) - 1]]
        # The last record may be cut between two of its keys.
        assert {len(record) for record in records[:-1]} <= {len(records[0])}
        assert list(records[-1]) == list(records[0])[: len(records[-1])]
        assert not parse(data.decode()).complete


@pytest.mark.quark
@pytest.mark.skipif(find_spec("quark") is None, reason="amd-quark is not installed")
def test_quarks_own_file_lacks_what_its_buffer_held(tmp_path: Path) -> None:
    def lacking(trial: int) -> int:
        folder = tmp_path / str(trial)
        begun = killed(folder, "quark.common.profiler", 0.1 + trial / 50)
        records = parse((folder / "p.yaml").read_text()).records
        return begun - sum(str(record["step"]).endswith(" Start") for record in records)

    # One run may be killed as its buffer has just been written.
    assert any(lacking(trial) > 0 for trial in range(5))
