"""The ranks of a job, on one node or on several: how each spent its time, which kept the others waiting, which failed first."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from operator import itemgetter
from statistics import median
from typing import Final, NamedTuple

from otel_quant.recordings import reader
from otel_quant.recordings.failures import Failure, failures, is_caused_by_peer
from otel_quant.recordings.model import RecordedRun, Recording, known
from otel_quant.schema import semconv
from otel_quant.schema.code_lines import Place, total_of

_LEAST: Final = 1.0  # Seconds that the others have to wait for a rank before it is named
_SHARE: Final = 0.1  # The same, as a share of their time
_ITSELF: Final = 0.5  # Share of their waiting, or running, by which it ran longer than they
_COVERED: Final = 0.8  # Share of the difference that one function needs to be named as its cause
_WAITS: Final = re.compile(r"torch/distributed/(\w*c10d\w*|rendezvous|_functional_\w+|utils)\.py")
"""Files of torch in which a rank waits for others."""


class Split(NamedTuple):
    """What a rank did with its time, in nanoseconds."""

    running: int
    own: int  # Running or blocked: waiting neither for other ranks nor for a processor
    waiting: int  # For a processor
    collectives: int  # Waiting for other ranks
    functions: Mapping[Place, int]  # The rank's own time in each of the program's; 0 in others
    lines: Mapping[Place, Place]  # The line of each with the most time


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
        return max(end - start, sum(self.split[1:4]) / 1e9)

    @cached_property
    def split(self) -> Split:
        """What it did with the time in which its lines were seen."""
        runs = [run for run in self.recording.runs if run.process == self.run.process]
        stacks = reader.stacks_in(self.recording, runs)
        own = [each for each in stacks if not _WAITS.match(each.lines[-1].file)]
        whole, seen = (total_of(each.seen for each in some) for some in (stacks, own))
        functions, lines = Counter[Place](), dict[Place, Place]()
        for line, at in sorted(reader.by_call(own).items(), key=lambda it: it[1].time):
            function = line if line.function == "<module>" else line._replace(line=0)
            functions[function] += at.time - at.waiting
            lines[function] = line
        of_own = seen.time - seen.waiting
        others = whole.time - whole.waiting - of_own
        return Split(seen.cpu, of_own, whole.waiting, others, functions, lines)


def ranks_of(recordings: Sequence[Recording]) -> list[Rank]:
    """Returns the ranks of the job that recordings are of; none if they are not of one job, or have one rank at most."""
    found: dict[int, Rank] = {}
    jobs = set()
    hosts = [each.origin.get(semconv.HOST_NAME) for each in recordings]
    for recording in recordings:
        above = {run.pid: run.rank for run in recording.runs}
        # A launcher may have started one again; workers have the rank of the process that started them.
        runs = sorted(recording.runs, key=lambda run: (run.has_events, run.start))
        every = ((run.rank, run) for run in runs if above.get(run.parent_pid) != run.rank)
        own = {rank: run for rank, run in every if rank is not None}
        if not own or found.keys() & own.keys():
            return []
        for number, run in own.items():
            host = str(run.attributes.get(semconv.HOST_NAME, ""))
            node = host if hosts.count(host) == 1 else recording.path.name
            found[number] = Rank(number, node, recording, run)
            jobs.add((run.attributes.get(semconv.RUN_JOB, recording.path), run.world_size))
    return [found[number] for number in sorted(found)] if len(jobs) == 1 < len(found) else []


class Straggler(NamedTuple):
    """The ranks that the others waited for: those that waited least."""

    ranks: Sequence[Rank]  # The first waited least
    others: float  # The median of what the others waited in collectives, in seconds
    longer: float  # Seconds that the first was longer than others where it was most longer
    for_processor: float  # Seconds for which it waited for a processor longer
    cause: Place | None  # The line that has most of that; None without 80 % of the difference
    is_blocked: bool  # Whether it was blocked there, for most of them


def straggler(ranks: Sequence[Rank]) -> Straggler | None:
    """Returns the ranks that kept the others waiting, if it was they and not other programs that took the time."""
    in_order = sorted(ranks, key=lambda rank: rank.split.collectives)
    if len(ranks) < 2 or not all(rank.split.own for rank in ranks):
        return None
    waits = [rank.split.collectives for rank in in_order]
    gaps = [after - before for before, after in pairwise(waits)]
    at = max(range(max(1, len(ranks) // 2)), key=gaps.__getitem__) + 1
    behind, one, others = in_order[:at], in_order[0].split, [rank.split for rank in in_order[at:]]
    running, own, waiting, waited = (median(map(itemgetter(part), others)) for part in range(4))
    # Of equal ranks on a busy machine one waits least, too, but has run no longer than the others.
    most = max(each.own for each in others)
    took, late = min(rank.split.own for rank in behind) - most, waited - waits[at - 1]
    is_late = late >= 1e9 * max(_LEAST, _SHARE * median(rank.seconds for rank in ranks))
    if not is_late or took < _ITSELF * min(late, most):
        return None
    every = {each: median(it.functions[each] for it in others) for each in one.functions}
    more = {each: one.functions[each] - usual for each, usual in every.items()}
    most_at, longer = max(more, key=more.__getitem__), one.own - own
    for_processor = max(0, one.waiting - waiting)
    is_it = more[most_at] >= _COVERED * longer
    is_it = is_it and more[most_at] + for_processor >= _COVERED * (waited - waits[0])
    is_blocked = one.running > 0 and one.running - running < longer / 2
    return Straggler(
        behind, others=waited / 1e9, longer=more[most_at] / 1e9, for_processor=for_processor / 1e9,
        cause=one.lines[most_at] if is_it else None, is_blocked=is_blocked,
    )  # fmt: skip


class FirstFailed(NamedTuple):
    """What led to the end of a job that failed."""

    ranks: Sequence[Rank]  # That which failed first; several, or none, where that is not known
    failures: Sequence[Failure]  # How each did; none of a rank that hung until the others timed out
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
    is_all = len(ranks) == ranks[0].run.world_size  # else it may be of another node
    is_one = waits and is_all and (len(waits) == 1 or waits[0] < waits[1] / 2)
    return FirstFailed(silent[:1] if is_one else [], [], lost) if lost else None


def _lost_another(rank: Rank, failure: Failure) -> bool:
    """Whether a rank failed because of another one: torch's watchdog ends one that waits too long by SIGABRT."""
    lines = [step.line.leaf.file for step in rank.run.steps if step.line is not None]
    is_waiting = any(map(_WAITS.match, lines[-1:]))
    return is_caused_by_peer(failure) or (failure.run.error == "SIGABRT" and is_waiting)
