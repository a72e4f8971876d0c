"""Prometheus' own tool on its configuration and on the alerts."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import yaml

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
def test_promtool_agrees(arguments: list[str], binaries: dict[str, str]) -> None:
    done = subprocess.run(
        [binaries["promtool"], *arguments], capture_output=True, text=True, check=False, cwd=HERE
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_is_tested_firing_and_not_firing() -> None:
    rules = yaml.safe_load(RULES.read_text())["groups"]
    alerts = {rule["alert"] for group in rules for rule in group["rules"] if "alert" in rule}
    cases = [
        (case["alertname"], bool(case["exp_alerts"]))
        for test in yaml.safe_load(TESTS.read_text())["tests"]
        for case in test["alert_rule_test"]
    ]
    assert set(cases) == {(alert, fires) for alert in alerts for fires in (True, False)}


def test_every_alert_says_what_to_do() -> None:
    rules = yaml.safe_load(RULES.read_text())["groups"]
    for rule in (rule for group in rules for rule in group["rules"] if "alert" in rule):
        assert len(rule["annotations"]["runbook"].split()) >= 10, rule["alert"]
        assert "\n" not in rule["annotations"]["runbook"].strip()
