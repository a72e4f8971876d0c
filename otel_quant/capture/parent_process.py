"""Data from the parent process: whether it is measured, and the trace that it belongs to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final


@dataclass(slots=True)
class ParentProcess:
    """Data that a measured parent process has passed to this process."""

    # Whether a measured process forked or spawned this process. A worker can be terminated at any
    # time between two tasks, so its root span ends, and its telemetry is sent, after each
    # outermost operation or step.
    is_worker: bool = False
    # W3C trace context, by header name; it is used instead of the environment's
    carrier: Mapping[str, str] = field(default_factory=dict)


PARENT: Final = ParentProcess()
"""The data of this process."""
