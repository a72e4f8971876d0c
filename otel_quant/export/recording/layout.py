"""The files of a recording, by name.

Processes find their recording without being told: a folder whose processes are alive, or whose first
process has the same parent and a rank, is theirs. A variable with its name would change what the
program's children see. Each file is locked while its process lives, so that a reader can tell a run that
goes on from one that was killed.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

SCHEMA: Final = 1
"""Version of the format of all files of a recording."""

MANIFEST: Final = "manifest.json"
PROFILE: Final = "quark_profile.yaml"
LAST_READING: Final = ".last_reading.json"
"""How the names of files end that have the newest reading of a run beside its profile."""

REPORT: Final = "report.html"
OUTPUT: Final = "output.log"
INFERENCE: Final = "inference.json"
"""What `otel-quant inference --record` adds."""

BENCH: Final = "bench.json"
"""What `otel-quant bench --record` adds."""

_EVENTS: Final = "events.{}.jsonl"
_CURVE: Final = "curve.{}.jsonl"
_STATE: Final = "state.{}.json"
_STACKS: Final = "stacks.{}.{}.json"
_PROCESS: Final = re.compile(r"(events|curve|state)\.([0-9]+(?:-[0-9]+)?)\.jsonl?")


def events_path(folder: Path, process: str) -> Path:
    """Returns the path of the events of a process."""
    return folder / _EVENTS.format(process)


def curve_path(folder: Path, process: str) -> Path:
    """Returns the path of the curve that a process has taken."""
    return folder / _CURVE.format(process)


def state_path(folder: Path, process: str) -> Path:
    """Returns the path of the file that has what a process does now."""
    return folder / _STATE.format(process)


def stacks_path(folder: Path, process: str, run: str) -> Path:
    """Returns the path of the stacks of a run of a process."""
    return folder / _STACKS.format(process, run)


def processes_in(folder: Path) -> list[str]:
    """Returns the processes that have left a file, by the number of their process ids."""
    found = {
        match[2]
        for path in folder.iterdir()
        if (match := _PROCESS.fullmatch(path.name)) is not None
    }
    return sorted(found, key=lambda process: [int(part) for part in process.split("-")])


def is_of_process(name: str) -> bool:
    """Returns whether a file has a name that only files of a recording have."""
    return _PROCESS.fullmatch(name) is not None


def newest_in(folder: Path) -> Path | None:
    """Returns the recording below a folder that was begun last, by its name; None without one."""
    found = [each for each in folder.glob("otel-quant-*") if (each / MANIFEST).is_file()]
    return max(found, key=lambda each: each.name[-15:], default=None)
