"""The dashboards are what their program makes, and keep the rules for good ones."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from grafana.generator.names import RUN_NAME, prometheus
from otel_quant.schema import catalog, semconv
from tests.unit.stack.dashboards import (
    FILES,
    GRAFANA,
    QUERIES,
    RECORDED,
    ROOT,
    RULES,
    SOURCES,
    Query,
    load,
    panels,
)

ids = [file.stem for file in FILES]
UNITS = {
    "none", "short", "string", "bytes", "s", "ns", "percentunit", "cps", "Bps", "dateTimeAsIso", "watt", "celsius",
    "hertz", "dB",
}  # fmt: skip
NOT_OF_THE_CHOSEN_RUN = {
    "Quantization compared": {
        "Duration by step", "Peak memory by step", "Duration against the baseline",
        "Peak memory against the baseline", "Median duration of the last 14 days",
    },
    "Quantization runs": {
        "Alerts that fire", "Servers", "Queues of the Collector", "Refused by the Collector",
        "Dropped by the Collector", "Runs in view",
    },
}  # fmt: skip
"""A baseline is another run than those that are compared with it, a recorded median is of all runs, an
alert of all processes of a run, runs in view are counted beyond those that are shown, and the stack is no run."""


@pytest.fixture(params=FILES, ids=ids)
def dashboard(request: pytest.FixtureRequest) -> dict[str, Any]:
    return load(request.param)


def variables(dashboard: dict[str, Any], kind: str) -> dict[str, Any]:
    return {v["name"]: v for v in dashboard["templating"]["list"] if v["type"] == kind}


def promql(dashboard: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yields (panel, query) for each PromQL target."""
    for panel in panels(dashboard):
        for target in panel["targets"]:
            if target["datasource"]["type"] == "prometheus":
                yield panel["title"], target["expr"]


def test_data_sources_are_provisioned_and_chosen_by_variables(dashboard: dict[str, Any]) -> None:
    uids = {source["type"]: source["uid"] for source in SOURCES}
    assert uids.pop("grafana-pyroscope-datasource") == "quant-pyroscope"
    assert uids == {kind: f"quant-{kind}" for kind in ("prometheus", "tempo", "loki")}
    assert {
        name: (v["query"], v["label"], v["current"]["value"])
        for name, v in variables(dashboard, "datasource").items()
    } == {
        f"{kind}_datasource": (kind, f"{kind.title()} data source", uid)
        for kind, uid in uids.items()
    }
    for panel in panels(dashboard):
        for target in panel["targets"]:
            kind = target["datasource"]["type"]
            assert target["datasource"]["uid"] == f"${{{kind}_datasource}}", panel["title"]


def test_job_run_and_process_can_be_chosen(dashboard: dict[str, Any]) -> None:
    # Processes have no names that a person knows: they are a choice where there are few, and not even a list
    # where there are many.
    few = dashboard["title"] == "Quantization run"
    chosen = variables(dashboard, "query")
    assert ("instance" in chosen) == few
    for name, label in (("job", "Job"), ("instance", "Process"))[: 1 + few]:
        assert (chosen[name]["label"], chosen[name]["allValue"]) == (label, ".+")
        assert (chosen[name]["includeAll"], chosen[name]["multi"]) == (True, True)
    # All of these are the ids that the query finds: a pattern would have each query look at all runs there are.
    shown = chosen["process"]
    assert (shown["includeAll"], shown["multi"], shown["allValue"], shown["hide"]) == (
        True,
        True,
        "",
        2,
    )
    assert "topk(1000, " in shown["query"]
    assert {each["datasource"]["uid"] for each in chosen.values()} == {"${prometheus_datasource}"}
    assert {name: v["refresh"] for name, v in chosen.items()} == dict.fromkeys(chosen, 2)


def test_runs_are_found_by_a_part_of_their_name_in_the_menu_and_on_the_page(
    dashboard: dict[str, Any],
) -> None:
    assert variables(dashboard, "textbox")["search"]["query"] == ""
    run = variables(dashboard, "query")["run"]
    assert run["label"] == "Run"
    searched = f"{RUN_NAME}=~`(?i).*${{search:regex}}.*`"
    assert searched in run["query"]
    of_runs = [query for _, query in promql(dashboard) if "${run:regex}`" in query]
    assert of_runs
    assert all(searched in query for query in of_runs)


def test_every_panel_has_a_title_description_unit_and_text_for_no_data(
    dashboard: dict[str, Any],
) -> None:
    assert dashboard["editable"] is False
    for panel in panels(dashboard):
        assert panel["title"]
        assert len(panel["description"].split()) >= 8, panel["title"]
        assert panel["targets"], panel["title"]
        if panel["type"] not in ("traces", "logs"):
            assert panel["fieldConfig"]["defaults"]["unit"] in UNITS, panel["title"]
            assert panel["fieldConfig"]["defaults"]["noValue"], panel["title"]


def test_panels_lie_within_the_24_columns_of_the_page_and_on_no_other(
    dashboard: dict[str, Any],
) -> None:
    taken: set[tuple[int, int]] = set()
    for panel in panels(dashboard):
        place = panel["gridPos"]
        across, down = (range(place[a], place[a] + place[b]) for a, b in (("x", "w"), ("y", "h")))
        cells = {(x, y) for x in across for y in down}
        assert across.stop <= 24, panel["title"]
        assert not cells & taken, panel["title"]
        taken |= cells


def test_every_query_uses_the_chosen_job_and_instance(dashboard: dict[str, Any]) -> None:
    for title, query in promql(dashboard):
        if title not in NOT_OF_THE_CHOSEN_RUN.get(dashboard["title"], ()):
            selectors = re.findall(r"\{([^}]*)\}", re.sub(r"\$\{[^}]*\}", "", query))
            assert selectors, title
            for matcher in ('job=~"(.+/)?$job"', 'instance=~"$process"'):
                assert [s for s in selectors if matcher not in s] == [], title


def test_ranges_come_from_grafana_and_counters_are_shown_only_over_a_range(
    dashboard: dict[str, Any],
) -> None:
    for title, query in promql(dashboard):
        assert set(re.findall(r"\bi?rate\([^[]*\[([^\]]*)\]", query)) <= {"$__rate_interval"}, title
        # A counter over a range is something else: its highest value is the run's total.
        counters = re.findall(r"\b(\w+_total)\b(?:\{[^}]*\})?(\[?)", query)
        assert [name for name, bracket in counters if not bracket] == [], title
    for panel in panels(dashboard):
        for target in panel["targets"]:
            if target["datasource"]["type"] == "loki":
                query = re.sub(r'"[^"]*"', '""', target["expr"])
                ranges = set(re.findall(r"\[([^]]*)\]", query))
                assert not ranges or "$__auto" in ranges, panel["title"]


def test_variables_are_queries_for_label_values(dashboard: dict[str, Any]) -> None:
    for name, variable in variables(dashboard, "query").items():
        # Grafana takes the first option where none is chosen: of a dashboard on one run, the newest.
        if name == "run" and dashboard["uid"] in ("quant-run", "quant-compare"):
            assert not variable.get("current")
        if name in ("run", "baseline"):  # newest first: label values come in alphabetical order
            assert re.fullmatch(r"query_result\(sort_desc\(.+\)\)", variable["query"]), name
            regex = rf'/{RUN_NAME}="(.+)"}} \S+ \S+$/'
            assert (variable["regex"], variable["sort"]) == (regex, 0), name
        elif name not in ("instance", "process"):  # by rank and pid; of the newest runs
            query = re.sub(r"\$\{[^}]*\}", "", variable["query"])
            assert re.fullmatch(r"label_values\(\w+(\{[^}]*\})?, \w+\)", query), name


def test_no_panel_identifies_a_run_by_process_id(dashboard: dict[str, Any]) -> None:
    for query in QUERIES:
        if query.place[0] == dashboard["title"] and query.ref != "variable":
            shown = re.findall(r"\bby \(([^)]*)\)", query.text)
            outermost = shown[0] if query.text.startswith(("max by", "sum by", "count by")) else ""
            assert "instance" not in outermost.split(", "), query


def test_links_lead_to_dashboards_that_exist() -> None:
    uids = {load(file)["uid"] for file in FILES}
    linked = {uid for file in FILES for uid in re.findall(r'"/d/([\w-]+)/', file.read_text())}
    assert linked == {"quant-run", "quant-inference"}
    assert linked <= uids


def test_a_chart_shows_the_exemplars_that_lead_to_traces() -> None:
    assert [q.place for q in QUERIES if q.exemplars] == [
        ("Quantization compared", "Duration of ended steps")
    ]


def test_metrics_traces_and_logs_are_linked_and_rates_are_of_the_interval_of_the_sdk() -> None:
    by_type = {source["type"]: source for source in SOURCES}
    prometheus, tempo, loki = (by_type[k]["jsonData"] for k in ("prometheus", "tempo", "loki"))
    for link, uid in (
        (prometheus["exemplarTraceIdDestinations"][0], "quant-tempo"),
        (tempo["tracesToLogsV2"], "quant-loki"),
        (tempo["tracesToMetrics"], "quant-prometheus"),
        (loki["derivedFields"][0], "quant-tempo"),
    ):
        assert link["datasourceUid"] == uid, link
    assert prometheus["timeInterval"] == "60s"


# What is not ours: OpenTelemetry's resource attributes and what the stores add themselves.
RESOURCE = {"service.name", "service.instance.id"}
PROMETHEUS_LABELS = {"job", "instance", "host_name", "le", "__name__"}
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
(
    ON_CHECKPOINTS,
    ON_READINGS,
    ON_LINES,
    ON_COSTS,
    ON_OPERATORS,
    ON_FINDINGS,
    ON_ANSWERS,
    ON_ENDINGS,
) = (
    {each.name.replace(".", "_") for each in catalog.attributes_on(what)}
    for what in (
        "checkpoint",
        "reading",
        "lines",
        "cost",
        "operator",
        "finding",
        "answer",
        "ending",
    )
)
ON_MODELS_AT_WORK = ON_OPERATORS | ON_FINDINGS

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
    known = LOKI_LABELS | ON_CHECKPOINTS | ON_READINGS | ON_LINES | ON_COSTS | ON_MODELS_AT_WORK
    known |= ON_ANSWERS | ON_ENDINGS
    made = {"unwrap", "json", "node", "macs", "label_format", "line_format", "memory", "finding"}
    assert names_of(query) - known - made == set()
    in_templates = re.findall(r"\.(\w+)", "".join(re.findall(r"\{\{([^}]*)\}\}", query.text)))
    of_lines = {"time", "growth", "share", "seconds", "bytes", "line"}  # in the body of a record
    assert {name for name in in_templates if not name[0].isdigit()} - known - of_lines == set()


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


def test_a_query_for_a_renamed_metric_finds_runs_of_earlier_versions_too() -> None:
    renamed = {each.name: each.former for each in catalog.METRICS if each.former}
    missing = [
        (str(query), old)
        for query in QUERIES
        for name, (old, *_) in renamed.items()
        if prometheus(name)[0] in query.text and old.replace(".", "_") not in query.text
    ]
    assert renamed
    assert missing == []


TESTS = ROOT / "tests" / "stack" / "alerts.test.yaml"


def test_every_alert_is_tested_firing_and_not_firing() -> None:
    alerts = {rule["alert"] for group in RULES for rule in group["rules"] if "alert" in rule}
    cases = [
        (case["alertname"], bool(case["exp_alerts"]))
        for test in yaml.safe_load(TESTS.read_text())["tests"]
        for case in test.get("alert_rule_test", ())
    ]
    assert set(cases) == {(alert, fires) for alert in alerts for fires in (True, False)}


def test_every_alert_has_instructions_and_a_link_to_its_section() -> None:
    page = (ROOT / "docs" / "alerts.md").read_text()
    sections = {part.partition("\n")[0]: part for part in page.split("\n## ")[1:]}
    help_page = load(GRAFANA / "dashboards" / "help" / "alerts.json")
    rules = [rule for group in RULES for rule in group["rules"] if "alert" in rule]
    assert list(sections) == [rule["alert"] for rule in rules]
    for rule in rules:
        told, section = rule["annotations"], sections[rule["alert"]]
        assert len(told["runbook"].split()) >= 10, rule["alert"]
        assert "\n" not in told["runbook"].strip()
        dashboard = "quant-runs/runs" if rule["alert"].startswith("Stack") else "quant-run/run?"
        assert told["dashboard"].startswith(f"{{{{ $externalURL }}}}/d/{dashboard}")
        assert told["runbook_url"] == f"{{{{ $externalURL }}}}/d/{help_page['uid']}/alerts"
        assert "- **Now**: " in section
        assert section.partition("\n\n")[2][:40] in help_page["panels"][0]["options"]["content"]
