"""What a program may use, and whether the kernel's out-of-memory killer was at work."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path

from otel_quant.capture.probes.limits import available_memory, oom_counters, oom_kills, read_limits
from otel_quant.export.recording.layout import state_path
from otel_quant.schema.records import Limits
from otel_quant.schema.series import CACHE_GROWTH

if sys.platform == "linux":
    import resource


class Surroundings:
    """Limits and counters of a program, which outlive it here."""

    def __init__(self) -> None:
        self.limits = Limits()
        self.address_space: int | None = None
        self.available: int | None = None
        self._before: dict[Path, int] = {}

    def look(self, pid: int, others: Iterable[int] = ()) -> None:
        """Reads what is in force now. A process may have moved to another group."""
        self.limits = read_limits(pid=pid)
        self.address_space = _address_space(pid)
        self.available = available_memory()
        for counter in {path for process in (pid, *others) for path in oom_counters(process)}:
            if counter not in self._before and (kills := oom_kills(counter)) is not None:
                self._before[counter] = kills

    def oom_kills(self) -> tuple[int, Path] | None:
        """Returns how many processes the kernel has ended since, and the counter that says so.

        None where no counter can be read.
        """
        risen = [
            (kills - before, counter)
            for counter, before in self._before.items()
            if (kills := oom_kills(counter)) is not None
        ]
        return max(risen, default=None)


def cache_growth(folder: Path) -> int | None:
    """Returns how much a cache directory has grown, which only the program's processes know."""
    found: list[int] = []
    for path in folder.glob(state_path(folder, "*").name):
        try:
            grown = json.loads(path.read_bytes())["attributes"][CACHE_GROWTH]
        except (OSError, ValueError, LookupError, TypeError):
            continue  # none yet, or it is just being written
        if isinstance(grown, int):
            found.append(grown)
    return max(found, default=None)


def last_words_ns(folder: Path) -> dict[int, int]:
    """Returns when each process wrote its state for the last time: each sample is written there."""
    found: dict[int, int] = {}
    for path in folder.glob(state_path(folder, "*").name):
        pid = path.name.split(".")[1].partition("-")[0]
        if pid.isdigit():
            found[int(pid)] = max(found.get(int(pid), 0), path.stat().st_mtime_ns)
    return found


def _address_space(pid: int) -> int | None:
    if sys.platform != "linux":
        return None
    try:
        soft, _ = resource.prlimit(pid, resource.RLIMIT_AS)
    except (OSError, ValueError):
        return None
    return soft if soft != resource.RLIM_INFINITY else None
