"""Lines of Python code, what was seen at each, and the tree of the lines that a step was at."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import reduce
from operator import add
from pathlib import PurePath
from typing import Final, NamedTuple

from otel_quant.schema.dataclass import dataclass, field

DEEPEST: Final = 200  # Frames of a stack that are kept, the innermost


class Place(NamedTuple):
    """A line of code. Never a value of a variable."""

    file: str  # Path; below the library's folder for one that is installed
    function: str  # Qualified name
    line: int  # 0 for a function as a whole
    library: str  # Folder in site-packages, ``python`` for the standard library; else empty

    @property
    def text(self) -> str:
        """In words: ``compute_range (onnxruntime/quantization/calibrate.py:312)``."""
        place = f"({self.file}{f':{self.line}' if self.line else ''})" if self.file else "lines"
        return f"{self.function} {place}"

    @property
    def short(self) -> str:
        """In words, in a sentence: ``compute_range (calibrate.py:312)``."""
        return self._replace(file=PurePath(self.file).name).text

    @property
    def is_own(self) -> bool:
        """Whether it is the program's own; lines that were folded may be anyone's, and numpy generates code."""
        return bool(self.file) and not self.library and not self.file.startswith("<__")


class Spot(NamedTuple):
    """A line of the program, and what it has called."""

    own: Place | None  # The innermost line of the program's own code; None if the stack has none
    leaf: Place  # The innermost line of all
    waits_for: str = ""  # What a thread that is blocked there waits for; empty if nobody can tell
    is_all: bool = True  # All of what was seen at the own line was there, but for a tenth

    @property
    def words(self) -> str:
        """In words: ``stuck (stall.py:12), in Event.wait``."""
        if self.own is None or self.own == self.leaf:
            return self.leaf.short
        leaf = self.leaf.function if self.leaf.file else self.leaf.text
        return f"{self.own.short}, {'' if self.is_all else 'most '}in {leaf}"

    @property
    def waiting_words(self) -> str:
        """The same of a thread that is blocked: ``stuck (stall.py:12), in Event.wait, which waits for a signal of another thread``."""
        return f"{self.words}, which waits for {self.waits_for}" if self.waits_for else self.words


OTHER: Final = Place("", "other", 0, "")  # Stands for branches that were folded

UNSEEN: Final = Place("", "unseen", 0, "")
"""Stands for the time of a step of which no line was recorded."""

RECORDER: Final = Place("", "otel-quant's own", 0, "otel_quant")  # Stands for what it does itself

OTHER_STEPS: Final = -1  # Index of a step that stands for those that were folded whole
OUTSIDE: Final = -2  # Index that stands for what threads without an open step did
BEFORE: Final = -3
BETWEEN: Final = -4
AFTER: Final = -5
"""Indices that stand for the time in which no step was open: before the first step, between two, after the last."""


class Amounts(NamedTuple):
    """What was seen at a line."""

    time: int = 0  # Nanoseconds
    cpu: int = 0  # Nanoseconds of them on a processor
    waiting: int = 0  # Nanoseconds of them waiting for one
    grown: int = 0  # Bytes by which the process's RSS grew between two samples
    released: int = 0  # Bytes by which it fell

    def plus(self, other: Amounts) -> Amounts:
        """Returns the sum."""
        return Amounts(*map(add, self, other))


NOTHING: Final = Amounts()


def total_of(amounts: Iterable[Amounts]) -> Amounts:
    """Returns the sum."""
    return reduce(Amounts.plus, amounts, NOTHING)


@dataclass(slots=True, eq=False)
class Node:
    """A line of code below the lines that called it."""

    own: Amounts = NOTHING
    below: dict[Place, Node] = field(default_factory=dict)

    def total(self) -> Amounts:
        """Returns what was seen here and in all that was called from here."""
        return total_of((self.own, *(node.own for _, node in self.walk())))

    def walk(self) -> Iterator[tuple[tuple[Place, ...], Node]]:
        """Yields each node with its lines, outermost first. Another thread may add to it meanwhile."""
        waiting: list[tuple[tuple[Place, ...], Node]] = [((), self)]
        while waiting:
            above, node = waiting.pop()
            for place, inner in list(node.below.items()):
                lines = (*above, place)
                waiting.append((lines, inner))
                yield lines, inner
