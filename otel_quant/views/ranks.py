"""The ranks of a job as a table, and in sentences: which failed first, or which kept the others waiting."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from otel_quant.diagnosis import headline
from otel_quant.recordings import summary
from otel_quant.recordings.failures import Failure
from otel_quant.recordings.model import Recording
from otel_quant.recordings.ranks import (
    FirstFailed,
    Rank,
    Straggler,
    first_failed,
    missing_from,
    own_ranks,
    straggler,
)
from otel_quant.schema.units import counted, duration_text
from otel_quant.views.document import ONE, Brief, Cell, Column, Row, Table, UnitCell, known
from otel_quant.views.text import phrase

_MOST: Final = 64
_TOLD: Final = 0.2  # Share of the time that was lost from which on a part of it is told
_CLOCKS: Final = "which of them failed first is not known: the clocks of nodes differ"


def _peak(rank: Rank, *names: str) -> Cell:
    found = (summary.peak_of_run(rank.recording, rank.run, name) for name in names)
    peak = next(filter(None, found), None)
    return peak and UnitCell(peak.value, before="≥ " * peak.is_least)


def _state(rank: Rank) -> str:
    return f"{rank.run.words.cell}{phrase(': {}', rank.run.error)}"


_COLUMNS: Final = (
    Column[Rank]("RANK", "", lambda rank: rank.number),
    Column[Rank]("NODE", None, lambda rank: rank.node),
    Column[Rank]("TIME", "s", lambda rank: rank.seconds, shown_in=ONE),
    Column[Rank]("RUNNING", "s", lambda rank: rank.split.running or None, shown_in=ONE, title="its thread was on a processor"),
    Column[Rank]("IN COLLECTIVES", "s", lambda rank: rank.split.collectives if rank.split.own else None, shown_in=ONE, title="it waited for other ranks, in torch.distributed"),
    Column[Rank]("REST", "s", lambda rank: rank.split.rest if rank.split.own else None, shown_in=ONE, title="it was blocked, or waited for a processor"),
    Column[Rank]("MEM PEAK", "By", lambda rank: _peak(rank, summary.MEMORY_PEAK), shown_in=ONE),
    Column[Rank]("GPU PEAK", "By", lambda rank: _peak(rank, summary.GPU_TREE_PEAK, summary.GPU_PEAK), shown_in=ONE),
    Column[Rank]("STATE", None, _state, longest=60),
)  # fmt: skip


def rank_table(ranks: Sequence[Rank]) -> Table:
    """Returns the ranks of a job and what each did with its time."""
    columns = known(_COLUMNS, ranks)
    has_one = len({rank.node for rank in ranks}) == 1
    shown = [each for each in columns if not (has_one and each.heading == "NODE")]
    note = phrase("{} not recorded here.", missing_from(ranks), lambda it: counted(it, "rank"))
    table = Table.of(
        shown, ranks, row=lambda rank, cells: Row(cells, state=rank.run.state), id="ranks",
        caption="Ranks", note=note,
    )  # fmt: skip
    return table.first(_MOST, "rank")


def outcome_of_job(ranks: Sequence[Rank]) -> str:
    """Returns how a job on several nodes ended, one sentence."""
    nodes = {id(rank.recording): rank.recording for rank in ranks}.values()
    states = {each.state for each in nodes}
    state = next(
        (each for each in ("running", "killed", "failed", "lost") if each in states), "ended"
    )
    words = {"running": "had been running for", "ended": "finished in"}.get(state, f"{state} after")
    words = {"killed": "was killed after", "lost": "has no end record; last seen after"}.get(
        state, words
    )
    length = duration_text(max(each.duration for each in nodes))
    where = counted(len({rank.node for rank in ranks}), "node")
    return f"A job of {counted(len(ranks), 'rank')} on {where} {words} {length}."


def job_sentences(ranks: Sequence[Rank], recordings: Sequence[Recording]) -> Iterator[str]:
    """Yields which rank of a job failed first, or which kept the others waiting."""
    if any(each.state not in ("ended", "running") for each in recordings):
        if (first := first_failed(ranks)) is not None:
            yield from _failed(first, ranks)
    elif (behind := straggler(ranks)) is not None:
        yield from _waited_for(behind, ranks)


def brief_of_job(ranks: Sequence[Rank], recordings: Sequence[Recording]) -> Brief:
    """Returns the answer on a job that a program can act on."""
    verdict, *evidence = [*job_sentences(ranks, recordings), outcome_of_job(ranks)]
    return Brief(verdict, evidence)


def told_otherwise(recording: Recording, run: object) -> list[str]:
    """Returns which rank of a recording failed first, where it is not the run whose failure came first by time."""
    ranks = own_ranks(recording)
    first = first_failed(ranks) if ranks else None
    if first is None or [rank.run for rank in first.ranks] == [run]:
        return []
    return list(_failed(first, ranks))


def _failed(first: FirstFailed, ranks: Sequence[Rank]) -> Iterator[str]:
    name = _names(first.ranks, ranks) if first.ranks else ""
    after = phrase("{} lost their connection to it.", first.after, lambda it: _names(it, ranks))
    if first.is_elsewhere:
        missing = counted(missing_from(ranks), "rank")
        yield f"{_names(first.after, ranks)} failed because of another rank: {missing} of the job not recorded here. Give `otel-quant show` the recordings of all nodes."
    elif len(first.ranks) > 1:
        each = zip(first.ranks, first.failures, strict=True)
        told = "; ".join(f"{_names([rank], ranks)} {_how(how)}" for rank, how in each)
        yield f"{told}; {_CLOCKS}."
    elif not first.ranks:
        yield f"{_names(first.after, ranks)} lost their connection to each other; which was first is not known."
    elif first.failures[0] is None:
        waited = f"{name} kept the others waiting until they failed{_place(first.ranks[0])}"
        yield f"{waited}. {_names(first.after, ranks)} waited for it in vain."
    else:
        yield f"{name} failed first: it {_how(first.failures[0])}{_place(first.ranks[0])}. {after}".rstrip()


def _how(failure: Failure | None) -> str:
    """Returns how a rank failed, as the end of a sentence."""
    assert failure is not None
    name = "was killed by" if failure.run.state == "killed" else "failed with"
    return f"{name} {headline.error_text(str(failure.of.error), failure.of.error_message)}"


def _place(rank: Rank) -> str:
    """Returns in which step a rank was last, and at which line."""
    step = next((step for step in reversed(rank.run.steps) if step.end is None or step.error), None)
    at = step and step.line and f", last seen at {step.line.waiting_words}"
    return "" if step is None else f", in {headline.names_text([step.name])}{at or ''}"


def _names(some: Sequence[Rank], ranks: Sequence[Rank]) -> str:
    """Returns ranks in words, at the beginning of a sentence: ``Ranks 0, 1 and 3 (node-a, node-b)``."""
    *others, last = [str(rank.number) for rank in some]
    numbers = f"Ranks {', '.join(others)} and {last}" if others else f"Rank {last}"
    has_one = len({rank.node for rank in ranks}) == 1
    nodes = ", ".join(dict.fromkeys(rank.node for rank in some))
    return numbers if has_one else f"{numbers} ({nodes})"


def _waited_for(behind: Straggler, ranks: Sequence[Rank]) -> Iterator[str]:
    own, others = duration_text(behind.waited), duration_text(behind.others)
    name = _names(behind.ranks, ranks)
    yield f"{name} kept the others waiting: it waited {own} for other ranks, they {others}."
    if behind.cause is None:
        yield "No line has 80 % of the difference."
        return
    how = ", where it was blocked" if behind.is_blocked else ""
    wait = behind.for_processor
    also = wait > _TOLD * (behind.more + wait) and duration_text(wait)
    more = phrase(", and waited {} longer for a processor", also)
    yield f"{name} was {duration_text(behind.longer)} longer than they at {behind.cause.short}{how}{more}."
