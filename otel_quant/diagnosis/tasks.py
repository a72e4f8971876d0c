"""What the threads beside a step's own, and the children of the program, do meanwhile."""

from __future__ import annotations

import math
from typing import Final, NamedTuple


class Garbage(NamedTuple):
    """What the garbage collector has done in a step; NaN where that is not known."""

    share: float = math.nan  # Of the time
    full: int = 0  # Collections of all objects
    mean: float = 0.0  # Seconds of one of these
    before: float = 0.0  # Seconds of the newest of these before the step
    line: str = ""  # Where the newest in it was, in words

    @property
    def is_old(self) -> bool:
        """Whether half of what it looks at was there before: it took half as long then."""
        return self.full > 0 and self.before >= self.mean / 2


class TasksBeside(NamedTuple):
    """Tasks that are not the step's thread. Shares of its time, added up over tasks; NaN for what is not known."""

    ran: float = math.nan  # Threads of the process
    waited: float = math.nan  # The same, for a processor
    children_waited: float = math.nan  # Child processes, for a processor
    line: str = ""  # Where the busiest of the Python threads was, in words
    child: str = ""  # The command of the busiest child, without its arguments
    pinned: float = math.nan  # Processors that the step's thread may run on
    throttled: float = math.nan  # For which the control group was kept from processors
    # Bytes a second that the network of the machine, or of the container, has carried
    network: float = math.nan
    connections: float = 0.0  # The same of the process's own, while a loop waited for them
    gil: float = math.nan  # In which its thread, or those that it waits for, waited for the GIL
    holder: str = ""  # Where the thread is that is within a lock of the name that is waited for

    @property
    def is_ready(self) -> bool:
        """Whether one of them waited for a processor for a fifth of the time."""
        # What is not known is nothing here: of 0 and NaN the first is the larger.
        return max(0.0, self.waited) + max(0.0, self.children_waited) > _A_PART


_A_PART: Final = 0.2
