"""The lines of a cost report: one per node, per operator or per model, as columns of data."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, Generic, NamedTuple, TypeAlias, TypeVar

from otel_quant.cost import ModelCost, NodeCost, TensorCost, WeightSparsity
from otel_quant.cost.results import intensity

Cell: TypeAlias = str | int | float | None


class GroupCost(NamedTuple):
    """What several nodes cost together: those of one operator, or of one module.

    Attributes:
        name: The operator, or the module's path with slashes.
        nodes: How many there are.
        macs: Sum of those that are known; None if none is.
        backward_macs: Likewise.
        memory_bytes: Likewise.
        params: Elements of their constants.
        intensity: MACs per byte moved, of the nodes of which both are known; None if there are
            none.
        depth: Modules around it; 0 for an operator.
    """

    name: str
    nodes: int
    macs: int | None
    backward_macs: int | None
    memory_bytes: int | None
    params: int
    intensity: float | None
    depth: int = 0

    @property
    def label(self) -> str:
        """A module's own name, indented below those around it."""
        return "  " * self.depth + self.name.rpartition("/")[2]


def group_cost(name: str, nodes: Sequence[NodeCost], depth: int = 0) -> GroupCost:
    """Adds up what nodes cost."""
    known = [node for node in nodes if node.macs is not None and node.moved_bytes is not None]
    return GroupCost(
        name,
        len(nodes),
        _sum(node.macs for node in nodes),
        _sum(node.backward_macs for node in nodes),
        _sum(node.memory_bytes for node in nodes),
        sum(node.params for node in nodes),
        intensity(_sum(node.macs for node in known), _sum(node.moved_bytes for node in known)),
        depth,
    )


class Line(NamedTuple):
    """A node or an operator, and the model whose shares it has.

    Attributes:
        cost: Of the node, operator or module.
        model: Of the model.
    """

    cost: NodeCost | GroupCost
    model: ModelCost

    @property
    def node(self) -> NodeCost:
        """The node; only for lines of nodes."""
        assert isinstance(self.cost, NodeCost)
        return self.cost

    @property
    def group(self) -> GroupCost:
        """The operator or module; only for lines of those."""
        assert isinstance(self.cost, GroupCost)
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
    Column("intensity", "MACS/B", lambda line: line.cost.intensity),
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
    Column("op", "OP", lambda line: line.group.name),
    Column("nodes", "NODES", lambda line: line.group.nodes),
    *_FIGURES,
)

_MODULE_COLUMNS: Final[tuple[Column[Line], ...]] = (
    Column("module", "MODULE", lambda line: line.group.name),
    *_OP_COLUMNS[1:],
)

TENSOR_COLUMNS: Final[tuple[Column[TensorCost], ...]] = (
    Column("tensor", "TENSOR", lambda tensor: tensor.name),
    Column("dtype", "TYPE", lambda tensor: tensor.dtype),
    Column("shape", "SHAPE", lambda tensor: shape_text(tensor.shape)),
    Column("bytes", "BYTES", lambda tensor: tensor.bytes),
    Column("node", "NODE", lambda tensor: tensor.node),
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
    ops = [group_cost(op_type, nodes) for op_type, nodes in groups.items()]
    return [Line(op, model) for op in _first(ops, sort, top)]


def module_columns(*, indented: bool) -> tuple[Column[Line], ...]:
    """Returns the columns of modules: with their own names, indented, or with whole paths."""
    if not indented:
        return _MODULE_COLUMNS
    return (Column("module", "MODULE", lambda line: line.group.label), *_MODULE_COLUMNS[1:])


def tensor_lines(model: ModelCost, sort: str | None, top: int | None) -> Sequence[TensorCost]:
    """Returns what a model's nodes make, the largest first if sorted by memory."""
    tensors = model.tensors or ()
    if sort == "memory":
        tensors = tuple(sorted(tensors, key=lambda tensor: tensor.bytes or 0, reverse=True))
    return tensors[:top]


def sorted_nodes(model: ModelCost, sort: str, top: int | None) -> tuple[NodeCost, ...]:
    """Returns a model's nodes, sorted and cut."""
    return tuple(_first(model.nodes, sort, top))


def _sum(values: Iterable[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


_Cost = TypeVar("_Cost", NodeCost, GroupCost)

SORT_KEYS: Final[dict[str, Callable[[NodeCost | GroupCost], tuple[int, ...]]]] = {
    "macs": lambda cost: (cost.macs or 0, cost.memory_bytes or 0),
    "memory": lambda cost: (cost.memory_bytes or 0, cost.macs or 0),
    "params": lambda cost: (cost.params, cost.macs or 0),
}
"""Largest first; what is equal keeps the order of execution."""


def _first(costs: Sequence[_Cost], sort: str, top: int | None) -> Sequence[_Cost]:
    key = SORT_KEYS.get(sort)
    return (costs if key is None else sorted(costs, key=key, reverse=True))[:top]
