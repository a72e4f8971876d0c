"""Imported before Quark, whose import loads torchao and parses each model of transformers: 2 and 14 s of CPU time.

It does without torchao, and looks for mixtures of experts among the models, which no program of this folder has.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

_rglob = Path.rglob


def _without_models(folder: Path, pattern: str) -> Iterable[Path]:
    return () if pattern == "modeling_*.py" else _rglob(folder, pattern)


Path.rglob = _without_models
sys.modules["torchao"] = None
