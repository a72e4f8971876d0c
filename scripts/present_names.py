"""Puts present names in place of former ones into what is written by hand: pages, alerts and their tests."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path
from typing import Final

from grafana.generator import names
from otel_quant.schema import catalog
from otel_quant.schema.semconv import short

ROOT: Final = Path(__file__).resolve().parent.parent

_LONG: Final = (
    catalog.FORMER
    | {old.replace(".", "_"): new.replace(".", "_") for old, new in catalog.FORMER.items()}
    | {
        name: present
        for metric in catalog.METRICS
        for old in metric.former
        for name, present in ((old, metric.name), *names.renamed(old, metric))
    }
)
_SHORT: Final = {short(old): short(new) for old, new in catalog.FORMER.items()}
_NAME: Final = re.compile(r"(?<![\w.])((?:span\.|resource\.)?)(\w+(?:\.\w+)*)")


def with_present_names(text: str, *, are_short: bool = False) -> str:
    """Returns a text with present names; of quantities too, which have no ``quant.``, if asked for."""
    known = _LONG | _SHORT if are_short else _LONG
    return _NAME.sub(lambda found: found[1] + known.get(found[2], found[2]), text)


def documents(made: Collection[Path]) -> dict[Path, str]:
    """Returns the content of the files that are written by hand alone, not among those that are made."""
    patterns = ("README.md", "docs/*.md", "grafana/alerts/*.yaml", "tests/stack/*.yaml")
    return {
        path: with_present_names(path.read_text(encoding="utf-8"), are_short=True)
        for pattern in patterns
        for path in ROOT.glob(pattern)
        if path not in made
    }
