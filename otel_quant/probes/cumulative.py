"""Counters that only rise, summed over the process tree.

The kernel adds what a child has used to its parent's counters when the parent waits for
it, so the sum over the living (and the zombies) holds what the dead used. Two things
are in the way of a sum that neither falls nor counts anything twice:

- A process may be waited for in the middle of a pass. Parents are therefore read before
  their children: what moves upwards meanwhile is missed, never met twice, and a pass
  that missed something is made again.
- What nobody waits for is gone: a child of a process that ignores SIGCHLD, or an orphan,
  which belongs to ``init``. Such a fall stays after another pass, and what had been
  counted until then is kept beside the sum from there on.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterable
from typing import Final

import psutil

from otel_quant.probes.tree import descendants_now

Figures = tuple[int, ...]

_PASSES: Final = 3
"""How often a reading is tried: with children that come and go all the time no pass is
whole, and the next reading will do."""

_GONE = (FileNotFoundError, ProcessLookupError, psutil.NoSuchProcess)


class Cumulative:
    """Sums counters over this process and its descendants.

    Args:
        own: Reads this process's counters, its reaped descendants' included.
        of_child: Reads those of the process with the given id. Raises ``OSError`` or
            ``psutil.Error`` if it has exited or belongs to someone else.
        list_descendants: Returns the ids of the descendants, parents first.
    """

    def __init__(
        self,
        own: Callable[[], Figures],
        of_child: Callable[[int], Figures],
        list_descendants: Callable[[], Collection[int]] = descendants_now,
    ) -> None:
        self._own = own
        self._of_child = of_child
        self._list = list_descendants
        self._highest: Figures = ()
        self._lost: Figures = ()
        self._last: dict[int, Figures] = {}

    def read(self, pids: Collection[int]) -> Figures:
        """Reads the totals; none of them is lower than at the reading before.

        Args:
            pids: Process ids of the descendants, parents first.

        Returns:
            One total for each counter.

        Raises:
            OSError: This process may not read its own counters.
        """
        for remaining in reversed(range(_PASSES)):
            sums, whole = self._pass(pids)
            if not self._highest:
                self._highest, self._lost = sums, (0,) * len(sums)
            totals = _added(sums, self._lost)
            if whole and not any(map(operator.lt, totals, self._highest)):
                break
            if remaining:
                pids = self._list()
            elif whole:
                higher = tuple(map(max, self._highest, totals))
                self._lost = _added(self._lost, map(operator.sub, higher, totals))
        self._highest = tuple(map(max, self._highest, totals))
        return self._highest

    def _pass(self, pids: Collection[int]) -> tuple[Figures, bool]:
        sums, whole = self._own(), True
        seen: dict[int, Figures] = {}
        for pid in pids:
            try:
                seen[pid] = self._of_child(pid)
            except _GONE:
                whole = False
                continue
            except (OSError, psutil.Error):
                # It belongs to someone else, perhaps since it ran a setuid program.
                if pid not in self._last:
                    continue
                seen[pid] = self._last[pid]
            sums = _added(sums, seen[pid])
        self._last = seen
        return sums, whole


def _added(first: Iterable[int], second: Iterable[int]) -> Figures:
    return tuple(map(operator.add, first, second))
