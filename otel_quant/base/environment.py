"""Reads the settings out of environment variables.

A malformed value is logged with the name of the variable and the expected form, and the default is
used. A name that is nearly one of ours is logged with the one that is meant.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, Final

from otel_quant.base.log import LOG
from otel_quant.schema.settings import (
    EXPORTER,
    SETTINGS,
    Kind,
    Settings,
    misspelt_names,
)

_LONGEST: Final = 1e6
"""Seconds; longer than any run, and short enough not to overflow the system's timers."""

_TRUE, _FALSE = frozenset({"true", "1", "yes", "on"}), frozenset({"false", "0", "no", "off"})


def settings_from(environ: Mapping[str, str], *, warn: bool = True) -> Settings:
    """Reads the settings."""
    problems = [*misspelt_names(environ)]
    values: dict[str, Any] = {}
    for setting in SETTINGS:
        text = environ.get(setting.variable, "").strip()
        if not text:
            continue
        parse, expected = _READERS[setting.kind]
        try:
            values[setting.field] = parse(text)
        except ValueError:
            problems.append(
                f"environment variable {setting.variable} is {text!r}; expected {expected}; "
                "using the default"
            )
    if warn:
        for line in problems:
            _warn_once(line)
    return Settings(**values)


@functools.cache
def _warn_once(line: str) -> None:
    # The settings are read by the instrumentor and again by every run of the process.
    LOG.warning("%s", line)


def _flag(text: str) -> bool:
    value = text.lower()
    if value in _TRUE:
        return True
    if value in _FALSE:
        return False
    raise ValueError(text)


def _stacks(text: str) -> str:
    return "all" if text.lower() == "all" else str(_flag(text)).lower()


def _profiles(text: str) -> bool:
    if text.lower() not in ("otlp", "none"):
        raise ValueError(text)
    return text.lower() == "otlp"


def _quarks_switch(text: str) -> bool:
    if text == "1":
        return True
    if text.lower() in _FALSE:
        return False
    raise ValueError(text)


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 <= value < float("inf"):
        raise ValueError(text)
    return min(value / 1000, _LONGEST)


def _names(text: str) -> frozenset[str] | None:
    return frozenset(name.strip() for name in text.split(",") if name.strip()) or None


_READERS: Final[Mapping[Kind, tuple[Callable[[str], object], str]]] = {
    "text": (str, "any text"),
    "presence": (bool, "any text"),
    "names": (_names, "names with commas between them"),
    "exporter": (lambda text: EXPORTER in (_names(text) or ()), "names with commas between them"),
    "stacks": (_stacks, "true, false or all"),
    "profiles": (_profiles, "otlp or none"),
    "flag": (_flag, "true or false"),
    "quark's switch": (_quarks_switch, "1 (Quark's own profiler accepts no other value) or 0"),
    # As the SDK reads it: no other word switches it off.
    "sdk's switch": (lambda text: text.lower() == "true", "true"),
    "milliseconds": (_seconds, "a number of milliseconds, 0 or more"),
}
"""By kind, the function that reads a text, and the expected text as errors name it."""
