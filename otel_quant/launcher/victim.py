"""Finds the process of a program that was killed or failed first, and what it was doing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from otel_quant.base import signals
from otel_quant.launcher.advice import shortage_in
from otel_quant.launcher.observer import Observation
from otel_quant.recordings.model import RecordedRun, RecordedStep, Recording

_ENDS_WORKERS: Final = frozenset({signals.SIGTERM, signals.SIGINT, signals.SIGHUP})
"""Signals that a program sends to its own workers when it is done with them."""

_BY_SHELL: Final = 128
"""A shell exits with this and the number of the signal that ended its last command."""

_TOLD_BY_SHELLS: Final = frozenset(
    {
        signals.SIGKILL, signals.SIGABRT, signals.SIGSEGV, signals.SIGBUS, signals.SIGXCPU, signals.SIGXFSZ,
    }
)  # fmt: skip
"""Signals that nobody else than such a shell means by its exit code."""


@dataclass(frozen=True, slots=True)
class Victim:
    """A process that was killed or failed."""

    pid: int | None  # The process; None if it is not known
    signal: int | None  # Number of the signal that ended it; None if none did, or it is not known
    run: RecordedRun | None  # Its run; None if it has recorded none
    # Steps that were open then, outermost first; of a run that failed, those that the exception
    # has ended
    steps: tuple[RecordedStep, ...]
    time: float  # When, in seconds since the recording began


def find_victim(seen: Observation, recording: Recording) -> Victim | None:
    """Returns the process that was killed or failed; None if none was.

    Of several the first counts: the others end because of it.
    """
    end = (seen.time_ns - recording.began_ns) / 1e9
    own = _newest([run for run in recording.runs if run.pid == seen.pid])
    if seen.signal is not None:
        # Workers of a program that is killed may be open too, but nothing has happened to them before.
        run = own or _newest([run for run in recording.runs if _open(run)])
        # Python ends its steps by KeyboardInterrupt before Ctrl-C ends it.
        return Victim(seen.pid, seen.signal, run, _open(run) or _failed(run), end)
    # Of several the others may have been ended because of the first.
    victims = sorted(
        _killed_or_failed(seen, recording, end),
        key=lambda victim: (victim.signal in _ENDS_WORKERS, victim.time),
    )
    if victims:
        return victims[0]
    if not seen.exit_code:
        return None
    number = _signal_of_child(seen)
    return Victim(seen.pid if number is None else None, number, own, (), end)


def _killed_or_failed(seen: Observation, recording: Recording, end: float) -> Iterator[Victim]:
    for run in recording.runs:
        steps = _open(run)
        if run.end is None:
            if run.state == "running":
                continue
            number = seen.signals.get(run.pid or 0) or _signal_of_child(seen)
            # Without steps it was waiting for work; with exit code 0 it may have been ended on purpose.
            if steps and (seen.exit_code or _is_kill(number, seen)):
                time = _last_alive(run.pid or 0, seen, recording, end)
                yield Victim(run.pid, number, run, steps, time)
        elif seen.exit_code and (failed := _failed(run)):
            yield Victim(run.pid, None, run, failed, failed[-1].end or run.end)
    for pid, number in seen.signals.items():
        if pid not in {run.pid for run in recording.runs} and _is_kill(number, seen):
            last = seen.last_seen.get(pid)
            if last is not None:  # it was large
                yield Victim(pid, number, None, (), (last.time_ns - recording.began_ns) / 1e9)


def _last_alive(pid: int, seen: Observation, recording: Recording, end: float) -> float:
    """Returns the last moment at which a process is known to have lived.

    Several may have ended between two readings; then the times of what they wrote last differ.
    """
    last = seen.last_seen.get(pid)
    if last is None:
        return end
    return (max(last.time_ns, seen.last_words_ns.get(pid, 0)) - recording.began_ns) / 1e9


def _is_kill(number: int | None, seen: Observation) -> bool:
    if number is not None:
        return number not in _ENDS_WORKERS
    kills = seen.oom_kills
    return kills is not None and kills.kills > 0 and not kills.is_of_host


def _signal_of_child(seen: Observation) -> int | None:
    """Returns the signal that a shell, or a program that does the same, reports in its exit code."""
    number = (seen.exit_code or 0) - _BY_SHELL
    return number if number in _TOLD_BY_SHELLS else None


def _newest(runs: Sequence[RecordedRun]) -> RecordedRun | None:
    return max(runs, key=lambda run: (bool(_open(run)), run.start), default=None)


def _open(run: RecordedRun | None) -> tuple[RecordedStep, ...]:
    if run is None or run.end is not None:
        return ()
    return tuple(step for step in run.steps if step.end is None)


def _failed(run: RecordedRun | None) -> tuple[RecordedStep, ...]:
    """Returns the steps that one exception has ended, outermost first: those that ended last.

    A program may have survived an exception of an earlier step.
    """
    if run is None or run.end is None:
        return ()
    # Where there is no memory, to report one exception may raise another.
    of_memory = run.error is None or shortage_in(run.error, run.error_message) is not None
    failed = [
        step
        for step in run.steps
        if step.error is not None
        and (step.error == run.error or (of_memory and shortage_in(step.error, step.error_message)))
    ]
    found: list[RecordedStep] = []
    while failed:
        found.append(max(failed, key=lambda step: (step.end or 0.0, -step.index)))
        failed = [step for step in failed if step.parent == found[-1].index]
    return tuple(found)
