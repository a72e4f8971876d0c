"""The ranks of a job, on one node or on several: what each did with its time, which kept the others waiting, which failed first."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from operator import attrgetter
from statistics import median
from typing import Final, NamedTuple

from otel_quant.recordings import reader
from otel_quant.recordings.failures import Failure, failures, is_of_peers
from otel_quant.recordings.model import RecordedRun, Recording, known
from otel_quant.schema import semconv
from otel_quant.schema.code_lines import NOTHING, Amounts, Place, total_of

_LEAST: Final = 1.0  # Seconds for which ranks wait for one from which on it is named
_SHARE: Final = 0.1  # Share of their time, the same
_ITSELF: Final = 0.5  # Share of that, or of what others ran, by which it ran longer than they
_COVERED: Final = 0.8  # Share of it from which on one function is its cause
_WAITS: Final = re.compile(
    r"torch/distributed/(distributed_c10d|rendezvous|c10d_logger|_functional_collectives|utils)\.py"
)
"""Files of torch in which a rank waits for others."""


@dataclass(eq=False)
class Rank:
    """A process of a job."""

    number: int
    node: str  # Where it ran: the host's name, or the recording's where hosts have the same
    recording: Recording
    run: RecordedRun  # Its last: a launcher may have started it again

    @property
    def seconds(self) -> float:
        """How long it ran, as far as is known: of one that ended well, no start is."""
        last = None if self.run.last is None else self.run.last.time
        end, *_ = known((self.run.end, self.run.gone, last, self.recording.duration))
        start, *_ = known((self.run.began, self.run.start))
        return max(end - start, sum(self.split[:4]))

    @cached_property
    def split(self) -> Split:
        """What it did with the time in which its lines were seen."""
        own = [run for run in self.recording.runs if run.process == self.run.process]
        return _split(reader.stacks_in(self.recording, own))


class Split(NamedTuple):
    """What a rank did with its time, in seconds."""

    running: float
    blocked: float  # Neither on a processor nor waiting for one, nor for other ranks
    waiting: float  # For a processor
    collectives: float  # Waiting for other ranks
    functions: Mapping[Place, tuple[Amounts, Place]]  # Of the program, each with its longest line

    @property
    def own(self) -> float:
        """What neither other ranks nor other programs took."""
        return self.running + self.blocked

    def at(self, function: Place) -> float:
        """The same in a function."""
        seen, _ = self.functions.get(function, (NOTHING, function))
        return (seen.time - seen.waiting) / 1e9


def _split(stacks: Sequence[reader.SeenStack]) -> Split:
    waits = total_of(each.seen for each in stacks if _WAITS.match(each.lines[-1].file))
    own = [each for each in stacks if not _WAITS.match(each.lines[-1].file)]
    seen = total_of(each.seen for each in own)
    functions: dict[Place, tuple[Amounts, Place]] = {}
    for line, amounts in sorted(reader.by_call(own).items(), key=lambda it: it[1].time):
        function = line if line.function == "<module>" else line._replace(line=0)
        before, _ = functions.get(function, (NOTHING, line))
        functions[function] = before.plus(amounts), line
    blocked, waited = seen.time - seen.cpu - seen.waiting, seen.waiting + waits.waiting
    times = seen.cpu / 1e9, blocked / 1e9, waited / 1e9, (waits.time - waits.waiting) / 1e9
    return Split(*times, functions)


def ranks_of(recordings: Sequence[Recording]) -> list[Rank]:
    """Returns the ranks of the job that recordings are of; none if they are not of one job, or have one rank at most."""
    found: dict[int, Rank] = {}
    jobs = set()
    hosts = [each.origin.get(semconv.HOST_NAME) for each in recordings]
    for recording in recordings:
        own = _ranks_in(recording)
        if not own or found.keys() & own.keys():
            return []
        for number, run in own.items():
            host = str(run.attributes.get(semconv.HOST_NAME, ""))
            node = host if hosts.count(host) < 2 else recording.path.name
            found[number] = Rank(number, node, recording, run)
            jobs.add((run.attributes.get(semconv.RUN_JOB, recording.path), run.world_size))
    return [found[number] for number in sorted(found)] if len(jobs) == 1 < len(found) else []


def _ranks_in(recording: Recording) -> dict[int, RecordedRun]:
    """Returns the last run of each rank, not those of workers, which have the rank of the process that started them."""
    above = {run.pid: run.rank for run in recording.runs}
    runs = sorted(recording.runs, key=attrgetter("start"))
    every = ((run.rank, run) for run in runs if above.get(run.parent_pid) != run.rank)
    return {rank: run for rank, run in every if rank is not None}


def missing_from(ranks: Sequence[Rank]) -> int:
    """Returns how many ranks of a job are in none of its recordings."""
    return max(0, (ranks[0].run.world_size or 0) - len(ranks))


class Straggler(NamedTuple):
    """The ranks that the others waited for: those that waited least."""

    ranks: Sequence[Rank]  # The first waited least
    others: float  # The median of what the others waited in collectives, in seconds
    cause: Place | None  # The line that has most of the difference; None if none has 80 % of it
    longer: float  # Seconds that it was there longer
    is_blocked: bool  # Whether it was blocked there, for most of them
    for_processor: float  # Seconds for which it waited for a processor longer


def straggler(ranks: Sequence[Rank]) -> Straggler | None:
    """Returns the ranks that kept the others waiting, if it was they and not other programs that took the time."""
    in_order = sorted(ranks, key=lambda rank: rank.split.collectives)
    if len(ranks) < 2 or not all(rank.split.own for rank in ranks):
        return None
    waits = [rank.split.collectives for rank in in_order]
    gaps = [after - before for before, after in pairwise(waits)]
    at = max(range(max(1, len(ranks) // 2)), key=gaps.__getitem__) + 1
    behind, others = in_order[:at], [rank.split for rank in in_order[at:]]
    usual, own = median(waits[at:]), [each.own for each in others]
    late = usual - waits[at - 1]
    # Of equal ranks on a busy machine one waits least, too, but has run no longer than the others.
    took = min(rank.split.own for rank in behind) - max(own)
    is_late = late >= max(_LEAST, _SHARE * median(rank.seconds for rank in ranks))
    if not is_late or took < _ITSELF * min(late, max(own)):
        return None
    one = behind[0].split
    more = {each: one.at(each) - median(it.at(each) for it in others) for each in one.functions}
    most = max(more, key=more.__getitem__)
    waited = max(0.0, one.waiting - median(each.waiting for each in others))
    is_it = more[most] >= _COVERED * (one.own - median(own))
    is_it = is_it and more[most] + waited >= _COVERED * (usual - waits[0])
    seen, line = one.functions[most]
    is_blocked = one.running > 0 and seen.cpu < (seen.time - seen.waiting) / 2
    return Straggler(behind, usual, line if is_it else None, more[most], is_blocked, waited)


class FirstFailed(NamedTuple):
    """What led to the end of a job that failed."""

    ranks: Sequence[Rank]  # That which failed first; several, or none, where that is not known
    failures: Sequence[Failure]  # How each did; none of one that the others waited for in vain
    after: Sequence[Rank]  # Those that failed because of it


def first_failed(ranks: Sequence[Rank]) -> FirstFailed | None:
    """Returns which rank failed first, by what orders failures: that others lost it, else a clock that they share."""
    every = {each.run.id: each for rank in ranks for each in failures(rank.recording)}
    found = {rank: every[rank.run.id] for rank in ranks if rank.run.id in every}
    lost = [rank for rank, each in found.items() if _lost_another(rank, each)]
    firsts: dict[object, Rank] = {}  # By machine, as long as it runs: its clock is one
    for rank in sorted(found, key=lambda rank: rank.recording.began_ns / 1e9 + found[rank].time):
        if rank not in lost and rank.run.error != "KeyboardInterrupt":  # which reaches them all
            clock = rank.recording.boot or rank.recording.path
            firsts.setdefault((rank.run.attributes.get(semconv.HOST_NAME), clock), rank)
    if firsts:
        return FirstFailed([*firsts.values()], [found[rank] for rank in firsts.values()], lost)
    silent = [rank for rank in ranks if rank.run.end is None and rank not in found]
    silent.sort(key=lambda rank: rank.split.collectives)
    waits = [rank.split.collectives for rank in silent]
    is_one = waits and not missing_from(ranks) and (len(waits) == 1 or waits[0] < waits[1] / 2)
    return FirstFailed(silent[:1] if is_one else [], [], lost) if lost else None


def _lost_another(rank: Rank, failure: Failure) -> bool:
    """Whether a rank failed because of another one: torch's watchdog ends one that waits too long by SIGABRT."""
    lines = [step.line.leaf.file for step in rank.run.steps if step.line is not None]
    is_waiting = any(map(_WAITS.match, lines[-1:]))
    return is_of_peers(failure) or (failure.run.error == "SIGABRT" and is_waiting)
