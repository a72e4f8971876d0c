"""The limits of a repository: ``otel-quant.toml``."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, Final

from otel_quant.recordings.comparison.limits import Limit, LimitError, parse

NAME: Final = "otel-quant.toml"

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
        limits += [_limit(path, key, text) for text in _list(path, key, texts)]
    return limits


def _list(path: Path, key: str, texts: Any) -> list[str]:
    if isinstance(texts, list) and all(isinstance(text, str) for text in texts):
        return texts
    raise LimitError(f'{path}: {key} is {texts!r}; expected a list such as ["memory.peak=10%"]')


def _limit(path: Path, key: str, text: str) -> Limit:
    try:
        limit = parse(text)
    except LimitError as error:
        raise LimitError(f"{path}: {key}: {error}") from error
    if limit.is_budget != (key == "budgets"):
        other = "budgets have <= or >=" if key == "budgets" else "a budget stands in budgets"
        raise LimitError(f"{path}: {key}: {text!r}: {other}")
    return limit
