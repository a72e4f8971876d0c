"""A dashboard or an alert may use no name that is not in `otel_quant.schema.semconv`; alerts are tried."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from grafana.generator.names import prometheus
from otel_quant.schema import catalog, semconv
from tests.unit.stack.dashboards import FILES, QUERIES, RECORDED, ROOT, RULES, Query

# What is not ours: OpenTelemetry's resource attributes and what the stores add themselves.
RESOURCE = {"service.name", "service.instance.id"}
PROMETHEUS_LABELS = {"job", "instance", "host_name", "le"}
ALERTS = {"ALERTS", "ALERTS_FOR_STATE", "alertname", "alertstate", "severity"}
OF_MENUS = {"process"}
OF_THE_STACK = {"up", "exporter"}
"""And what begins with `otelcol_` or `loki_`: what the servers say of themselves."""
LOKI_LABELS = {"service_name", "service_instance_id", "severity_text", "trace_id"}

METRICS = {name for metric in catalog.METRIC_BY_NAME for name in prometheus(metric)}
LABELS = {
    key.replace(".", "_") for metric in catalog.METRICS for key in metric.attributes
} | PROMETHEUS_LABELS
ATTRIBUTES = [re.compile(re.sub(r"<\w+>", "[^.]+", re.escape(a.name))) for a in catalog.ATTRIBUTES]
ON_CHECKPOINTS = {a.name.replace(".", "_") for a in catalog.attributes_on("checkpoint")}
ON_READINGS = {a.name.replace(".", "_") for a in catalog.attributes_on("reading")}
ON_COSTS = {a.name.replace(".", "_") for a in catalog.attributes_on("cost")}
ON_MODELS_AT_WORK = {
    a.name.replace(".", "_")
    for a in (*catalog.attributes_on("operator"), *catalog.attributes_on("finding"))
}

WORDS = {
    "by", "on", "or", "and", "unless", "offset", "group_left", "group_right", "ignoring", "bool",
    "without",
}  # fmt: skip


def names_of(query: Query) -> set[str]:
    """Returns every name of telemetry in a query."""
    text = re.sub(r"\$\{[^}]*\}", "", query.text)
    text = re.sub(r'"(?:[^"\\]|\\.)*"|`[^`]*`', '""', text)
    text = re.sub(r"\[[^\]]*\]|\boffset \w+|\$\w+", "", text)
    found = set(re.findall(r"(?<!\d)[a-zA-Z_][\w:]*", text))
    calls = set(re.findall(r"([a-zA-Z_]\w*)\s*\(", text)) | {"count", "sum", "max", "min", "topk"}
    calls |= set(re.findall(r"(\w+) by \(", text)) | {"quantile"}
    return {name for name in found - calls - WORDS if not name.isdigit()}


@pytest.mark.parametrize("query", [q for q in QUERIES if q.store == "prometheus"], ids=str)
def test_every_metric_and_label_is_in_the_contract(query: Query) -> None:
    unknown = names_of(query) - METRICS - LABELS - RECORDED - ALERTS - OF_THE_STACK - OF_MENUS
    assert {name for name in unknown if not name.startswith(("otelcol_", "loki_"))} == set()


@pytest.mark.parametrize("query", [q for q in QUERIES if q.store == "tempo"], ids=str)
def test_every_attribute_of_a_span_is_in_the_contract(query: Query) -> None:
    found = re.findall(r'\bspan\.(?:"([^"]+)"|([\w.]+))', query.text)
    spans = {quoted or plain for quoted, plain in found}
    unknown = {name for name in spans if not any(a.fullmatch(name) for a in ATTRIBUTES)}
    assert unknown == set()
    assert set(re.findall(r"resource\.([\w.]+)", query.text)) <= RESOURCE
    named = set(re.findall(r'\bname = "([^"]*)"', query.text))
    assert named <= {semconv.ROOT_SPAN, semconv.COST_SPAN, semconv.MODEL_SPAN}


@pytest.mark.parametrize("query", [q for q in QUERIES if q.store == "loki"], ids=str)
def test_every_label_of_a_record_is_in_the_contract(query: Query) -> None:
    known = LOKI_LABELS | ON_CHECKPOINTS | ON_READINGS | ON_COSTS | ON_MODELS_AT_WORK
    made = {"unwrap", "json", "node", "macs", "label_format", "memory", "finding"}
    assert names_of(query) - known - made == set()
    in_templates = re.findall(r"\.(\w+)", "".join(re.findall(r"\{\{([^}]*)\}\}", query.text)))
    assert set(in_templates) - known == set()


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_name_outside_of_queries_is_in_the_contract(file: Path) -> None:
    text = file.read_text()
    attributes = set(re.findall(r'"(quant\.[^"]+)"', text))
    assert [n for n in attributes if not any(a.fullmatch(n) for a in ATTRIBUTES)] == []
    labels = set(re.findall(r'"(quant_\w+)"', text))
    assert attributes | labels
    assert labels - LABELS - ON_CHECKPOINTS - ON_COSTS - ON_MODELS_AT_WORK == set()


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_label_in_a_legend_or_a_mark_is_in_the_contract(file: Path) -> None:
    formats = re.findall(r'"(?:legend|title|text)Format": "([^"]*)"', file.read_text())
    shown = {name for text in formats for name in re.findall(r"\{\{(\w+)\}\}", text)}
    assert shown - LABELS - ON_CHECKPOINTS - OF_THE_STACK == set()


def test_the_check_finds_a_name_that_is_never_sent() -> None:
    metric = Query(
        ("x", "y"), "A", "prometheus", 'sum by (job) (rate(quant_steps_total{a="b"}[5m]))'
    )
    assert names_of(metric) - METRICS - LABELS == {"quant_steps_total", "a"}


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
        dashboard = "quant-runs/runs" if rule["alert"].startswith("Stack") else "quant-run/run?"
        assert rule["annotations"]["dashboard"].startswith(f"{{{{ $externalURL }}}}/d/{dashboard}")
