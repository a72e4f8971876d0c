"""What this process may use of its machine, and how busy that is."""

from __future__ import annotations

import os


def processors() -> int:
    """Returns how many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def load() -> float | None:
    """Returns how many threads have run or waited for a processor, on average of a minute; None on Windows."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else None
