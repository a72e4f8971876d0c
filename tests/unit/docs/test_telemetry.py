"""The documentation of the telemetry says what the code does."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from pathlib import Path

from otel_quant.schema import catalog, semconv
from otel_quant.schema import settings as environment


def test_every_name_of_semconv_is_in_its_tables() -> None:
    listed = {entry.name for entry in catalog.ATTRIBUTES} | {m.name for m in catalog.METRICS}
    events = {event.name for event in semconv.EVENTS}
    prefixes = {
        semconv.PREFIX,
        semconv.CHECKPOINT_PREFIX,
        semconv.READING_PREFIX,
        semconv.CUSTOM_PREFIX,
    }
    named = {
        value
        for name, value in vars(semconv).items()
        if name.isupper() and isinstance(value, str) and value.startswith("quant.")
    }
    assert named - events - prefixes - listed == set()


def test_every_variable_that_the_package_reads_is_documented() -> None:
    sources = Path(environment.__file__).parents[1].rglob("*.py")
    read = {
        name
        for source in sources
        for name in re.findall(r'"(OTEL_QUANT_[A-Z_]+)"', source.read_text(encoding="utf-8"))
    }
    assert read == {
        v.variable for v in environment.SETTINGS if v.variable.startswith("OTEL_QUANT_")
    }


def test_what_may_change_says_so_of_every_name() -> None:
    page = Path(environment.__file__).parents[2] / "docs" / "stability.md"
    section = page.read_text(encoding="utf-8").partition("## The local file")[0]
    patterns = re.findall(r"`([a-z][a-z_.*]*)`", section)
    names = {entry.name for entry in catalog.ATTRIBUTES} | {m.name for m in catalog.METRICS}
    names |= {event.name for event in semconv.EVENTS}
    assert [n for n in sorted(names) if not any(fnmatchcase(n, p) for p in patterns)] == []
