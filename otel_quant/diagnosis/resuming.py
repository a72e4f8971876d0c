"""Checkpoints that a library leaves on disk while it quantizes, and continues from after its program was killed.

Tried by killing each: GPTQModel 7.7, AutoRound 0.16, NVIDIA Model Optimizer 0.47.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

from otel_quant.schema.units import counted

_MOST: Final = 1 << 26  # Bytes; larger files are not read
_MOST_GROUPS: Final = 100
_HASH: Final = re.compile("[0-9a-f]{64}")
_Json: TypeAlias = Mapping[str, Any]
_Counts: TypeAlias = tuple[int, int]


class SavedProgress(NamedTuple):
    """A checkpoint on disk, from which the same command continues."""

    place: str  # The folder
    done: int  # Number of layers or files that are done
    total: int  # Of how many; 0 if that is not known
    unit: str
    saved: float  # When the last one was written, in seconds since the epoch

    def __str__(self) -> str:
        """Returns it in words: ``31 of 32 layers are in DIR``."""
        done = f"{self.done:,} of " * bool(self.total) + counted(self.total or self.done, self.unit)
        return f"{done} {'is' if self.done == 1 else 'are'} in {self.place}"


def saved_in(place: str) -> SavedProgress | None:
    """Returns the checkpoint in a folder; None if there is none."""
    for pattern, count in _COUNTS.items():
        with suppress(OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
            files = sorted(Path(place).glob(pattern))[:_MOST_GROUPS]
            counts = [count(_json(each), Path(place)) for each in files]
            if done := sum(each for each, _ in counts):
                unit = "file" if pattern == _FILES else "layer"
                newest = max(each.stat().st_mtime for each in files)
                return SavedProgress(place, done, counts[0][1], unit, newest)
    return None


def _json(path: Path) -> _Json:
    found = json.loads(path.read_bytes()) if path.stat().st_size <= _MOST else {}
    return found if isinstance(found, dict) else {}


def _of_gptqmodel(current: _Json, folder: Path) -> _Counts:
    newest = str(current["generations"][0])
    found = _json(folder / "objects" / newest) if _HASH.fullmatch(newest) else {}
    return int(found["cursor"]), len(found["identity"]["execution_plan"])


def _of_modelopt(found: _Json, _: Path) -> _Counts:
    done, total = int(found["last_completed_layer"]) + 1, int(found["num_layers"])
    return (done if done < total else 0), total  # if all layers are done, it starts again


def _of_files(found: _Json, _: Path) -> _Counts:
    done = len(found["processed_files"])
    return done, done + len(found["pending_files"])


_FILES: Final = ".cache/model_free_resume.json"
_COUNTS: Final[Mapping[str, Callable[[_Json, Path], _Counts]]] = {
    "CURRENT": _of_gptqmodel,
    "manifest.json": _of_modelopt,
    "group_*/resume_manifest.json": lambda found, _: (len(found["completed_blocks"]), 0),
    _FILES: _of_files,
}
"""How many layers or files are done, and of how many, by the file that a library writes after each."""
