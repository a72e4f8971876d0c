"""Costs a model: reads its structure, infers its shapes, applies the rules, adds up."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from time import monotonic
from typing import Any, Final, Literal

from otel_quant.cost import dtypes, execution, results
from otel_quant.cost.execution import AsStored, Execution
from otel_quant.cost.inputs import BoundInputs, InputShape, bind_inputs
from otel_quant.cost.left_in_float import PRODUCERS, Contractions
from otel_quant.cost.model_reader import read_model
from otel_quant.cost.obstacles import Hindered
from otel_quant.cost.operation import RULE_ERRORS, SHOWN, Shape, TypedNode, Value
from otel_quant.cost.operators import operator_of
from otel_quant.cost.operators.rule import NO_PRECISION, has_known_keys
from otel_quant.cost.results import AssumedBranch, ModelCost, NodeCost, TensorCost, option_text
from otel_quant.cost.structure import CostError, Model, Tensor, printable
from otel_quant.cost.walk import MAX_NODES, Walk


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
    quantized: bool = False,
    time_limit: float | None = None,
    max_nodes: int = MAX_NODES,
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
        view: What memory is of: ``fused``, operators as onnxruntime runs them, or ``file``,
            every node by itself. None for ``fused``, of the rules ``onnx_tool`` for ``file``.
        sparsity: Whether to read the weights, in pieces, and look for zeros.
        exclude: Operators whose nodes, and the constants that only they read, are left out of
            all sums; ``excluded`` counts them. The peak of activations does not change.
        tensors: Whether to list what nodes make.
        quantized: Whether a quantizer is known to have written it: what stays in float is then
            listed even if nothing was quantized.
        time_limit: Seconds after which to give up, or None.
        max_nodes: Number of nodes from which to give up, nodes of functions and bodies included.

    Raises:
        CostError: It is not an ONNX model, is damaged or hostile, or took too long; or an
            argument makes no sense.
    """
    _chosen("rules", "rule set", rules, execution.RULE_SETS)
    view = view or execution.RULE_SETS[rules].view
    _chosen("view", "view", view, execution.VIEWS)
    deadline = None if time_limit is None else monotonic() + time_limit
    if sparsity and hasattr(model, "SerializeToString"):
        model = model.SerializeToString()  # with the weights, which are to be read
    structure = read_model(model, deadline)
    bound = bind_inputs(structure.graph, inputs, structure.source, dims=dims)
    walk = Walk(structure, bound, deadline=deadline, max_nodes=max_nodes)
    analysis = _Analysis(walk, bound, rules, view)
    if sparsity:
        from otel_quant.cost.sparsity import weight_sparsity  # imports numpy

        check = walk.budget.check_time
        analysis.sparsity_of = lambda op: weight_sparsity(op, model, check)
    return analysis.cost(exclude, tensors=tensors, quantized=quantized)


_SUMS: Final = ("macs", "macs_contraction", "backward_macs", "params")
"""What a model has of its nodes together."""


class _Analysis:
    """What is added up of one walk over one model."""

    def __init__(self, walk: Walk, bound: BoundInputs, rules: str, view: str) -> None:
        self.sparsity_of: Callable[[TypedNode], results.WeightSparsity | None] | None = None
        self._walk, self._bound = walk, bound
        self._rules_name, self._rules = rules, execution.RULE_SETS[rules]
        self._view_name = view
        self._types = AsStored()
        if walk.dequantizes:  # other models are not to wait for what this imports
            from otel_quant.cost.fused import AsRun, fused_kernels

            self._types = AsRun(fused_kernels(walk.ops, walk.outputs))
        self._contractions = Contractions(walk.ops)
        self._views = execution.memory_views(walk, self._types.kernels, self._rules)
        self._view = self._views[view]
        # Each is added to, the chosen one first.
        self._added_to = dict.fromkeys((self._view, *self._views.values()))
        self._nodes: list[NodeCost] = []
        self._branches: list[AssumedBranch] = []
        self._full: list[str] = []
        self._makers: dict[Value, TypedNode] = {}
        self._shapes: dict[tuple[Shape | None, ...], tuple[Shape | None, ...]] = {}
        self._read: dict[Value, Tensor] = {}  # Constants of the nodes so far
        self._left_out: set[Value | None] = set()  # What nodes read that are left out

    def cost(self, exclude: Collection[str], *, tensors: bool, quantized: bool) -> ModelCost:
        """Costs what the walk has met; its list of operations is then empty."""
        walk, bound, types = self._walk, self._bound, self._types
        made = tuple(_made_tensors(walk.ops)) if tensors else None
        excluded = self._take_nodes(exclude)
        nodes, counts = self._nodes, _op_counts(self._nodes)
        sums = {name: _sum(nodes, name) for name in _SUMS}
        precisions = {kind: operator_of(kind).precision for kind in counts}
        uncosted = [node for node in nodes if node.macs is None]
        sized = (node for node in nodes if node.memory_bytes)
        heaviest = max(sized, key=attrgetter("memory_bytes"), default=None)
        zeros = {node.sparsity.weight: node.sparsity for node in nodes if node.sparsity}
        met, seen = walk.constants.met, self._read.keys() | self._left_out
        unread = [value.weight for value in met if value.weight and value not in seen]
        is_written = quantized or walk.model.producer in PRODUCERS
        others = any(each.quantizes or each.dequantizes for each in precisions.values())
        groups = self._contractions.left(is_written=is_written, others=others)
        left = tuple(_in_float(group, self._contractions.macs) for group in groups)
        return ModelCost(
            path=walk.model.source, rules=self._rules_name, view=self._view_name,
            views={name: results.Memory(it.bytes, it.peak_bytes) for name, it in self._views.items()},
            **sums, weight_bytes=_sum(self._read.values(), "stored"),
            unused_params=_sum(unread, "elements"), unused_weight_bytes=_sum(unread, "stored"),
            memory_bytes=self._view.bytes, peak_activation_bytes=self._view.peak_bytes,
            unsized_tensors=self._view.unsized, file_bytes=file_bytes(walk.model, met),
            nodes=tuple(nodes), op_counts=dict(counts.most_common()),
            quantize_nodes=sum(counts[kind] for kind, it in precisions.items() if it.quantizes),
            dequantize_nodes=sum(counts[kind] for kind, it in precisions.items() if it.dequantizes),
            stored=stored_in(self._read.values()),
            precision=_mix(nodes, "precision", sums["macs_contraction"]),
            expected_precision=_mix(nodes, "expected_precision", sums["macs_contraction"]),
            input_shapes={name: value.shape for name, value in bound.values.items()},
            assumed=bound.assumed, overridden_dims=dict(bound.overridden), unused_dims=bound.unused,
            uncosted_ops=dict(_op_counts(uncosted)), unknown_nodes=tuple(_unknown_nodes(uncosted)),
            max_memory_node=heaviest and heaviest.name, excluded=excluded, tensors=made,
            sparsity=tuple(zeros.values()) if self.sparsity_of else None,
            quantized_contractions=types.quantized, in_float=tuple(map(_in_float, types.in_float.values())), runtime=types.runtime,
            on_loading=tuple(map(_in_float, types.on_loading.values())),
            left_in_float=left, contractions=self._contractions.count,
            assumed_branches=tuple(self._branches), assumed_full=tuple(self._full), misfit=next(iter(walk.misfits), ""),
        )  # fmt: skip

    def _take_nodes(self, exclude: Collection[str]) -> dict[str, int]:
        """Costs all nodes but those of operators that are left out; returns how many those are."""
        excluded = dict.fromkeys(exclude, 0)
        for run in execution.executions(_handed_over(self._walk.ops), self._rules):
            if run.op.kind in excluded:
                excluded[run.op.kind] += 1
                self._left_out.update(run.op.inputs)
            else:
                self._nodes.append(self._node(run))
                self._full += [] if has_known_keys(run.op) else [run.op.name]
            if run.assumed is not None:  # the nodes of that branch may count where the If does not
                self._branches.append(self._branch(run.op, *run.assumed))
        return excluded

    def _node(self, run: Execution) -> NodeCost:
        """The record of a node; they come in order of execution."""
        op = run.op
        if operator_of(op.kind).precision is not NO_PRECISION:
            self._makers.update(dict.fromkeys(op.outputs, op))
        params, held = self._constants_of(run)
        (memory, moved), *_ = [view.add(op, held) for view in self._added_to]
        found, unknown = run.all_macs()
        macs = inner = backward = precision = expected = None
        if found is not None:
            unknown = self._unsized(op, memory)
            inner, macs = found
            backward = macs + inner
        if inner:
            precision = execution.precision_of(op, self._makers)
            expected = self._types.expected(op, precision)
            self._contractions.add(op, precision, expected, inner)
        given = self._shared([None if value is None else value.shape for value in op.inputs])
        made = self._shared([value.shape for value in op.outputs])
        sparsity = None if self.sparsity_of is None else self.sparsity_of(op)
        moved = execution.multiplied(moved, run.times)
        return NodeCost(
            op.name, op.kind, macs, inner, backward, params, memory, given, made, precision, sparsity, unknown,
            moved, expected,
        )  # fmt: skip

    def _branch(self, op: TypedNode, taken: int, macs: Sequence[int | None]) -> AssumedBranch:
        """The record of a branch that was assumed, with what would give the condition."""
        options = [
            option_text("--input", f"{name}:bool:{'x'.join(map(str, value.shape or ()))}:VALUE")
            for name, value in self._bound.values.items()
            if value in op.inputs[:1]
        ]
        words: tuple[Literal["then", "else"], ...] = ("then", "else")
        return AssumedBranch(op.name, words[taken], macs[taken], macs[1 - taken], "".join(options))

    def _shared(self, shapes: Sequence[Shape | None]) -> tuple[Shape | None, ...]:
        """Shapes as the tuple that all nodes with the same ones have."""
        found = tuple(shapes)
        return self._shapes.setdefault(found, found)

    def _constants_of(self, run: Execution) -> tuple[int, int]:
        """Elements and bytes of the constants that an execution is the first to read."""
        elements = size = 0
        of_nodes = self._walk.constants.of_nodes
        for op in (run.op, *run.idle):
            given = [each for body in (*op.bodies, *op.branches) for each in body.outputs]
            for i, value in enumerate((*op.inputs, *given)):
                if value is None or value.weight is None or value in self._read:
                    continue
                self._read[value] = weight = value.weight
                if self._rules.counts(weight, of_node=value in of_nodes):
                    elements += _elements(op, i, weight)
                    size += weight.stored
        return elements, size

    def _unsized(self, op: TypedNode, memory: int | None) -> str | None:
        """Why the memory of a node or the shape of a result is not known; None if both are."""
        if memory is None:
            unsized = (value for value in self._view.results(op) if value.bytes is None)
        else:
            tensors = (value for value in op.outputs if value.kind == "tensor")
            unsized = (value for value in tensors if value.size is None)
        value = next(unsized, None)
        if value is None:
            return None
        if value.unknown is not None:
            return value.unknown
        what = f"the size of its result '{printable(value.name, SHOWN)}'"
        return f"{op.title}: {what} is not known, which is of type {_type_of(value)}"


def _in_float(group: Hindered, macs: int = 0) -> results.InFloat:
    """The record of contractions in float, with their part of all MACs if these are given."""
    share = group.macs / macs if macs else 0.0
    first, reason, remedy = group.names[0], group.why.reason, group.why.remedy.text
    return results.InFloat(dict(group.kinds), first, reason, remedy, share, dict(group.then))


def _type_of(value: Value) -> str:
    return dtypes.name_of(value.dtype) if value.kind == "tensor" else value.kind


def _sum(records: Iterable[NodeCost | Tensor], key: str) -> int:
    """The sum of what is known of records."""
    return sum(filter(None, map(attrgetter(key), records)))


def _op_counts(nodes: Iterable[NodeCost]) -> Counter[str]:
    return Counter(map(attrgetter("op_type"), nodes))


def _mix(nodes: Iterable[NodeCost], key: str, whole: int) -> dict[str, float]:
    """Shares of contractions by type, the largest first."""
    mix: Counter[str] = Counter()
    for node in nodes:
        if node.macs_contraction:  # others have no type
            mix[getattr(node, key)] += node.macs_contraction
    return {name: macs / whole for name, macs in mix.most_common()}


def stored_in(weights: Iterable[Tensor]) -> dict[str, float]:
    """Returns the shares of the bytes of weights by type, the largest first."""
    found: Counter[str] = Counter()
    for each in weights:
        found[dtypes.name_of(each.dtype)] += each.stored
    whole = found.total()
    return {name: size / whole for name, size in found.most_common() if size}


def _chosen(what: str, title: str, name: object, choices: Collection[str]) -> None:
    if name not in choices:
        problem = f"{printable(str(name))!r} is not a {title}"
        raise CostError(what, problem, expected=" or ".join(choices))


def _elements(op: TypedNode, i: int, weight: Tensor) -> int:
    """Elements of a constant, counted apart where a stored element holds several."""
    rule = operator_of(op.kind).packed.get(i)
    if rule is None:
        return weight.elements
    try:
        found = rule(op)
    except RULE_ERRORS:  # lengths or attributes that the operator does not allow
        return weight.elements
    return found if 0 < found <= 8 * weight.stored else weight.elements


def _handed_over(ops: list[TypedNode]) -> Iterator[TypedNode]:
    """Yields what a list has and leaves it empty: there may be many, and each is used once."""
    ops.reverse()
    while ops:
        yield ops.pop()


def _made_tensors(
    ops: Iterable[TypedNode], *, in_body: bool = False, known: Collection[Value] = ()
) -> Iterator[TensorCost]:
    """Yields what operations and their bodies make, in order of execution."""
    for op in ops:
        own = op.outputs if op.inlined else ()
        for body in (*op.bodies, *execution.branches_taken(op)):
            yield from _made_tensors(body.ops, in_body=True, known=own)
        for name, value in zip(op.node.outputs, op.outputs, strict=False):
            if name and value not in known:
                yield TensorCost(name, _type_of(value), value.shape, value.bytes, op.name, in_body)


def _unknown_nodes(uncosted: Sequence[NodeCost]) -> Iterator[results.UnknownNodes]:
    """Yields the nodes without known MACs: those without a rule, then those without a shape."""
    lacks: tuple[tuple[Literal["rule", "shape"], bool], ...] = (("rule", False), ("shape", True))
    for lack, costed in lacks:
        nodes = [node for node in uncosted if operator_of(node.op_type).costed is costed]
        if nodes:
            ops, reason = dict(_op_counts(nodes)), nodes[0].unknown_reason
            yield results.UnknownNodes(lack, ops, nodes[0].name, reason or "")


def file_bytes(model: Model, weights: Iterable[Value]) -> int:
    """Returns the bytes of a model's file and, as the model declares them, of its external data."""
    declared: dict[str, int] = {}
    for value in weights:
        if value.weight is not None and value.weight.external is not None:
            place = value.weight.external
            end = place.offset + value.weight.stored
            declared[place.location] = max(declared.get(place.location, 0), end)
    return model.size + sum(declared.values())
