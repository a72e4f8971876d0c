"""Makes the table of events in docs/recording.md from `otel_quant/schema/recorded_files.py`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from otel_quant.schema.recorded_files import EVENTS

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "recording.md"

_OF_ALL = ("time", "clock")


def document() -> str:
    """Returns the page, which is written by hand around the table."""
    rows = [
        (
            f"`{kind}`",
            event.when,
            ", ".join(f"`{name}`" for name in event.checks if name not in _OF_ALL),
        )
        for kind, event in EVENTS.items()
    ]
    return with_table(PAGE, "| kind | when | fields |\n|---|---|---|\n", rows)


def with_table(path: Path, head: str, rows: Iterable[Iterable[str]]) -> str:
    """Returns a page with other rows in its only table that has that head."""
    lines = "".join(f"| {' | '.join(row)} |\n" for row in rows)
    page = path.read_text(encoding="utf-8")
    made, count = re.subn(rf"(?<={re.escape(head)})(\| .*\n)+", lambda _: lines, page)
    if count != 1:
        raise ValueError(f"{path}: expected one table with the head {head!r}, found {count}")
    return made
