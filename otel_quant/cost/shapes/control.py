"""Operators that run graphs: If, Loop, Scan, SequenceMap, FlexAttention, BeamSearch and its like."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import isfinite
from typing import Final, Protocol, TypeAlias

from otel_quant.cost import dtypes
from otel_quant.cost.budget import Budget
from otel_quant.cost.errors import CostError, printable
from otel_quant.cost.graph_scope import GraphScope
from otel_quant.cost.operation import (
    RULE_ERRORS,
    Body,
    Carried,
    Operation,
    UnknownError,
    reason_of,
)
from otel_quant.cost.shapes.rule import axis_of
from otel_quant.cost.structure import Graph
from otel_quant.cost.values import Shape, Value, merged


class GraphWalk(Protocol):
    """What can walk a graph: shape inference."""

    @property
    def source(self) -> str:
        """The model's name, for errors."""
        ...

    @property
    def budget(self) -> Budget:
        """What the walk may take."""
        ...

    def graph(
        self, graph: Graph, inputs: Mapping[str, Value], outer: GraphScope | None, prefix: str
    ) -> tuple[list[Operation], list[Value]]:
        """Walks a graph; returns its operations, and the values of its outputs."""
        ...


BodyRule: TypeAlias = Callable[[GraphWalk, Operation, GraphScope], list[Value]]
"""Walks the graphs that an operation runs, with the names around it; returns its results."""

_UNKNOWN_TIMES: Final = "{}: how often it runs its body is not known"

_PASSES: Final = 8
"""Walks over a body until the shapes it carries stop changing; each can only lose knowledge."""


def _if(walk: GraphWalk, op: Operation, scope: GraphScope) -> list[Value]:
    """One branch where the condition is known, else what both have in common.

    Both are walked either way: the constants of a branch that is not taken are parameters too.
    """
    branches: list[Body] = []
    for name in ("then", "else"):
        graph = op.attr_graph(f"{name}_branch", walk.source)
        ops, outputs = walk.graph(graph, {}, scope, f"{op.name}/{name}/")
        branches.append(Body(ops, outputs=outputs))
    op.branches = branches
    condition = op.input(0).data if op.has(0) else None
    if condition and condition[0] is not None:
        op.taken = 0 if condition[0] else 1
        return list(branches[op.taken].outputs)
    results = []
    for pair in zip(branches[0].outputs, branches[1].outputs, strict=False):
        value = merged(list(pair))
        if value.size is None and value.unknown is None:
            value.unknown = f"{op.title}: its branches give results of different shapes"
        results.append(value)
    return results


def _loop(walk: GraphWalk, op: Operation, scope: GraphScope) -> list[Value]:
    """A body, a trip count, and values carried from one iteration to the next."""
    body = op.attr_graph("body", walk.source)
    carried = [_carried(value) for value in op.inputs[2:]]
    names = [info.name for info in body.inputs]
    counter = Value(dtypes.INT64, (), name="iteration")
    going = Value(dtypes.BOOL, (), (1,))  # else the body would not run
    for turn in range(_PASSES):
        if turn == _PASSES - 1:
            carried = [Value() for _ in carried]
        entering = list(carried)
        inputs = dict(zip(names, [counter, going, *entering], strict=False))
        ops, outputs = walk.graph(body, inputs, scope, op.name + "/body/")
        if not _widen(op.title, carried, outputs[1 : 1 + len(carried)]):
            break
    handed = [Carried(*item) for item in zip(op.inputs[2:], entering, outputs[1:], strict=False)]
    op.bodies = [Body(ops, None, _UNKNOWN_TIMES.format(op.title), outputs, handed)]
    op.bodies[0].times = times = _trips(op, op.bodies[0], counter)
    results = [_result(op, value) for value in carried]
    if times == 0:
        results = [_result(op, value or Value()) for value in op.inputs[2:]]
    for value in outputs[1 + len(carried) :]:
        results.append(_stacked(op, value, times, 0))
    return results


def _single(op: Operation, i: int) -> int | None:
    data = op.input(i).data if op.has(i) else None
    item = data[0] if data else None
    return int(item) if item is not None and isfinite(item) else None


def _trips(op: Operation, body: Body, number: Value) -> int | None:
    """Iterations, if what can end the loop is known; ``number`` is theirs in the body."""
    from otel_quant.cost.shapes.trip_count import Iterations  # models without loops do not wait

    limit, start = _single(op, 0), _single(op, 1)
    if op.has(1) and start == 0:
        return 0
    if not body.outputs or (op.has(0) and limit is None) or (op.has(1) and start is None):
        return None
    return Iterations(body.ops, number, body.carried).count(body.outputs[0], limit)


def _carried(value: Value | None) -> Value:
    """What holds in every iteration of a value that iterations change: not its elements."""
    if value is None:
        return Value()
    result = Value(value.dtype, value.shape, kind=value.kind, name=value.name)
    result.element = value.element
    result.unknown = value.unknown
    return result


def _widen(title: str, carried: list[Value], after: list[Value]) -> bool:
    """Drops from each carried value what an iteration changes; returns whether anything was."""
    changed = False
    for i, (before, new) in enumerate(zip(carried, after, strict=False)):
        both = merged([before, new])
        if before.kind == "sequence" and before.element is not None and new.element is not None:
            both.element = (
                new.element if before.items == () else merged([before.element, new.element])
            )
        both.data = None
        if both.size is None and both.unknown is None:
            both.unknown = f"{title}: the shape of '{printable(before.name)}' changes as it runs"
        if both.shape != before.shape or both.dtype != before.dtype or both.kind != before.kind:
            changed = True
        carried[i] = both
    return changed


def _result(op: Operation, value: Value) -> Value:
    result = _carried(value)
    result.name = ""
    return result


def _stacked(op: Operation, value: Value, times: int | None, axis: int) -> Value:
    """A scan output: one slice per iteration along a new axis."""
    shape: Shape | None = None
    if value.shape is not None:
        at = axis + len(value.shape) + 1 if axis < 0 else axis
        shape = (*value.shape[:at], times, *value.shape[at:])
    result = Value(value.dtype, shape)
    result.unknown = value.unknown
    if times is None and result.unknown is None:
        result.unknown = _UNKNOWN_TIMES.format(op.title)
    return result


def _scan(walk: GraphWalk, op: Operation, scope: GraphScope) -> list[Value]:
    """A body over slices of its last operands."""
    body = op.attr_graph("body", walk.source)
    count = op.attr("num_scan_inputs", 0)
    if not 0 < count <= len(op.inputs):
        raise UnknownError(
            f"attribute 'num_scan_inputs' is {count}; 1 to {len(op.inputs)}, the number of operands, "
            "is expected"
        )
    old = 0 < op.opset < 9  # version 8 has a leading sequence_lens and a batch axis
    operands = op.inputs[1:] if old else op.inputs
    states = operands[: len(operands) - count]
    scanned = operands[len(operands) - count :]
    lead = 1 if old else 0
    carried = [_dropped(_carried(value), 0) if old else _carried(value) for value in states]
    axes = op.attr_ints("scan_input_axes") or (0,) * count
    slices: list[Value] = []
    times: int | None = None
    batch: int | None = None
    for value, axis in zip(scanned, axes, strict=False):
        whole = value or Value()
        if whole.shape is not None:
            at = 1 if old else axis_of(axis, len(whole.shape))
            times = whole.shape[at] if times is None else times
            batch = whole.shape[0] if old else None
            piece = Value(whole.dtype, (*whole.shape[:at], *whole.shape[at + 1 :])[lead:])
        else:
            piece = Value(whole.dtype)
        slices.append(piece)
    names = [info.name for info in body.inputs]
    for turn in range(_PASSES):
        if turn == _PASSES - 1:
            carried = [Value() for _ in carried]
        entering = list(carried)
        inputs = dict(zip(names, [*entering, *slices], strict=False))
        ops, outputs = walk.graph(body, inputs, scope, op.name + "/body/")
        if not _widen(op.title, carried, outputs[: len(carried)]):
            break
    runs = times if not old or times is None or batch is None else times * batch
    runs = None if old and batch is None else runs
    handed = [Carried(*item) for item in zip(states, entering, outputs, strict=False)]
    op.bodies = [Body(ops, runs, _UNKNOWN_TIMES.format(op.title), outputs, handed)]
    results = [_result(op, value) for value in carried]
    if old:
        for value in results:
            value.shape = None if value.shape is None else (batch, *value.shape)
    out_axes = op.attr_ints("scan_output_axes") or ()
    for i, value in enumerate(outputs[len(carried) :]):
        stacked = _stacked(op, value, times, out_axes[i] if i < len(out_axes) else 0)
        if old and stacked.shape is not None:
            stacked.shape = (batch, *stacked.shape)
        results.append(stacked)
    return results


def _dropped(value: Value, axis: int) -> Value:
    if value.shape is not None:
        value.shape = (*value.shape[:axis], *value.shape[axis + 1 :])
    return value


def _sequence_map(walk: GraphWalk, op: Operation, scope: GraphScope) -> list[Value]:
    """A body over the members of sequences."""
    body: Graph = op.attr_graph("body", walk.source)
    first = op.input(0)
    members: list[Value] = []
    for value in op.inputs:
        if value is not None and value.kind == "sequence":
            members.append(value.element or Value())
        else:
            members.append(value or Value())
    names = [info.name for info in body.inputs]
    ops, outputs = walk.graph(
        body, dict(zip(names, members, strict=False)), scope, op.name + "/body/"
    )
    times = len(first.items) if first.items is not None else None
    op.bodies = [Body(ops, times, _UNKNOWN_TIMES.format(op.title), outputs)]
    results = []
    for value in outputs:
        result = Value(value.dtype, kind="sequence")
        result.element = value
        results.append(result)
    return results


def _flex_attention(walk: GraphWalk, op: Operation, scope: GraphScope) -> list[Value]:
    """Attention that runs a graph on its scores and one on their softmax."""
    (batch, heads, queries, _), (*_, keys, _) = op.shape(0, exactly=4), op.shape(1, exactly=4)
    double = op.dtype(0) == dtypes.DOUBLE
    precision = op.attr("softmax_precision", dtypes.DOUBLE if double else dtypes.FLOAT)
    for name in ("score_mod", "prob_mod"):
        if name in op.attributes:
            body = op.attr_graph(name, walk.source)
            scores = {
                info.name: Value(precision, (batch, heads, queries, keys)) for info in body.inputs
            }
            ops, outputs = walk.graph(body, scores, scope, f"{op.name}/{name}/")
            op.bodies = (*op.bodies, Body(ops, outputs=outputs))
    result = Value(op.dtype(0), (batch, heads, queries, op.shape(2, exactly=4)[3]))
    return [result]


def _generation(walk: GraphWalk, op: Operation, scope: GraphScope) -> list[Value]:
    """Graphs that make token after token, until the data end it: BeamSearch and its like."""
    endless = f"{op.title}: how many tokens it makes is data"
    for name in ("encoder", "init_decoder", "decoder"):
        if name in op.attributes:
            graph = op.attr_graph(name, walk.source)
            ops, outputs = walk.graph(graph, {}, scope, f"{op.name}/{name}/")
            op.bodies = (*op.bodies, Body(ops, None, endless, outputs))
    beams = (_single(op, 4),) if op.kind.endswith("BeamSearch") else ()
    result = Value(op.dtype(1), (op.shape(0, 1)[0], *beams, _single(op, 1)))
    return [result]


def _safely(rule: BodyRule) -> BodyRule:
    """Makes a node that breaks its operator's contract an unknown one."""

    def run(walk: GraphWalk, op: Operation, scope: GraphScope) -> list[Value]:
        depth = walk.budget.depth
        try:
            return rule(walk, op, scope)
        except CostError:  # of the model, not of the node; a ValueError too
            raise
        except RULE_ERRORS as error:
            walk.budget.depth = depth
            reason = reason_of(error, op, "shape rule")
            op.bodies = [Body([], None, reason)]  # something runs, how often is not known
            op.branches = []
            return []

    return run


if_: Final = _safely(_if)
loop: Final = _safely(_loop)
scan: Final = _safely(_scan)
sequence_map: Final = _safely(_sequence_map)
flex_attention: Final = _safely(_flex_attention)
generation: Final = _safely(_generation)
