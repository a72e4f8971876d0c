"""Limits of a gate: how much worse a figure may be, what it may be at most, and where they stand."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from otel_quant.recordings.summary import BY_NAME, GPU_ALLOCATED, GPU_PEAK
from otel_quant.schema.quantities import Quantity

BINARY: Final = "iB"
"""End of the units of which one is 1,024 of the next smaller."""

_KIB: Final = 1 << 10

UNITS: Final[Mapping[str, Mapping[str, float]]] = {
    "By": {
        "B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12,
        "KiB": _KIB, "MiB": _KIB**2, "GiB": _KIB**3, "TiB": _KIB**4,
    },
    "s": {"ms": 1e-3, "s": 1, "min": 60, "h": 3600},
    "1": {"": 1, "%": 0.01},
}  # fmt: skip
"""What an amount of a figure may be written in, by the figure's unit."""

_COUNTED: Final[Mapping[str, float]] = {"": 1, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
"""Likewise, of figures that count something."""

_EXPRESSION: Final = re.compile(
    r"\s*(?:(?P<step>.*\S)\s*:)?\s*(?P<figure>[\w.]+)\s*(?P<sign><=|>=|=)\s*(?P<amount>.*\S)\s*"
)
_AMOUNT: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*|%)")

_GATED_BY: Final[Mapping[str, str]] = {GPU_PEAK: GPU_ALLOCATED}
"""What allocators reserve differs by gigabytes between identical runs; what is allocated does not."""

FORM: Final = "[STEP:]FIGURE=10%, [STEP:]FIGURE=500MiB or [STEP:]FIGURE<=12GiB"


class LimitError(ValueError):
    """A text is no limit; the message says why."""


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit."""

    text: str  # As it was written
    # Name of the steps that it is for, or their path with ``>``; ``total`` for the whole, None
    # for the whole and every step
    step: str | None
    figure: Quantity
    sign: str  # ``=`` for how much worse it may become, ``<=`` and ``>=`` for a budget
    amount: float  # How much: in the figure's unit, or as a share of the base
    is_share: bool = False  # Whether it is a share of the base

    @property
    def is_budget(self) -> bool:
        """Whether it limits the figure itself, whatever the base has."""
        return self.sign != "="

    @property
    def is_binary(self) -> bool:
        """Whether it is a size in a binary unit, such as GiB."""
        return self.text.rstrip().endswith(BINARY)


def parse(text: str) -> Limit:
    """Returns the limit that a text says."""
    found = _EXPRESSION.fullmatch(text)
    if found is None:
        raise LimitError(f"{text!r} is no limit; expected {FORM}")
    name = found["figure"]
    figure = BY_NAME.get(_GATED_BY.get(name, name))
    if figure is None:
        near = difflib.get_close_matches(name, BY_NAME, 1)
        meant = f"did you mean {near[0]}? " if near else ""
        names = ", ".join(BY_NAME)
        raise LimitError(f"{text!r}: {name} is no figure; {meant}expected one of {names}")
    amount = _AMOUNT.fullmatch(found["amount"])
    if amount is None:
        raise LimitError(
            f"{text!r}: {found['amount']!r} is no amount; expected a number and its unit, such as "
            "10%, 500MiB or 90 s"
        )
    is_share = found["sign"] == "=" and amount[2] == "%"
    units = {"%": 0.01} if is_share else UNITS.get(figure.unit, _COUNTED)
    if amount[2] not in units:
        allowed = [each or "no unit" for each in units if each != "%"]
        if found["sign"] == "=":
            allowed.insert(0, "%")
        raise LimitError(
            f"{text!r}: {figure.name} cannot be given in {amount[2] or 'a number without a unit'}; "
            f"expected {', '.join(allowed)}"
        )
    value = float(amount[1]) * units[amount[2]]
    return Limit(text, found["step"], figure, found["sign"], value, is_share)


# --- the limits of a repository ----------------------------------------------------------

NAME: Final = "otel-quant.toml"
"""Their file."""

_TABLE: Final = "compare"
_KEYS: Final = ("fail-over", "budgets")


def find(start: Path) -> Path | None:
    """Returns the file of the repository that a folder is in."""
    folder = start.absolute()
    for each in (folder, *folder.parents):
        if (each / NAME).is_file():
            return each / NAME
        if (each / ".git").exists():
            return None
    return None


def load(path: Path) -> list[Limit]:
    """Returns the limits of a file."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise LimitError(f"{path}: not TOML: {error}") from error
    table = content.pop(_TABLE, {})
    if content or not isinstance(table, dict):
        found = next(iter(content), _TABLE)
        raise LimitError(f"{path}: {found!r} is not known; expected a table [{_TABLE}]")
    limits = []
    for key, texts in table.items():
        if key not in _KEYS:
            raise LimitError(f"{path}: [{_TABLE}] has {key!r}; expected {' and '.join(_KEYS)}")
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            expected = 'expected a list such as ["memory.peak=10%"]'
            raise LimitError(f"{path}: {key} is {texts!r}; {expected}")
        limits += [_limit(path, key, text) for text in texts]
    return limits


def _limit(path: Path, key: str, text: str) -> Limit:
    try:
        limit = parse(text)
    except LimitError as error:
        raise LimitError(f"{path}: {key}: {error}") from error
    if limit.is_budget != (key == "budgets"):
        other = "budgets have <= or >=" if key == "budgets" else "a budget stands in budgets"
        raise LimitError(f"{path}: {key}: {text!r}: {other}")
    return limit
