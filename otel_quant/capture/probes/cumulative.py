"""Counters that only rise, summed over the process tree.

When a parent waits for an exited child, the kernel adds the child's counters to the parent's.
So the sum over existing processes (zombies included) contains what exited ones used. Two cases
would make the sum fall or count something twice:

- A process is waited for in the middle of a pass. Parents are read before their children, so
  its figures are missed in that pass but never counted twice; the pass is then repeated.
- A process is not waited for: its parent ignores SIGCHLD, or it is an orphan and belongs to
  ``init``. Its figures leave the sum for good. If the sum is still lower after another pass,
  the difference is remembered and added from then on.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterable
from typing import Final

import psutil

from otel_quant.capture.probes.tree import descendants_now

Figures = tuple[int, ...]

_PASSES: Final = 3
"""Passes for one reading. If children start and exit all the time, no pass is complete; the
next reading then corrects this one."""

_EXITED = (FileNotFoundError, ProcessLookupError, psutil.NoSuchProcess)


class Cumulative:
    """Sums counters over this process and its descendants."""

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
        """Reads the totals. No total is lower than at the previous reading."""
        if not pids and not self._last and self._highest and not any(self._lost):
            # Most programs have no child, and this takes half as long.
            sums = self._own()
            if not any(map(operator.lt, sums, self._highest)):
                self._highest = sums
                return sums
        for remaining in reversed(range(_PASSES)):
            sums, is_complete = self._pass(pids)
            if not self._highest:
                self._highest, self._lost = sums, (0,) * len(sums)
            totals = _added(sums, self._lost)
            if is_complete and not any(map(operator.lt, totals, self._highest)):
                break
            if remaining:
                pids = self._list()
            elif is_complete:
                higher = tuple(map(max, self._highest, totals))
                self._lost = _added(self._lost, map(operator.sub, higher, totals))
        self._highest = tuple(map(max, self._highest, totals))
        return self._highest

    def _pass(self, pids: Collection[int]) -> tuple[Figures, bool]:
        sums, is_complete = self._own(), True
        seen: dict[int, Figures] = {}
        for pid in pids:
            try:
                seen[pid] = self._of_child(pid)
            except _EXITED:
                is_complete = False
                continue
            except (OSError, psutil.Error):
                # It belongs to another user, perhaps because it ran a setuid program.
                if pid not in self._last:
                    continue
                seen[pid] = self._last[pid]
            sums = _added(sums, seen[pid])
        self._last = seen
        return sums, is_complete


def _added(first: Iterable[int], second: Iterable[int]) -> Figures:
    return tuple(map(operator.add, first, second))
