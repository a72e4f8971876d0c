"""Nodes that are sorted, and added up by their operators and by the modules that their names give."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from typing import Any, Final, NamedTuple

from otel_quant.cost import NodeCost, intensity

_DEEPEST: Final = 32
"""Modules within each other; what is deeper is one name. Names come from files."""

_NO_MODULE: Final = "(no module)"
"""Stands for the nodes whose names give no module."""


class GroupCost(NamedTuple):
    """What several nodes cost together: all of one operator, or of one module."""

    name: str  # The operator, or the module's path with slashes
    nodes: int  # How many there are
    macs: int | None  # Sum of those that are known; None if none is
    backward_macs: int | None  # Likewise
    memory_bytes: int | None  # Likewise
    params: int  # Elements of their constants
    # MACs per byte moved, of the nodes of which both are known; None if there are none
    intensity: float | None


def _group(name: str, nodes: Sequence[NodeCost]) -> GroupCost:
    known = [node for node in nodes if node.macs is not None and node.moved_bytes is not None]
    return GroupCost(
        name,
        len(nodes),
        _sum(node.macs for node in nodes),
        _sum(node.backward_macs for node in nodes),
        _sum(node.memory_bytes for node in nodes),
        sum(node.params for node in nodes),
        intensity(_sum(node.macs for node in known), _sum(node.moved_bytes for node in known)),
    )


def _sum(values: Iterable[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


Cost = NodeCost | GroupCost

_SORT_KEYS: Final[dict[str, Callable[[Cost], tuple[int, ...]]]] = {
    "macs": lambda cost: (cost.macs or 0, cost.memory_bytes or 0),
    "memory": lambda cost: (cost.memory_bytes or 0, cost.macs or 0),
    "params": lambda cost: (cost.params, cost.macs or 0),
}
"""Largest first; what is equal keeps the order of execution."""


def sorted_costs(costs: Sequence[Any], sort: str) -> Sequence[Any]:
    """Returns costs, largest first, by what they are sorted by; as they are for ``order``."""
    key = _SORT_KEYS.get(sort)
    return costs if key is None else sorted(costs, key=key, reverse=True)


def by_operator(nodes: Sequence[NodeCost], sort: str) -> Sequence[GroupCost]:
    """Returns operators with the sums of their nodes."""
    groups: dict[str, list[NodeCost]] = {}
    for node in nodes:
        groups.setdefault(node.op_type, []).append(node)
    return sorted_costs([_group(op_type, of_one) for op_type, of_one in groups.items()], sort)


def by_module(nodes: Sequence[NodeCost], sort: str) -> Sequence[GroupCost]:
    """Returns modules with the sums of all nodes in them, each behind the one around it."""
    members: dict[str, list[NodeCost]] = {}
    for node in nodes:
        for path in _around(_module_path(node.name)):
            members.setdefault(path, []).append(node)
    costs = {path: _group(path, inside) for path, inside in members.items()}
    rank = {cost.name: i for i, cost in enumerate(sorted_costs([*costs.values()], sort))}
    places = {path: [rank[outer] for outer in _around(path.split("/"))] for path in costs}
    return [costs[path] for path in sorted(costs, key=lambda path: places[path])]


def _around(parts: Sequence[str]) -> list[str]:
    """Returns the paths of a module and of those around it, outermost first."""
    return list(accumulate(parts, "{}/{}".format))


def _module_path(name: str) -> list[str]:
    """Returns the modules that a node's name gives, outermost first.

    Names are paths with slashes (``/layer1/conv/Conv``), or, without any, with dots
    (``layer1.conv.Conv``).
    """
    separator = "/" if "/" in name.strip("/") else "."
    parts = [part for part in name.strip("/").split(separator, _DEEPEST) if part]
    return parts[:-1] or [_NO_MODULE]
