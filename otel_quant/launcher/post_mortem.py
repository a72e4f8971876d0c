"""Decides how a program has ended: from what the launcher has seen, and what the recording holds.

First which process was killed or failed first, and what it was doing; then why. `views/answer.py` words it.
"""

from __future__ import annotations

import dataclasses
import signal
import statistics
from itertools import combinations
from pathlib import Path
from typing import Final

from otel_quant.base import signals
from otel_quant.base.fault_boundary import FAULTS
from otel_quant.launcher.advice import Situation, Where, advice_for, shortage_in
from otel_quant.launcher.causes import Known, cause_of
from otel_quant.launcher.observer import LastSeen, Observation, with_mark
from otel_quant.launcher.victim import Victim, find_victim
from otel_quant.recordings import summary
from otel_quant.recordings.model import Ending, RecordedStep, Recording, steps_in
from otel_quant.recordings.reader import read
from otel_quant.recordings.summary import Limit
from otel_quant.schema import semconv, series
from otel_quant.schema.units import duration_text
from otel_quant.views.answer import forecast_of

_SOON: Final = 1.0
"""Seconds after a process was killed or failed within which the program has ended because of it. Memory
that a program reaches later, such as a launcher of ranks that cleans up, is not what was held then."""

_FEWEST_SAMPLES: Final = 5
_MOST_POINTS: Final = 60
"""Points of a calibration's progress from which its growth is taken."""

_SILENT: Final = 5.0
"""Seconds without a reading that are worth telling: there is one each second, on a busy machine two."""


def ending_in(folder: Path, began_ns: int, seen: Observation) -> Ending:
    """Returns how the program has ended whose recording is in a folder."""
    recording = Recording(path=folder, began_ns=began_ns, state="lost", duration=0.0)
    with FAULTS.kept_in("recording of the end"):
        if seen.exit_code == 0:  # most programs: of their steps, which may be many, none is needed
            recording = read(folder, in_brief=True)
            if find_victim(seen, recording) is None:
                return plain_ending(seen, recording.began_ns)
        recording = read(folder)
    return ending_of(seen, recording)


def ending_of(seen: Observation, recording: Recording) -> Ending:
    """Returns how the program has ended."""
    plain = plain_ending(seen, recording.began_ns)
    victim = find_victim(seen, recording)
    if victim is None:
        return plain
    step = next((each for each in reversed(victim.steps) if each.samples is not None), None)
    error, message = _error_of(victim)
    shortage = shortage_in(error, message)
    last = _last_of(victim, seen)
    memory = _memory_then(seen, victim, last, recording)
    told = "" if error is None else f"{error}: {message}" if message else error
    cause = cause_of(Known(seen, victim, memory, told, shortage))
    limit, source = _limit(seen, victim, shortage, recording)
    growth = _forecast(victim, step, semconv.FORECAST_MEMORY_PER_SAMPLE)
    if growth is None and step is not None:
        growth = _growth(step, memory, recording)
    leak = _leak(victim, recording)
    situation = Situation(
        step=step or (victim.steps[-1] if victim.steps else None),
        run=victim.run,
        where=shortage or ("host" if cause.out_of_memory is not None else None),
        memory=memory,
        limit=limit,
        limit_source=source,
        growth=growth,
        leak=leak,
        forecast=_forecast(victim, step, semconv.FORECAST_MEMORY),
        gpus=seen.gpus,
    )
    return dataclasses.replace(
        plain,
        cause=cause.name,
        out_of_memory=cause.out_of_memory,
        evidence=cause.evidence,
        process=_process(victim) if victim.pid != seen.pid else None,
        process_signal=_name(victim.signal) if victim.pid != seen.pid else None,
        error=error,
        where=_where(victim, step),
        open_steps=tuple(each.name for each in victim.steps),
        memory=memory,
        memory_limit=limit,
        memory_limit_source=source,
        memory_per_sample=growth,
        memory_per_second=leak,
        memory_of_others=seen.memory_of_others,
        processes=last.processes if last is not None else (),
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


def _where(victim: Victim, step: RecordedStep | None) -> str | None:
    if not victim.steps:
        return None
    innermost = victim.steps[-1]
    line = _line(victim, innermost)
    if step is None:
        return f"{innermost.name}{line}"
    total = "" if step.expected_samples is None else f" of {step.expected_samples}"
    sample = f"{step.name}, sample {step.samples}{total}"
    return f"{sample}{'' if step is innermost else f', in {innermost.name}'}{line}"


def _line(victim: Victim, step: RecordedStep) -> str:
    if step.line is None:
        return ""
    last = victim.run.last if victim.run is not None else None
    silent = victim.time - last.time if last is not None and step.end is None else 0.0
    # While a C function holds the GIL, or the process is stopped, no sample can be taken.
    before = f", not seen for {duration_text(silent)}" if silent > _SILENT else ""
    return f", at {step.line.short}{before}"


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
        # The exception has freed it since.
        held = summary.Windows(recording, series.MEMORY).highest(
            victim.time - 1.0, victim.time + 0.1
        )
        return None if held is None else int(held)
    ended = (seen.time_ns - recording.began_ns) / 1e9
    if seen.mark is not None and ended - victim.time < _SOON:
        return with_mark(last, seen.mark)
    if last is None:
        return None
    return last.highest if seen.oom_kills is not None and seen.oom_kills.kills else last.memory


def _limit(
    seen: Observation, victim: Victim, shortage: Where | None, recording: Recording
) -> tuple[int | None, str | None]:
    """Returns the limit in force and its source; of a GPU that was full, the GPU's."""
    if shortage == "gpu":
        full = max((gpu for gpu in seen.gpus if gpu.limit), key=lambda gpu: gpu.used, default=None)
        return (full.limit, f"gpu {full.index}") if full is not None else (None, None)
    use = seen.uses.get(victim.pid or seen.pid)
    is_short = shortage is not None or victim.signal == signals.SIGABRT  # of addresses, it may be
    known = [
        Limit(value, source)
        for value, source in (
            (seen.limits.memory, seen.limits.memory_source),
            (use.address_space if use is not None and is_short else None, "RLIMIT_AS"),
            summary.limit(recording) or (None, None),
        )
        if value is not None
    ]
    smallest = min(known, key=lambda each: each.value, default=None)
    return (None, None) if smallest is None else (int(smallest.value), smallest.source)


def _growth(step: RecordedStep, memory: int | None, recording: Recording) -> int | None:
    """Returns the growth of memory with each sample: the median slope between any two readings."""
    curve, samples = summary.Windows(recording, series.MEMORY), step.samples or 0
    if memory is None or samples < _FEWEST_SAMPLES:
        return None
    # The newest number of samples belongs to the end, whenever the figures beside it were read.
    known = [(time, count) for time, count in step.progress if count < samples]
    every = max(1, -(-len(known) // _MOST_POINTS))
    points = [
        (count, level)
        for time, count in ((step.start, 0), *known[::every])
        if (level := curve.at(time)) is not None
    ]
    slopes = [
        (after - before) / (later - earlier)
        for (earlier, before), (later, after) in combinations([*points, (samples, memory)], 2)
        if later > earlier
    ]
    return round(statistics.median(slopes)) if slopes else None


def _leak(victim: Victim, recording: Recording) -> int | None:
    """Returns the growth of memory each second that went on until the end of the innermost step."""
    for each in reversed(steps_in(recording)):
        if victim.steps and each.step is victim.steps[-1]:
            found = summary.growing(recording, each)
            return None if found is None else round(found.per_second)
    return None


def _forecast(victim: Victim, step: RecordedStep | None, name: str) -> int | None:
    """Returns a figure in bytes as the newest forecast of the process has it."""
    if victim.run is None or step is None:
        return None
    found = forecast_of(victim.run, step).get(name)
    return found if isinstance(found, int) else None
