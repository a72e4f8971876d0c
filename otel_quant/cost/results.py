"""The cost of a model as immutable records, and the JSON made of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from otel_quant.cost.operation import SHOWN, Shape
from otel_quant.cost.structure import printable
from otel_quant.schema.units import counted

JsonObject: TypeAlias = dict[str, Any]


def option_text(option: str, value: str) -> str:
    """Returns an option as it is typed into a shell: ``--dim batch=8``."""
    from shlex import quote  # only for models with open lengths

    return f"{option} {quote(value)}"


class WeightSparsity(NamedTuple):
    """Zeros in a node's weight (definition 6 of the rules' documentation).

    Attributes:
        weight: The weight's name.
        ratio: Share of its elements that are zero, 0 to 1.
        block: Rows and columns of the largest block in which they come; (1, 1) for none.
        block_ratio: Share of the blocks that are all zero.
        two_of_four: Of every four adjacent weights along the input axis at least two are zero.
    """

    weight: str
    ratio: float
    block: tuple[int, int]
    block_ratio: float
    two_of_four: bool


class Assumption(NamedTuple):
    """A length of an input that neither the model nor the caller gives.

    Attributes:
        name: The dimension's name; of one without a name its input and axis, ``image[0]``.
        length: What was assumed.
        input: The input that it belongs to; empty if the dimension has a name.
        shape: Shape that was assumed of that input.
    """

    name: str
    length: int
    input: str = ""
    shape: tuple[int, ...] = ()

    @property
    def option(self) -> str:
        """What sets it on the command line, quoted for a shell: ``--dim batch=1``."""
        if self.input:
            return option_text("--input", f"{self.input}={'x'.join(map(str, self.shape))}")
        return option_text("--dim", f"{self.name}={self.length}")


class AssumedBranch(NamedTuple):
    """The branch of an If that is costed where its condition depends on data: the dearer one.

    Attributes:
        node: Name of the If.
        taken: ``then`` or ``else``.
        macs: MACs of that branch; None where not all are known.
        other_macs: MACs of the other branch.
        option: What gives the condition on the command line; empty if it is no input.
    """

    node: str
    taken: Literal["then", "else"]
    macs: int | None
    other_macs: int | None
    option: str = ""


class UnknownNodes(NamedTuple):
    """Nodes without known MACs, all because of a missing rule or all because of a missing shape.

    Attributes:
        lack: ``rule`` if the operators have none, ``shape`` if it is a shape that they lack, or
            how often they run.
        ops: How many, by operator.
        first: Name of the first of them in order of execution.
        reason: Why its MACs are not known, with what sets it on the command line if that is
            known.
    """

    lack: Literal["rule", "shape"]
    ops: Mapping[str, int]
    first: str
    reason: str


class InFloat(NamedTuple):
    """Contractions that onnxruntime is expected to run in float, for one reason.

    Attributes:
        ops: How many, by operator.
        first: Name of the first of them in order of execution.
        reason: What is in the way of a kernel on integers.
        remedy: What in the model would change it; empty if nothing would.
        macs_share: Their part of the MACs of all contractions; 0 where it was not added up.
        then: How many need more than that, by what else they need; empty text if nothing is known.
    """

    ops: Mapping[str, int]
    first: str
    reason: str
    remedy: str
    macs_share: float = 0.0
    then: Mapping[str, int] = MappingProxyType({})

    @property
    def text(self) -> str:
        """The reason, the nodes that it is of, and the remedy."""
        nodes = ", ".join(f"{op} {count}" for op, count in self.ops.items())
        count, more = sum(self.ops.values()), sum(self.then.values())
        changed = f"{count - more} of {count}" if more else "it"
        also = "".join(f", {n} also need {it or 'more'}" for it, n in self.then.items())
        remedy = f"{self.remedy} would change {changed}{also}"
        remedy = remedy if self.remedy else "cannot be fixed in the model"
        return f"{self.reason} ({nodes}, the first '{printable(self.first, SHOWN)}'; {remedy})"


class NodeCost(NamedTuple):
    """What one node costs; a node of a loop's body for all its iterations.

    Attributes:
        name: Unique readable name, after the names of the nodes that contain it.
        op_type: Operator; ``domain:name`` outside ONNX's own domain.
        macs: Forward MACs; None where they are not known.
        macs_contraction: MACs of contractions; None likewise.
        backward_macs: Estimate for training: two gradients per contraction, the rest once.
        params: Elements of the constants that this node is the first to read.
        memory_bytes: Bytes of those constants and of its results; None where not known.
        inputs: Shapes of its operands; None for one of unknown rank or left out.
        outputs: Shapes of its results.
        precision: What a contraction asks for (``float32``, ``int8`` ...), by what quantizes its
            operands or by their types; None for others.
        sparsity: Of its heaviest weight, if it was asked for.
        unknown_reason: Why its MACs, its memory or the shape of a result is not known: the
            first cause, with the name of the node where it lies; None if all are known.
        moved_bytes: Bytes of its operands, constants included, and of its results; None where
            not known.
        expected_precision: What onnxruntime is expected to execute a contraction in.
    """

    name: str
    op_type: str
    macs: int | None
    macs_contraction: int | None
    backward_macs: int | None
    params: int
    memory_bytes: int | None
    inputs: tuple[Shape | None, ...]
    outputs: tuple[Shape | None, ...]
    precision: str | None = None
    sparsity: WeightSparsity | None = None
    unknown_reason: str | None = None
    moved_bytes: int | None = None
    expected_precision: str | None = None

    @property
    def intensity(self) -> float | None:
        """Arithmetic intensity: MACs per byte that is read or written; None where not known."""
        return intensity(self.macs, self.moved_bytes)


def intensity(macs: int | None, moved_bytes: int | None) -> float | None:
    """Returns arithmetic intensity, MACs per byte that is read or written.

    Args:
        macs: MACs, or None where they are not known.
        moved_bytes: Bytes read and written, or None likewise.

    Returns:
        The quotient; None if either is not known, or no byte is moved by MACs.
    """
    if macs == 0:
        return 0.0
    return None if macs is None or not moved_bytes else macs / moved_bytes


class TensorCost(NamedTuple):
    """What a node makes.

    Attributes:
        name: The tensor's name.
        dtype: Element type (``float32``, ``int8`` ...); ``unknown`` if it is not known.
        shape: Lengths, None for one that is not known; None if not even the rank is.
        bytes: Bytes that it takes; None where type or shape is not known.
        node: Name of the node.
        in_body: It is of a local function, or of the body of If, Loop or Scan.
    """

    name: str
    dtype: str
    shape: Shape | None
    bytes: int | None
    node: str
    in_body: bool = False


class Memory(NamedTuple):
    """Memory of a model in one view.

    Attributes:
        memory_bytes: Sum over the nodes of their constants and results.
        peak_activation_bytes: Most bytes of inputs and results alive at once, nodes run in
            order, views not copied.
    """

    memory_bytes: int
    peak_activation_bytes: int


class ModelCost(NamedTuple):
    """What a model costs.

    Sums leave out what is not known: ``uncosted_ops`` counts the nodes without MACs,
    ``unsized_tensors`` the results without a size, and each node has its ``unknown_reason``.

    Attributes:
        path: The file as given, or ``<bytes>`` or ``<ModelProto>``.
        rules: Name of the rule set.
        view: What memory is of: ``fused``, as onnxruntime runs the operators, or ``file``,
            every node by itself.
        views: Memory in either view.
        macs: Forward MACs of one run.
        macs_contraction: MACs of Conv, MatMul, Gemm, recurrence, attention and Einsum only:
            the number that papers quote.
        backward_macs: Estimate of a training step's backward pass.
        params: Elements of the constants that a node reads, each constant once.
        weight_bytes: Bytes of the same constants as stored.
        unused_params: Elements of the constants that no node reads.
        unused_weight_bytes: Bytes of those as stored.
        memory_bytes: Sum over the nodes of their constants and results, in the view ``view``.
        peak_activation_bytes: Most bytes of inputs and results alive at once, nodes run in
            order, views not copied; in that view too.
        file_bytes: Bytes of the file with its external data.
        nodes: In order of execution.
        op_counts: Nodes by operator.
        quantize_nodes: Nodes that only quantize: QuantizeLinear and others like it.
        dequantize_nodes: Nodes that only dequantize: DequantizeLinear and others like it.
        stored: Share of ``weight_bytes`` by the type that they are stored in.
        precision: Share of ``macs_contraction`` by the type that it asks for.
        input_shapes: Shapes of the model's inputs as they were costed.
        assumed: The lengths of inputs that neither the model nor the caller gives.
        overridden_dims: The model's length and the caller's for each dimension that the
            model fixes and the caller gave otherwise; by input and axis, ``input[0]``.
        unused_dims: Dimensions that the caller gave and the model does not have.
        uncosted_ops: Nodes without known MACs, by operator.
        unknown_nodes: The same nodes, those that lack a rule apart from those that lack a shape.
        unsized_tensors: Results whose size is not known.
        max_memory_node: Name of the node with the largest ``memory_bytes``.
        sparsity: Of every weight that was looked at; None if it was not asked for.
        excluded: Nodes that were left out as the caller asked, by operator; 0 for an operator
            that the model does not have.
        tensors: What nodes make, in order of execution; None if it was not asked for.
        quantized_contractions: Contractions of integers that DequantizeLinear nodes convert.
        in_float: Those that are expected to run in float all the same.
        left_in_float: Contractions of a quantized model that were not quantized, most MACs first.
        on_loading: Contractions in float that onnxruntime is expected to quantize when it loads the
            model, with what keeps it from that as the remedy.
        contractions: How many contractions there are.
        expected_precision: Share of ``macs_contraction`` by what onnxruntime is expected to
            execute it in.
        runtime: The onnxruntime and the processor that this is of; empty where all is expected
            to run in what it asks for, unless something is dequantized.
        assumed_branches: The branches that are costed where the condition depends on data.
        assumed_full: The attentions whose number of keys is data: past and query together are taken.
        misfit: The first node whose operands do not fit each other, with their shapes; empty if all do.
    """

    path: str
    rules: str
    view: str
    views: Mapping[str, Memory]
    macs: int
    macs_contraction: int
    backward_macs: int
    params: int
    weight_bytes: int
    unused_params: int
    unused_weight_bytes: int
    memory_bytes: int
    peak_activation_bytes: int
    file_bytes: int
    nodes: tuple[NodeCost, ...]
    op_counts: Mapping[str, int]
    quantize_nodes: int
    dequantize_nodes: int
    precision: Mapping[str, float]
    input_shapes: Mapping[str, Shape | None]
    assumed: tuple[Assumption, ...]
    overridden_dims: Mapping[str, tuple[int, int]]
    unused_dims: tuple[str, ...]
    uncosted_ops: Mapping[str, int]
    unknown_nodes: tuple[UnknownNodes, ...]
    unsized_tensors: int
    max_memory_node: str | None
    sparsity: tuple[WeightSparsity, ...] | None = None
    excluded: Mapping[str, int] = MappingProxyType({})
    tensors: tuple[TensorCost, ...] | None = None
    quantized_contractions: int = 0
    in_float: tuple[InFloat, ...] = ()
    left_in_float: tuple[InFloat, ...] = ()
    on_loading: tuple[InFloat, ...] = ()
    contractions: int = 0
    stored: Mapping[str, float] = MappingProxyType({})
    expected_precision: Mapping[str, float] = MappingProxyType({})
    runtime: str = ""
    assumed_branches: tuple[AssumedBranch, ...] = ()
    assumed_full: tuple[str, ...] = ()
    misfit: str = ""

    @property
    def symbolic_dims(self) -> Mapping[str, int]:
        """The lengths in ``assumed`` by name."""
        return {assumption.name: assumption.length for assumption in self.assumed}

    @property
    def left_text(self) -> str:
        """What was left in float, how much that is, and why; empty if it is below 1 % of the MACs.

        With what was to stay in float, and will not.
        """
        reasons = [each.text for each in self.left_in_float if each.macs_share >= _WORTH]
        share = sum(each.macs_share for each in self.left_in_float)
        on_loading = "; ".join(each.text for each in self.on_loading)
        if not reasons:
            return on_loading
        count = sum(sum(each.ops.values()) for each in self.left_in_float)
        part = f"{count} of {counted(self.contractions, 'contraction')}, {100 * share:.1f} % of their MACs"
        left = f"{part}, {'stays' if count == 1 else 'stay'} in float, because {'; '.join(reasons)}"
        return "; ".join(filter(None, (left, on_loading)))

    def to_json_dict(self) -> JsonObject:
        """Returns the model object of the JSON contract, schema 2.

        An unknown shape, or an unknown length in one, is None; so are MACs and bytes that
        depend on it. Nodes have a key ``sparsity`` only if it was asked for, and
        ``unknown_reason`` only if something of them is not known; the model has ``assumed``, ``assumed_branches``,
        ``overridden_dims``, ``unknown_nodes``, ``runtime``, ``in_float``, ``left_in_float``, ``unused_params`` and ``unused_weight_bytes``
        only if there are any.
        """
        total = [*_TOTAL, *(_UNUSED if self.unused_params else ())]
        found: JsonObject = {
            "path": self.path, "rules": self.rules, "view": self.view,
            "assumed": {it.name: {"length": it.length, "option": it.option} for it in self.assumed},
            "assumed_branches": [each._asdict() for each in self.assumed_branches],
            "assumed_full": list(self.assumed_full),
            "total": {name: getattr(self, name) for name in total},
            "views": {name: found._asdict() for name, found in self.views.items()},
            "nodes": [self.node_json(node) for node in self.nodes],
            "stored": dict(self.stored), "precision": dict(self.precision), "expected_precision": dict(self.expected_precision),
            "uncosted_ops": dict(self.uncosted_ops), "unknown_nodes": _counted(self.unknown_nodes),
            "symbolic_dims": dict(self.symbolic_dims), "max_memory_node": self.max_memory_node,
            "overridden_dims": {name: {"model": model, "given": given}
                for name, (model, given) in self.overridden_dims.items()},
            "runtime": self.runtime,
            "in_float": self.in_float and {"of": self.quantized_contractions, "nodes": _counted(self.in_float)},
            "left_in_float": self.left_in_float and {"of": self.contractions, "nodes": _counted(self.left_in_float)},
            "on_loading": _counted(self.on_loading), "excluded": dict(self.excluded),
        }  # fmt: skip
        found = {name: value for name, value in found.items() if value or name not in _IF_ANY}
        if self.tensors is not None:
            found["tensors"] = list(map(_tensor_json, self.tensors))
        return found

    def node_json(self, node: NodeCost) -> JsonObject:
        """Returns the object of one node."""
        found: JsonObject = {name: getattr(node, name) for name in _OF_NODE}
        found["inputs"] = list(map(_lengths, node.inputs))
        found["outputs"] = list(map(_lengths, node.outputs))
        if node.unknown_reason is not None:
            found["unknown_reason"] = node.unknown_reason
        if self.sparsity is not None:
            zeros = node.sparsity
            found["sparsity"] = zeros and {**zeros._asdict(), "block": list(zeros.block)}
        return found


_WORTH: Final = 0.01
"""Part of the MACs of all contractions from which on a reason is given."""

_TOTAL: Final = (
    "macs", "macs_contraction", "backward_macs", "params", "weight_bytes", "memory_bytes",
    "peak_activation_bytes",
)  # fmt: skip
_OF_NODE: Final = ("name", "op_type", "macs", "params", "memory_bytes", "moved_bytes", "intensity")
_UNUSED: Final = ("unused_params", "unused_weight_bytes")
_IF_ANY: Final = (
    "assumed", "assumed_branches", "assumed_full", "excluded", "in_float", "left_in_float", "on_loading", "overridden_dims", "runtime", "unknown_nodes",
)  # fmt: skip
"""What the JSON of a model has only if there are any."""


def _tensor_json(tensor: TensorCost) -> JsonObject:
    found = tensor._asdict()
    del found["in_body"]
    return {**found, "shape": _lengths(tensor.shape)}


def _lengths(shape: Shape | None) -> list[int | None] | None:
    return None if shape is None else list(shape)


def _counted(groups: Sequence[UnknownNodes] | Sequence[InFloat]) -> list[JsonObject]:
    plain = ({**each._asdict(), "ops": dict(each.ops)} for each in groups)
    return [{key: it for key, it in found.items() if it not in (0.0, {})} for found in plain]
