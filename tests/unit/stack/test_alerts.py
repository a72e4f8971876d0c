"""Every alert is tried by promtool (tests/stack) and says what to do."""

from __future__ import annotations

import yaml

from tests.unit.stack.dashboards import ROOT, RULES

TESTS = ROOT / "tests" / "stack" / "alerts.test.yaml"


def test_every_alert_is_tested_firing_and_not_firing() -> None:
    alerts = {rule["alert"] for group in RULES for rule in group["rules"] if "alert" in rule}
    cases = [
        (case["alertname"], bool(case["exp_alerts"]))
        for test in yaml.safe_load(TESTS.read_text())["tests"]
        for case in test["alert_rule_test"]
    ]
    assert set(cases) == {(alert, fires) for alert in alerts for fires in (True, False)}


def test_every_alert_says_what_to_do() -> None:
    for rule in (rule for group in RULES for rule in group["rules"] if "alert" in rule):
        assert len(rule["annotations"]["runbook"].split()) >= 10, rule["alert"]
        assert "\n" not in rule["annotations"]["runbook"].strip()
