"""Alerts: docs/alerts.md within Grafana, where the links in messages lead."""

from __future__ import annotations

from pathlib import Path

from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.builders import text
from grafana_foundation_sdk.models.text import TextMode

FILE = "help/alerts"

PAGE = Path(__file__).resolve().parents[2] / "docs" / "alerts.md"


def dashboard() -> builders.Dashboard:
    """Returns the dashboard: one text, which needs no data source."""
    content = (
        PAGE.read_text(encoding="utf-8")
        .replace("[what", "*what")
        .replace("](scaling.md)", "* (docs/scaling.md)")
    )
    return (
        builders.Dashboard("Alerts").uid("quant-alerts").tags(["quantization"]).readonly()
        .description("What each alert has seen, what to do now, and when it is wrong.")
        .with_panel(text.Panel().title("").mode(TextMode.MARKDOWN).content(content).span(24).height(40))
    )  # fmt: skip
