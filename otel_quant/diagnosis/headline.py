"""The sentences about a run that come first: in the program, as its telemetry has them, and of its recording.

A program knows its steps and its peak. When it was started, what came before its first step and how
it ends it does not know: `otel-quant run` and the commands put these in, around the same sentences.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

from otel_quant.schema.units import WITHIN, counted, cut, duration_text, share_text, size

LONGEST_NAME: Final = 120
LONGEST_MESSAGE: Final = 400
MOST_TIME: Final = 0.5  # Share of a time from which on a part of it is most of it

_LEAST: Final = 0.01
"""Share of a run below which it does not matter which of its steps took longest."""

Times: TypeAlias = Mapping[tuple[str, ...], tuple[float, int]]
"""Seconds of their own of the steps of a name, with the name around it, and how many these are."""


def names_text(names: Sequence[str]) -> str:
    """Returns the name of a step behind the name of the step around it."""
    return WITHIN.join(cut(name, LONGEST_NAME) for name in names[-2:])


def error_text(error: str, message: str | None, line: object = None) -> str:
    """Returns an exception in words, with the line of the program if that is known, without a full stop."""
    text = f": {cut(message, LONGEST_MESSAGE)}" if message else ""
    told = text.removeprefix(": raised at ")  # of one without a message, maybe in a library
    at = f", at {line}" if line and "raised at " not in told and str(line) not in told else ""
    return f"{cut(error, LONGEST_NAME)}{text}".rstrip(".") + at


def of_limit(value: float, limit: float | None) -> str:
    """Returns what share of the limit a size is: ``93.8 % of the limit of 8.00 GB``; empty if that is not known."""
    if not limit:
        return ""
    more = ", which counts what processes share once" if value > limit else ""
    return f"{share_text(value / limit)} of the limit of {size(limit)}{more}"


def peak_sentence(
    peak: float, where: str, limit: float | None, *, what: str = "Memory", is_least: bool = False, more: str = "",
) -> str:  # fmt: skip
    """Returns the highest memory, and how near to the limit it was."""
    verb = "reached at least" if is_least else "peaked at"
    near = of_limit(peak, limit)
    return f"{what} {verb} {size(peak)}{where}{near and f': {near}'}{more}."


def time_sentence(
    times: Times, covered: float, whole: float | None = None, *, processes: int = 1
) -> str:
    """Returns how long some steps took, of a whole if that is known, and those of one name that took longest.

    Of several processes beside each other the times of a name are those of one.
    """
    steps = sum(count for _, count in times.values())
    names, (own, count) = max(times.items(), key=lambda each: each[1][0])
    own = min(own, covered)  # of threads beside each other, which do not add up
    of_whole = f" of {duration_text(whole)}" if whole else ""
    if steps == 1:
        return f"{names_text(names)} took {duration_text(covered)}{of_whole}."
    several = f" in {processes:,} processes" if processes > 1 else ""
    in_one = " in one process" if several else ""
    often = f" ({count:,} times)" if count > 1 and not several else ""
    word = "most of it" if own > MOST_TIME * covered else "the longest"
    share = f", {share_text(own / whole)} of the run" if whole else ""
    took = f"{counted(steps, 'step')}{several} took {duration_text(covered)}{of_whole}"
    if whole and covered < _LEAST * whole:
        return f"{took}."
    return f"{took}, {word} {names_text(names)}{often}: {duration_text(own)}{in_one}{share}."


class StepTimes:
    """What the steps of a run that goes on have taken so far. Has no lock."""

    def __init__(self) -> None:
        self._times: dict[tuple[str, ...], tuple[float, int]] = {}
        self._highest: tuple[float, tuple[str, ...]] = (-1.0, ())
        self._covered_ns = 0  # While a step was open
        self._open, self._since_ns = 0, 0

    def begin(self, clock_ns: int) -> None:
        """Notes that a step has begun."""
        if not self._open:
            self._since_ns = clock_ns
        self._open += 1

    def drop(self) -> None:
        """Forgets a step of whose end nothing will be known."""
        self._open -= 1

    def end(self, names: Sequence[str], lasted_ns: int, clock_ns: int, peak: float | None) -> None:
        """Notes that a step has ended; names are of those around it too, outermost first."""
        self._open -= 1
        if not self._open:
            self._covered_ns += clock_ns - self._since_ns
        own, outer = tuple(names[-2:]), tuple(names[-3:-1])
        seconds, count = self._times.get(own, (0.0, 0))
        self._times[own] = seconds + lasted_ns / 1e9, count + 1
        if outer:
            seconds, count = self._times.get(outer, (0.0, 0))
            self._times[outer] = seconds - lasted_ns / 1e9, count
        if peak is not None and peak > self._highest[0]:  # the innermost ends first
            self._highest = peak, own

    def answer(self, peak: float | None, limit: float | None, error: str | None) -> str:
        """Returns what a run that ends came to; `error` is an exception in words."""
        sentences = [f"Failed with {error}."] if error is not None else []
        if peak is not None:
            highest, names = self._highest
            where = f" in {names_text(names)}" if names and highest >= peak else ""
            sentences.append(peak_sentence(peak, where, limit))
        if self._times:
            sentences.append(time_sentence(self._times, self._covered_ns / 1e9))
        return " ".join(sentences)
