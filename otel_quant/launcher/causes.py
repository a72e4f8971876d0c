"""Why a program has ended, as far as the kernel, the disks or a batch system tell: the words and the evidence.

What none of them tells is not concluded from their silence.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from otel_quant.base import signals
from otel_quant.launcher.advice import Where
from otel_quant.launcher.observer import Observation
from otel_quant.launcher.surroundings import ProcessUse
from otel_quant.launcher.victim import Victim
from otel_quant.recordings.model import Certainty
from otel_quant.schema.units import counted, share_text, size

CPU_TIME: Final = "limit of CPU time"
FILE_SIZE: Final = "limit of the size of a file"
ADDRESS_SPACE: Final = "limit of the address space"
DISK_FULL: Final = "disk full"
OUT_OF: Final[dict[Where, str]] = {"host": "out of memory", "gpu": "out of GPU memory"}
"""By an exception; the kernel's out-of-memory killer is known otherwise."""

_UNSEEN: Final = 1.0
"""Seconds of CPU time that a process may have used after the last reading, if nobody saw it end."""

_NEAR: Final = 0.9
"""Part of the limit of addresses from which on it is the cause: the next request may be for the rest."""

_AT_THE_LIMIT: Final = 0.95
"""Part of the limit at which memory counts as used up: the kernel's own share is in it as well."""

_FULL: Final = 1 << 20
"""Bytes. A disk with less is full."""

_SENT: Final = frozenset(
    {
        signals.SIGKILL,
        signals.SIGTERM,
        signals.SIGINT,
        signals.SIGXCPU,
        signals.SIGUSR1,
        signals.SIGUSR2,
    }
)
"""Signals by which batch systems end a job that is over its limit."""


class Cause(NamedTuple):
    """Why a process has ended."""

    name: str | None  # One of the names above; None if it is not known
    evidence: str | None  # What shows it, or what else is known
    out_of_memory: Certainty | None = None  # Whether the kernel's out-of-memory killer did it


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of a process that was killed or failed."""

    seen: Observation
    victim: Victim
    memory: int | None  # RSS of the process tree then, in bytes
    error: str  # The exception and its message; empty for none
    shortage: Where | None  # Whose memory ran out, according to the exception

    @property
    def use(self) -> ProcessUse | None:
        """Its limits; without the id of a process, the limits of the process that used most CPU time."""
        uses = self.seen.uses
        if self.victim.pid is not None:
            return uses.get(self.victim.pid)
        return max(uses.values(), key=lambda use: use.cpu_time, default=None)


def cause_of(known: Known) -> Cause:
    """Returns why a process has ended; with the exception, where one ended it, in the evidence."""
    found = next(filter(None, (row(known) for row in _ROWS)), Cause(None, None))
    job = None
    if found.name is None and found.out_of_memory != "known" and known.victim.signal in _SENT:
        job = known.seen.batch_job
    evidence = "; ".join(filter(None, (known.error, found.evidence, job)))
    return found._replace(evidence=evidence or None)


def _cpu_time(known: Known) -> Cause | None:
    use = known.use
    if use is None or known.victim.signal not in (signals.SIGXCPU, signals.SIGKILL):
        return None
    # With each SIGXCPU the kernel raises the first limit by a second.
    first = (use.cpu_limit, (use.cpu_limit or 0) - 1)
    limits = first if known.victim.signal == signals.SIGXCPU else (use.last_cpu_limit,)
    least = use.cpu_time + (0 if use.is_over else _UNSEEN)
    limit = next((each for each in limits if each and least >= each), None)
    if limit is None:
        return None
    used = f"{use.cpu_time:.2f} s{'' if use.is_over else ' at the last reading'}"
    return Cause(CPU_TIME, f"CPU time was {used}, the limit is {limit} s (RLIMIT_CPU, ulimit -t)")


def _file_size(known: Known) -> Cause | None:
    use, is_error = known.use, f"[Errno {errno.EFBIG}]" in known.error
    if use is None or use.file_size_limit is None:
        return None
    if not is_error and known.victim.signal != signals.SIGXFSZ:
        return None
    return Cause(
        FILE_SIZE,
        f"no file may be larger than {size(use.file_size_limit)} (RLIMIT_FSIZE, ulimit -f)",
    )


def _address_space(known: Known) -> Cause | None:
    use, is_error = known.use, known.shortage == "host"
    if use is None or not use.address_space or not use.addresses:
        return None
    share = use.addresses / use.address_space
    is_near = share >= _NEAR
    # C++ code aborts when it gets no memory.
    if not is_error and not (is_near and known.victim.signal == signals.SIGABRT):
        return None
    return Cause(
        ADDRESS_SPACE if is_near else None,
        f"its addresses reached {share_text(share)} of the limit of {size(use.address_space)} (RLIMIT_AS, ulimit -v)",
    )


def _disk(known: Known) -> Cause | None:
    is_error = f"[Errno {errno.ENOSPC}]" in known.error or "No space left on device" in known.error
    # SIGBUS: memory that is a file, for which there was no room.
    if not is_error and known.victim.signal != signals.SIGBUS:
        return None
    full = [disk for disk in known.seen.disks if disk.free < _FULL]
    places = ", ".join(f"{size(each.free)} of {size(each.size)} ({each.places})" for each in full)
    return Cause(DISK_FULL, f"free when it had ended: {places}") if full else None


def _out_of_memory(known: Known) -> Cause | None:
    seen, victim, kills = known.seen, known.victim, known.seen.oom_kills
    is_unseen = victim.signal is None and victim.run is not None and victim.run.end is None
    if known.shortage is not None or (victim.signal != signals.SIGKILL and not is_unseen):
        return None
    if kills is not None and kills.kills:
        told = f"{counted(kills.kills, 'out-of-memory kill')}: oom_kill in {kills.counter}"
        if not kills.is_of_host:
            group = " (memory.oom.group: every process of the group)" if kills.of_groups else ""
            return Cause(None, f"the kernel has counted {told}{group}", "known")
        evidence = f"the kernel has counted {told}, which counts all processes of the machine"
        return Cause(None, evidence, None if is_unseen else "guessed")
    if known.memory is None or not seen.limits.memory or is_unseen:
        return None
    share = f"memory was at {share_text(known.memory / seen.limits.memory)} of the limit"
    if kills is not None:  # whoever sent it: earlyoom and batch systems do so for memory too
        return Cause(None, f"{share}, and the kernel has counted no out-of-memory kill")
    if known.memory >= _AT_THE_LIMIT * seen.limits.memory:
        return Cause(None, f"{share}, and no counter of the kernel could be read", "guessed")
    return None


def _shortage(known: Known) -> Cause | None:
    return Cause(OUT_OF[known.shortage], None) if known.shortage is not None else None


_ROWS: Final[tuple[Callable[[Known], Cause | None], ...]] = (
    _cpu_time,
    _file_size,
    _disk,
    _address_space,
    _out_of_memory,
    _shortage,
)
"""The first that finds something counts."""
