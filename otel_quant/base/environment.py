"""Reads the settings out of environment variables.

A malformed value is logged with the name of the variable and the expected form, and the default is
used. A name that is nearly one of ours is logged with the one that is meant.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from otel_quant.base.log import warn_once
from otel_quant.schema.settings import EXPORTER, SETTINGS, Kind, Settings, misspelt_names

_LONGEST: Final = 1e6
"""Seconds; longer than any run, and short enough not to overflow the system's timers."""

_OFF: Final = dict.fromkeys(("false", "0", "no", "off"), False)
_FLAGS: Final = {**_OFF, **dict.fromkeys(("true", "1", "yes", "on"), True)}
_STACKS: Final = {"all": "all", **{text: str(flag).lower() for text, flag in _FLAGS.items()}}


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
        except (ValueError, KeyError):
            problems.append(
                f"environment variable {setting.variable} is {text!r}; expected {expected}; "
                "using the default"
            )
    # The settings are read by the instrumentor and again by every run of the process.
    for line in problems if warn else ():
        warn_once(line)
    return Settings(**values)


def _one_of(choices: Mapping[str, object]) -> Callable[[str], object]:
    return lambda text: choices[text.lower()]


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 <= value < float("inf"):
        raise ValueError(text)
    return min(value / 1000, _LONGEST)


def _names(text: str) -> frozenset[str] | None:
    return frozenset(name.strip() for name in text.split(",") if name.strip()) or None


def _nodes(text: str) -> tuple[str, ...]:
    import json  # rarely needed, and this module is loaded in every instrumented program

    found = json.loads(text)
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        raise ValueError(text)
    return tuple(found)


_READERS: Final[Mapping[Kind, tuple[Callable[[str], object], str]]] = {
    "text": (str, "any text"),
    "presence": (bool, "any text"),
    "nodes": (_nodes, "a list of names in JSON"),
    "names": (_names, "names with commas between them"),
    "exporter": (lambda text: EXPORTER in (_names(text) or ()), "names with commas between them"),
    "stacks": (_one_of(_STACKS), "true, false or all"),
    "profiles": (_one_of({"otlp": True, "none": False}), "otlp or none"),
    "flag": (_one_of(_FLAGS), "true or false"),
    "quark's switch": (
        _one_of({**_OFF, "1": True}),
        "1 (Quark's own profiler accepts no other value) or 0",
    ),
    # As the SDK reads it: no other word switches it off.
    "sdk's switch": (lambda text: text.lower() == "true", "true"),
    "milliseconds": (_seconds, "a number of milliseconds, 0 or more"),
}
"""By kind, the function that reads a text, and the expected text as errors name it."""
