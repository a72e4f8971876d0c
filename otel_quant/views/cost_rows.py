"""The lines of a cost report: one per node, per operator or per model, as columns of data."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, Generic, NamedTuple, TypeAlias, TypeVar

from otel_quant.cost import ModelCost, NodeCost, TensorCost, WeightSparsity, intensity

Cell: TypeAlias = str | int | float | None


class GroupCost(NamedTuple):
    """What several nodes cost together: those of one operator, or of one module."""

    name: str  # The operator, or the module's path with slashes
    nodes: int  # How many there are
    macs: int | None  # Sum of those that are known; None if none is
    backward_macs: int | None  # Likewise
    memory_bytes: int | None  # Likewise
    params: int  # Elements of their constants
    # MACs per byte moved, of the nodes of which both are known; None if there are none
    intensity: float | None
    depth: int = 0  # Modules around it; 0 for an operator

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


_Row_contra = TypeVar("_Row_contra", contravariant=True)


class Column(NamedTuple, Generic[_Row_contra]):
    """One column."""

    key: str  # Its name in CSV
    heading: str  # Its name in tables
    value: Callable[[_Row_contra], Cell]  # Computes its cell; None for what is not known
    share: bool = False  # The cell is a share, 0 to 1


def shape_text(shape: Sequence[int | None] | None) -> str | None:
    """Returns a shape as ``1x3x?x224``, ``scalar`` for rank 0, None for an unknown rank."""
    if shape is None:
        return None
    return "x".join("?" if length is None else str(length) for length in shape) or "scalar"


def _share(part: int | None, whole: int) -> float | None:
    return None if part is None or not whole else part / whole


def _figures(model: ModelCost) -> tuple[Column[NodeCost | GroupCost], ...]:
    def share(
        heading: str, part: Callable[[NodeCost | GroupCost], int | None], whole: int
    ) -> Column[NodeCost | GroupCost]:
        return Column(heading, "%", lambda cost: _share(part(cost), whole), share=True)

    return (
        Column("macs", "MACS", lambda cost: cost.macs),
        share("macs_share", lambda cost: cost.macs, model.macs),
        Column("backward_macs", "BACKWARD MACS", lambda cost: cost.backward_macs),
        Column("memory_bytes", "MEMORY B", lambda cost: cost.memory_bytes),
        share("memory_share", lambda cost: cost.memory_bytes, model.memory_bytes),
        Column("intensity", "MACS/B", lambda cost: cost.intensity),
        Column("params", "PARAMS", lambda cost: cost.params),
        share("params_share", lambda cost: cost.params, model.params),
    )


def _of_weight(value: Callable[[WeightSparsity], Cell]) -> Callable[[NodeCost], Cell]:
    return lambda node: None if node.sparsity is None else value(node.sparsity)


_SPARSITY: Final[tuple[Column[NodeCost], ...]] = (
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

_SHAPES: Final[tuple[Column[NodeCost], ...]] = (
    Column("input", "INPUT", lambda node: shape_text(next(iter(node.inputs), None))),
    Column("output", "OUTPUT", lambda node: shape_text(next(iter(node.outputs), None))),
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


def node_columns(model: ModelCost) -> tuple[Column[NodeCost], ...]:
    """Returns the columns of a model's nodes."""
    return (
        Column("node", "NODE", lambda node: node.name),
        Column("op", "OP", lambda node: node.op_type),
        *_figures(model),
        *(_SPARSITY if model.sparsity is not None else ()),
        *_SHAPES,
    )


def group_columns(
    model: ModelCost, what: str, *, indented: bool = False
) -> tuple[Column[GroupCost], ...]:
    """Returns the columns of a model's operators (``what`` is ``op``) or modules (``module``)."""
    return (
        Column(what, what.upper(), lambda group: group.label if indented else group.name),
        Column("nodes", "NODES", lambda group: group.nodes),
        *_figures(model),
    )


def _sum(values: Iterable[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None
