"""The workflows of GitHub Actions, as actionlint reads them."""

from __future__ import annotations

import subprocess

import pytest

from tests.stack.processes import ROOT


@pytest.mark.servers
def test_actionlint_finds_nothing_wrong_with_the_workflows(binaries: dict[str, str]) -> None:
    # It would run shellcheck and pyflakes too, where they happen to be installed.
    done = subprocess.run(
        [binaries["actionlint"], "-no-color", "-shellcheck=", "-pyflakes=",
         *sorted(map(str, (ROOT / ".github" / "workflows").glob("*.yml"))),
         str(ROOT / "examples" / "ci" / "quantization.yml")],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
