"""Decides how a program has ended: from what the launcher has seen, and what the recording holds.

First which process was killed or failed first, and what it was doing; then why. `views/ending.py` words it.
"""

from __future__ import annotations

import dataclasses
import signal
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Final

from otel_quant.base.fault_boundary import FAULTS
from otel_quant.export.recording.curve import Level
from otel_quant.launcher.advice import Situation, Where, advice_for, shortage_in
from otel_quant.launcher.observer import LastSeen, Observation, with_mark
from otel_quant.recordings import summary
from otel_quant.recordings.model import Certainty, Ending, RecordedRun, RecordedStep, Recording
from otel_quant.recordings.reader import read
from otel_quant.recordings.summary import Limit
from otel_quant.schema import semconv, series
from otel_quant.schema.units import size
from otel_quant.views.ending import forecast_of

_ENDS_WORKERS: Final = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP})
"""Signals that a program sends to its own workers when it is done with them."""

_BY_SHELL: Final = 128
"""A shell exits with this and the number of the signal that ended its last command."""


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
    return bool(seen.oom_kills) if number is None else number not in _ENDS_WORKERS


def _signal_of_child(seen: Observation) -> int | None:
    """Returns the signal that a shell, or a program that does the same, reports in its exit code."""
    number = (seen.exit_code or 0) - _BY_SHELL
    return number if number in (signal.SIGKILL, signal.SIGABRT, signal.SIGSEGV) else None


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


_AT_THE_LIMIT: Final = 0.95
"""Part of the limit at which memory counts as used up: the kernel's own share is in it as well."""

_SOON: Final = 1.0
"""Seconds after a process was killed or failed within which the program has ended because of it. Memory
that a program reaches later, such as a launcher of ranks that cleans up, is not what was held then."""

_FEWEST_SAMPLES: Final = 5
_MOST_POINTS: Final = 60
"""Points of a calibration's progress from which its growth is taken."""

_WORTH_NAMING: Final = 1_000_000
"""Bytes on disk."""

_RLIMIT: Final = "RLIMIT_AS"


def ending_in(folder: Path, began_ns: int, seen: Observation) -> Ending:
    """Returns how the program has ended whose recording is in a folder."""
    with FAULTS.kept_in("observer, end"):
        if seen.exit_code == 0:  # most programs: of their steps, which may be many, none is needed
            brief = read(folder, in_brief=True)
            if find_victim(seen, brief) is None:
                return plain_ending(seen, brief.began_ns)
        return ending_of(seen, read(folder))
    return plain_ending(seen, began_ns)


def ending_of(seen: Observation, recording: Recording) -> Ending:
    """Returns how the program has ended."""
    plain = plain_ending(seen, recording.began_ns)
    victim = find_victim(seen, recording)
    if victim is None:
        return plain
    step = _step_with_samples(victim)
    error, message = _error_of(victim)
    shortage = shortage_in(error, message)
    last = _last_of(victim, seen)
    memory = _memory_then(seen, victim, last, recording)
    certainty, evidence = _cause(seen, victim, memory, shortage)
    limit, source = _limit(seen, shortage, recording)
    growth = _forecast(victim, step, semconv.FORECAST_MEMORY_PER_SAMPLE)
    if growth is None and step is not None:
        growth = _growth(step, _first(step, victim, seen, recording), memory, recording)
    situation = Situation(
        step=step or (victim.steps[-1] if victim.steps else None),
        run=victim.run,
        where=shortage or ("host" if certainty is not None else None),
        memory=memory,
        limit=limit,
        limit_source=source,
        growth=growth,
        forecast=_forecast(victim, step, semconv.FORECAST_MEMORY),
        gpus=seen.gpus,
    )
    return dataclasses.replace(
        plain,
        out_of_memory=certainty,
        evidence=evidence if error is None else f"{error}: {message}" if message else error,
        process=_process(victim) if victim.pid != seen.pid else None,
        process_signal=_name(victim.signal) if victim.pid != seen.pid else None,
        error=error,
        where=_where(victim, step),
        open_steps=tuple(each.name for each in victim.steps),
        memory=memory,
        memory_limit=limit,
        memory_limit_source=source,
        memory_per_sample=growth,
        processes=last.processes if last is not None else (),
        disk=_disk(seen, victim, recording),
        advice=advice_for(situation),
    )


def plain_ending(seen: Observation, began_ns: int) -> Ending:
    """Returns what is known without the recording."""
    return Ending(
        time=max(0.0, (seen.time_ns - began_ns) / 1e9),
        exit_code=seen.exit_code,
        signal=_name(seen.signal),
        memory_limit=seen.limits.memory,
        memory_limit_source=seen.limits.memory_source,
    )


def _name(number: int | None) -> str | None:
    if number is None:
        return None
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"  # a real-time signal


def _last_of(victim: Victim, seen: Observation) -> LastSeen | None:
    """Returns the last moment of a process; of one that is not known, the one that held most."""
    if victim.pid is None:
        return max(seen.last_seen.values(), key=lambda last: last.memory, default=None)
    return seen.last_seen.get(victim.pid) or seen.last_seen.get(seen.pid)


def _process(victim: Victim) -> str:
    process = "a child process" if victim.pid is None else f"process {victim.pid}"
    rank = victim.run.rank if victim.run is not None else None
    return process if rank is None else f"rank {rank} ({process})"


def _step_with_samples(victim: Victim) -> RecordedStep | None:
    return next((step for step in reversed(victim.steps) if step.samples is not None), None)


def _where(victim: Victim, step: RecordedStep | None) -> str | None:
    if not victim.steps:
        return None
    innermost = victim.steps[-1]
    if step is None:
        return innermost.name
    total = "" if step.expected_samples is None else f" of {step.expected_samples}"
    sample = f"{step.name}, sample {step.samples}{total}"
    return sample if step is innermost else f"{sample}, in {innermost.name}"


def _error_of(victim: Victim) -> tuple[str | None, str | None]:
    if victim.run is None or victim.run.end is None:
        return None, None
    if victim.steps:
        return victim.steps[-1].error, victim.steps[-1].error_message
    return victim.run.error, victim.run.error_message


def _memory_then(
    seen: Observation, victim: Victim, last: LastSeen | None, recording: Recording
) -> int | None:
    """Returns RSS of the process tree when it happened."""
    if victim.run is not None and victim.run.end is not None:
        return _highest_before(victim.time, recording)  # the exception has freed it since
    ended = (seen.time_ns - recording.began_ns) / 1e9
    if seen.mark is not None and ended - victim.time < _SOON:
        return with_mark(last, seen.mark)
    if last is None:
        return None
    return last.highest if seen.oom_kills else last.memory


def _highest_before(time: float, recording: Recording) -> int | None:
    levels = [level for at, level in _memory_curve(recording) if time - 1.0 <= at <= time + 0.1]
    return max((int(level.highest) for level in levels), default=None)


def _cause(
    seen: Observation, victim: Victim, memory: int | None, shortage: Where | None
) -> tuple[Certainty | None, str | None]:
    """Returns whether the kernel's out-of-memory killer did it, and what says so."""
    number = victim.signal
    if shortage is not None:
        return None, None
    may_be_kernel = number == signal.SIGKILL or (number is None and victim.run is not None
                                                 and victim.run.end is None)  # fmt: skip
    if may_be_kernel and seen.oom_kills:
        kills = f"{seen.oom_kills} out-of-memory kill{'s' * (seen.oom_kills > 1)}"
        return "known", f"the kernel has counted {kills}: oom_kill in {seen.oom_counter}"
    limit = seen.limits.memory
    if number == signal.SIGKILL and limit:
        share = (memory or 0) / limit
        available = seen.available if seen.limits.memory_source == "physical" else None
        if seen.oom_kills == 0:  # whoever sent it: earlyoom and batch systems do so for memory too
            evidence = f"memory was at {share:.0%} of the limit, and the kernel has counted no out-of-memory kill"
            return None, evidence if memory is not None else None
        if share >= _AT_THE_LIMIT or (
            available is not None and available < limit * (1 - _AT_THE_LIMIT)
        ):
            return (
                "guessed",
                f"SIGKILL when memory was at {share:.0%} of the limit; no counter of the kernel tells who sent it",
            )
    if number == signal.SIGABRT and seen.address_space is not None:
        return (
            None,
            f"SIGABRT with an address space limited to {size(seen.address_space)} (ulimit -v): C++ code ends like this when it gets no memory",
        )
    return None, None


def _limit(
    seen: Observation, shortage: Where | None, recording: Recording
) -> tuple[int | None, str | None]:
    """Returns the limit in force and its source; of a GPU that was full, the GPU's."""
    if shortage == "gpu":
        full = max((gpu for gpu in seen.gpus if gpu.limit), key=lambda gpu: gpu.used, default=None)
        return (full.limit, f"gpu {full.index}") if full is not None else (None, None)
    known = [
        Limit(value, source)
        for value, source in (
            (seen.limits.memory, seen.limits.memory_source),
            (seen.address_space, _RLIMIT),
            summary.limit(recording) or (None, None),
        )
        if value is not None
    ]
    smallest = min(known, key=lambda each: each.value, default=None)
    return (None, None) if smallest is None else (int(smallest.value), smallest.source)


def _first(
    step: RecordedStep, victim: Victim, seen: Observation, recording: Recording
) -> int | None:
    """Returns RSS at the beginning of a step, if its process is the whole program; else None."""
    run = victim.run
    if run is None or victim.pid != seen.pid or len(recording.runs) > 1:
        return None
    found = (each for each in run.checkpoints if (each.step, each.time) == (step.index, step.start))
    memory = next((each.attributes.get(semconv.CHECKPOINT_MEMORY) for each in found), None)
    return memory if isinstance(memory, int) else None


def _growth(
    step: RecordedStep, first: int | None, memory: int | None, recording: Recording
) -> int | None:
    """Returns the growth of memory with each sample: the median slope between any two readings."""
    curve = _memory_curve(recording)
    samples = step.samples or 0
    if not curve or memory is None or samples < _FEWEST_SAMPLES:
        return None
    # The newest number of samples is that of the end, whenever the figures beside it were read.
    known = [(time, count) for time, count in step.progress if count < samples]
    every = max(1, -(-len(known) // _MOST_POINTS))
    points: list[tuple[int, float]] = []
    position = 0
    for time, count in ((step.start, 0), *known[::every]):
        while position + 1 < len(curve) and curve[position + 1][0] <= time:
            position += 1
        # The curve's reading at the beginning may be one of 50 ms later.
        at_start = first if count == 0 and first is not None else curve[position][1].last
        points.append((count, float(at_start)))
    points.append((samples, float(memory)))
    slopes = [
        (after[1] - before[1]) / (after[0] - before[0])
        for before, after in combinations(points, 2)
        if after[0] > before[0]
    ]
    return round(statistics.median(slopes))


def _forecast(victim: Victim, step: RecordedStep | None, name: str) -> int | None:
    """Returns a figure in bytes as the newest forecast of the process has it."""
    if victim.run is None or step is None:
        return None
    found = forecast_of(victim.run, step).get(name)
    return found if isinstance(found, int) else None


def _memory_curve(recording: Recording) -> list[tuple[float, Level]]:
    """Returns time in seconds since the recording began, and memory, of each bucket."""
    curve = recording.curves.get("launcher")
    if curve is None:
        return []
    began = (curve.began_ns - recording.began_ns) / 1e9
    length = curve.curve.length / 1000
    return [
        (began + bucket.position * length, bucket.levels[series.MEMORY])
        for bucket in curve.curve.buckets.values()
        if series.MEMORY in bucket.levels
    ]


def _disk(seen: Observation, victim: Victim, recording: Recording) -> tuple[tuple[str, int], ...]:
    found: dict[str, int | None] = {
        "written by the program": seen.written,
        "cache directory": _cache(victim.run, recording),
    }
    known = [(name, taken) for name, taken in found.items() if taken and taken >= _WORTH_NAMING]
    return tuple(sorted(known, key=lambda each: -each[1]))


def _cache(run: RecordedRun | None, recording: Recording) -> int | None:
    known = summary.peak_of_run(recording, run, summary.CACHE_PEAK) if run is not None else None
    return None if known is None else round(known.value)
