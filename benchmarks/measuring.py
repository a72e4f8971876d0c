"""What the benchmarks share: taking turns, medians, and tables.

The machines that these run on are noisy and shared, so no figure is given alone: what is
compared is measured in turns, and the result is the ratio of two medians.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


def compiled_into(folder: Path) -> dict[str, str]:
    """Returns the environment in which Python keeps its compiled modules in a folder.

    As they are after ``pip install``, whatever this environment says (containers often
    forbid it): a process that compiles its modules anew spends its time on that.
    """
    return {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(folder)}


def take_turns(rounds: int, candidates: Mapping[str, Callable[[], T]]) -> dict[str, list[T]]:
    """Measures candidates alternately.

    Args:
        rounds: How many times each of them is measured.
        candidates: By name, what measures once and returns the figure.

    Returns:
        The figures by name, one for each round. Who comes first changes from round to
        round, so that a drift of the machine meets all alike.
    """
    names = list(candidates)
    figures: dict[str, list[T]] = {name: [] for name in names}
    for turn in range(rounds):
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            figures[name].append(candidates[name]())
    return figures


def median_ratio(numerators: Sequence[float], denominators: Sequence[float]) -> float:
    """Returns the median of the first divided by the median of the second."""
    return statistics.median(numerators) / statistics.median(denominators)


def quartiles(figures: Sequence[float]) -> tuple[float, float]:
    """Returns the first and third quartile; the only figure twice if there is one."""
    if len(figures) < 2:
        return figures[0], figures[0]
    first, _, third = statistics.quantiles(figures, n=4, method="inclusive")
    return first, third


def print_table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Prints rows under a head: the first column to the left, the others to the right."""
    cells = [[str(cell) for cell in row] for row in (head, *rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for number, row in enumerate(cells):
        first, *rest = (
            cell.rjust(width) if position else cell.ljust(width)
            for position, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        print("  ".join([first, *rest]).rstrip())
        if number == 0:
            print("  ".join("-" * width for width in widths))
