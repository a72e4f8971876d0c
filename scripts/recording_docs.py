"""Makes the table of events in docs/recording.md from `otel_quant/schema/recorded_files.py`."""

from __future__ import annotations

import re
from pathlib import Path

from otel_quant.schema.recorded_files import EVENTS

PAGE = Path(__file__).resolve().parent.parent / "docs" / "recording.md"

_OF_ALL = ("time", "clock")


def document() -> str:
    """Returns the page, which is written by hand around the table."""
    rows = "".join(
        f"| `{kind}` | {event.when} | "
        f"{', '.join(f'`{name}`' for name in event.checks if name not in _OF_ALL)} |\n"
        for kind, event in EVENTS.items()
    )
    page = PAGE.read_text(encoding="utf-8")
    made, count = re.subn(
        r"(?<=\| kind \| when \| fields \|\n\|---\|---\|---\|\n)(\| .*\n)+", lambda _: rows, page
    )
    if count != 1:
        raise ValueError(f"{PAGE}: expected one table of events, found {count}")
    return made
