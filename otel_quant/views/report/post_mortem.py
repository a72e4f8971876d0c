"""What is known of a program that was killed, and what would help."""

from __future__ import annotations

from dataclasses import dataclass

from otel_quant.recordings.model import Advice, Recording
from otel_quant.views.ending import ending_facts, headline, is_worth_telling
from otel_quant.views.report.tables import FactList


@dataclass(frozen=True, slots=True)
class PostMortem:
    """The post-mortem of a program."""

    headline: str  # What happened
    facts: FactList  # What is known, each with how it is known
    advice: tuple[Advice, ...]  # What would help, most useful first


def post_mortem_of(recording: Recording) -> PostMortem | None:
    """Returns the post-mortem; None if nobody saw the program being killed."""
    ending = recording.ending
    if ending is None or not is_worth_telling(ending):
        return None
    facts = tuple((_capital(name), text) for name, text in ending_facts(ending))
    return PostMortem(f"{_capital(headline(ending))}.", FactList("", facts), ending.advice)


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
