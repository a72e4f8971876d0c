"""What runs by itself, before a commit and on GitHub, runs what is in this checkout."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import yaml

from otel_quant.capture.instruments.shared.hooks import libraries
from scripts.tested_libraries import TESTED

ROOT = Path(__file__).resolve().parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def job(workflow: str) -> dict[str, Any]:
    """Returns the only job of a workflow."""
    content = yaml.safe_load((ROOT / ".github" / "workflows" / workflow).read_text())
    [only] = content["jobs"].values()
    assert isinstance(only, dict)
    return only


def test_the_checks_before_a_commit_are_programs_of_the_environment() -> None:
    [repository] = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert repository["repo"] == "local"
    assert [(hook["language"], hook["entry"]) for hook in repository["hooks"]] == [
        ("system", ".venv/bin/ruff check"),
        ("system", ".venv/bin/ruff format --check"),
        ("system", ".venv/bin/mypy"),
    ]


def test_ci_runs_on_github_with_every_python_that_the_classifiers_name() -> None:
    assert (ROOT / ".ci" / "run").read_text().endswith(" scripts/test.py --lint --servers\n")
    *prepared, last = job("ci.yml")["steps"]
    assert last == {"run": ".ci/run"}
    [pythons] = [step["with"]["python-version"] for step in prepared if "python" in step["uses"]]
    named = {
        classifier.rpartition(" ")[2]
        for classifier in PROJECT["classifiers"]
        if classifier.startswith("Programming Language :: Python :: 3.")
    }
    assert set(pythons.split()) == named


def test_every_library_is_tested_every_week() -> None:
    names = [*(library.name for library in libraries()), "openvino"]
    assert list(TESTED) == names
    printed = subprocess.run(
        [sys.executable, "scripts/tested_libraries.py", "--list"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert json.loads(printed.stdout) == names
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "libraries.yml").read_text())
    assert "tested_libraries.py --list" in workflow["jobs"]["names"]["steps"][-1]["run"]
    matrix = workflow["jobs"]["library"]["strategy"]["matrix"]["library"]
    assert matrix == "${{ fromJSON(needs.names.outputs.libraries) }}"


def test_every_library_s_test_exists_and_installs_the_library() -> None:
    for library in libraries():
        tested = TESTED[library.name]
        assert (ROOT / tested.tests).exists()
        installed = {requirement.partition("[")[0] for requirement in tested.requirements}
        assert library.distribution in installed
