"""The limits of a walk over a model: operations, work, depth and time.

A small file can unfold into much: functions that call functions, loops of loops, constants
that are computed again at every node.
"""

from __future__ import annotations

from time import monotonic
from typing import Final

from otel_quant.cost.errors import LONGER, CostError

MAX_OPS: Final = 200_000
"""Operations that a model may unfold into unless told; real ones stay below half of it."""

MAX_WORK: Final = 5_000_000
"""Operands, attributes and constants looked at while they unfold: a few seconds' worth."""

MAX_EFFORT: Final = 4_000_000
"""Elements of small tensors computed, likewise; beyond it only those of ``SMALL_EFFORT``."""

SMALL_EFFORT: Final = 64
"""Elements that it takes to compute a shape from shapes."""

MAX_CALL_DEPTH: Final = 64
"""Functions calling functions, and graphs in graphs."""

_LOOK_EVERY: Final = 0xFF
"""Operations between looks at the clock, less one."""


class Budget:
    """What one walk has taken so far."""

    def __init__(self, source: str, deadline: float | None, max_operations: int = MAX_OPS) -> None:
        self.operations = 0
        self.depth = 0
        self._source = source
        self._max_operations = max_operations
        self._max_work = MAX_WORK * max(1, max_operations // MAX_OPS)
        self._deadline = deadline
        self._work = 0
        self._effort = 0

    def count_operation(self) -> None:
        """Counts an operation."""
        self.operations += 1
        if self.operations > self._max_operations:
            raise CostError(
                self._source,
                f"unfolds into more than {self._max_operations:,} operations, functions and "
                "bodies included",
                expected=f"at most {self._max_operations:,}; --max-nodes sets the limit",
            )
        if not self.operations & _LOOK_EVERY:
            self.check_time()

    def spend(self, work: int) -> None:
        """Counts operands, attributes and constants that are looked at."""
        self._work += work
        if self._work > self._max_work:
            raise CostError(
                self._source,
                f"unfolds into operations with more than {self._max_work:,} operands and "
                "attributes",
                expected=f"at most {self._max_work:,}; a higher --max-nodes raises that limit",
            )

    def allows(self, effort: int) -> bool:
        """Counts elements of small tensors to be computed; returns whether they may be."""
        if self._effort + effort > MAX_EFFORT and effort > SMALL_EFFORT:
            return False
        self._effort += effort
        return True

    def enter(self) -> None:
        """Goes one graph or function deeper; ``depth`` is set back by the caller."""
        self.depth += 1
        if self.depth > MAX_CALL_DEPTH:
            raise CostError(
                self._source,
                f"functions or graphs are nested more than {MAX_CALL_DEPTH} deep",
                expected="no function that calls itself",
            )

    def check_time(self) -> None:
        """Raises CostError if the time limit has passed."""
        if self._deadline is not None and monotonic() > self._deadline:
            raise CostError(self._source, "the time limit passed", expected=LONGER)
