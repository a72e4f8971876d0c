"""Every dashboard as the JSON that Grafana provisions."""

from __future__ import annotations

import json
from pathlib import Path

from grafana_foundation_sdk.cog.encoder import JSONEncoder

from grafana.generator import alerts, compare, cost, inference, run, runs

FOLDER = Path(__file__).resolve().parents[1] / "dashboards"


def documents() -> dict[Path, str]:
    """Returns the content of each dashboard's file."""
    return {
        FOLDER / f"{module.FILE}.json": json.dumps(
            module.dashboard().build(),
            cls=JSONEncoder, indent=2, sort_keys=True, ensure_ascii=False,
        ) + "\n"
        for module in (runs, run, compare, cost, inference, alerts)
    }  # fmt: skip
