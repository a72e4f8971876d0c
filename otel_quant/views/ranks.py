"""The ranks of a job as a table, and in sentences: which failed first, or which kept the others waiting."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from otel_quant.diagnosis.headline import error_text, names_text
from otel_quant.recordings import ranks as job
from otel_quant.recordings import summary
from otel_quant.recordings.failures import failure_of
from otel_quant.recordings.model import STATES, WORST_FIRST, RecordedRun, Recording
from otel_quant.recordings.ranks import Rank
from otel_quant.schema.units import counted, duration_text
from otel_quant.views.document import ONE, Cell, Column, Lines, Part, Table, UnitCell, known
from otel_quant.views.text import phrase


def ranks_in(recording: Recording) -> list[Rank]:
    """Returns the ranks of a recording; none of one that is shown with those of its job's other nodes."""
    return recording.once("ranks", lambda: job.ranks_of([recording]))


def _peak(rank: Rank, *names: str) -> Cell:
    found = (summary.peak_of_run(rank.recording, rank.run, name) for name in names)
    peak = next(filter(None, found), None)
    return peak and UnitCell(peak.value, before="≥ " * peak.is_least)


COLUMNS: Final = (
    Column[Rank]("RANK", "", lambda rank: rank.number, key="rank"),
    Column[Rank]("NODE", None, lambda rank: rank.node, key="node"),
    Column[Rank]("TIME", "s", lambda rank: rank.seconds, shown_in=ONE, key="seconds"),
    Column[Rank]("RUNNING", "s", lambda rank: rank.split.running / 1e9 or None, shown_in=ONE, title="its thread was on a processor", key="running_seconds"),
    Column[Rank]("IN COLLECTIVES", "s", lambda rank: rank.split.collectives / 1e9 if rank.split.own else None, shown_in=ONE, title="it waited for other ranks, in torch.distributed", key="collectives_seconds"),
    Column[Rank]("REST", "s", lambda rank: (rank.split.own - rank.split.running + rank.split.waiting) / 1e9 or None, shown_in=ONE, title="it was blocked, or waited for a processor", key="rest_seconds"),
    Column[Rank]("MEM PEAK", "By", lambda rank: _peak(rank, summary.MEMORY_PEAK), shown_in=ONE, key="memory_peak_bytes"),
    Column[Rank]("GPU PEAK", "By", lambda rank: _peak(rank, summary.GPU_TREE_PEAK, summary.GPU_PEAK), shown_in=ONE, key="gpu_memory_peak_bytes"),
    Column[Rank]("STATE", None, lambda rank: f"{rank.run.words.cell}{phrase(': {}', rank.run.error)}", longest=60, key="state"),
)  # fmt: skip


def rank_tables(ranks: Sequence[Rank]) -> Iterator[Table]:
    """Yields the ranks of a job and what each did with its time, if there are any."""
    if ranks:
        columns, note = known(COLUMNS, ranks), _missing(ranks)
        table = Table.of(columns, ranks, id="ranks", caption="Ranks", note=note)
        yield table.first(64, "rank")


def _missing(ranks: Sequence[Rank]) -> str:
    missing = max(0, (ranks[0].run.world_size or 0) - len(ranks))
    words = "Not recorded here: {}, of another node or without a step."
    return phrase(words, missing, lambda it: counted(it, "rank"))


def parts_of_job(recordings: Sequence[Recording]) -> Iterator[Part]:
    """Yields the answer on a job whose nodes have a recording each, if these are; then they have none of their own."""
    ranks = job.ranks_of(recordings) if len(recordings) > 1 else []
    if not ranks:
        return
    for recording in recordings:
        recording.memo["ranks"] = []
    state = next(each for each in WORST_FIRST if any(it.state == each for it in recordings))
    length = duration_text(max(each.duration for each in recordings))
    nodes = counted(len({rank.node for rank in ranks}), "node")
    how = f"A job of {counted(len(ranks), 'rank')} on {nodes} {STATES[state].verb} after {length}."
    yield Lines([how, *job_sentences(ranks)])
    yield from rank_tables(ranks)


def job_sentences(ranks: Sequence[Rank]) -> Iterator[str]:
    """Yields which rank of a job failed first, or else which kept the others waiting."""
    if not ranks:
        return
    if (first := job.first_failed(ranks)) is not None:
        yield _failed(first, ranks)
    elif (behind := job.straggler(ranks)) is not None:
        yield from _waited_for(behind)


def failed_by_another(recording: Recording) -> list[str]:
    """Returns what led to the failure of a rank that failed first by time, where that was another rank."""
    ranks, failure = ranks_in(recording), failure_of(recording)
    first = job.first_failed(ranks) if ranks and failure is not None else None
    if failure is None or first is None or failure.run not in [rank.run for rank in ranks]:
        return []
    return [] if [rank.run for rank in first.ranks] == [failure.run] else [_failed(first, ranks)]


def _failed(first: job.FirstFailed, ranks: Sequence[Rank]) -> str:
    after, missing = first.after and _names(first.after), _missing(ranks)
    told = [
        f"{'was killed by' if each.run.state == 'killed' else 'failed with'} "
        + error_text(str(each.of.error), each.of.error_message)
        for each in first.failures
    ]
    if len(told) > 1:
        each = (f"{_names([rank])} {how}" for rank, how in zip(first.ranks, told, strict=True))
        return f"{'; '.join(each)}. Which failed first is not known: the clocks of nodes differ."
    if not first.ranks and len(first.after) == ranks[0].run.world_size:
        places: dict[str, list[Rank]] = {}
        for rank in first.after:
            places.setdefault(_place(rank.run), []).append(rank)
        each = (f"{_names(some)}{place}" for place, some in places.items())
        return f"{after} timed out waiting for one another, or lost the connection; which was the cause is not known: {'; '.join(each)}."
    if not first.ranks:
        return f"{after} failed because of another rank. {missing}".rstrip()
    name, place = _names(first.ranks), _place(first.ranks[0].run)
    if not told:
        return f"{name} did not answer{place}: {after} timed out waiting for it, or lost the connection to it."
    lost = phrase(" {} lost the connection to it.", after)
    return f"{name} failed first: it {told[0]}{place}.{lost}"


def _place(run: RecordedRun) -> str:
    """Returns in which step a rank was last, and at which line."""
    step = next((step for step in reversed(run.steps) if step.end is None or step.error), None)
    at = phrase(", last seen at {}", step and step.line, lambda line: line.waiting_words)
    return "" if step is None else f", in {names_text([step.name])}{at}"


def _names(ranks: Sequence[Rank]) -> str:
    """Returns ranks in words, at the beginning of a sentence: ``Ranks 0, 1 and 3 (node-a, node-b)``."""
    *others, last = [str(rank.number) for rank in ranks]
    numbers = f"Ranks {', '.join(others)} and {last}" if others else f"Rank {last}"
    return f"{numbers} ({', '.join(dict.fromkeys(rank.node for rank in ranks))})"


def _waited_for(behind: job.Straggler) -> Iterator[str]:
    name, wait = _names(behind.ranks), behind.for_processor
    own, others = map(duration_text, (behind.ranks[0].split.collectives / 1e9, behind.others))
    yield f"{name} kept the others waiting: it waited {own} for other ranks, they {others}."
    if behind.cause is None:
        return
    how = ", where it was blocked" * behind.is_blocked
    is_told = wait > behind.longer / 4
    more = phrase(", and waited {} longer for a processor", is_told and duration_text(wait))
    yield f"{_names(behind.ranks[:1])} was {duration_text(behind.longer)} longer than they at {behind.cause.short}{how}{more}."
