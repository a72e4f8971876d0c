"""Nodes as a tree of the modules that their names give."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from otel_quant.cost import NodeCost
from otel_quant.views.cost_rows import GroupCost, group_cost

_DEEPEST: Final = 32
"""Modules within each other; what is deeper is one name. Names come from files."""

NO_MODULE: Final = "(no module)"
"""Stands for the nodes whose names give no module."""


def modules_of(
    nodes: Sequence[NodeCost],
    sort_key: Callable[[NodeCost | GroupCost], tuple[int, ...]] | None = None,
) -> Iterator[GroupCost]:
    """Yields modules with the sums of all nodes in them, each behind the one around it."""
    members: dict[str, list[NodeCost]] = {}
    children: dict[str, list[str]] = {"": []}
    for node in nodes:
        path = ""
        for part in module_path(node.name):
            inner = f"{path}/{part}" if path else part
            if inner not in members:
                members[inner] = []
                children[inner] = []
                children[path].append(inner)
            members[inner].append(node)
            path = inner
    costs = {path: group_cost(path, inside, path.count("/")) for path, inside in members.items()}
    left = [""]
    while left:
        path = left.pop()
        if path:
            yield costs[path]
        below = children[path]
        if sort_key is not None:
            below.sort(key=lambda inner: sort_key(costs[inner]), reverse=True)
        left += reversed(below)


def module_path(name: str) -> list[str]:
    """Returns the modules that a node's name gives, outermost first.

    Names are paths with slashes (``/layer1/conv/Conv``), or, without any, with dots
    (``layer1.conv.Conv``).
    """
    separator = "/" if "/" in name.strip("/") else "."
    parts = [part for part in name.strip("/").split(separator, _DEEPEST) if part]
    return parts[:-1] or [NO_MODULE]
