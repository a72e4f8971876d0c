"""The dashboards are what their program makes, and keep the rules for good ones."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.stack.dashboards import FILES, GRAFANA, QUERIES, SOURCES, load, panels

ids = [file.stem for file in FILES]
UNITS = {
    "none", "short", "bytes", "s", "ns", "percentunit", "cps", "Bps", "dateTimeAsIso", "watt", "celsius",
    "hertz", "dB",
}  # fmt: skip
LINT = yaml.safe_load((GRAFANA / "dashboards" / ".lint").read_text())["exclusions"]


@pytest.fixture(params=FILES, ids=ids)
def dashboard(request: pytest.FixtureRequest) -> dict[str, Any]:
    return load(request.param)


def variables(dashboard: dict[str, Any], kind: str) -> dict[str, Any]:
    return {v["name"]: v for v in dashboard["templating"]["list"] if v["type"] == kind}


def excepted(rule: str, title: str, panel: str, index: int | None = None) -> bool:
    return any(
        entry["dashboard"] == title
        and entry["panel"] == panel
        and (index is None or "targetidx" not in entry or int(entry["targetidx"]) == index)
        for entry in LINT.get(rule, {}).get("entries", [])
    )


def promql(dashboard: dict[str, Any], rule: str) -> Iterator[tuple[str, str]]:
    """Yields (panel, query) for each PromQL target that a rule is for."""
    for panel in panels(dashboard):
        for index, target in enumerate(panel["targets"]):
            if target["datasource"]["type"] != "prometheus":
                continue
            if not excepted(rule, dashboard["title"], panel["title"], index):
                yield panel["title"], target["expr"]


def test_every_uid_is_one_that_the_provisioning_makes(dashboard: dict[str, Any]) -> None:
    uids = {source["type"]: source["uid"] for source in SOURCES}
    chosen = variables(dashboard, "datasource")
    assert {v["query"]: v["current"]["value"] for v in chosen.values()} == uids
    assert {source["uid"] for source in SOURCES} == {f"quant-{kind}" for kind in uids}


def test_data_sources_are_chosen_by_variables_named_for_them(dashboard: dict[str, Any]) -> None:
    chosen = variables(dashboard, "datasource")
    assert {name: (v["query"], v["label"]) for name, v in chosen.items()} == {
        f"{kind}_datasource": (kind, f"{kind.title()} data source")
        for kind in ("prometheus", "tempo", "loki")
    }
    for panel in panels(dashboard):
        for target in panel["targets"]:
            kind = target["datasource"]["type"]
            assert target["datasource"]["uid"] == f"${{{kind}_datasource}}", panel["title"]


def test_job_run_and_process_can_be_chosen(dashboard: dict[str, Any]) -> None:
    chosen = variables(dashboard, "query")
    assert chosen["run"]["label"] == "Run"
    for name, label in (("job", "Job"), ("instance", "Process")):
        found = chosen[name]
        assert found["label"] == label
        assert (found["multi"], found["includeAll"], found["allValue"]) == (True, True, ".+")
        assert found["datasource"]["uid"] == "${prometheus_datasource}"
    assert {name: v["refresh"] for name, v in chosen.items()} == dict.fromkeys(chosen, 2)


def test_every_panel_has_a_title_and_a_description(dashboard: dict[str, Any]) -> None:
    for panel in panels(dashboard):
        assert panel["title"]
        assert len(panel["description"].split()) >= 8, panel["title"]
        assert panel["targets"], panel["title"]


def test_every_panel_has_a_unit_and_says_when_it_is_empty(dashboard: dict[str, Any]) -> None:
    for panel in panels(dashboard):
        if panel["type"] in ("traces", "logs"):
            continue
        assert panel["fieldConfig"]["defaults"]["unit"] in UNITS, panel["title"]
        assert panel["fieldConfig"]["defaults"]["noValue"], panel["title"]


@pytest.mark.parametrize("name", ["job", "instance"])
def test_every_query_uses_the_chosen_job_and_instance(dashboard: dict[str, Any], name: str) -> None:
    for title, query in promql(dashboard, f"target-{name}-rule"):
        selectors = re.findall(r"\{([^}]*)\}", re.sub(r"\$\{[^}]*\}", "", query))
        assert selectors, title
        assert [s for s in selectors if f'{name}=~"${name}"' not in s] == [], title


def test_rates_are_over_the_rate_interval(dashboard: dict[str, Any]) -> None:
    for title, query in promql(dashboard, "target-rate-interval-rule"):
        assert set(re.findall(r"\bi?rate\([^[]*\[([^\]]*)\]", query)) <= {"$__rate_interval"}, title


def test_ranges_of_log_queries_are_chosen_by_grafana(dashboard: dict[str, Any]) -> None:
    for panel in panels(dashboard):
        for target in panel["targets"]:
            if target["datasource"]["type"] == "loki":
                query = re.sub(r'"[^"]*"', '""', target["expr"])
                ranges = set(re.findall(r"\[([^]]*)\]", query))
                assert not ranges or "$__auto" in ranges, panel["title"]


def test_counters_are_only_shown_over_a_range(dashboard: dict[str, Any]) -> None:
    # A counter over a range is something else: its highest value is the run's total.
    for title, query in promql(dashboard, "target-counter-agg-rule"):
        counters = re.findall(r"\b(\w+_total)\b(?:\{[^}]*\})?(\[?)", query)
        assert [name for name, bracket in counters if not bracket] == [], title


def test_variables_are_queries_for_label_values(dashboard: dict[str, Any]) -> None:
    for name, variable in variables(dashboard, "query").items():
        if name in ("run", "baseline"):  # newest first: label values come in alphabetical order
            assert re.fullmatch(r"query_result\(sort_desc\(.+\)\)", variable["query"]), name
            assert (variable["regex"], variable["sort"]) == ('/quant_run_name="([^"]+)"/', 0), name
        else:
            query = re.sub(r"\$\{[^}]*\}", "", variable["query"])
            assert re.fullmatch(r"label_values\(\w+(\{[^}]*\})?, \w+\)", query), name


@pytest.mark.parametrize("name", ["run", "compare"])
def test_a_dashboard_on_one_run_begins_with_the_newest(name: str) -> None:
    # Grafana takes the first option where none is chosen.
    chosen = variables(load(GRAFANA / "dashboards" / f"{name}.json"), "query")
    assert not chosen["run"].get("current")


def test_no_panel_names_a_run_by_the_id_of_a_process(dashboard: dict[str, Any]) -> None:
    for query in QUERIES:
        if query.place[0] == dashboard["title"] and query.ref != "variable":
            shown = re.findall(r"\bby \(([^)]*)\)", query.text)
            outermost = shown[0] if query.text.startswith(("max by", "sum by", "count by")) else ""
            assert "instance" not in outermost.split(", "), query


def test_no_dashboard_can_be_edited(dashboard: dict[str, Any]) -> None:
    assert dashboard["editable"] is False


def test_links_lead_to_dashboards_that_exist() -> None:
    uids = {load(file)["uid"] for file in FILES}
    linked = {uid for file in FILES for uid in re.findall(r'"/d/([\w-]+)/', file.read_text())}
    assert linked == {"quant-run", "quant-inference"}
    assert linked <= uids


def test_the_linter_of_dashboards_finds_no_error(dashboard: dict[str, Any], tmp_path: Path) -> None:
    linter = os.environ.get("DASHBOARD_LINTER")
    if not linter:
        pytest.skip("DASHBOARD_LINTER names no grafana/dashboard-linter binary")
    file = next(file for file in FILES if load(file)["uid"] == dashboard["uid"])
    done = subprocess.run(
        [linter, "lint", "--strict", "-c", str(file.parent / ".lint"), str(file)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_chart_shows_the_exemplars_that_lead_to_traces() -> None:
    assert [q.place for q in QUERIES if q.exemplars] == [
        ("Quantization compared", "Duration of ended steps")
    ]


def test_metrics_traces_and_logs_are_linked_with_each_other() -> None:
    by_type = {source["type"]: source for source in SOURCES}
    prometheus, tempo, loki = (by_type[k]["jsonData"] for k in ("prometheus", "tempo", "loki"))
    assert {
        "exemplar to trace": prometheus["exemplarTraceIdDestinations"][0]["datasourceUid"],
        "trace to logs": tempo["tracesToLogsV2"]["datasourceUid"],
        "trace to metrics": tempo["tracesToMetrics"]["datasourceUid"],
        "logs to trace": loki["derivedFields"][0]["datasourceUid"],
    } == {
        "exemplar to trace": "quant-tempo",
        "trace to logs": "quant-loki",
        "trace to metrics": "quant-prometheus",
        "logs to trace": "quant-tempo",
    }


def test_rates_are_made_for_the_interval_at_which_the_sdk_exports() -> None:
    prometheus = next(source for source in SOURCES if source["type"] == "prometheus")
    assert prometheus["jsonData"]["timeInterval"] == "60s"
