"""What is known of a program that was killed, and what would help."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from otel_quant.recordings.model import Advice, Ending, Recording
from otel_quant.rendering.units import WITHIN, counted, cut, duration_text, share_text, size
from otel_quant.report.tables import FactList

_LONGEST: Final = 300
_MOST: Final = 8


@dataclass(frozen=True, slots=True)
class PostMortem:
    """The post-mortem of a program.

    Attributes:
        facts: What is known, each with how it is known.
        advice: What would help, most useful first.
    """

    facts: FactList
    advice: tuple[Advice, ...]


def post_mortem_of(recording: Recording) -> PostMortem | None:
    """Returns the post-mortem; None if nobody saw the program being killed."""
    ending = recording.ending
    if ending is None or not (
        ending.signal or ending.process or ending.out_of_memory or ending.advice
    ):
        return None
    return PostMortem(FactList("", tuple(_rows(ending))), ending.advice)


def _rows(ending: Ending) -> Iterator[tuple[str, str]]:
    if ending.process is not None:
        by = f", by {ending.process_signal}" if ending.process_signal is not None else ""
        yield "Killed", f"{cut(ending.process, _LONGEST)}{by}"
    if ending.error is not None:
        yield "Error", cut(ending.error, _LONGEST)
    if ending.signal is not None:
        yield "Ended by", f"{ending.signal}, {duration_text(ending.time)} after the start"
    elif ending.exit_code:
        yield "Exit code", f"{ending.exit_code}"
    if ending.out_of_memory is not None:
        yield "Out-of-memory killer", f"{_CERTAIN[ending.out_of_memory]}{_because(ending)}"
    elif ending.evidence:
        yield "Evidence", cut(ending.evidence, _LONGEST)
    if ending.where is not None:
        yield "Was doing", cut(ending.where, _LONGEST)
    if len(ending.open_steps) > 1:
        yield "Open steps", _listed([cut(name, 80) for name in ending.open_steps], WITHIN)
    if ending.memory is not None:
        limit = ""
        if ending.memory_limit:
            source = f" ({ending.memory_limit_source})" if ending.memory_limit_source else ""
            share = share_text(ending.memory / ending.memory_limit)
            limit = f", {share} of the limit of {size(ending.memory_limit)}{source}"
        yield "Memory then", f"{size(ending.memory)}{limit}"
    if ending.memory_per_sample:
        yield "Growth", f"{size(ending.memory_per_sample)} with each calibration sample"
    for name, sizes in (("Largest processes", ending.processes), ("On disk", ending.disk)):
        if sizes:
            yield (
                name,
                _listed([f"{cut(each, 80)} {size(taken)}" for each, taken in sizes], ", "),
            )


_CERTAIN: Final = {
    "known": "yes, known",
    "guessed": "probably, guessed",
}


def _because(ending: Ending) -> str:
    return f": {cut(ending.evidence, _LONGEST)}" if ending.evidence else ""


def _listed(texts: Sequence[str], between: str) -> str:
    more = len(texts) - _MOST
    shown = between.join(texts[:_MOST])
    return f"{shown} and {counted(more, 'more').removesuffix('s')}" if more > 0 else shown
