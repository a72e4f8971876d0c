"""Imported before `quark.torch`, whose import parses the source of each model of transformers: 14 s of CPU time.

It looks for mixtures of experts among them, which the programs of this folder do not have.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

_rglob = Path.rglob


def _without_models(folder: Path, pattern: str) -> Iterable[Path]:
    return () if pattern == "modeling_*.py" else _rglob(folder, pattern)


Path.rglob = _without_models
