"""Reads the committed dashboards, alert rules and docs/fleet.md: every query in them, and where."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml

ROOT = Path(__file__).resolve().parents[3]
GRAFANA = ROOT / "grafana"
FILES = sorted((GRAFANA / "dashboards").glob("*.json"))
SOURCES = yaml.safe_load(
    (GRAFANA / "provisioning" / "datasources" / "datasources.yaml").read_text()
)["datasources"]
RULES = yaml.safe_load((GRAFANA / "alerts" / "quant.yaml").read_text())["groups"]

FLEET = ROOT / "docs" / "fleet.md"
BLOCK = re.compile(r"^```(promql|traceql)\n(.+?)\n```$", re.MULTILINE | re.DOTALL)

Store = Literal["prometheus", "tempo", "loki"]
STORES: dict[str, Store] = {"promql": "prometheus", "traceql": "tempo"}


@dataclass(frozen=True)
class Query:
    """One query."""

    place: tuple[str, str]  # Dashboard or rules file, then panel, variable, annotation or rule
    ref: str  # The query's letter or name within the panel
    store: Store  # What it is for
    text: str  # The query
    instant: bool = False  # Whether it asks for one moment rather than a range
    exemplars: bool = False  # Whether it asks for exemplars as well
    regex: str = ""  # The part of each result that a variable uses, between slashes; empty for the complete result

    def __str__(self) -> str:
        return f"{' / '.join(self.place)} / {self.ref}"


def load(file: Path) -> dict[str, Any]:
    return json.loads(file.read_text())


def panels(dashboard: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns the panels, those in rows that are closed at first included."""
    return [
        panel
        for top in dashboard["panels"]
        for panel in (top["panels"] if top["type"] == "row" else [top])
    ]


def query_of(title: str, panel: dict[str, Any], target: dict[str, Any]) -> Query:
    """Returns a query of a panel of the dashboard with that title."""
    return Query(
        (title, panel["title"]),
        target["refId"],
        target["datasource"]["type"],
        target.get("expr") or target["query"],
        target.get("instant", False) or target.get("queryType") == "instant",
        target.get("exemplar", False),
    )


def queries() -> Iterator[Query]:
    """Yields every query of every panel, variable, annotation, link and rule, and of the docs."""
    for file in FILES:
        dashboard = load(file)
        title = dashboard["title"]
        for panel in panels(dashboard):
            for target in panel["targets"]:
                yield query_of(title, panel, target)
        for variable in dashboard["templating"]["list"]:
            if variable["type"] == "query":
                yield Query(
                    (title, variable["name"]), "variable", "prometheus", variable["query"],
                    regex=variable.get("regex", ""),
                )  # fmt: skip
        for annotation in dashboard.get("annotations", {}).get("list", []):
            if annotation.get("expr"):
                store = annotation["datasource"]["type"]
                yield Query((title, annotation["name"]), "annotation", store, annotation["expr"])
    for source in SOURCES:
        links = source.get("jsonData", {})
        if "tracesToLogsV2" in links:
            yield _link("Logs of a span", "loki", links["tracesToLogsV2"]["query"])
        for query in links.get("tracesToMetrics", {}).get("queries", []):
            yield _link(query["name"], "prometheus", query["query"])
    for group in RULES:
        for rule in group["rules"]:
            name = rule.get("alert") or rule["record"]
            yield Query(("alerts", name), "rule", "prometheus", rule["expr"], instant=True)
    for number, (language, text) in enumerate(BLOCK.findall(FLEET.read_text()), start=1):
        is_instant = language == "promql" or "_over_time(" in text
        yield Query(("docs", FLEET.name), str(number), STORES[language], text, is_instant)


def _link(name: str, store: Store, query: str) -> Query:
    """Returns the query of a link from a trace; provisioning takes `$$` for a dollar sign."""
    return Query(("data sources", name), "link", store, query.replace("$$", "$"))


QUERIES = list(queries())
RECORDED = {rule["record"] for group in RULES for rule in group["rules"] if "record" in rule}
