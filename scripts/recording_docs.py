"""Makes the table of events in docs/recording.md, and the JSON schema beside it, from `otel_quant/format/fields.py`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from otel_quant.format.fields import CURVE, EVENTS, MANIFEST, STACKS, STATE, Fields, whole
from scripts.present_names import with_present_names

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "recording.md"
SCHEMA = ROOT / "docs" / "recording.schema.json"

_OF_ALL = ("time", "clock")

_HEAD = """{
 "$schema": "https://json-schema.org/draft/2020-12/schema",
 "$id": "otel-quant-recording-1",
 "title": "The files of a recording, version 1: see recording.md",
 "$defs": {
"""


def document() -> str:
    """Returns the page, which is written by hand around the table."""
    rows = [
        (
            f"`{kind}`",
            event.when,
            ", ".join(f"`{name}`" for name in event.kinds if name not in _OF_ALL),
        )
        for kind, event in EVENTS.items()
    ]
    return with_table(PAGE, "| kind | when | fields |\n|---|---|---|\n", rows)


def schema() -> str:
    """Returns the JSON schema of the files."""
    files = {"manifest": MANIFEST, "state": STATE, "stacks": STACKS, "curve_head": CURVE}
    definitions: dict[str, Any] = {
        **{name: _with(fields, {}) for name, fields in files.items()},
        "curve_bucket": {
            "type": "array", "prefixItems": [whole.schema], "items": {"type": ["number", "null"]}
        },
        "event": {"oneOf": [{"$ref": f"#/$defs/{kind}"} for kind in EVENTS]},
        **{kind: _with(fields, {"kind": {"const": kind}}) for kind, fields in EVENTS.items()},
    }  # fmt: skip
    lines = (f'  "{name}": {json.dumps(each)}' for name, each in definitions.items())
    return _HEAD + ",\n".join(lines) + "\n }\n}\n"


def _with(fields: Fields, more: dict[str, Any]) -> dict[str, Any]:
    """Returns the schema of a line, which has its version and what else is in every such line."""
    always = {"schema": {"const": 1}, **more}
    own = fields.schema
    return {
        **own,
        "required": [*always, *own["required"]],
        "properties": {**always, **own["properties"]},
    }


def with_table(path: Path, head: str, rows: Iterable[Iterable[str]]) -> str:
    """Returns a page with other rows in its only table that has that head."""
    lines = "".join(f"| {' | '.join(row)} |\n" for row in rows)
    page = with_present_names(path.read_text(encoding="utf-8"))
    made, count = re.subn(rf"(?<={re.escape(head)})(\| .*\n)+", lambda _: lines, page)
    if count != 1:
        raise ValueError(f"{path}: expected one table with the head {head!r}, found {count}")
    return made
