"""Writes every dashboard as JSON into the folder that Grafana provisions from."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from grafana_foundation_sdk.cog.encoder import JSONEncoder

from grafana.generator import compare, cost, run, runs

FOLDER = Path(__file__).resolve().parents[1] / "dashboards"


def main(folder: Path) -> None:
    """Writes the dashboards into a folder."""
    for module in (runs, run, compare, cost):
        built = module.dashboard().build()
        text = json.dumps(built, cls=JSONEncoder, indent=2, sort_keys=True, ensure_ascii=False)
        (folder / f"{module.FILE}.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
