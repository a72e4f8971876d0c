"""Prometheus' own tool on its configuration and on the alerts."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.stack.processes import CONFIGS, ROOT

pytestmark = pytest.mark.servers

HERE = Path(__file__).parent
RULES = ROOT / "grafana" / "alerts" / "quant.yaml"
TESTS = HERE / "alerts.test.yaml"


@pytest.mark.parametrize(
    "arguments",
    [
        [
            "check",
            "config",
            "--lint=all",
            "--lint-fatal",
            str(CONFIGS / "backends/prometheus.yaml"),
        ],
        ["check", "rules", "--lint=all", "--lint-fatal", str(RULES)],
        ["test", "rules", str(TESTS)],
    ],
    ids=["config", "rules", "alerts"],
)
def test_promtool_finds_no_error(arguments: list[str], binaries: dict[str, str]) -> None:
    done = subprocess.run(
        [binaries["promtool"], *arguments], capture_output=True, text=True, check=False, cwd=HERE
    )
    assert done.returncode == 0, done.stdout + done.stderr
