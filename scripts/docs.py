"""Writes every file that is made from the code: the pages in docs/ and the dashboards. Other pages get present names.

    .venv/bin/python scripts/docs.py

A test compares each file with what is made here, so none can fall behind the code.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from grafana.generator import dashboards
from scripts import (
    api_docs,
    compare_docs,
    cost_rules_docs,
    kubernetes_rules,
    libraries_docs,
    present_names,
    recording_docs,
    registry_docs,
    telemetry_docs,
)

PAGES: Final = (
    api_docs,
    compare_docs,
    cost_rules_docs,
    libraries_docs,
    recording_docs,
    registry_docs,
    telemetry_docs,
)
"""Modules that make one page each: `PAGE` is its path and `document()` returns its text."""


def documents() -> dict[Path, str]:
    """Returns the content of every generated file."""
    pages = {page.PAGE: page.document() for page in PAGES}
    more = {
        recording_docs.SCHEMA: recording_docs.schema(),
        registry_docs.MANIFEST: registry_docs.manifest(),
    }
    made = {**pages, **more, **dashboards.documents()}
    named = {**made, **present_names.documents(made)}
    rules = named.get(kubernetes_rules.RULES) or kubernetes_rules.RULES.read_text("utf-8")
    return {**named, kubernetes_rules.RESOURCE: kubernetes_rules.resource(rules)}


if __name__ == "__main__":
    for path, text in documents().items():
        path.write_text(text, encoding="utf-8")
