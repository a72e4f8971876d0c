"""What a defect is, what it is recognised by, and what is said of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from otel_quant.cost.graph import Operation, printable
from otel_quant.inference.file_graph import FileGraph
from otel_quant.inference.join import Kernel

_LONGEST: Final = 80
_LISTED: Final = 3
_LONGEST_NAME: Final = 120


@dataclass(frozen=True, slots=True)
class Evidence:
    """What defects are looked for in."""

    file: FileGraph  # The model's file
    kernels: Sequence[Kernel]  # The kernels that ran, in order
    asked: Sequence[str]  # Providers that the user asked for, in order
    level: str  # Level of graph optimization
    open_lengths: bool  # Whether an input of the file has a length that is not fixed


class FoundDefect(NamedTuple):
    """A defect that was found."""

    node: str  # Node of the file
    kernels: Sequence[Kernel]  # The kernels whose time it is
    text: str  # What is wrong, without the share
    remedy: str = ""  # What would change it; empty if nothing is known
    # The same for those of a kind that are so for the same reason; empty for the text
    alike: str = ""


@dataclass(frozen=True, slots=True)
class Defect:
    """One record of the table."""

    kind: str  # Its name in data
    find: Callable[[Evidence], Iterable[FoundDefect]]  # Recognises it
    source: str  # Where what is said of it can be read


@dataclass(frozen=True, slots=True)
class Finding:
    """A defect of a model."""

    kind: str  # Kind of the defect
    node: str  # Node of the file
    sentence: str  # What is wrong, with its share of the time
    remedy: str  # What would change it; may be empty
    micros: float  # Time of its kernels in a run, in microseconds
    share: float  # Their part of the time of all kernels, 0 to 1
    kernels: tuple[str, ...]  # Their names
    source: str  # Where what is said can be read
    alike: str = ""  # The same for findings of the kind that are so for the same reason


def finding_of(
    kind: str,
    source: str,
    node: str,
    text: str,
    kernels: Iterable[tuple[str, float, float]],
    remedy: str = "",
    alike: str = "",
) -> Finding:
    """Makes a sentence of what is wrong."""
    listed_kernels = list(kernels)
    share = sum(each for _, _, each in listed_kernels)
    wanted = f"; wanted: {remedy}" if remedy else ""
    return Finding(
        kind,
        printable(node, _LONGEST_NAME),
        f"{text} ({_percent(share)} of the time){wanted}",
        remedy,
        sum(micros for _, micros, _ in listed_kernels),
        share,
        tuple(printable(name, _LONGEST_NAME) for name, _, _ in listed_kernels),
        source,
        printable(alike or text),
    )


def _percent(share: float) -> str:
    percent = 100 * share
    return f"{percent:.2f} %" if percent < 1 else f"{percent:.1f} %"


def title(op: Operation) -> str:
    """Returns a node's operator and name as sentences have them."""
    return f"{op.node.op_type} `{printable(op.name, _LONGEST)}`"


def listed(names: Sequence[str]) -> str:
    """Returns the first names of several, and how many more there are."""
    shown = [f"`{printable(name, _LONGEST)}`" for name in names[:_LISTED]]
    more = len(names) - len(shown)
    if more:
        return f"{', '.join(shown)} and {more:,} more"
    return " and ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)
