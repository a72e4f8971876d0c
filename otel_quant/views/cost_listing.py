"""What a cost report lists: nodes, operators, modules or tensors, sorted, as rows of cells."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Generic, NamedTuple, TypeVar

from otel_quant.cost import ModelCost, NodeCost, TensorCost
from otel_quant.views.cost_modules import modules_of
from otel_quant.views.cost_rows import (
    TENSOR_COLUMNS,
    Cell,
    Column,
    GroupCost,
    group_columns,
    group_cost,
    node_columns,
)

_Row = TypeVar("_Row", bound=tuple[Any, ...])
_Text = TypeVar("_Text")

_MANY: Final = 1 << 14
"""Different rows that are kept; the others are made again wherever they recur."""

SORT_KEYS: Final[dict[str, Callable[[NodeCost | GroupCost], tuple[int, ...]]]] = {
    "macs": lambda cost: (cost.macs or 0, cost.memory_bytes or 0),
    "memory": lambda cost: (cost.memory_bytes or 0, cost.macs or 0),
    "params": lambda cost: (cost.params, cost.macs or 0),
}
"""Largest first; what is equal keeps the order of execution."""


class Listing(NamedTuple, Generic[_Row]):
    """The lines of one kind, and what each has in columns."""

    columns: Sequence[Column[_Row]]  # The first is the line's name
    costs: Sequence[_Row]  # A line each; the first field is the name
    left: int = 1  # Columns, from the first, that tables align to the left

    def rows(self, top: int | None, shown: Callable[[Cell, bool], _Text]) -> Rows[_Row, _Text]:
        """Returns the first lines, all for None, as rows of cells."""
        return Rows(self.columns, self.costs[:top], shown)


class Rows(Generic[_Row, _Text]):
    """Rows made anew each time they are gone through: there may be many, most of them alike."""

    def __init__(
        self,
        columns: Sequence[Column[_Row]],
        costs: Sequence[_Row],
        shown: Callable[[Cell, bool], _Text],
    ) -> None:
        self._columns = columns
        self._costs = costs
        self._shown = shown

    def __iter__(self) -> Iterator[tuple[_Text, ...]]:
        """Yields a row for each line."""
        name, *others = self._columns
        shown = self._shown
        known: dict[tuple[object, ...], tuple[_Text, ...]] = {}
        for cost in self._costs:
            alike = cost[1:]
            cells = known.get(alike)
            if cells is None:
                cells = tuple(shown(column.value(cost), column.share) for column in others)
                if len(known) < _MANY:
                    known[alike] = cells
            yield (shown(name.value(cost), False), *cells)


def listing(
    model: ModelCost, by: str, sort: str | None, *, indented: bool = True
) -> Listing[NodeCost] | Listing[GroupCost] | Listing[TensorCost]:
    """Returns what a report lists of a model."""
    if by == "node":
        return Listing(node_columns(model), in_order(model.nodes, sort or "macs"), 2)
    if by == "op":
        groups: dict[str, list[NodeCost]] = {}
        for node in model.nodes:
            groups.setdefault(node.op_type, []).append(node)
        ops = [group_cost(op_type, nodes) for op_type, nodes in groups.items()]
        return Listing(group_columns(model, "op"), in_order(ops, sort or "macs"))
    if by == "module":
        columns = group_columns(model, "module", indented=indented)
        return Listing(columns, module_costs(model, sort))
    tensors: Sequence[TensorCost] = model.tensors or ()
    if sort == "memory":
        tensors = sorted(tensors, key=lambda tensor: tensor.bytes or 0, reverse=True)
    return Listing(TENSOR_COLUMNS, tensors, 3)


def module_costs(model: ModelCost, sort: str | None) -> Sequence[GroupCost]:
    """Returns a model's modules, each behind the one around it; siblings sorted."""
    return list(modules_of(model.nodes, SORT_KEYS.get(sort or "order")))


_Cost = TypeVar("_Cost", NodeCost, GroupCost)


def in_order(costs: Sequence[_Cost], sort: str) -> Sequence[_Cost]:
    """Returns nodes or operators, sorted by a key of ``SORT_KEYS``; else as they are."""
    key = SORT_KEYS.get(sort)
    return costs if key is None else sorted(costs, key=key, reverse=True)
