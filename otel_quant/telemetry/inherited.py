"""Connections that a forked child must not use: its parent's.

A pool of keep-alive connections is copied by ``fork`` with its sockets. Parent and child
would then write into one stream, and each read what was meant for the other.
"""

from __future__ import annotations

import gc
import sys
from collections import deque
from collections.abc import Iterable
from typing import Any, Final

_MOST: Final = 20_000
"""Objects that are looked at before the search is given up."""


def close_inherited(providers: Iterable[Any]) -> int:
    """Closes the child's copies of the connections that exporters keep open.

    Only the child's descriptors are closed: the parent's connections stay as they are,
    and the exporters open new ones. Exporters hold their session several objects deep,
    and differently in each release, so it is searched for by type, through objects of
    OpenTelemetry's and containers only.

    Args:
        providers: The providers that the exporters belong to.

    Returns:
        Number of sessions that were closed.
    """
    requests = sys.modules.get("requests")
    if requests is None:
        return 0  # no exporter over HTTP has been made
    closed = 0
    seen: set[int] = set()
    pending: deque[Any] = deque(providers)
    while pending and len(seen) < _MOST:
        item = pending.popleft()
        if id(item) in seen:
            continue
        seen.add(id(item))
        if isinstance(item, requests.Session):
            item.close()
            closed += 1
        elif _may_lead_there(item):
            pending.extend(gc.get_referents(item))
    return closed


def _may_lead_there(item: Any) -> bool:
    kind = type(item)
    return kind in (dict, list, tuple) or kind.__module__.partition(".")[0] == "opentelemetry"
