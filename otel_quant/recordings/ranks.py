"""The ranks of a job, on one node or on several: what each did with its time, which kept the others waiting, which failed first."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from operator import attrgetter
from statistics import median
from typing import Final, NamedTuple

from otel_quant.recordings import reader
from otel_quant.recordings.failures import Failure, failures, of_peers
from otel_quant.recordings.model import RecordedRun, Recording, known
from otel_quant.schema import semconv
from otel_quant.schema.code_lines import Amounts, Place, total_of

_LEAST: Final = 1.0  # Seconds for which ranks wait for one from which on it is named
_SHARE: Final = 0.1  # Share of their time, the same
_BY_ITSELF: Final = 0.5
"""Share of that, or of what the others ran, by which it ran longer than they: else other programs took the time."""

_COVERED: Final = 0.8  # Share of it from which on one line is its cause
_TOLD_TO_END: Final = 10.0
"""Seconds after a failure from which on a kill is a launcher's, of a rank that did not end when it was told to."""

_COLLECTIVES: Final = re.compile(
    r"torch/distributed/(distributed_c10d|rendezvous|c10d_logger|_functional_collectives|utils)\.py"
)
"""Files of torch in which a rank waits for others."""

_COPIES: Final = ("_object_to_tensor", "_tensor_to_object")  # Functions there that do not wait


@dataclass(eq=False)
class Rank:
    """A process of a job."""

    number: int
    node: str  # Where it ran: the host's name, or the recording's where hosts have the same
    recording: Recording = field(repr=False)
    run: RecordedRun = field(repr=False)  # Its last: a launcher may have started it again

    @property
    def seconds(self) -> float:
        """How long it ran, as far as is known."""
        last = None if self.run.last is None else self.run.last.time
        end, *_ = known((self.run.end, self.run.gone, last, self.recording.duration))
        start, *_ = known((self.run.began, self.run.start))
        return max(end - start, self.split.seen)  # of one that ended well, no start is known

    @property
    def clock(self) -> tuple[object, ...]:
        """What has the same clock: a machine since it was started."""
        return self.run.attributes.get(semconv.HOST_NAME), self.recording.boot or self.recording

    @cached_property
    def split(self) -> Split:
        """What it did with the time in which its lines were seen."""
        own = [run for run in self.recording.runs if run.process == self.run.process]
        return _split(reader.stacks_in(self.recording, own))


@dataclass
class Split:
    """What a rank did with its time, in seconds."""

    running: float = 0.0
    collectives: float = 0.0  # For which it waited for other ranks
    waiting: float = 0.0  # For which it waited for a processor
    blocked: float = 0.0  # For which it waited for anything else
    # By function of the program: what it ran and was blocked there, and the line with the most of it
    lines: dict[tuple[str, str, int], tuple[Amounts, Place]] = field(default_factory=dict)

    @property
    def own(self) -> float:
        """What neither other ranks nor other programs took."""
        return self.running + self.blocked

    @property
    def seen(self) -> float:
        """All of it."""
        return self.own + self.collectives + self.waiting

    @property
    def rest(self) -> float:
        """What is neither running nor waiting for other ranks."""
        return self.waiting + self.blocked


def _split(stacks: Iterable[reader.SeenStack]) -> Split:
    found, lines = Split(), dict[Place, list[Amounts]]()
    for each in stacks:
        seen, leaf = each.seen, each.lines[-1]
        found.waiting += seen.waiting / 1e9
        if _COLLECTIVES.match(leaf.file) and leaf.function not in _COPIES:
            found.collectives += (seen.time - seen.waiting) / 1e9
            continue
        found.running += seen.cpu / 1e9
        found.blocked += (seen.time - seen.cpu - seen.waiting) / 1e9
        lines.setdefault(each.call, []).append(seen)
    for place, amounts in lines.items():
        # A module is not one function.
        key = place.file, place.function, place.line * (place.function == "<module>")
        own, (other, at) = total_of(amounts), found.lines.get(key, (Amounts(), place))
        most = place if own.time - own.waiting > other.time - other.waiting else at
        found.lines[key] = own.plus(other), most
    return found


def ranks_of(recordings: Sequence[Recording]) -> list[Rank]:
    """Returns the ranks of the job that recordings are of; none if they are not of one job, or have one rank at most."""
    found: dict[int, Rank] = {}
    jobs = set()
    hosts = [each.origin.get(semconv.HOST_NAME) for each in recordings]
    for recording in recordings:
        own = _ranks_in(recording)
        if not own or found.keys() & own.keys():
            return []
        jobs |= {(run.attributes.get(semconv.RUN_JOB), run.world_size) for run in own.values()}
        for number, run in own.items():
            host = str(run.attributes.get(semconv.HOST_NAME, ""))
            node = host if hosts.count(host) < 2 else recording.path.name
            found[number] = Rank(number, node, recording, run)
    job = next(iter(jobs), (None, None))
    is_one = len(jobs) == 1 and (len(recordings) == 1 or job[0] is not None)
    return [found[number] for number in sorted(found)] if is_one and len(found) > 1 else []


def own_ranks(recording: Recording) -> list[Rank]:
    """Returns the ranks of one recording; none of one that is shown with those of other nodes."""
    return recording.once(_OWN, lambda: ranks_of([recording]))


def job_of(recordings: Sequence[Recording]) -> list[Rank]:
    """Returns the ranks of a job whose nodes have a recording each, which are shown together; none of other recordings."""
    ranks = ranks_of(recordings) if len(recordings) > 1 else []
    for recording in recordings if ranks else ():
        recording.memo[_OWN] = []
    return ranks


_OWN: Final = "ranks"


def _ranks_in(recording: Recording) -> dict[int, RecordedRun]:
    """Returns the last run of each rank, not those of workers, which have the rank of the process that started them."""
    above = {run.pid: run.rank for run in recording.runs}
    return {
        run.rank: run
        for run in sorted(recording.runs, key=attrgetter("start"))
        if run.rank is not None and above.get(run.parent_pid) != run.rank
    }


def missing_from(ranks: Sequence[Rank]) -> int:
    """Returns how many ranks of a job are in none of its recordings."""
    return max(0, (ranks[0].run.world_size or 0) - len(ranks))


# --- which kept the others waiting --------------------------------------------------------


class Straggler(NamedTuple):
    """The ranks that the others waited for: those that waited least."""

    ranks: Sequence[Rank]
    waited: float  # Seconds in collectives, of that of them that waited most
    others: float  # The median of the others
    more: float  # Seconds that one of them ran and was blocked more than the others' median
    for_processor: float  # For which it waited for a processor more; 0 for less
    cause: Place | None  # The line that has most of that; None if none has 80 % of the difference
    longer: float = 0.0  # Seconds that it was there longer
    is_blocked: bool = False  # Whether it was blocked there, for most of them


def straggler(ranks: Sequence[Rank]) -> Straggler | None:
    """Returns the ranks that kept the others waiting, if it was they and not other programs that took the time."""
    in_order = sorted(ranks, key=lambda rank: rank.split.collectives)
    if len(ranks) < 2 or not all(rank.split.own for rank in ranks):
        return None
    waits = [rank.split.collectives for rank in in_order]
    gaps = [after - before for before, after in pairwise(waits)]
    at = max(range(max(1, len(ranks) // 2)), key=gaps.__getitem__) + 1
    behind, others = in_order[:at], [rank.split for rank in in_order[at:]]
    usual = median(each.collectives for each in others)
    late, own = usual - waits[at - 1], [each.own for each in others]
    # Of equal ranks on a busy machine one waits least, too, but has run no longer than the others.
    took = min(rank.split.own for rank in behind) - max(own)
    is_late = late >= max(_LEAST, _SHARE * median(rank.seconds for rank in ranks))
    if not is_late or took < _BY_ITSELF * min(late, max(own)):
        return None
    one = in_order[0].split
    more = one.own - median(own)
    waited = max(0.0, one.waiting - median(each.waiting for each in others))
    found = Straggler(behind, waits[at - 1], usual, more, waited, None)
    longer, blocked, place = max(_longer(one, others), key=lambda each: each[0])
    difference = usual - one.collectives
    if longer >= _COVERED * more and longer + waited >= _COVERED * difference:
        return found._replace(
            cause=place, longer=longer, is_blocked=blocked > longer / 2 and one.running > 0
        )
    return found


def _longer(one: Split, others: Sequence[Split]) -> Iterator[tuple[float, float, Place]]:
    """Yields by how many seconds a rank was longer at each line than others, and was blocked longer."""

    def at(split: Split, key: tuple[str, str, int]) -> tuple[float, float]:
        seen = split.lines[key][0] if key in split.lines else Amounts()
        return (seen.time - seen.waiting) / 1e9, (seen.time - seen.waiting - seen.cpu) / 1e9

    yield 0.0, 0.0, Place("", "", 0, "")
    for key, (_, place) in one.lines.items():
        usual = [median(each) for each in zip(*(at(other, key) for other in others), strict=True)]
        own = at(one, key)
        yield own[0] - usual[0], own[1] - usual[1], place


# --- which failed first -------------------------------------------------------------------


class FirstFailed(NamedTuple):
    """What led to the end of a job that failed."""

    ranks: Sequence[Rank]  # That which failed first; several where that is not known
    failures: Sequence[
        Failure | None
    ]  # How each did; None of one that the others waited for in vain
    after: Sequence[Rank]  # Those that failed because of it
    is_elsewhere: bool = False  # Whether all failed because of one that is not among them


def first_failed(ranks: Sequence[Rank]) -> FirstFailed | None:
    """Returns which rank failed first, by what orders failures: that others lost it, else a clock that they share."""
    found = [(rank, each) for rank in ranks if (each := _failure_of(rank)) is not None]
    if not found:
        return None
    lost = {rank.number: of for rank, each in found if (of := _lost_another(rank, each))}
    after = [rank for rank, _ in found if rank.number in lost]
    firsts: dict[object, tuple[Rank, Failure]] = {}
    begun: dict[object, float] = {}
    for rank, each in sorted(found, key=_moment):
        since = _moment((rank, each)) - begun.setdefault(rank.clock, _moment((rank, each)))
        is_told = each.run.error == "SIGKILL" and since > _TOLD_TO_END
        if rank.number not in lost and not is_told:
            firsts.setdefault(rank.clock, (rank, each))
    if firsts:
        first, how = zip(*firsts.values(), strict=True)
        return FirstFailed(first, how, [rank for rank, _ in found if rank not in first])
    silent = [rank for rank in ranks if rank.number not in lost and rank.run.end is None]
    if len(silent) > 1:
        silent.sort(key=lambda rank: rank.split.collectives)
        silent = silent[: silent[0].split.collectives < silent[1].split.collectives / 2]
    if len(silent) == 1 and not missing_from(ranks):
        return FirstFailed(silent, [None], after)
    return FirstFailed([], [], after, is_elsewhere=missing_from(ranks) > 0)


def _moment(failed: tuple[Rank, Failure]) -> float:
    """Returns when a rank failed by its node's clock, in seconds since the epoch."""
    return failed[0].recording.began_ns / 1e9 + failed[1].time


def _failure_of(rank: Rank) -> Failure | None:
    """Returns how a rank failed; of one without an end that nobody has seen end, nothing is known."""
    return next((each for each in failures(rank.recording) if each.run is rank.run), None)


def _lost_another(rank: Rank, failure: Failure) -> bool:
    """Whether a rank failed because of another one: torch's watchdog ends one that waits too long by SIGABRT."""
    line = next((step.line for step in reversed(rank.run.steps) if step.line is not None), None)
    is_waiting = line is not None and _COLLECTIVES.match(line.leaf.file) is not None
    return of_peers(failure) is not None or (failure.run.error == "SIGABRT" and is_waiting)
