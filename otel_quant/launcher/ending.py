"""What the launcher itself writes into a recording, from the program's start to how it has ended, and sends of that.

How it has ended: first which process was killed or failed first, and what it was doing; then why. `views/answer.py`
words it. A process of its own sends the end of a program that was killed to where its telemetry goes: it has the SDK as
the environment configures it, and can be stopped when the time is over.
"""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from otel_quant.base.destinations import exporter_variables, sends
from otel_quant.base.environment import settings_from
from otel_quant.base.fault_boundary import FAULTS
from otel_quant.base.log import LOG
from otel_quant.base.secrets import OPTIONS, masked
from otel_quant.capture.recorder.run_info import git_head, shown_command
from otel_quant.diagnosis.growth import median
from otel_quant.format import series
from otel_quant.format.event_file import complete_manifest, create_manifest, processes_in
from otel_quant.launcher import causes
from otel_quant.launcher.known_errors import advice_on
from otel_quant.launcher.observer import INTERVAL, LastSeen, Observation, Observer
from otel_quant.launcher.program import signal_name
from otel_quant.launcher.start import TRACEPARENT, noted, notes_in, now_ns, why_no_step
from otel_quant.launcher.surroundings import kills_so_far
from otel_quant.recordings import summary
from otel_quant.recordings.continued import found_beside, lost_by_restart
from otel_quant.recordings.failures import has_exit_code
from otel_quant.recordings.model import (
    Advice,
    Ending,
    RecordedStep,
    Recording,
    forecast_of,
    steps_in,
)
from otel_quant.recordings.reader import grown_of, read
from otel_quant.schema import semconv
from otel_quant.schema.readings import UNITS
from otel_quant.schema.units import duration_text

if TYPE_CHECKING:
    from otel_quant.launcher.program import Ended

# --- how a program has ended ---------------------------------------------------------------

_SOON: Final = 1.0
"""Seconds after a process was killed or failed within which the program has ended because of it. Memory
that a program reaches later, such as a launcher of ranks that cleans up, is not what was held then."""

_FEWEST: Final = 5
_FEWEST_POINTS: Final = 3
_LEAST_GROWN: Final = 0.05  # Share of memory that has grown with samples, from which on it is told
_MOST_POINTS: Final = 60  # Points of a step's progress from which its growth is taken
_SILENT: Final = 5.0
"""Seconds without a reading that are worth telling: there is one each second, on a busy machine two."""


def ending_in(folder: Path, began_ns: int, seen: Observation) -> Ending:
    """Returns how the program has ended whose recording is in a folder."""
    recording = Recording(path=folder, began_ns=began_ns, state="lost", duration=0.0)
    with FAULTS.kept_in("recording of the end"):
        if seen.exit_code == 0:  # most programs: of their steps, which may be many, none is needed
            recording = read(folder, in_brief=True)
            if causes.find_victim(seen, recording) is None:
                return plain_ending(seen, recording.began_ns)
        recording = read(folder)
    return ending_of(seen, recording)


def ending_of(seen: Observation, recording: Recording) -> Ending:
    """Returns how the program has ended."""
    plain = plain_ending(seen, recording.began_ns)
    victim = causes.find_victim(seen, recording)
    if victim is None:
        return plain
    step = next((each for each in reversed(victim.steps) if each.counts), None)
    unit = (step and step.counts.newest) or "sample"
    error, message = _error_of(victim)
    shortage = causes.shortage_in(error, message)
    last = _last_of(victim, seen)
    memory = _memory_then(seen, victim, last, recording)
    told = ": ".join(filter(None, (error, message)))
    known = causes.Known(seen, victim, memory, told, shortage)
    cause = causes.cause_of(known)
    limit, source = _limit(seen, victim, shortage, recording)
    growth = _forecast(victim, step, UNITS[unit].growth["memory"])
    if growth is None and step is not None:
        growth = _growth(step, memory, recording)
    leak = _leak(victim, recording)
    situation = causes.Situation(
        step=step or next(reversed(victim.steps), causes.NO_STEP),
        run=victim.run.attributes if victim.run is not None else {},
        where=shortage or ("host" if cause.out_of_memory is not None else None), memory=memory or 0,
        limit=limit or 0, limit_source=source, growth=growth or 0, leak=leak or 0,
        forecast=_forecast(victim, step, semconv.FORECAST_MEMORY), gpus=seen.gpus,
        recording=os.path.relpath(recording.path),
    )  # fmt: skip
    grown: dict[str, Any] = {f"memory_per_{unit}": growth}
    has_freed = (
        victim.run is not None and victim.run.end is not None
    )  # what it held, by an exception
    plain = dataclasses.replace(
        plain, cause=cause.name, out_of_memory=cause.out_of_memory, evidence=cause.evidence,
        error=error, where=_where(victim, step),
        open_steps=tuple(each.name for each in victim.steps), memory=memory, memory_limit=limit,
        memory_limit_source=source, memory_per_second=leak, memory_of_others=seen.memory_of_others,
        processes=last.processes if last is not None and not has_freed else (),
        advice=_advice(known, cause, situation, recording), **grown, **_left(recording, plain.time),
    )  # fmt: skip
    if victim.pid == seen.pid:
        return plain
    return dataclasses.replace(plain, process=_process(victim), process_signal=victim.signal)


def plain_ending(seen: Observation, began_ns: int) -> Ending:
    """Returns what is known without the recording."""
    return Ending(
        time=max(0.0, (seen.time_ns - began_ns) / 1e9),
        exit_code=seen.exit_code,
        signal=seen.signal,
        memory_limit=seen.limits.memory,
        memory_limit_source=seen.limits.memory_source,
    )


_OURS: Final = (" otel-quant", " otel_quant")
"""Ends the names of processes that run a command of ours."""


def failed_in(folder: Path, seen: Observation) -> list[dict[str, object]]:
    """Returns the child processes that failed, of those with a run and of all Pythons.

    What else a script calls may exit with 1 and mean no more than "no", as `grep`, `diff` and our commands do.
    """
    recorded = {int(process.partition("-")[0]) for process in processes_in(folder)}
    failed = []
    for each in seen.exits.values():
        is_python = each.pid in recorded or each.name.startswith("python")
        is_ended = seen.signals.get(each.pid) in causes.ENDS_WORKERS
        if is_python and not is_ended and not each.name.endswith(_OURS):
            how = {"exit_code": each.code} if each.code > 0 else {"signal": signal_name(-each.code)}
            told = {"pid": each.pid, "name": each.name, "began": each.began, "ended": each.ended}
            failed.append({**told, **how, **each.rank})
    return failed


def _last_of(victim: causes.Victim, seen: Observation) -> LastSeen | None:
    """Returns the last moment of a process; of one that is not known, the one that held most."""
    if victim.pid is None:
        return max(seen.last_seen.values(), key=lambda last: last.memory, default=None)
    return seen.last_seen.get(victim.pid) or seen.last_seen.get(seen.pid)


def _process(victim: causes.Victim) -> str:
    process = "a child process" if victim.pid is None else f"process {victim.pid}"
    rank = victim.run.rank if victim.run is not None else None
    return process if rank is None else f"rank {rank} ({process})"


def _where(victim: causes.Victim, step: RecordedStep | None) -> str | None:
    if not victim.steps:
        return None
    innermost = victim.steps[-1]
    line = _line(victim, innermost)
    if step is None:
        return f"{innermost.name}{line}"
    inner = "" if step is innermost else f", in {innermost.name}"
    return f"{step.name}, {step.counts}{inner}{line}"


def _line(victim: causes.Victim, step: RecordedStep) -> str:
    last = victim.run.last if victim.run is not None else None
    since = max(step.start, last.time if last is not None else 0.0)
    silent = victim.time - since if step.end is None else 0.0
    # While a C function holds the GIL, or the process is stopped, no sample can be taken.
    before = f", not seen for {duration_text(silent)}" if silent > _SILENT else ""
    return before if step.line is None else f", at {step.line.words}{before}"


def _error_of(victim: causes.Victim) -> tuple[str | None, str | None]:
    if victim.run is None or victim.run.end is None:
        return None, None
    if victim.steps:
        return victim.steps[-1].error, victim.steps[-1].error_message
    if has_exit_code(victim.run.error) or victim.run.state == "killed":
        return None, None
    return victim.run.error, victim.run.error_message


def _memory_then(
    seen: Observation, victim: causes.Victim, last: LastSeen | None, recording: Recording
) -> int | None:
    """Returns RSS of the process tree when it happened."""
    if victim.run is not None and victim.run.end is not None:
        # The exception has freed it since.
        read = summary.Windows(recording, series.MEMORY).read(victim.time - 1.0, victim.time + 0.1)
        return max((int(each.highest) for each in read), default=None)
    ended = (seen.time_ns - recording.began_ns) / 1e9
    if seen.mark is not None and ended - victim.time < _SOON:
        own = last.processes[0][1] if last is not None and last.processes else 0
        return seen.mark if last is None else last.memory + max(0, seen.mark - own)
    if last is None:
        return None
    return last.highest if seen.oom_kills is not None and seen.oom_kills.kills else last.memory


def _limit(
    seen: Observation, victim: causes.Victim, shortage: causes.Where | None, recording: Recording
) -> tuple[int | None, str | None]:
    """Returns the limit in force and its source; of a GPU that was full, the GPU's."""
    if shortage == "gpu":
        full = max((gpu for gpu in seen.gpus if gpu.limit), key=lambda gpu: gpu.used, default=None)
        return (full.limit, f"gpu {full.index}") if full is not None else (None, None)
    use = seen.uses.get(victim.pid or seen.pid)
    is_short = shortage is not None or victim.signal == "SIGABRT"  # of addresses, it may be
    found = (
        (seen.limits.memory, seen.limits.memory_source),
        (use.address_space if use is not None and is_short else None, "RLIMIT_AS"),
        summary.limit(recording) or (None, None),
    )
    known = [(int(value), source) for value, source in found if value is not None]
    return min(known, key=lambda each: each[0], default=(None, None))


def _growth(step: RecordedStep, memory: int | None, recording: Recording) -> int | None:
    """Returns the growth of memory with each sample or layer, if it grew: the median slope between any two readings."""
    curve, done = summary.Windows(recording, series.MEMORY), step.counts.current.done
    if memory is None or done < _FEWEST:
        return None
    # The newest number belongs to the end, whenever the figures beside it were read.
    known = [(time, count) for time, count in step.progress if count < done]
    if not known or known[0][1]:
        known.insert(0, (step.start, 0))
    every = max(1, -(-len(known) // _MOST_POINTS))
    levels = ((count, curve.at(time)) for time, count in known[::every])
    points = [(count, level) for count, level in levels if level is not None]
    # What the first sample brings, such as the buffers of a session, stays: the others do not bring it.
    points = points[len(points) > _FEWEST_POINTS :]
    if len(points) <= _FEWEST_POINTS:  # else not what a sample had taken that was not counted yet
        points.append((done, memory))
    slopes = [
        (after - before) / (later - earlier)
        for (earlier, before), (later, after) in combinations(points, 2)
        if later > earlier
    ]
    slope = median(slopes) if slopes else 0.0
    return round(slope) if slope * done > _LEAST_GROWN * memory else None


def _advice(
    known: causes.Known, cause: causes.Cause, situation: causes.Situation, recording: Recording
) -> tuple[Advice, ...]:
    is_full = cause.name in (causes.DISK_FULL, causes.SHARED_MEMORY_FULL)
    full = causes.full_disks(known) if is_full else ()
    if situation.where == "host":
        after, grown = _after_the_last(situation.step), grown_of(recording, situation.step)
        situation = dataclasses.replace(situation, after=after, grown=grown)
    of_memory = causes.advice_for(situation)
    return (*of_memory, *advice_on(known.error, known.model, full))


def _left(recording: Recording, ended: float) -> dict[str, Any]:
    """Returns what an ending loses, and what the same program goes on from."""
    lost, saved = lost_by_restart(recording, ended)
    found = {"saved": str(saved), "resume": saved.place} if saved is not None else {}
    return {"lost": round(lost, 1), **found}


def _after_the_last(step: RecordedStep) -> float | None:
    """Returns what a method adds after the last sample, by its largest tensor, as a multiple of the growth until then."""
    from otel_quant.cost import CostError  # only now: few programs end for want of memory
    from otel_quant.cost.estimate import method_of
    from otel_quant.cost.estimate import read as read_model

    known = method_of(step.attributes)
    if known is None or known.kept is not None:
        return 0.0
    try:
        model = read_model(str(step.attributes[semconv.INPUT_PATH]))
    except (LookupError, CostError):
        return None
    sizes = model.calibrated_sizes(known.library)
    return known.tensor_copies * max(sizes) / sum(sizes) if sizes else None


def _leak(victim: causes.Victim, recording: Recording) -> int | None:
    """Returns the growth of memory each second that went on until the end of the innermost step."""
    for each in reversed(steps_in(recording)):
        if victim.steps and each.step is victim.steps[-1]:
            return round(summary.growing(recording, each) / (each.duration or 1)) or None
    return None


def _forecast(victim: causes.Victim, step: RecordedStep | None, name: str) -> int | None:
    """Returns a figure in bytes as the newest forecast of the process has it."""
    if victim.run is None or step is None:
        return None
    found = forecast_of(victim.run, step).get(name)
    return found if isinstance(found, int) else None


# --- from the start to the end -------------------------------------------------------------

_WITHOUT: Final = frozenset({"OTEL_QUANT_RECORD", "QUARK_PROFILING", "OTEL_QUANT_PROFILE"})


def send_ending(
    folder: Path, environ: Mapping[str, str], timeout: float, *, has_files: bool = False
) -> None:
    """Ends the spans that were open, under their own ids, and sends a log record, and the span of a pipeline, if any."""
    variables = exporter_variables(environ, has_files=has_files)
    environ = {name: value for name, value in environ.items() if name not in _WITHOUT} | variables
    if timeout <= 0 or not sends(environ) or not _has_unsent_spans(read(folder)):
        return
    environ |= {"OTEL_METRICS_EXPORTER": "none", "OTEL_QUANT_RECORD": os.fspath(folder)}
    try:
        subprocess.run(  # noqa: S603 - our own module
            [sys.executable, "-m", "otel_quant", "send", "--only-unended", os.fspath(folder)],
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            timeout=timeout,
            check=True,
        )
    except (OSError, subprocess.SubprocessError) as error:
        if isinstance(error, subprocess.TimeoutExpired):
            reason = f"it took longer than {timeout:g} s (OTEL_QUANT_EXIT_TIMEOUT)"
        elif isinstance(error, subprocess.CalledProcessError) and error.stderr.strip():
            reason = error.stderr.strip().splitlines()[-1].removeprefix("otel-quant: ")
        else:
            reason = type(error).__name__
        LOG.warning("the end of the program could not be sent: %s", reason)


def _has_unsent_spans(recording: Recording) -> bool:
    ending = recording.ending
    if ending is None:
        return False
    if recording.span is not None:
        return any(run.trace_id == recording.span[0] for run in recording.runs)
    is_killed = ending.signal is not None or ending.process is not None
    return is_killed and any(run.is_unended for run in recording.runs)


_GIT: Final = ("git", "-c", "core.fsmonitor=false", "--no-optional-locks")
_GIT_ENDS: Final = 2.0  # Seconds that git gets to answer, after the program has ended


class LaunchedRecording:
    """The recording of a program that has just been started. It never raises: what fails is logged once, and missing."""

    def __init__(
        self, folder: Path, began_ns: int, pid: int, arguments: Sequence[str],
        environ: Mapping[str, str], continues: str | None = None,
    ) -> None:  # fmt: skip
        self._continues = continues
        if continues is not None:
            is_url = "://" in continues
            self._continues = masked(continues) if is_url else str(Path(continues).resolve())
        self._folder, self._began_ns = folder, began_ns
        # The ids of the span above the spans of the program's processes
        ours = "" if TRACEPARENT in os.environ else environ.get(TRACEPARENT, "")
        self._span = dict(zip(("trace_id", "span_id"), ours.split("-")[1:3], strict=False))
        self._observer: Observer | None = None
        settings = settings_from(environ, warn=False)
        self._exit_timeout, self._has_files = settings.exit_timeout, settings.otlp_files
        self._names_paths = settings.paths
        with FAULTS.kept_in("manifest"):
            shown = arguments if settings.arguments else arguments[:1]
            self._command = partial(shown_command, shown, paths=settings.paths)
            origin = {semconv.PROCESS_COMMAND_LINE: self._command()}
            clock_ns = began_ns - now_ns() + time.monotonic_ns()
            kills = kills_so_far() if settings.paths else {}
            create_manifest(folder, began_ns, clock_ns, "launcher", origin, **kills)
        self._git: subprocess.Popen[bytes] | None = None
        with FAULTS.kept_in("git repository"):
            self._git = _ask_git(Path.cwd(), environ)
        with FAULTS.kept_in("observer"):
            interval = settings.sample_interval or INTERVAL
            self._observer = Observer(folder, pid, interval, environ)
            self._observer.start()

    def look_last(self) -> None:
        """Notes what is known of the program until it is waited for."""
        if self._observer is not None:
            self._observer.look_last()

    def finish(self, ended: Ended) -> Ending | None:
        """Completes the recording."""
        ending: Ending | None = None
        notes = notes_in(os.fspath(self._folder))
        fields: dict[str, object] = {"ended": now_ns(), **self._span}
        origin: dict[str, object] = {}
        with FAULTS.kept_in("observer"):
            if self._observer is not None:
                seen = self._observer.observe(ended)
                # What the ending may be because of
                if self._folder.is_dir() and (failed := failed_in(self._folder, seen)):
                    complete_manifest(self._folder, {}, failed=failed)
                ending = ending_in(self._folder, self._began_ns, seen)
                if self._names_paths:  # that of a Python may be in it
                    ending = dataclasses.replace(ending, why_no_step=why_no_step(notes))
                fields["ending"] = dataclasses.asdict(ending)
                fields["summary"] = self._observer.summary()
        with FAULTS.kept_in("git repository"):
            is_dirty = _answer_of(self._git) if self._git is not None else None
            if is_dirty is not None:
                origin[semconv.VCS_DIRTY] = is_dirty
        with FAULTS.kept_in("options of the program"):
            OPTIONS.update(noted(notes, "hides"))
            origin[semconv.PROCESS_COMMAND_LINE] = self._command()
        with FAULTS.kept_in("run that is continued"):
            if before := self._continues or found_beside(self._folder):
                fields["continues"] = before
        with FAULTS.kept_in("manifest"):
            complete_manifest(self._folder, origin, **fields)
        with FAULTS.kept_in("end of the spans"):
            if ending is not None and (ending.signal or ending.process or self._span):
                timeout, has_files = self._exit_timeout, self._has_files
                send_ending(self._folder, os.environ, timeout, has_files=has_files)
        return ending


def _ask_git(folder: Path, environ: Mapping[str, str]) -> subprocess.Popen[bytes] | None:
    """Asks git which files differ from the commit; None outside of a repository, or without git."""
    if git_head(folder)[0] is None:
        return None
    try:
        return subprocess.Popen(  # noqa: S603 - no word of it is the user's
            [*_GIT, "status", "--porcelain", "--untracked-files=no"],
            cwd=folder,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
    except FileNotFoundError:
        return None


def _answer_of(git: subprocess.Popen[bytes]) -> bool | None:
    try:
        changes, _ = git.communicate(timeout=_GIT_ENDS)
    except subprocess.TimeoutExpired:
        git.kill()
        git.communicate()
        return None
    return bool(changes) if git.returncode == 0 else None
