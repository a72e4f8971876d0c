"""What the launcher has seen of a program that has ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from otel_quant.schema.records import GpuReading, Limits


@dataclass(frozen=True, slots=True)
class LastSeen:
    """The last moment at which a process was alive."""

    time_ns: int  # Wall clock, in nanoseconds since the epoch
    memory: int  # RSS of the process tree then, in bytes
    # Highest RSS of the process tree within a second before, in bytes. While the kernel ends a
    # process for want of memory, its memory already falls.
    highest: int
    # The largest processes then: name and RSS in bytes, largest first
    processes: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What the launcher has seen."""

    pid: int  # The program
    time_ns: int  # Wall clock at the end, in nanoseconds since the epoch
    exit_code: int | None = None  # Exit code; None if a signal ended it
    signal: int | None = None  # Number of the signal that ended it; None if it exited
    # The last moment of the program, and of child processes that were large, by process id
    last_seen: Mapping[int, LastSeen] = field(default_factory=dict)
    # RSS that one of the processes has reached after the last reading, in bytes, as the kernel
    # told when the program had ended; None if it was not above what had been read
    mark: int | None = None
    limits: Limits = field(default_factory=Limits)  # The limit of memory in force
    # Limit of its address space (``ulimit -v``), in bytes; None for no limit
    address_space: int | None = None
    available: int | None = None  # Memory of the machine that was still to be had, in bytes
    # How many processes the kernel's out-of-memory killer has ended meanwhile in the control
    # groups of the program; None where no counter can be read
    oom_kills: int | None = None
    oom_counter: str | None = None  # The counter that says so
    # Signals that ended child processes, as far as they were seen, by process id
    signals: Mapping[int, int] = field(default_factory=dict)
    # When child processes wrote into the recording for the last time, by process id, in
    # nanoseconds since the epoch
    last_words_ns: Mapping[int, int] = field(default_factory=dict)
    gpus: tuple[GpuReading, ...] = ()  # The GPUs at the last reading
    written: int | None = None  # Bytes that the process tree sent to storage


def with_mark(last: LastSeen | None, mark: int | None) -> int | None:
    """Returns RSS of the process tree in bytes, if its largest process has grown after a reading."""
    if last is None:
        return mark
    if mark is None:
        return None
    return last.memory + max(0, mark - (last.processes[0][1] if last.processes else 0))
