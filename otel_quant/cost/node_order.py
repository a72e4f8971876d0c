"""Puts a graph's nodes into an order in which every value is made before it is read.

The specification demands that order in the file, but converters break it: the float16
converter appends its input Casts last.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush

from otel_quant.cost.errors import CostError, printable
from otel_quant.cost.structure import Graph, Node


def ordered(nodes: tuple[Node, ...], source: str) -> tuple[Node, ...]:
    """Returns ``nodes`` in dependency order; a list already in order comes back as it is.

    Of the nodes that are ready, the first in the file comes first.
    """
    maker = {output: i for i, node in enumerate(nodes) for output in node.outputs if output}
    if _are_ordered(nodes, maker):
        return nodes
    reads = [_reads(node) for node in nodes]
    waits = [
        {maker[name] for name in names if name in maker} - {i} for i, names in enumerate(reads)
    ]
    readers: dict[int, list[int]] = {}
    for i, wait in enumerate(waits):
        for before in wait:
            readers.setdefault(before, []).append(i)
    ready = [i for i, wait in enumerate(waits) if not wait]
    heapify(ready)
    result: list[Node] = []
    left = [len(wait) for wait in waits]
    while ready:
        i = heappop(ready)
        result.append(nodes[i])
        for reader in readers.get(i, ()):
            left[reader] -= 1
            if left[reader] == 0:
                heappush(ready, reader)
    if len(result) != len(nodes):
        stuck = next(node for i, node in enumerate(nodes) if left[i] > 0)
        raise CostError(
            source,
            f"node {printable(stuck.name or stuck.op_type)} depends on its own result",
            expected="nodes that can be ordered, each after those whose results it reads",
        )
    return tuple(result)


def _are_ordered(nodes: tuple[Node, ...], maker: dict[str, int]) -> bool:
    for i, node in enumerate(nodes):
        # A set for each node would take half of the time and of the memory of reading them.
        for name in _reads(node) if node.attributes else node.inputs:
            if name and maker.get(name, -1) > i:
                return False
    return True


def _reads(node: Node) -> set[str]:
    """Names that a node reads, those that its subgraphs take from outside among them."""
    names = set(node.inputs)
    for attribute in node.attributes.values():
        if isinstance(attribute, Graph):
            names |= outer_names(attribute)
        elif type(attribute) is tuple:
            for item in attribute:
                if isinstance(item, Graph):
                    names |= outer_names(item)
    names.discard("")
    return names


def outer_names(graph: Graph) -> set[str]:
    """Returns the names that a subgraph reads from the graphs around it."""
    inner = {info.name for info in graph.inputs}
    inner.update(tensor.name for tensor in graph.initializers)
    inner.update(sparse.values.name for sparse in graph.sparse_initializers)
    read: set[str] = {info.name for info in graph.outputs}
    for node in graph.nodes:
        inner.update(node.outputs)
        read |= _reads(node)
    return read - inner
