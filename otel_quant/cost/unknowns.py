"""What the totals of a model leave out, or would count although nothing reads it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final, Literal

from otel_quant.cost.operators import operator_of
from otel_quant.cost.results import NodeCost, UnknownNodes
from otel_quant.cost.structure import Graph, Model, Node
from otel_quant.cost.values import Value

_LACKS: Final[tuple[Literal["rule", "shape"], ...]] = ("rule", "shape")


def unknown_nodes(nodes: Iterable[NodeCost]) -> tuple[UnknownNodes, ...]:
    """Returns the nodes without known MACs: those without a rule, then those without a shape."""
    lacking: dict[str, list[NodeCost]] = {lack: [] for lack in _LACKS}
    for node in nodes:
        if node.macs is None:
            rule = operator_of(node.op_type).cost
            has_rule = rule.contraction is not None or rule.rest is not None
            lacking["shape" if has_rule else "rule"].append(node)
    return tuple(
        UnknownNodes(
            lack,
            dict(Counter(node.op_type for node in lacking[lack])),
            lacking[lack][0].name,
            lacking[lack][0].unknown_reason or "",
        )
        for lack in _LACKS
        if lacking[lack]
    )


def never_read(model: Model, constants: Iterable[Value]) -> list[Value]:
    """Returns those of some constants that no node of the model reads and no output is.

    A branch that is not taken reads its constants too.
    """
    read = set(_read_by([node for f in model.functions.values() for node in f.nodes], []))
    read.update(_read_by([], [model.graph]))
    return [value for value in constants if value.name not in read]


def _read_by(nodes: Iterable[Node], graphs: list[Graph]) -> Iterable[str]:
    """Yields the names that nodes and graphs read, those of their bodies included."""
    left = [(nodes, graphs)]
    while left:
        some_nodes, some_graphs = left.pop()
        for graph in some_graphs:
            yield from (info.name for info in graph.outputs)
            left.append((graph.nodes, []))
        for node in some_nodes:
            yield from node.inputs
            bodies = [value for value in node.attributes.values() if isinstance(value, Graph)]
            if bodies:
                left.append(((), bodies))
