"""The programs of a shell script, of Make and of a job of GitHub Actions are in one trace, as docs/pipelines.md has it."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
import yaml

from tests.integration.pipelines.conftest import Pipeline, blocks


@pytest.mark.parametrize("block", blocks("Shell and Make"))
def test_a_script_and_make_are_one_trace_below_the_program(pipeline: Pipeline, block: str) -> None:
    if shutil.which(block.split()[5]) is None:
        pytest.skip(f"no {block.split()[5]} here")
    pipeline.run("sh", "-ec", block)
    pipeline.check_one_trace("program")


def test_the_steps_of_a_job_are_one_trace(pipeline: Pipeline, tmp_path: Path) -> None:
    (block,) = blocks("GitHub Actions")
    shared = tmp_path / "shared"
    shared.touch()
    steps = yaml.safe_load(block)["jobs"]["quantization"]["steps"]
    for step in steps:
        variables = dict(re.findall(r"(\w+)=(.*)", shared.read_text()))
        pipeline.run("bash", "-ec", step["run"], GITHUB_ENV=str(shared), **variables)
    assert f"TRACEPARENT=00-{pipeline.check_one_trace()}-01\n" == shared.read_text()
