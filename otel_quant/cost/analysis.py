"""Costs a model: reads its structure, infers its shapes, applies the rules, adds up."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Any, Literal

from otel_quant.cost import dtypes
from otel_quant.cost.execution import (
    MAX_MACS,
    RULE_SETS,
    TOO_MANY_MACS,
    VIEWS,
    Run,
    executions,
    memory_views,
    precision_of,
)
from otel_quant.cost.inputs import BoundInputs, InputShape, bind_inputs
from otel_quant.cost.model_reader import read_model
from otel_quant.cost.operation import RULE_ERRORS, SHOWN, Operation, Shape, Value
from otel_quant.cost.operators import operator_of
from otel_quant.cost.operators.rule import NO_PRECISION
from otel_quant.cost.results import (
    AssumedBranch,
    InFloat,
    Memory,
    ModelCost,
    NodeCost,
    TensorCost,
    UnknownNodes,
    WeightSparsity,
    option_text,
)
from otel_quant.cost.structure import CostError, Model, Tensor, printable
from otel_quant.cost.walk import MAX_NODES, Walk

if TYPE_CHECKING:
    from otel_quant.cost.fused import Fused
    from otel_quant.cost.runtimes import Obstacle


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
        view: What memory is of: ``fused``, quantized operators as runtimes run them, or ``file``,
            every node by itself. None for ``fused``, of the rules ``onnx_tool`` for ``file``.
        sparsity: Whether to read the weights, in pieces, and look for zeros.
        exclude: Operators whose nodes, and the constants that only they read, are left out of
            all sums; ``excluded`` counts them. The peak of activations does not change.
        tensors: Whether to list what nodes make.
        time_limit: Seconds after which to give up, or None.
        max_nodes: Number of nodes from which to give up, nodes of functions and bodies included.

    Raises:
        CostError: It is not an ONNX model, is damaged or hostile, or took too long; or an
            argument makes no sense.
    """
    _chosen("rules", "rule set", rules, RULE_SETS)
    view = view or ("fused" if rules == "corrected" else "file")
    _chosen("view", "view", view, VIEWS)
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
    return analysis.cost(exclude, tensors=tensors)


class _Analysis:
    """What is added up of one walk over one model."""

    def __init__(self, walk: Walk, bound: BoundInputs, rules: str, view: str) -> None:
        self.sparsity_of: Callable[[Operation], WeightSparsity | None] | None = None
        self._walk, self._bound, self._model = walk, bound, walk.model
        self._rules, self._view_name = rules, view
        self._corrected = rules == "corrected"
        self._fused: Fused | None = None
        self._dequantized = 0  # Contractions of dequantized integers
        self._in_float: dict[Obstacle, list[Operation]] = {}  # Those expected to run in float
        if walk.dequantizes:  # other models are not to wait for what this imports
            from otel_quant.cost.fused import fused_kernels

            self._fused = fused_kernels(walk.ops, walk.outputs)
        self._views = memory_views(walk, self._fused, corrected=self._corrected)
        self._view = self._views[view]
        self._other_views = set(self._views.values()) - {self._view}
        self._makers: dict[Value, Operation] = {}
        self._shapes: dict[tuple[Shape | None, ...], tuple[Shape | None, ...]] = {}
        self._read: set[Value] = set()  # Constants of the nodes so far

    def cost(self, exclude: Collection[str], *, tensors: bool) -> ModelCost:
        """Costs what the walk has met; its list of operations is then empty."""
        walk, bound = self._walk, self._bound
        made = tuple(_made_tensors(walk.ops)) if tensors else None
        nodes: list[NodeCost] = []
        branches: list[AssumedBranch] = []
        excluded, left_out = dict.fromkeys(exclude, 0), set[Value | None]()
        for run in executions(_handed_over(walk.ops), corrected=self._corrected):
            if run.op.kind in excluded:
                excluded[run.op.kind] += 1
                left_out.update(run.op.inputs)
            else:
                nodes.append(self._node(run))
            if run.assumed is not None:  # the nodes of that branch may count where the If does not
                branches.append(self._branch(run.op, *run.assumed))
        met = walk.constants.met
        read = [each.weight for each in met if each.weight and each in self._read]
        unread = [each.weight for each in met if each.weight and each not in self._read | left_out]
        contraction = sum(node.macs_contraction or 0 for node in nodes)
        counts = Counter(node.op_type for node in nodes)
        precisions = {kind: operator_of(kind).precision for kind in counts}
        uncosted = [node for node in nodes if node.macs is None]
        heaviest = max(nodes, key=lambda node: node.memory_bytes or 0, default=None)
        zeros = {node.sparsity.weight: node.sparsity for node in nodes if node.sparsity}
        return ModelCost(
            path=self._model.source,
            rules=self._rules,
            view=self._view_name,
            views={name: Memory(it.bytes, it.peak_bytes) for name, it in self._views.items()},
            macs=sum(node.macs or 0 for node in nodes),
            macs_contraction=contraction,
            backward_macs=sum(node.backward_macs or 0 for node in nodes),
            params=sum(node.params for node in nodes),
            weight_bytes=sum(weight.stored for weight in read),
            unused_params=sum(weight.elements for weight in unread),
            unused_weight_bytes=sum(weight.stored for weight in unread),
            memory_bytes=self._view.bytes,
            peak_activation_bytes=self._view.peak_bytes,
            file_bytes=file_bytes(self._model, met),
            nodes=tuple(nodes),
            op_counts=dict(counts.most_common()),
            quantize_nodes=sum(counts[kind] for kind, it in precisions.items() if it.quantizes),
            dequantize_nodes=sum(counts[kind] for kind, it in precisions.items() if it.dequantizes),
            precision=_mix(nodes, "precision", contraction),
            input_shapes={name: value.shape for name, value in bound.values.items()},
            assumed=bound.assumed,
            overridden_dims=dict(bound.overridden),
            unused_dims=bound.unused,
            uncosted_ops=dict(Counter(node.op_type for node in uncosted)),
            unsized_tensors=self._view.unsized,
            unknown_nodes=tuple(_unknown_nodes(uncosted)),
            max_memory_node=heaviest.name if heaviest and heaviest.memory_bytes else None,
            sparsity=tuple(zeros.values()) if self.sparsity_of else None,
            excluded=excluded,
            tensors=made,
            quantized_contractions=self._dequantized,
            in_float=tuple(
                InFloat(dict(Counter(op.kind for op in ops)), ops[0].name, *obstacle)
                for obstacle, ops in self._in_float.items()
            ),
            expected_precision=_mix(nodes, "expected_precision", contraction),
            assumed_branches=tuple(branches),
            runtime=self._fused.runtime.title if self._fused and self._dequantized else "",
        )

    def _node(self, run: Run) -> NodeCost:
        """The record of a node; they come in order of execution."""
        op = run.op
        if operator_of(op.kind).precision is not NO_PRECISION:
            self._makers.update(dict.fromkeys(op.outputs, op))
        params, held = self._constants_of(run)
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
        expected = precision if precision is None else self._expected(op, precision)
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
            None if self.sparsity_of is None else self.sparsity_of(op),
            unknown if macs is None else self._unsized(op, memory),
            None if moved is None or run.times is None else moved * run.times,
            expected,
        )

    def _expected(self, op: Operation, stored: str) -> str:
        """What a contraction is expected to execute in."""
        if self._fused is None:
            return stored
        from otel_quant.cost.fused import executed_in

        found = executed_in(op, stored, self._fused)
        if found is None:
            return stored
        expected, obstacle = found
        self._dequantized += 1
        if obstacle is not None:
            self._in_float.setdefault(obstacle, []).append(op)
        return expected

    def _branch(self, op: Operation, taken: int, macs: Sequence[int | None]) -> AssumedBranch:
        condition, option = op.input(0) if op.has(0) else None, ""
        if condition is not None and self._bound.values.get(condition.name) is condition:
            shape = "x".join(map(str, condition.shape or ()))
            option = option_text("--input", f"{condition.name}:bool:{shape}:VALUE")
        words: tuple[Literal["then", "else"], ...] = ("then", "else")
        return AssumedBranch(op.name, words[taken], macs[taken], macs[1 - taken], option)

    def _shared(self, shapes: Sequence[Shape | None]) -> tuple[Shape | None, ...]:
        """Shapes as the tuple that all nodes with the same ones have."""
        found = tuple(shapes)
        return self._shapes.setdefault(found, found)

    def _constants_of(self, run: Run) -> tuple[int, int]:
        """Elements and bytes of the constants that an execution is the first to read."""
        elements = size = 0
        for op in (run.op, *run.idle):
            given = [each for body in (*op.bodies, *op.branches) for each in body.outputs]
            for i, value in enumerate((*op.inputs, *given)):
                if value is None or value.weight is None or value in self._read:
                    continue
                self._read.add(value)
                of_node = value in self._walk.constants.of_nodes
                if not self._corrected and (of_node or not value.weight.dims):
                    continue
                elements += _elements(op, i, value.weight)
                size += value.weight.stored
        return elements, size

    def _unsized(self, op: Operation, memory: int | None) -> str | None:
        """Why the memory of a node or the shape of a result is not known; None if both are."""
        if memory is None:
            value = next(value for value in self._view.results(op) if value.bytes is None)
        else:
            unsized = (value for value in op.outputs if value.kind == "tensor")
            found = next((value for value in unsized if value.size is None), None)
            if found is None:
                return None
            value = found
        if value.unknown is not None:
            return value.unknown
        kind = dtypes.name_of(value.dtype) if value.kind == "tensor" else value.kind
        name = printable(value.name, SHOWN)
        return f"{op.title}: the size of its result '{name}' is not known, which is of type {kind}"


def _mix(nodes: Iterable[NodeCost], key: str, whole: int) -> dict[str, float]:
    """Shares of contractions by type, the largest first."""
    mix: Counter[str] = Counter()
    for node in nodes:
        if (name := getattr(node, key)) is not None:
            mix[name] += node.macs_contraction or 0
    return {name: macs / whole for name, macs in mix.most_common() if whole}


def _chosen(what: str, title: str, name: object, choices: Collection[str]) -> None:
    if name not in choices:
        raise CostError(
            what, f"{printable(str(name))!r} is not a {title}", expected=" or ".join(choices)
        )


def _elements(op: Operation, i: int, weight: Tensor) -> int:
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


def _made_tensors(
    ops: Iterable[Operation], *, in_body: bool = False, known: Collection[int] = ()
) -> Iterator[TensorCost]:
    """Yields what operations and their bodies make, in order of execution."""
    for op in ops:
        own = {id(value) for value in op.outputs} if op.inlined else set()
        branches = op.branches if op.taken is None else [op.branches[op.taken]]
        for body in (*op.bodies, *branches):
            yield from _made_tensors(body.ops, in_body=True, known=own)
        for name, value in zip(op.node.outputs, op.outputs, strict=False):
            if name and id(value) not in known:
                is_tensor = value.kind in ("tensor", "unknown")
                dtype = dtypes.name_of(value.dtype) if is_tensor else value.kind
                yield TensorCost(name, dtype, value.shape, value.bytes, op.name, in_body)


def _unknown_nodes(uncosted: Iterable[NodeCost]) -> Iterator[UnknownNodes]:
    """Yields the nodes without known MACs: those without a rule, then those without a shape."""
    lacking: dict[Literal["rule", "shape"], list[NodeCost]] = {"rule": [], "shape": []}
    for node in uncosted:
        lacking["shape" if operator_of(node.op_type).costed else "rule"].append(node)
    for lack, nodes in lacking.items():
        if nodes:
            ops = dict(Counter(node.op_type for node in nodes))
            yield UnknownNodes(lack, ops, nodes[0].name, nodes[0].unknown_reason or "")


def file_bytes(model: Model, weights: Iterable[Value]) -> int:
    """Returns the bytes of a model's file and, as the model declares them, of its external data."""
    declared: dict[str, int] = {}
    for value in weights:
        if value.weight is not None and value.weight.external is not None:
            place = value.weight.external
            end = place.offset + value.weight.stored
            declared[place.location] = max(declared.get(place.location, 0), end)
    return model.size + sum(declared.values())
