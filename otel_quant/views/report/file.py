"""The file of a page."""

from __future__ import annotations

import os
from pathlib import Path


def write(target: Path, html: str) -> int:
    """Writes a page whole or not at all: a reader never sees a part of it."""
    beside = target.with_name(f".{target.name}.{os.getpid()}")
    data = html.encode("utf-8", "backslashreplace")
    try:
        beside.write_bytes(data)
        beside.replace(target)
    finally:
        beside.unlink(missing_ok=True)
    return len(data)
