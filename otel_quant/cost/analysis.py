"""Costs a model: reads its structure, infers its shapes, applies the rules, adds up."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from otel_quant.cost import dtypes
from otel_quant.cost.binding import BoundInputs, bind_inputs
from otel_quant.cost.budget import MAX_OPS
from otel_quant.cost.dimensions import names_of
from otel_quant.cost.errors import CostError, printable
from otel_quant.cost.execution import Run, executions
from otel_quant.cost.file_size import file_bytes
from otel_quant.cost.inference import Walk
from otel_quant.cost.inputs import InputShape, names_in_shapes
from otel_quant.cost.memory import VIEWS, MemoryView, memory_views
from otel_quant.cost.operation import RULE_ERRORS, Operation
from otel_quant.cost.operators import operator_of
from otel_quant.cost.precision import precision_of
from otel_quant.cost.reader.model_reader import read_model
from otel_quant.cost.results import (
    Memory,
    ModelCost,
    NodeCost,
    TensorCost,
    UnknownNodes,
    WeightSparsity,
)
from otel_quant.cost.rule_sets import MAX_MACS, RULE_SETS, TOO_MANY_MACS, RuleSet
from otel_quant.cost.rules.operator import NO_PRECISION
from otel_quant.cost.structure import Model, Tensor
from otel_quant.cost.values import Shape, Value

if TYPE_CHECKING:
    from otel_quant.cost.custom import CustomRule
    from otel_quant.cost.fusion import Fused
    from otel_quant.cost.in_float import QuantizedContractions


def analyze(
    model: str | os.PathLike[str] | bytes | Any,
    *,
    rules: str = "corrected",
    inputs: Mapping[str, InputShape] | None = None,
    dims: Mapping[str, int] | None = None,
    view: str | None = None,
    sparsity: bool = False,
    exclude: Collection[str] = (),
    tensors: bool = False,
    rules_from: Mapping[str, CustomRule] | None = None,
    time_limit: float | None = None,
    max_nodes: int = MAX_OPS,
) -> ModelCost:
    """Returns what a model costs, without running it and without reading its weights.

    Args:
        model: Path of an ONNX file, or the bytes of one, or an ``onnx.ModelProto``. External
            data is not opened, and need not exist, unless ``sparsity`` is asked for.
        rules: ``corrected``, or ``onnx_tool`` for that tool's figures.
        inputs: Shapes of inputs by name, for dimensions that the model leaves open. What
            is not given is assumed to be 1, and listed in ``assumed``. A length that the
            model fixes may be given otherwise, to see what the model would cost then;
            ``overridden_dims`` lists them, and nodes that do not fit it have no known MACs.
        dims: Lengths of dimensions by name, wherever the model has them; ``unused_dims`` lists
            those that it does not have.
        view: What memory is of: ``fused``, quantized operators as runtimes run them, or ``file``,
            every node by itself. None for ``fused``, of the rules ``onnx_tool`` for ``file``.
        sparsity: Whether to read the weights, in pieces, and look for zeros.
        exclude: Operators whose nodes, and the constants that only they read, are left out of
            all sums; ``excluded`` counts them. The peak of activations remains that of the run.
        tensors: Whether to list what nodes make.
        rules_from: Rules for operators that have none here, by operator, with the domain before
            it: ``my.domain:MyOp``.
        time_limit: Seconds after which to give up, or None.
        max_nodes: Nodes, those of functions and bodies included, from which to give up.

    Raises:
        CostError: It is not an ONNX model, is damaged or hostile, or took too long; or an
            argument makes no sense.
    """
    if rules_from:
        from otel_quant.cost.custom import custom_operators

        with custom_operators(rules_from):
            return analyze(
                model,
                rules=rules,
                inputs=inputs,
                dims=dims,
                view=view,
                sparsity=sparsity,
                exclude=exclude,
                tensors=tensors,
                time_limit=time_limit,
                max_nodes=max_nodes,
            )
    rule_set = RULE_SETS.get(rules)
    if rule_set is None:
        raise CostError(
            "rules", f"{printable(str(rules))!r} is not a rule set", expected=" or ".join(RULE_SETS)
        )
    view = view or ("fused" if rule_set.constants_once else "file")
    if view not in VIEWS:
        raise CostError(
            "view", f"{printable(str(view))!r} is not a view", expected=" or ".join(VIEWS)
        )
    deadline = None if time_limit is None else monotonic() + time_limit
    structure = _structure(model, deadline)
    bound = bind_inputs(structure.graph, inputs, structure.source, dims=dims)
    walk = Walk(
        structure,
        bound.values,
        symbols=bound.symbols,
        trust_declared=not bound.overridden,
        dims=dims,
        deadline=deadline,
        max_nodes=max_nodes,
    )
    ops = walk.run()
    made: tuple[TensorCost, ...] | None = None
    if tensors:
        from otel_quant.cost.tensors import made_tensors

        made = tuple(made_tensors(ops, exclude))
    cost = _costed(model, structure, bound, walk, ops, rule_set, view, sparsity, exclude)
    cost = cost._replace(tensors=made)
    if dims:
        known = names_of(structure.graph).union(names_in_shapes(inputs))
        cost = cost._replace(unused_dims=tuple(name for name in dims if name not in known))
    return cost


def _costed(
    model: object,
    structure: Model,
    bound: BoundInputs,
    walk: Walk,
    ops: list[Operation],
    rule_set: RuleSet,
    view: str,
    sparsity: bool,
    exclude: Collection[str],
) -> ModelCost:
    """Returns the cost of the operations that a walk has met; the list of them is then empty."""
    fused: Fused | None = None
    quantized: QuantizedContractions | None = None
    if walk.dequantizes:  # other models are not to wait for what this imports
        from otel_quant.cost.fusion import fused_kernels
        from otel_quant.cost.in_float import QuantizedContractions

        fused = fused_kernels(ops, walk.outputs)
        quantized = QuantizedContractions(fused)
    views = memory_views(ops, walk, rule_set, fused)
    excluded = dict.fromkeys(exclude, 0)
    weights = _Weights(rule_set, walk.constants.of_nodes)
    zeros_of = _sparsity_of(model, walk) if sparsity else None
    table = _Nodes(weights, views, view, zeros_of, quantized)
    nodes: list[NodeCost] = []
    for run in executions(_handed_over(ops), rule_set):
        if run.op.kind in excluded:
            excluded[run.op.kind] += 1
        else:
            nodes.append(table.cost(run))
    unused = [value for value in walk.constants.met if value not in weights.seen]
    if unused:
        from otel_quant.cost.unknowns import never_read  # most models have no such constants

        unused = never_read(structure, unused)
    cost = _summed(structure, rule_set, tuple(nodes), walk, weights, bound, unused, view, views)
    if quantized is not None:
        cost = cost._replace(quantized_contractions=quantized.count, in_float=quantized.in_float())
    if sparsity:
        found = {node.sparsity.weight: node.sparsity for node in nodes if node.sparsity}
        cost = cost._replace(sparsity=tuple(found.values()))
    if excluded:
        params = sum(node.params for node in nodes)
        cost = cost._replace(params=params, weight_bytes=weights.bytes, excluded=excluded)
    return cost


def _sparsity_of(model: object, walk: Walk) -> Callable[[Operation], WeightSparsity | None]:
    from otel_quant.cost.reader.weights import source_of
    from otel_quant.cost.sparsity import weight_sparsity  # imports numpy

    source = source_of(model)
    return lambda op: weight_sparsity(op, source, walk.budget.check_time)


def _structure(model: object, deadline: float | None) -> Model:
    if isinstance(model, bytes | str | os.PathLike):
        return read_model(model, deadline)
    if isinstance(model, bytearray | memoryview):
        return read_model(bytes(model), deadline)
    from otel_quant.cost.reader.model_proto import (
        structure_of,  # only for callers that have onnx anyway
    )

    return structure_of(model, deadline)


class _Weights:
    """Hands each constant to its first reader."""

    def __init__(self, rules: RuleSet, of_nodes: set[Value]) -> None:
        self.bytes = 0
        self.packed = 0
        self.seen: set[Value] = set()
        self._rules = rules
        self._of_nodes = of_nodes

    def take(self, run: Run) -> tuple[int, int]:
        """Returns elements and bytes of the constants that an execution is the first to read."""
        elements, size = self._take(run.op)
        for op in run.idle:
            more, larger = self._take(op)
            elements += more
            size += larger
        self.bytes += size
        return elements, size

    def _take(self, op: Operation) -> tuple[int, int]:
        elements = size = 0
        for i, value in enumerate(op.inputs):
            if value is None or value.weight is None or value in self.seen:
                continue
            self.seen.add(value)
            if not self._rules.scalars_count and not value.weight.dims:
                continue
            if not self._rules.constant_nodes and value in self._of_nodes:
                continue
            found = _packed(op, i, value.weight)
            elements += found
            self.packed += found - value.weight.elements
            size += value.weight.stored
        return elements, size


def _packed(op: Operation, i: int, weight: Tensor) -> int:
    """Elements of a constant, counted apart where a stored element holds several."""
    rule = operator_of(op.kind).packed.get(i)
    if rule is None:
        return weight.elements
    try:
        found = rule(op)
    except RULE_ERRORS:  # lengths or attributes that the operator does not allow
        return weight.elements
    return found if 0 < found <= 8 * weight.stored else weight.elements


def _handed_over(ops: list[Operation]) -> Iterator[Operation]:
    """Yields what a list has and leaves it empty: there may be many, and each is used once."""
    ops.reverse()
    while ops:
        yield ops.pop()


class _Nodes:
    """Makes the records of nodes, which come in order of execution."""

    def __init__(
        self,
        weights: _Weights,
        views: Mapping[str, MemoryView],
        view: str,
        sparsity_of: Callable[[Operation], WeightSparsity | None] | None,
        quantized: QuantizedContractions | None,
    ) -> None:
        self._weights = weights
        self._view = views[view]
        self._other_views = set(views.values()) - {self._view}
        self._sparsity_of = sparsity_of
        self._quantized = quantized
        self._makers: dict[Value, Operation] = {}
        self._shapes: dict[tuple[Shape | None, ...], tuple[Shape | None, ...]] = {}

    def cost(self, run: Run) -> NodeCost:
        """Returns the record of a node."""
        op = run.op
        if operator_of(op.kind).precision is not NO_PRECISION:
            self._makers.update(dict.fromkeys(op.outputs, op))
        params, held = self._weights.take(run)
        memory, moved = self._view.add(op, held)
        for view in self._other_views:
            view.add(op, held)
        macs = inner = backward = None
        unknown = run.unknown
        if run.macs is not None and run.times is not None and run.macs.total * run.times > MAX_MACS:
            unknown = f"{op.title}: it runs {run.times:,} times; {TOO_MANY_MACS}"
        elif run.macs is not None and run.times is not None:
            # By one an integer would be made anew, for each node.
            macs = run.macs.total if run.times == 1 else run.macs.total * run.times
            inner = run.macs.contraction if run.times == 1 else run.macs.contraction * run.times
            backward = macs + inner
        elif run.macs is not None and run.macs.total == 0:
            macs = inner = backward = 0
        precision = precision_of(op, self._makers) if inner else None
        if precision is not None and self._quantized is not None:
            self._quantized.add(op, precision)
        return NodeCost(
            op.name,
            op.kind,
            macs,
            inner,
            backward,
            params,
            memory,
            self._shared([None if value is None else value.shape for value in op.inputs]),
            self._shared([value.shape for value in op.outputs]),
            precision,
            None if self._sparsity_of is None else self._sparsity_of(op),
            _unknown_reason(op, unknown, self._view, macs, memory),
            None if moved is None or run.times is None else moved * run.times,
        )

    def _shared(self, shapes: Sequence[Shape | None]) -> tuple[Shape | None, ...]:
        """Returns shapes as the tuple that all nodes with the same ones have."""
        found = tuple(shapes)
        return self._shapes.setdefault(found, found)


def _unknown_reason(
    op: Operation, unknown: str | None, view: MemoryView, macs: int | None, memory: int | None
) -> str | None:
    """Why a node's MACs, its memory or the shape of a result is not known; None if all are."""
    if macs is None:
        return unknown
    if memory is None:
        unsized = next(value for value in view.results(op) if value.bytes is None)
        return _unsized_reason(op, unsized)
    for value in op.outputs:
        if value.kind == "tensor" and value.size is None:
            return _unsized_reason(op, value)
    return None


def _unsized_reason(op: Operation, value: Value) -> str:
    result = f"{op.title}: its result '{printable(value.name, _SHOWN)}'"
    if value.kind in ("tensor", "unknown") and value.unknown is not None:
        return value.unknown
    if value.kind != "tensor":
        return f"{result} is of kind {value.kind}, whose size is not counted"
    if value.dtype == dtypes.UNKNOWN:
        return f"{result} is of an element type that is not known"
    return f"{result} has elements of type {dtypes.name_of(value.dtype)}, of no fixed size"


_SHOWN: Final = 80
"""Characters of a name that a reason shows."""


def _unknown_nodes(nodes: tuple[NodeCost, ...]) -> tuple[UnknownNodes, ...]:
    if all(node.macs is not None for node in nodes):
        return ()
    from otel_quant.cost.unknowns import unknown_nodes

    return unknown_nodes(nodes)


def _summed(
    model: Model,
    rules: RuleSet,
    nodes: tuple[NodeCost, ...],
    walk: Walk,
    weights: _Weights,
    bound: BoundInputs,
    unused: list[Value],
    view: str,
    views: Mapping[str, MemoryView],
) -> ModelCost:
    counts = Counter(node.op_type for node in nodes)
    contraction = sum(node.macs_contraction or 0 for node in nodes)
    mix: Counter[str] = Counter()
    for node in nodes:
        if node.precision is not None:
            mix[node.precision] += node.macs_contraction or 0
    met = walk.constants.met
    left_out = set(unused)
    read = [value.weight for value in met if value.weight and value not in left_out]
    unread_weights = [value.weight for value in unused if value.weight is not None]
    if rules.constant_nodes:
        params = weights.packed + sum(weight.elements for weight in read)
    else:
        params = sum(node.params for node in nodes)
    heaviest = max(nodes, key=lambda node: node.memory_bytes or 0, default=None)
    return ModelCost(
        path=model.source,
        rules=rules.name,
        view=view,
        views={name: Memory(found.bytes, found.peak_bytes) for name, found in views.items()},
        macs=sum(node.macs or 0 for node in nodes),
        macs_contraction=contraction,
        backward_macs=sum(node.backward_macs or 0 for node in nodes),
        params=params,
        weight_bytes=sum(weight.stored for weight in read),
        unused_params=sum(weight.elements for weight in unread_weights),
        unused_weight_bytes=sum(weight.stored for weight in unread_weights),
        memory_bytes=views[view].bytes,
        peak_activation_bytes=views[view].peak_bytes,
        file_bytes=file_bytes(model, met),
        nodes=nodes,
        op_counts=dict(counts.most_common()),
        quantize_nodes=sum(
            count for kind, count in counts.items() if operator_of(kind).precision.quantizes
        ),
        dequantize_nodes=sum(
            count for kind, count in counts.items() if operator_of(kind).precision.dequantizes
        ),
        precision={name: macs / contraction for name, macs in mix.most_common() if contraction},
        input_shapes={name: value.shape for name, value in bound.values.items()},
        assumed=bound.assumed,
        overridden_dims=dict(bound.overridden),
        unused_dims=(),
        uncosted_ops=dict(Counter(node.op_type for node in nodes if node.macs is None)),
        unsized_tensors=views[view].unsized,
        unknown_nodes=_unknown_nodes(nodes),
        max_memory_node=heaviest.name if heaviest is not None and heaviest.memory_bytes else None,
    )
