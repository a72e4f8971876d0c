"""Reads a recording: a folder, or a ``quark_profile.yaml`` as one.

What a kill has cut, what is missing and what an older version has written is no error: what there is
is read. ``Recording.problems`` names what could not be read.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any, Final, TypeAlias

from otel_quant.base.files import LOCKS_EXIST, is_held, open_regular
from otel_quant.base.kernel_files import KILLS, oom_counts
from otel_quant.diagnosis.bounds import NOTHING_STANDS_OUT, Evidence, bound_of
from otel_quant.diagnosis.spots import Grown, Stack, grown_in
from otel_quant.diagnosis.stack_trees import Stacks, by_last_line
from otel_quant.format import event_file
from otel_quant.format.curve import Curve, RecordedCurve, read_curve
from otel_quant.format.fields import EVENTS, MANIFEST, STACKS, STATE, LeftOut
from otel_quant.format.series import TOTALS
from otel_quant.recordings.events_reader import ReadRun
from otel_quant.recordings.model import (
    LAUNCHER,
    Advice,
    Ending,
    PlacedStep,
    RecordedRun,
    RecordedStep,
    Recording,
    State,
    function_of,
    known,
    number,
    steps_in,
)
from otel_quant.recordings.outside import NAMES, outside_of, row_of
from otel_quant.recordings.summary import limit, processors
from otel_quant.schema import code_lines, semconv
from otel_quant.schema.dataclass import dataclass, replace
from otel_quant.schema.events import present
from otel_quant.schema.units import duration_text


def read(path: Path, ending: Ending | None = None, *, in_brief: bool = False) -> Recording:
    """Reads a recording. `ending` is how it ended, if its manifest does not have it."""
    if path.is_dir():
        return _Folder(path, ending, in_brief).read()
    from otel_quant.recordings.profile_reader import read_profile  # a folder does not need it

    return read_profile(path, in_brief=in_brief)


def local(path: str, *, is_one: bool = False) -> Path:
    """Returns a path; of a URL a copy of the recording there, or of all at it or below it."""
    if "://" not in path:
        return Path(path)
    from otel_quant.recordings.stored import local_copy  # a folder does not need it

    return local_copy(path, is_one=is_one)


class _Folder:
    """A folder while it is being read."""

    def __init__(self, path: Path, ending: Ending | None, in_brief: bool) -> None:
        self._path, self._in_brief = path, in_brief
        self._processes = event_file.processes_in(path)
        self._problems: list[str] = []
        with self._noting(path / event_file.MANIFEST) as left_out:
            self._made = MANIFEST.take(event_file.load_manifest(path), left_out) or {}
        self._launcher = event_file.process_file(path, "curve", LAUNCHER)
        if not (self._processes or self._made or self._launcher.exists()):
            raise event_file.NotARecordingError(
                f"{path}: has no {event_file.MANIFEST} and no events.<pid>.jsonl; {event_file.EXPECTED}"
            )
        self._began_ns: int = self._made.get("began", -1)
        if self._began_ns < 0:
            self._problems.append(f"{event_file.MANIFEST} is missing or has been cut")
            self._began_ns = min(map(self._first_ns, self._processes), default=0)
        self._ending = _ending_of(self._made.get("ending")) or ending
        failed = map(self._failed_run, self._made.get("failed", ()))
        self._failed = {each.pid: each for each in failed}
        self._clocks: dict[str, int] = {}  # What to add to the monotonic clock of each process
        self._parents: dict[str, int] = {}  # Of each process
        self._cut: set[str] = set()  # The processes of which not all events could be written
        self._latest = 0.0  # when the last that is known was written, in seconds

    def _killed_since(self) -> int:
        """Returns how many processes of the launcher's group the kernel has killed since then; 0 where the group is gone."""
        made, counter = self._made, Path(self._made.get("oom_counter", ""))
        with suppress(OSError):
            is_it = made.get("boot") == event_file.boot_id() and "ended" not in made
            if is_it and counter.stat().st_ino == made.get("oom_inode"):
                return oom_counts(counter).get(KILLS, 0) - int(made.get("oom_kills", 0))
        return 0

    def read(self) -> Recording:
        runs = [run for process in self._processes for run in self._runs_of(process)]
        with_run = {run.pid for run in runs}
        runs += [run for pid, run in self._failed.items() if pid not in with_run]
        runs.sort(key=lambda run: run.start)
        curves, made = self._curves(runs), self._made
        of_first = runs[0].attributes if runs else {}
        by_run = {name: each for name, each in of_first.items() if name in semconv.ORIGIN}
        has_span = made.keys() >= {"trace_id", "span_id"}
        return Recording(
            path=self._path, began_ns=self._began_ns, state=self._state(runs),
            duration=self._until(runs), origin={**by_run, **made.get("origin", {})}, continues=made.get("continues"),
            runs=tuple(runs), curves=curves, ending=self._ending,
            launcher=made.get("pid") if made.get("made_by") == "launcher" else None,
            span=(made["trace_id"], made["span_id"]) if has_span else None,
            boot=made.get("boot", ""), killed_too=self._killed_since(),
            problems=tuple(self._problems),
        )  # fmt: skip

    def _until(self, runs: list[RecordedRun]) -> float:
        """Returns when the program ended, whatever it has started and left behind; else the last that is known."""
        if self._ending is not None:
            return self._ending.time
        pids = {run.pid for run in runs}
        ends = [run.end for run in runs if run.parent_pid not in pids]
        over: float = (self._made.get("ended", self._began_ns) - self._began_ns) / 1e9
        return max(over, *(self._latest if end is None else end for end in ends or [None]))

    @contextmanager
    def _noting(self, path: Path) -> Iterator[LeftOut]:
        """Notes what is left out of a file while it is read."""
        left_out = LeftOut()
        yield left_out
        self._problems += left_out.in_words(path.name)

    def _runs_of(self, process: str) -> list[RecordedRun]:
        """Returns the runs of a process, from its events and its state."""
        runs = self._runs_in_events(process)
        failed = self._failed.get(int(process.partition("-")[0]))
        of_open: State = "lost"
        if not runs or any(run.is_open for run in runs.values()):
            self._add_state(process, runs)
            of_open = self._open_state(process) if failed is None else failed.state
            if of_open == "lost" and self._ending is not None and process in self._cut:
                of_open = self._ending.state  # it may have ended well
        found = [run.recorded(of_open) for run in runs.values()]
        if failed is not None and found:
            last = found[-1] = replace(found[-1], began=failed.began)
            if last.error is None:
                state, error, gone = failed.state, failed.error, failed.gone
                found[-1] = replace(last, state=state, error=error, gone=gone)
        return found

    def _runs_in_events(self, process: str) -> dict[str, ReadRun]:
        """Returns what the events of a process tell of its runs, by their identifiers."""
        runs: dict[str, ReadRun] = {}
        parent: int | None = None
        path = event_file.process_file(self._path, "events", process)
        with self._noting(path) as left_out:
            try:
                for kind, event in _read_events(path, left_out, in_brief=self._in_brief):
                    at = self._seconds(process, event)
                    if kind == "process.started":
                        self._parents[process] = parent = event["parent_pid"]
                        continue
                    if kind == "run.started":
                        runs[event["run"]] = ReadRun(event["run"], at, process, parent)
                    try:
                        runs[event["run"]].take(kind, event, at)
                    except (KeyError, ValueError):
                        left_out[f"{kind} of what has not started"] += 1
            except OSError as error:
                self._problems.append(f"{path.name} cannot be read: {reason_of(error)}")
        return runs

    def _add_state(self, process: str, runs: dict[str, ReadRun]) -> None:
        """Adds the newest of a process whose run has not ended, and a run if its events are gone."""
        path = event_file.process_file(self._path, "state", process)
        with self._noting(path) as left_out:
            state = STATE.take(event_file.mapping_in(path), left_out)
        if state is None:
            return
        at = self._seconds(process, state)
        run = runs.setdefault(state["run"], ReadRun(state["run"], at, process))
        if why := state.get("problem"):
            name = event_file.process_file(self._path, "events", process).name
            said = f"{name}: the process could not write all of its events: {why}"
            if run.is_open:
                self._cut.add(process)
                said += f". Nothing is recorded after {duration_text(run.cut_off())}"
            self._problems.append(said)
        if run.is_open:
            run.state_known(state, at)

    def _failed_run(self, failed: Mapping[str, Any]) -> RecordedRun:
        """Returns a run without steps for a process that failed, which may have had none of its own."""
        name = failed.get("signal")
        began, gone = (max(0, failed[key] - self._began_ns) / 1e9 for key in ("began", "ended"))
        return RecordedRun(
            id=f"{failed['pid']}-{failed['began']}", process=str(failed["pid"]), pid=failed["pid"],
            start=began, end=gone, began=began, gone=gone, state="killed" if name else "failed",
            rank=failed.get("rank"), world_size=failed.get("world_size"), attributes=present({
                semconv.PROCESS_COMMAND_LINE: failed["name"], semconv.RUN_JOB: failed.get("job"),
                semconv.HOST_NAME: self._made.get("origin", {}).get(semconv.HOST_NAME),
            }),
            error=name or f"exit code {failed.get('exit_code')}",
        )  # fmt: skip

    def _seconds(self, process: str, event: Mapping[str, Any]) -> float:
        """Returns when a process wrote something; the first thing relates its monotonic clock to our time.

        By the same clock, where it is one of the same machine: the wall clock may have been set.
        """
        if process not in self._clocks:
            made = self._made
            is_one = "clock" in made and event.get("boot") == made.get("boot", "")
            began = event["clock"] - event["time"] + self._began_ns
            self._clocks[process] = -(made["clock"] if is_one else began)
        at: float = max(0, event["clock"] + self._clocks[process]) / 1e9
        self._latest = max(self._latest, at)
        return at

    def _first_ns(self, process: str) -> int:
        """Returns the wall clock of the first event of a process; 0 without any."""
        path = event_file.process_file(self._path, "events", process)
        with suppress(OSError):
            for _, event in _read_events(path, LeftOut(), in_brief=False):
                return int(event["time"])
        return 0

    def _curves(self, runs: list[RecordedRun]) -> dict[str, RecordedCurve]:
        """Reads the curves; in brief those that know more than the ends of runs."""
        found: dict[str, RecordedCurve] = {}
        wanted = [*self._processes, LAUNCHER]
        if self._in_brief:
            stopped = dict.fromkeys(run.process for run in runs if run.end is None)
            wanted = [*stopped, LAUNCHER]
            if "summary" in self._made:
                wanted.remove(LAUNCHER)
                found[LAUNCHER] = launcher = RecordedCurve(self._began_ns, 0, Curve(1))
                highest = dict(self._made["summary"])
                totals = {name: highest.pop(name) for name in TOTALS & highest.keys()}
                launcher.curve.add(0, highest, totals)  # as a curve of one bucket
        for process in wanted:
            path = event_file.process_file(self._path, "curve", process)
            try:
                with self._noting(path) as left_out:
                    known = found[process] = self._on_our_clock(process, read_curve(path, left_out))
                last = max(known.curve.buckets, default=0) * known.curve.length / 1000
                self._latest = max(self._latest, (known.began_ns - self._began_ns) / 1e9 + last)
            except FileNotFoundError:
                continue
            except event_file.NewerSchemaError:
                raise
            except (OSError, ValueError) as error:
                self._problems.append(f"{path.name} is left out: {reason_of(error)}")
        return found

    def _on_our_clock(self, process: str, curve: RecordedCurve) -> RecordedCurve:
        known = self._clocks.get(process)
        if known is None:
            return curve
        return replace(curve, began_ns=max(0, self._began_ns + curve.clock_ns + known))

    def _open_state(self, process: str) -> State:
        """Returns how a run of a process stands that has not ended."""
        # A child may go on after the program's end; without locks it cannot be told from one that ended now.
        is_over = self._ending is not None and not LOCKS_EXIST
        if not is_over and is_held(event_file.process_file(self._path, "events", process)):
            return "running"
        if self._ending is None or self._ending.state == "ended":
            return "lost"
        # How a program has failed tells nothing of the processes that it has started.
        pids = {each.partition("-")[0] for each in self._processes}
        is_child = self._ending.state == "failed" and str(self._parents.get(process)) in pids
        return "lost" if is_child else self._ending.state

    def _state(self, runs: list[RecordedRun]) -> State:
        """Returns the state of the recording: as the launcher saw it end, else by its runs."""
        if self._ending is not None:
            return self._ending.state
        states = {run.state for run in runs} or {"ended" if "ended" in self._made else "lost"}
        if is_held(self._launcher):
            return "running"
        order: tuple[State, ...] = ("running", "lost", "failed")
        return next((state for state in order if state in states), "ended")


def reason_of(error: Exception) -> str:
    """Returns why a file could not be read; the system's reason without the path."""
    return getattr(error, "strerror", None) or str(error)


def _ending_of(found: dict[str, Any] | None) -> Ending | None:
    """Returns how the program ended, as the launcher saw it."""
    if found is None:
        return None
    return Ending(**{**found, "advice": tuple(Advice(**each) for each in found.get("advice", ()))})


# --- lines --------------------------------------------------------------------------------

_Events: TypeAlias = Iterator[tuple[str, dict[str, Any]]]
_DECODE: Final = json.JSONDecoder().decode  # Without finding out the encoding of each line

_AT_ONCE: Final = 256
"""Lines that are decoded together: each name is one object then, of 20 in every line of a long run."""

_OURS: Final = re.compile(rb'\{"schema":\d+,"time":\d+,"clock":\d+,"kind":"(?!run\.|process\.)')
"""Begins a line of neither a run nor a process, as we write it: in brief only such a one is not looked
at. What another program has written anew, as `jq` does, is."""


def _read_events(path: Path, left_out: LeftOut, *, in_brief: bool) -> _Events:
    """Yields the events of a process; in brief, if all of its runs have ended, only events of the runs.

    The last event of a run repeats what its steps know of the run.
    """
    with open_regular(path) as file:
        if not in_brief:
            yield from _events(path, file, left_out)
            return
        lines = file.readlines()
    noted = LeftOut()
    events = list(_events(path, [line for line in lines if not _OURS.match(line)], noted))
    kinds = [kind for kind, _ in events]
    if kinds.count("run.started") == kinds.count("run.ended"):
        left_out.update(noted)
        yield from events
    else:
        yield from _events(path, lines, left_out)


def _events(path: Path, lines: Iterable[bytes], left_out: LeftOut) -> _Events:
    """Yields the events of lines; a last line that a kill has cut is none, and nothing is left out."""
    for event in _decoded(lines, left_out):
        event_file.refuse_newer(path, event)
        fields = EVENTS.get(str(event.get("kind"))) if type(event) is dict else None
        if fields is None:
            continue
        if (known := fields.take(event, left_out)) is not None:
            yield fields.name, known
        else:
            left_out[fields.name] += 1


def _decoded(lines: Iterable[bytes], left_out: LeftOut) -> Iterator[Any]:
    """Yields what lines hold."""
    every = iter(lines)
    while some := list(islice(every, _AT_ONCE)):
        with suppress(ValueError, RecursionError):
            found = _DECODE(f"[{b','.join(some).decode()}]")
            if len(found) == len(some):
                yield from found
                continue
        for line in some:
            try:
                event = _DECODE(line.decode())
            except (ValueError, RecursionError):
                if line.endswith(b"\n"):
                    left_out["line"] += 1
            else:
                yield event


# --- where time and memory went, by line of code, as the sampler has seen it ---------------


_OTHER_STEPS: Final = "other steps"


@dataclass(frozen=True, slots=True)
class SeenStack:
    """What was seen at one stack of a step."""

    step: PlacedStep | None  # None for threads without a step, and steps too many to keep apart
    lines: tuple[code_lines.Place, ...]  # Outermost first
    seen: code_lines.Amounts

    where: str = _OTHER_STEPS  # What stands for a step that is None

    @property
    def call(self) -> code_lines.Place:
        """The innermost line of the program's own code; the outermost line if none is."""
        return next((line for line in reversed(self.lines) if line.is_own), self.lines[0])


_OUTSIDE: Final = frozenset(map(str, (code_lines.OUTSIDE, *NAMES)))


def stacks_in(recording: Recording, runs: Sequence[RecordedRun] | None = None) -> list[SeenStack]:
    """Returns what was seen of all or some runs of a recording, stack by stack; nothing of a profile."""
    if runs is None:
        return recording.once("stacks", lambda: stacks_in(recording, recording.runs))
    steps = {(each.run.id, str(each.step.index)): each for each in steps_in(recording)}
    found: list[SeenStack] = []
    if not steps and runs is recording.runs:  # there may be lines from before the runs
        runs = [row.run for row in outside_of(recording)]
    for run in runs:
        left_out = LeftOut()
        name = run.id if run.has_events else event_file.BEFORE_RUNS
        path = event_file.process_file(recording.path, "stacks", run.process, name)
        known = STACKS.take(event_file.mapping_in(path), left_out)
        if known is None or left_out:  # without one of them, others have the wrong numbers
            continue
        for index, rows in known["steps"].items():
            step = steps.get((run.id, index))
            where = "outside of steps" if index in _OUTSIDE else _OTHER_STEPS
            if step is None and index in _OUTSIDE:
                step = row_of(recording, run, int(index))
            found += (SeenStack(step, *each, where) for each in _stacks(rows, known["places"]))
    return found


def _stacks(
    rows: Sequence[Sequence[int]], places: Sequence[code_lines.Place]
) -> Iterator[tuple[tuple[code_lines.Place, ...], code_lines.Amounts]]:
    """Yields the stacks of a step: a row names the row of its caller and its own place."""
    lines: list[tuple[code_lines.Place, ...]] = []
    for above, place, *amounts in rows:
        known = lines[above] if 0 <= above < len(lines) else ()
        # One more than the deepest: what was folded below
        is_line = 0 <= place < len(places) and len(known) <= code_lines.DEEPEST
        lines.append((*known, places[place]) if is_line else known)
        if any(amounts):  # steps that were folded whole have no lines
            yield lines[-1] or (code_lines.OTHER,), code_lines.Amounts(*amounts)


def unseen_in(recording: Recording) -> list[SeenStack]:
    """Returns the time of steps of which no line was recorded, unless lines of some steps were folded whole."""
    stacks = stacks_in(recording)
    if any(each.step is None and each.where == _OTHER_STEPS for each in stacks):
        return []
    seen: dict[int, int] = {}
    for each in stacks:
        seen[id(each.step)] = seen.get(id(each.step), 0) + each.seen.time
    runs = {id(each.step.run) for each in stacks if each.step is not None}
    rest = [(each, each.own - seen.get(id(each), 0) / 1e9) for each in steps_in(recording)]
    return [
        SeenStack(each, (code_lines.UNSEEN,), code_lines.Amounts(round(seconds * 1e9)))
        for each, seconds in rest
        if id(each.run) in runs and seconds >= max(_UNSEEN, _PART * each.own)
    ]


_UNSEEN: Final = 1.0  # Seconds of a step without lines that are a row: two pauses of the sampler
_PART: Final = 0.05


def of_step(stacks: Iterable[SeenStack], name: str) -> list[SeenStack]:
    """Returns those that were seen in steps of a name, or in steps within these."""
    return [each for each in stacks if each.step is not None and name in each.step.names]


def split_of(recording: Recording, step: RecordedStep) -> code_lines.Amounts | None:
    """Returns what was seen of a step itself, not of steps within it; None if nothing was, or the kernel did not count."""

    def splits() -> dict[int, code_lines.Amounts]:
        found: dict[int, code_lines.Amounts] = {}
        for each in stacks_in(recording):
            key = id(each.step and each.step.step)
            found[key] = found.get(key, code_lines.NOTHING).plus(each.seen)
        return found

    seen = recording.once("splits", splits).get(id(step))
    return seen if seen is not None and seen.cpu else None


def grown_of(recording: Recording, step: RecordedStep) -> Grown | None:
    """Returns what has taken memory in steps of a step's name; None if it was not seen to grow."""
    method = str(step.attributes.get(semconv.CALIBRATION_METHOD, ""))
    return grown_in(lines_of(recording, step), function_of(step), method)


def lines_of(recording: Recording, step: RecordedStep) -> list[Stack]:
    """Returns what was seen in steps of a step's name, stack by stack."""
    return [(each.lines, each.seen) for each in of_step(stacks_in(recording), step.name)]


def by_line(stacks: Iterable[SeenStack]) -> dict[code_lines.Place, code_lines.Amounts]:
    """Returns what was seen at each line itself, not in what it calls."""
    return by_last_line((each.lines, each.seen) for each in stacks)


def by_call(stacks: Iterable[SeenStack]) -> dict[code_lines.Place, code_lines.Amounts]:
    """Returns what was seen below each line of the program's own code."""
    return by_last_line(((each.call,), each.seen) for each in stacks)


_ADDED_UP: Final = (semconv.CPU_USER, semconv.CPU_SYSTEM, semconv.DISK_READ, semconv.DISK_WRITE, semconv.MAJOR_FAULTS, semconv.CALIBRATION_SAMPLE_COUNT)  # fmt: skip
"""Figures of steps that are evidence of what bounds them."""

_MOST: Final = 0.5


def kind_of(names: Iterable[str]) -> tuple[str, ...]:
    """Returns names without their numbers: ``layer.0`` and ``layer.39`` are steps of the kind ``layer.*``."""
    return tuple(re.sub(r"\d+", "*", name) for name in names)


def alike(
    recording: Recording, steps: Iterable[PlacedStep], least: float
) -> Iterator[tuple[PlacedStep, int]]:
    """Yields steps of one name, or of names that differ in a number, as one, with their number, of so many seconds of which most have no verdict: each was short."""
    groups: dict[tuple[int, tuple[str, ...]], list[PlacedStep]] = {}
    for each in steps:
        groups.setdefault((id(each.run), kind_of(each.names)), []).append(each)
    for (_, kind), group in groups.items():
        seconds = sum(each.own for each in group)
        bare = [each for each in group if semconv.STEP_BOUND_BY not in each.step.attributes]
        # What GPUs did in each of them is not recorded as a verdict needs it.
        is_known = all(each.step.end is not None and not each.step.devices for each in group)
        is_bare = sum(each.own for each in bare) > _MOST * seconds
        if len(group) > 1 and is_known and is_bare and seconds >= least:
            first, figures = group[0], [each.step.attributes for each in group]
            every = {name: known(number(each, name) for each in figures) for name in _ADDED_UP}
            sums = {name: sum(of) for name, of in every.items() if len(of) == len(group)}
            lasted = sum(each.duration for each in group)
            others = {name: of for name, of in figures[0].items() if name not in _ADDED_UP}
            names = kind if len({each.names for each in group}) > 1 else first.names
            path = tuple((name, at) for name, (_, at) in zip(names, first.path, strict=True))
            step = replace(first.step, name=names[-1], attributes={**others, **sums})
            one = replace(first, step=step, path=path, end=step.start + lasted, own=seconds)
            yield with_bound(recording, one), len(group)


def with_bound(recording: Recording, row: PlacedStep) -> PlacedStep:
    """Returns a row of the time outside of steps, or of several steps, with what bounds it, as a step that ends has it."""
    stacks, most = Stacks(), limit(recording)
    seen, kind = stacks_in(recording), kind_of(row.names)
    for each in of_step(seen, row.step.name) if row.step.spans else seen:
        of = each.step
        if row.step.spans or (of is not None and of.run is row.run and kind_of(of.names) == kind):
            stacks.add(row.step.index, each.lines, each.seen)
    if (root := stacks.steps.get(row.step.index)) is None:
        return row
    evidence = Evidence(root, row.duration, row.step.attributes)
    evidence.function = function_of(row.step)
    evidence.is_start = bool(row.step.spans) and row.step.index == code_lines.BEFORE
    evidence.cpus = processors(recording) or math.nan
    evidence.limit = math.nan if most is None else most.value
    bound = bound_of(evidence)
    if bound is None or (row.step.spans and bound.name == NOTHING_STANDS_OUT):
        return row  # its lines are named anyway
    of_bound = {semconv.STEP_BOUND_BY: bound.name, semconv.STEP_BOUND_EVIDENCE: bound.evidence}
    return replace(row, step=replace(row.step, attributes={**row.step.attributes, **of_bound}))
