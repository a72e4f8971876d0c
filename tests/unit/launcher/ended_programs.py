"""What the launcher has seen, and the recording, of programs that have ended, made without running one."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from otel_quant.format.curve import Curve, RecordedCurve
from otel_quant.launcher.observer import LastSeen, Observation
from otel_quant.launcher.surroundings import Child, OomKills
from otel_quant.recordings.model import RecordedRun, RecordedStep, Recording
from otel_quant.schema.readings import Count, Counts, Limits

MB = 1_000_000
BEGAN = 1_700_000_000_000_000_000
COUNTER = "/sys/fs/cgroup/memory.events"
PROGRAM, CHILD = 100, 200


def step(**fields: Any) -> RecordedStep:
    known: dict[str, Any] = {
        "index": 0, "name": "Calibration", "kind": "Calibration", "start": 1.0, "state": "lost",
    }  # fmt: skip
    return RecordedStep(**{**known, **fields})


def calibration(**fields: Any) -> RecordedStep:
    """37 of 512 samples, one every 100 ms."""
    progress = tuple((1.0 + sample / 10, sample) for sample in range(1, 38))
    return step(counts=Counts(sample=Count(37, 512)), progress=progress, **fields)


def run(*steps: RecordedStep, pid: int = PROGRAM, **fields: Any) -> RecordedRun:
    known: dict[str, Any] = {
        "id": "a", "process": str(pid), "pid": pid, "start": 0.5, "state": "lost",
    }  # fmt: skip
    return RecordedRun(**{**known, **fields}, steps=steps)


def curve() -> RecordedCurve:
    """900 MB, and from second 1 on 200 MB more each 100 ms, until second 6."""
    levels = Curve(50)
    for at in range(0, 6000, 50):
        levels.add(at, {"memory": (900 + max(0, at // 100 - 10) * 200) * MB}, {})
    return RecordedCurve(BEGAN, 0, levels)


def recording(*runs: RecordedRun) -> Recording:
    return Recording(
        path=Path("r"), began_ns=BEGAN, state="lost", duration=6.0, runs=runs,
        curves={"launcher": curve()},
    )  # fmt: skip


def last_seen(memory: int, at: float = 4.75) -> LastSeen:
    return LastSeen(BEGAN + round(at * 1e9), memory, memory, (("python q.py (100)", memory),))


def kills(number: int, of_groups: int = 0, *, is_of_host: bool = False) -> OomKills:
    return OomKills(Path(COUNTER), is_of_host, number, of_groups)


def seen(*, signals: Mapping[int, str] | None = None, **fields: Any) -> Observation:
    ended = (signals or {}).items()
    known: dict[str, Any] = {
        "pid": PROGRAM,
        "time_ns": BEGAN + 5_000_000_000,
        "limits": Limits(8000 * MB, "cgroup"),
        "oom_kills": kills(0),
        "exits": {
            pid: Child(pid, None, "python", 0, code=-signal.Signals[name]) for pid, name in ended
        },
    }
    return Observation(**{**known, **fields})
