"""The columns of a profile's steps: how each figure is computed, and how it is shown."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from otel_quant.recordings.profile_steps import Step, numbers
from otel_quant.recordings.quark_yaml import Profile, Record

TIME: Final = "relative_time_secs"
MEMORY: Final = "cpu_memory_mb"
GPU: Final = "gpu_memory_mb"
PEAK: Final = "peak_memory_mb"
GPU_PEAK: Final = "peak_gpu_memory_mb"
_READ, _WRITE = "disk_read_mb", "disk_write_mb"
_KNOWN: Final = frozenset(
    {
        "step",
        "timestamp",
        TIME,
        MEMORY,
        GPU,
        _READ,
        _WRITE,
        PEAK,
        GPU_PEAK,
        "error",
        "error_message",
    }
)

Value: TypeAlias = Callable[[Profile, Step], object]
"""Computes a figure of a step; None if it is not known."""


@dataclass(frozen=True, slots=True)
class Column:
    """One figure of a step."""

    key: str  # Its name in JSON and CSV
    heading: str  # Its name in the table; empty if it is not in the table
    unit: str  # Its unit there; empty for none
    value: Value  # Computes it
    shown: Callable[[object], str]  # Formats it for the table
    unless: str = ""  # Key of another column; if that column is in the table, this one is left out


def number(record: Record, key: str) -> float | None:
    """Returns the number that a record has under a key; None if it has none."""
    return next(numbers((record,), key), None)


def highest(records: Sequence[Record], *keys: str) -> float | None:
    """Returns the largest number that records have under some keys; None if there is none."""
    return max((value for key in keys for value in numbers(records, key)), default=None)


def _at_start(key: str) -> Value:
    return lambda profile, step: number(profile.records[step.first], key)


def _at_end(key: str) -> Value:
    return lambda profile, step: (
        number(profile.records[step.last], key) if step.state == "ended" else None
    )  # fmt: skip


def _change(key: str) -> Value:
    def change(profile: Profile, step: Step) -> float | None:
        first, last = profile.records[step.first], profile.records[step.last]
        before, after = number(first, key), number(last, key)
        if step.state != "ended" or before is None or after is None:
            return None
        return round(after - before, 9)  # the records have no more decimals

    return change


def _share_of_time(profile: Profile, step: Step) -> object:
    first, last = (number(profile.records[at], TIME) for at in (step.first, step.last))
    total = number(profile.records[-1], TIME)
    if step.state != "ended" or first is None or last is None or not total:
        return None
    return round((last - first) / total, 4)


def _share_of_limit(profile: Profile, step: Step) -> object:
    used = _at_end(PEAK)(profile, step) or _seen(MEMORY)(profile, step)
    limit = number(profile.run, "memory_limit_mb")
    return round(used / limit, 4) if isinstance(used, int | float) and limit else None


def _seen(key: str) -> Value:
    def seen(profile: Profile, step: Step) -> float | None:
        records = profile.records[step.first : step.last + 1]
        if step.state == "open" and profile.last_reading is not None:
            records = [*records, profile.last_reading]  # newer than the last checkpoint
        return highest(records, key)

    return seen


def _status(profile: Profile, step: Step) -> object:
    if step.state == "ended":
        return str(profile.records[step.last].get("error", "ok"))
    return step.state


def _message(profile: Profile, step: Step) -> object:
    return profile.records[step.last].get("error_message") if step.state == "ended" else None


def _fixed(digits: int, scale: int = 1) -> Callable[[object], str]:
    return lambda value: f"{scale * value:.{digits}f}" if isinstance(value, int | float) else "-"


def _signed(value: object) -> str:
    return f"{value:+.2f}" if isinstance(value, int | float) else "-"


COLUMNS: Final[tuple[Column, ...]] = (
    Column("start_secs", "START", "s", _at_start(TIME), _fixed(2)),
    Column("duration_secs", "TIME", "s", _change(TIME), _fixed(2)),
    Column("duration_share", "TIME", "%", _share_of_time, _fixed(1, 100)),
    Column("cpu_memory_start_mb", "MEM START", "MiB", _at_start(MEMORY), _fixed(1)),
    Column("cpu_memory_end_mb", "MEM END", "MiB", _at_end(MEMORY), _fixed(1)),
    Column("cpu_memory_delta_mb", "MEM +/-", "MiB", _change(MEMORY), _signed),
    Column("cpu_memory_peak_mb", "MEM PEAK", "MiB", _at_end(PEAK), _fixed(1)),
    Column("cpu_memory_seen_mb", "MEM SEEN", "MiB", _seen(MEMORY), _fixed(1), "cpu_memory_peak_mb"),
    Column("cpu_memory_limit_share", "OF LIMIT", "%", _share_of_limit, _fixed(1, 100)),
    Column("gpu_memory_start_mb", "GPU START", "MiB", _at_start(GPU), _fixed(1)),
    Column("gpu_memory_end_mb", "GPU END", "MiB", _at_end(GPU), _fixed(1)),
    Column("gpu_memory_peak_mb", "GPU PEAK", "MiB", _at_end(GPU_PEAK), _fixed(1)),
    Column("gpu_memory_seen_mb", "GPU SEEN", "MiB", _seen(GPU), _fixed(1), "gpu_memory_peak_mb"),
    Column("disk_read_mb", "READ", "MiB", _change(_READ), _fixed(2)),
    Column("disk_write_mb", "WRITTEN", "MiB", _change(_WRITE), _fixed(2)),
)
"""The figures that every profile may have, in the order of the table."""

MESSAGE: Final = Column("error_message", "", "", _message, str)
STATUS: Final = Column("status", "STATUS", "", _status, str)


def columns_of(profile: Profile, steps: Sequence[Step]) -> Iterator[Column]:
    """Yields the columns in which a step has a value; custom metrics and the status come last."""
    custom = dict.fromkeys(key for record in profile.records for key in record if key not in _KNOWN)
    for column in (*COLUMNS, *(_custom_column(key) for key in custom), MESSAGE):
        if any(column.value(profile, step) is not None for step in steps):
            yield column
    yield STATUS


def _custom_column(key: str) -> Column:
    def value(profile: Profile, step: Step) -> object:
        return profile.records[step.last if step.state == "ended" else step.first].get(key)

    return Column(key, key, "", value, lambda value: "-" if value is None else str(value))
