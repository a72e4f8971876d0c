"""Shows the dashboards' panels as Grafana does, with Grafana's own library on the stores' answers."""

from __future__ import annotations

import functools
import json
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.unit.stack.dashboards import Query, load, panels, query_of

SHOW = Path(__file__).parent / "grafana" / "show_panels.cjs"
TIME_RANGE = {"from": ["now-6h"], "to": ["now"]}
"""Of every link."""

Opened = tuple[str, dict[str, list[str]]]
"""What a browser takes an address for: path and parameters."""


@dataclass(frozen=True)
class Column:
    """A column of a table, or a series of a chart, as a person sees it."""

    name: str  # Its title
    unit: str  # Grafana's name of the unit
    values: list[str]  # Formatted
    links: list[list[str]]  # Addresses, a list for each row that has any

    @property
    def heading(self) -> str:
        """Its title, with its unit where it is not text."""
        return self.name if self.unit == "string" else f"{self.name} [{self.unit}]"


@dataclass(frozen=True)
class Shown:
    """A panel with what it shows."""

    panel: dict[str, Any]  # The panel in the dashboard's file
    frames: list[list[Column]]  # Its visible columns, for each table or series

    @property
    def columns(self) -> list[Column]:
        """The columns of a table."""
        (frame,) = self.frames
        return frame

    @property
    def is_empty(self) -> bool:
        """Whether it has only the text for no data."""
        nothing = self.panel.get("fieldConfig", {}).get("defaults", {}).get("noValue")
        return not any(
            value != nothing for frame in self.frames for one in frame for value in one.values
        )

    @property
    def opened(self) -> dict[str, list[Opened]]:
        """What the link of each row opens, by the column that has them."""
        return {
            column.name: [opened(address) for (address,) in column.links]
            for frame in self.frames
            for column in frame
            if column.links
        }

    def rows(self, *names: str) -> list[tuple[str, ...]]:
        """Returns the rows of a table, of some of its columns."""
        by_name = {column.name: column.values for column in self.columns}
        return list(zip(*(by_name[name] for name in names), strict=True))


def opened(address: str) -> Opened:
    """Returns what a browser takes an address for."""
    parts = urlsplit(address)
    assert not parts.fragment, address
    return parts.path, parse_qs(parts.query, strict_parsing=True)


@functools.cache
def _grafana(modules: str) -> subprocess.Popen[str]:
    """Starts Grafana's library, which takes a second to load, for all panels; it ends with this process."""
    return subprocess.Popen(
        ["node", str(SHOW), modules], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def answered(file: Path, ask: Callable[[Query], list[Any]]) -> list[dict[str, Any]]:
    """Returns the panels of a dashboard that are drawn from figures or texts, with the answers to their queries."""
    dashboard = load(file)
    return [
        {
            "panel": panel,
            "answers": [
                {
                    "refId": target["refId"],
                    "store": target["datasource"]["type"],
                    "target": target,
                    "answer": ask(query_of(dashboard["title"], panel, target)),
                }
                for target in panel["targets"]
            ],
        }
        for panel in panels(dashboard)
        if panel["type"] != "traces"
    ]


def show(
    file: Path, ask: Callable[[Query], list[Any]], modules: str, variables: Mapping[str, str]
) -> dict[str, Shown]:
    """Returns what the panels of a dashboard show, by title."""
    asked = answered(file, ask)
    grafana = _grafana(modules)
    assert grafana.stdin is not None
    assert grafana.stdout is not None
    grafana.stdin.write(json.dumps({"panels": asked, "variables": dict(variables)}) + "\n")
    grafana.stdin.flush()
    line = grafana.stdout.readline()
    assert line, "what is wrong is on standard error"
    return {
        one["panel"]["title"]: Shown(
            one["panel"],
            [
                [
                    Column(column["name"], column["unit"], column["values"], column["links"])
                    for column in frame
                    if not column["hidden"]
                ]
                for frame in frames
            ],
        )
        for one, frames in zip(asked, json.loads(line), strict=True)
    }
