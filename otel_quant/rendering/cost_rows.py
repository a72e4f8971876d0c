"""The lines of a cost report: one per node, per operator or per model, as columns of data."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, Generic, NamedTuple, TypeAlias, TypeVar

from otel_quant.cost import ModelCost, NodeCost, WeightSparsity

Cell: TypeAlias = str | int | float | None


class OpCost(NamedTuple):
    """What the nodes of one operator cost together.

    Attributes:
        op_type: The operator.
        nodes: How many there are.
        macs: Sum of those that are known; None if none is.
        backward_macs: Likewise.
        memory_bytes: Likewise.
        params: Elements of their constants.
    """

    op_type: str
    nodes: int
    macs: int | None
    backward_macs: int | None
    memory_bytes: int | None
    params: int


class Line(NamedTuple):
    """A node or an operator, and the model whose shares it has.

    Attributes:
        cost: Of the node or operator.
        model: Of the model.
    """

    cost: NodeCost | OpCost
    model: ModelCost

    @property
    def node(self) -> NodeCost:
        """The node; only for lines of nodes."""
        assert isinstance(self.cost, NodeCost)
        return self.cost

    @property
    def op(self) -> OpCost:
        """The operator; only for lines of operators."""
        assert isinstance(self.cost, OpCost)
        return self.cost


_Row = TypeVar("_Row")


class Column(NamedTuple, Generic[_Row]):
    """One column.

    Attributes:
        key: Its name in CSV.
        heading: Its name in tables.
        value: Computes its cell; None for what is not known.
        share: The cell is a share, 0 to 1.
    """

    key: str
    heading: str
    value: Callable[[_Row], Cell]
    share: bool = False


def shape_text(shape: Sequence[int | None] | None) -> str | None:
    """Returns a shape as ``1x3x?x224``, ``scalar`` for rank 0, None for an unknown rank."""
    if shape is None:
        return None
    return "x".join("?" if length is None else str(length) for length in shape) or "scalar"


def _share(part: int | None, whole: int) -> float | None:
    return None if part is None or not whole else part / whole


_FIGURES: Final[tuple[Column[Line], ...]] = (
    Column("macs", "MACS", lambda line: line.cost.macs),
    Column("macs_share", "%", lambda line: _share(line.cost.macs, line.model.macs), share=True),
    Column("backward_macs", "BACKWARD MACS", lambda line: line.cost.backward_macs),
    Column("memory_bytes", "MEMORY B", lambda line: line.cost.memory_bytes),
    Column(
        "memory_share",
        "%",
        lambda line: _share(line.cost.memory_bytes, line.model.memory_bytes),
        share=True,
    ),
    Column("params", "PARAMS", lambda line: line.cost.params),
    Column(
        "params_share", "%", lambda line: _share(line.cost.params, line.model.params), share=True
    ),
)


def _of_weight(value: Callable[[WeightSparsity], Cell]) -> Callable[[Line], Cell]:
    def cell(line: Line) -> Cell:
        sparsity = line.node.sparsity
        return None if sparsity is None else value(sparsity)

    return cell


_SPARSITY: Final[tuple[Column[Line], ...]] = (
    Column("sparsity", "ZEROS", _of_weight(lambda weight: weight.ratio), share=True),
    Column("sparsity_block", "BLOCK", _of_weight(lambda weight: "x".join(map(str, weight.block)))),
    Column(
        "sparsity_block_ratio",
        "ZERO BLOCKS",
        _of_weight(lambda weight: weight.block_ratio),
        share=True,
    ),
    Column(
        "sparsity_two_of_four",
        "2:4",
        _of_weight(lambda weight: "yes" if weight.two_of_four else "no"),
    ),
)

_SHAPES: Final[tuple[Column[Line], ...]] = (
    Column("input", "INPUT", lambda line: shape_text(next(iter(line.node.inputs), None))),
    Column("output", "OUTPUT", lambda line: shape_text(next(iter(line.node.outputs), None))),
)

_OP_COLUMNS: Final[tuple[Column[Line], ...]] = (
    Column("op", "OP", lambda line: line.op.op_type),
    Column("nodes", "NODES", lambda line: line.op.nodes),
    *_FIGURES,
)


def counted(counts: Iterable[tuple[str, int]]) -> str:
    """Returns names with their counts: ``Conv 3, MatMul 13``."""
    return ", ".join(f"{name} {count}" for name, count in counts)


TOTALS: Final[tuple[Column[ModelCost], ...]] = (
    Column("macs", "MACs", lambda model: model.macs),
    Column("macs_contraction", "MACs of contractions", lambda model: model.macs_contraction),
    Column("backward_macs", "backward MACs", lambda model: model.backward_macs),
    Column("params", "parameters", lambda model: model.params),
    Column("weight_bytes", "weights, bytes", lambda model: model.weight_bytes),
    Column("file_bytes", "file and external data, bytes", lambda model: model.file_bytes),
    Column("memory_bytes", "memory, bytes", lambda model: model.memory_bytes),
    Column(
        "peak_activation_bytes",
        "peak of activations, bytes",
        lambda model: model.peak_activation_bytes,
    ),
    Column("max_memory_node", "node with the most memory", lambda model: model.max_memory_node),
    Column(
        "max_memory_node_bytes",
        "its memory, bytes",
        lambda model: max((node.memory_bytes or 0 for node in model.nodes), default=None),
    ),
    Column(
        "precision",
        "precision of contractions",
        lambda model: ", ".join(f"{name} {_percent(x)}" for name, x in model.precision.items()),
    ),
    Column("nodes", "nodes", lambda model: len(model.nodes)),
    Column("quantize_nodes", "QuantizeLinear nodes", lambda model: model.quantize_nodes),
    Column("dequantize_nodes", "DequantizeLinear nodes", lambda model: model.dequantize_nodes),
    Column(
        "symbolic_dims",
        "assumed dimensions",
        lambda model: ", ".join(f"{name} = {size}" for name, size in model.symbolic_dims.items()),
    ),
    Column(
        "overridden_dims",
        "overridden dimensions",
        lambda model: ", ".join(
            f"{name} = {given} (model: {fixed})"
            for name, (fixed, given) in model.overridden_dims.items()
        ),
    ),
    Column(
        "uncosted_ops",
        "nodes without known MACs",
        lambda model: counted(model.uncosted_ops.items()),
    ),
    Column("unsized_tensors", "results of unknown size", lambda model: model.unsized_tensors),
    Column("unused_params", "parameters that no node reads", lambda model: model.unused_params),
    Column("unused_weight_bytes", "their weights, bytes", lambda model: model.unused_weight_bytes),
)
"""Per model. Texts may be empty, counts 0; neither is unknown."""


def _percent(share: float) -> str:
    return f"{100 * share:.2f} %"


def node_columns(*, sparsity: bool) -> tuple[Column[Line], ...]:
    """Returns the columns of nodes."""
    names: tuple[Column[Line], ...] = (
        Column("node", "NODE", lambda line: line.node.name),
        Column("op", "OP", lambda line: line.node.op_type),
    )
    return (*names, *_FIGURES, *(_SPARSITY if sparsity else ()), *_SHAPES)


def op_columns() -> tuple[Column[Line], ...]:
    """Returns the columns of operators."""
    return _OP_COLUMNS


def node_lines(model: ModelCost, sort: str, top: int | None) -> list[Line]:
    """Returns a model's nodes, sorted and cut."""
    return [Line(node, model) for node in _first(model.nodes, sort, top)]


def op_lines(model: ModelCost, sort: str, top: int | None) -> list[Line]:
    """Returns a model's operators, sorted and cut."""
    groups: dict[str, list[NodeCost]] = {}
    for node in model.nodes:
        groups.setdefault(node.op_type, []).append(node)
    ops = [
        OpCost(
            op_type,
            len(nodes),
            _sum(node.macs for node in nodes),
            _sum(node.backward_macs for node in nodes),
            _sum(node.memory_bytes for node in nodes),
            sum(node.params for node in nodes),
        )
        for op_type, nodes in groups.items()
    ]
    return [Line(op, model) for op in _first(ops, sort, top)]


def sorted_nodes(model: ModelCost, sort: str, top: int | None) -> tuple[NodeCost, ...]:
    """Returns a model's nodes, sorted and cut."""
    return tuple(_first(model.nodes, sort, top))


def _sum(values: Iterable[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


_Cost = TypeVar("_Cost", NodeCost, OpCost)

_SORT_KEYS: Final[dict[str, Callable[[NodeCost | OpCost], tuple[int, ...]]]] = {
    "macs": lambda cost: (cost.macs or 0, cost.memory_bytes or 0),
    "memory": lambda cost: (cost.memory_bytes or 0, cost.macs or 0),
    "params": lambda cost: (cost.params, cost.macs or 0),
}
"""Largest first; what is equal keeps the order of execution."""


def _first(costs: Sequence[_Cost], sort: str, top: int | None) -> Sequence[_Cost]:
    key = _SORT_KEYS.get(sort)
    return (costs if key is None else sorted(costs, key=key, reverse=True))[:top]
