"""Where this process comes from: what its parent told it about the trace it belongs to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final


@dataclass(slots=True)
class ParentProcess:
    """What a parent that is watched left for its child.

    Attributes:
        is_worker: Whether this process was forked or spawned by one that is watched. A
            worker can be terminated at any time between two tasks, so its root span
            ends, and its telemetry leaves, with each outermost operation or step.
        carrier: W3C trace context, by header name; it goes before the environment's.
    """

    is_worker: bool = False
    carrier: Mapping[str, str] = field(default_factory=dict)


PARENT: Final = ParentProcess()
"""This process's."""
