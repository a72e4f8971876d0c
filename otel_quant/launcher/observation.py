"""What the launcher has seen of a program that has ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from otel_quant.records import GpuReading, Limits


@dataclass(frozen=True, slots=True)
class LastSeen:
    """The last moment at which a process was alive.

    Attributes:
        time_ns: Wall clock, in nanoseconds since the epoch.
        memory: RSS of the process tree then, in bytes.
        highest: Highest RSS of the process tree within a second before, in bytes. While the kernel
            ends a process for want of memory, its memory already falls.
        processes: The largest processes then: name and RSS in bytes, largest first.
    """

    time_ns: int
    memory: int
    highest: int
    processes: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What the launcher has seen.

    Attributes:
        pid: The program.
        time_ns: Wall clock at the end, in nanoseconds since the epoch.
        exit_code: Exit code; None if a signal ended it.
        signal: Number of the signal that ended it; None if it exited.
        last_seen: The last moment of the program, and of child processes that were large, by
            process id.
        mark: RSS that one of the processes has reached after the last reading, in bytes, as the
            kernel told when the program had ended; None if it was not above what had been read.
        limits: The limit of memory in force.
        address_space: Limit of its address space (``ulimit -v``), in bytes; None for no limit.
        available: Memory of the machine that was still to be had, in bytes.
        oom_kills: How many processes the kernel's out-of-memory killer has ended meanwhile in the
            control groups of the program; None where no counter can be read.
        oom_counter: The counter that says so.
        signals: Signals that ended child processes, as far as they were seen, by process id.
        last_words_ns: When child processes wrote into the recording for the last time, by process id,
            in nanoseconds since the epoch.
        gpus: The GPUs at the last reading.
        written: Bytes that the process tree sent to storage.
    """

    pid: int
    time_ns: int
    exit_code: int | None = None
    signal: int | None = None
    last_seen: Mapping[int, LastSeen] = field(default_factory=dict)
    mark: int | None = None
    limits: Limits = field(default_factory=Limits)
    address_space: int | None = None
    available: int | None = None
    oom_kills: int | None = None
    oom_counter: str | None = None
    signals: Mapping[int, int] = field(default_factory=dict)
    last_words_ns: Mapping[int, int] = field(default_factory=dict)
    gpus: tuple[GpuReading, ...] = ()
    written: int | None = None


def with_mark(last: LastSeen | None, mark: int | None) -> int | None:
    """Returns RSS of the process tree in bytes, if its largest process has grown after a reading.

    Args:
        last: The reading.
        mark: RSS that one of the processes has reached, in bytes; None if it has not grown.
    """
    if last is None:
        return mark
    if mark is None:
        return None
    return last.memory + max(0, mark - (last.processes[0][1] if last.processes else 0))
