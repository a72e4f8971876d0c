"""Shape inference: walks a graph once, in order, and finds what is known of every tensor in it.

Types, shapes and the small integers that carry shapes go forward together: a Reshape's
target is often computed from another tensor's shape by ten nodes in between. Local
functions and the bodies of If, Loop and Scan are walked where they are used, with the
shapes they are used with.

A small file can unfold into much, functions that call functions, loops of loops, constants that
are computed again at every node, so that a walk has limits.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from operator import attrgetter
from time import monotonic
from typing import Final

from otel_quant.cost import dtypes, operation, structure
from otel_quant.cost.inputs import BoundInputs, Symbols, is_name
from otel_quant.cost.operation import RULE_ERRORS, Body, TypedNode, UnknownError, Value, reason_of
from otel_quant.cost.operators import operator_of
from otel_quant.cost.operators.rule import Fold, Rule, RunGraph, folded, folding_effort
from otel_quant.cost.results import option_text
from otel_quant.cost.structure import Attribute, CostError, Function, GraphNode, Tensor, Type

MAX_NODES: Final = 200_000
"""Operations that a model may unfold into unless told; real ones stay below half of it."""

_MAX_WORK: Final = 5_000_000
"""Operands, attributes and constants looked at while they unfold: a few seconds' worth."""

_MAX_EFFORT: Final = 4_000_000
"""Elements of small tensors computed, likewise; beyond it only tensors of ``_SMALL_EFFORT``."""

_SMALL_EFFORT: Final = 64  # Elements that it takes to compute a shape from shapes
_MAX_DEPTH: Final = 64  # Functions calling functions, and graphs in graphs
_LOOK_EVERY: Final = 0xFF  # Operations between looks at the clock, less one
_TITLE_CHARACTERS: Final = 32  # Characters of a name that are as much work to copy as one operand
_CARRY_SHAPES: Final = frozenset({dtypes.INT32, dtypes.INT64, dtypes.BOOL})
_FIRST_CARRIES_SHAPES: Final = frozenset({"ConstantOfShape", "Loop", "Range"})
"""Operators whose first operand decides on a size; the first operand of others is data."""


class Budget:
    """What one walk has taken so far."""

    def __init__(self, source: str, deadline: float | None, max_nodes: int) -> None:
        self._source, self._deadline = source, deadline
        self._most = max_nodes, _MAX_WORK * max(1, max_nodes // MAX_NODES)
        self.depth = self._operations = self._work = self._effort = 0

    def spend(self, work: int, operations: int = 0) -> None:
        """Counts operations, and the operands, attributes and constants that are looked at."""
        self._operations += operations
        self._work += work
        most, most_work = self._most
        if self._operations > most or self._work > most_work:
            problem = f"unfolds into more than {most:,} operations or {most_work:,} operands and attributes"
            expected = "fewer; --max-nodes raises both limits"
            raise CostError(
                self._source, f"{problem}, functions and bodies included", expected=expected
            )
        if operations and not self._operations & _LOOK_EVERY:
            self.check_time()

    def allows(self, effort: int) -> bool:
        """Counts elements of small tensors to be computed; returns whether they may be."""
        if self._effort + effort > _MAX_EFFORT and effort > _SMALL_EFFORT:
            return False
        self._effort += effort
        return True

    def enter(self) -> None:
        """Goes one graph or function deeper; ``depth`` is set back by the caller."""
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            problem = f"functions or graphs are nested more than {_MAX_DEPTH} deep"
            raise CostError(self._source, problem, expected="no function that calls itself")

    def check_time(self) -> None:
        """Raises CostError if the time limit has passed."""
        if self._deadline is not None and monotonic() > self._deadline:
            raise CostError(self._source, "the time limit passed", expected=structure.LONGER)


_OF_VALUES: Final = {"value_i": dtypes.INT64, "value_f": dtypes.FLOAT, "value_s": dtypes.STRING}
"""How the attributes of a Constant begin that are no tensor, ``value_ints`` for one; it has one of them."""


class Constants:
    """The constants that a walk has met: one value for each, however often it meets it."""

    def __init__(self) -> None:
        self.met: list[Value] = []
        self.of_nodes: set[Value] = set()
        self._known: dict[int, Value] = {}

    def tensor(self, tensor: Tensor) -> Value:
        """Returns the value of a constant."""
        value = self._known.get(id(tensor))
        if value is None:
            value = self._known[id(tensor)] = self._made(tensor)
        return value

    def node(self, node: GraphNode, attributes: Mapping[str, Attribute]) -> Value:
        """Returns the value of a Constant node."""
        # What a function's caller gives is another constant in each call.
        known = self._known if attributes is node.attributes else {}
        value = known.get(id(node))
        if value is None:
            value = known[id(node)] = self._of(attributes)
            self.of_nodes.add(value)
        return value

    def _of(self, attributes: Mapping[str, Attribute]) -> Value:
        for name, held in attributes.items():
            if name == "value" and isinstance(held, Tensor):
                return self.tensor(held)
            dtype = _OF_VALUES.get(name[:7])
            if dtype is not None and type(held) is tuple:
                return self._made(_constant_of(dtype, held, (len(held),)))
            if dtype is not None and isinstance(held, int | float | bytes):
                return self._made(_constant_of(dtype, (held,), ()))
        value = Value()
        value.constant = True
        return value

    def _made(self, weight: Tensor) -> Value:
        value = Value(weight.dtype, weight.dims, weight.values, name=weight.name)
        value.weight = weight
        value.constant = True
        self.met.append(value)
        return value


def _constant_of(dtype: int, items: Sequence[object], dims: tuple[int, ...]) -> Tensor:
    """The tensor of a Constant's attribute; its elements if they are few numbers."""
    numbers = tuple(item for item in items if isinstance(item, int | float))
    kept = numbers if 0 < len(numbers) == len(items) <= operation.MAX_DATA else None
    return Tensor("", dtype, dims, dtypes.stored_bytes(dtype, len(items)) or 0, kept)


class _Scope(ChainMap[str, "Value | None"]):
    """The values of one graph by name, None for what a call leaves out; behind them those around it."""

    def __missing__(self, name: str) -> Value:
        """What nothing makes, in an invalid model; its rest may be right."""
        value = self[name] = Value(name=name)
        value.unknown = f"nothing in the model makes '{structure.printable(name)}'"
        return value


_CONSTANT: Final = attrgetter("constant")


class Walk:
    """One walk over a model; makes its operations in order, and the values of its outputs."""

    def __init__(
        self, model: structure.Model, bound: BoundInputs, *, deadline: float | None = None,
        max_nodes: int = MAX_NODES,
    ) -> None:  # fmt: skip
        self.model = model
        self.inputs = bound.values
        self.budget = Budget(model.source, deadline, max_nodes)
        self.constants = Constants()
        self.dequantizes = False
        self._symbols = bound.symbols
        self._given = Symbols(bound.dims)
        self._trust_declared = not bound.overridden
        self._askable = _askable(bound.values)
        self.misfit: TypedNode | None = None  # the last node whose operands do not fit
        self.misfits: list[str] = []  # what of such nodes does not fit, with their shapes
        self._opsets = model.opsets
        self._orders: dict[int, tuple[GraphNode, ...]] = {}
        self.budget.check_time()
        self.ops, self.outputs = self._graph(model.graph, self.inputs, _Scope(), "")

    def _graph(
        self, graph: structure.Graph, inputs: Mapping[str, Value], outer: _Scope, prefix: str
    ) -> tuple[list[TypedNode], list[Value]]:
        self.budget.enter()
        self.budget.spend(sum(map(len, graph[1:])))  # all but its nodes
        scope = outer.new_child()
        own = scope.maps[0]
        own.update((tensor.name, self.constants.tensor(tensor)) for tensor in graph.initializers)
        own.update(inputs)
        for info in graph.inputs:
            if info.name not in own:
                own[info.name] = self._declared(info.type, info.name)
        hints = {info.name: info.type for info in (*graph.outputs, *graph.value_info)}
        ops = self._nodes(graph.nodes, scope, prefix, {}, hints)
        outputs = [scope.get(it.name) or self._declared(it.type, it.name) for it in graph.outputs]
        self.budget.depth -= 1
        return ops, outputs

    def _declared(self, declared: Type, name: str = "") -> Value:
        """A value as a model declares it, symbols as this walk assumes them."""
        kind: structure.Kind = "tensor" if declared.may_be_tensor else declared.kind
        return Value(declared.dtype, self._symbols.shape(declared.shape), name=name, kind=kind)

    def _nodes(
        self, nodes: tuple[GraphNode, ...], scope: _Scope, prefix: str,
        arguments: Mapping[str, Attribute], hints: Mapping[str, Type],
    ) -> list[TypedNode]:  # fmt: skip
        order = self._orders.get(id(nodes))
        if order is None:
            order = self._orders[id(nodes)] = structure.ordered(nodes, self.model.source)
        ops: list[TypedNode] = []
        for node in order:
            work = len(node.inputs) + len(node.outputs) + len(node.attributes)
            of_title = (len(prefix) + len(node.name)) // _TITLE_CHARACTERS
            self.budget.spend(work + of_title, operations=1)
            title = prefix + (node.name or structure.node_name(node))
            attributes = node.attributes and _resolved(node.attributes, arguments)
            if node.op_type == "Constant" and not node.domain:
                ops.append(self._constant(node, scope, title, attributes))
            else:
                ops.append(self._node(node, scope, title, attributes, hints))
        return ops

    def _constant(
        self, node: GraphNode, scope: _Scope, title: str, attributes: Mapping[str, Attribute]
    ) -> TypedNode:
        """A Constant is its tensor, as if it were an initializer."""
        value = self.constants.node(node, attributes)
        if not value.name:
            value.name = node.outputs[0] if node.outputs else node.name
        for name in node.outputs:
            scope[name] = value
        opset = self._opsets.get("", 0)
        return TypedNode(title, "Constant", node, (), (value,), attributes, opset)

    def _node(
        self, node: GraphNode, scope: _Scope, title: str, attributes: Mapping[str, Attribute],
        hints: Mapping[str, Type],
    ) -> TypedNode:  # fmt: skip
        own = scope.maps[0]  # nearly always what is read
        inputs = [own.get(name) or scope[name] if name else None for name in node.inputs]
        kind = f"{node.domain}:{node.op_type}" if node.domain else node.op_type
        opset = self._opsets.get(node.domain, 0)
        op = TypedNode(title, kind, node, tuple(inputs), (), attributes, opset)
        outputs = self._results(op, scope)[: len(node.outputs)]
        while len(outputs) < len(node.outputs):
            outputs.append(_missing(op, len(outputs)))
        op.outputs = tuple(outputs)
        for name, value in zip(node.outputs, outputs, strict=True):
            if name:
                if name in hints:
                    self._take_hint(op, value, hints[name])
                value.name = value.name or name
                own[name] = value
        return op

    def _results(self, op: TypedNode, scope: _Scope) -> list[Value]:
        """What a local function, graphs that an operator runs, or an operator's rule gives."""
        node, operator = op.node, operator_of(op.kind)
        self.dequantizes |= operator.precision.dequantizes or bool(operator.precision.rounds_to)
        function = self.model.functions.get((node.domain, node.op_type, node.overload))
        if function is not None:
            return self._call(function, op)
        if operator.bodies is None:
            return self._apply(op, operator)
        depth = self.budget.depth
        outputs = operator.bodies(op, self._runner(op, scope))
        self.budget.depth = depth
        if any(body.times is None for body in op.bodies):
            option = self._option_for_data(op)
            op.bodies = [each._replace(unknown=each.unknown + option) for each in op.bodies]
        return outputs

    def _runner(self, op: TypedNode, scope: _Scope) -> RunGraph:
        """What walks the graphs that an operation runs, with the names around it."""

        def run(attribute: str, inputs: Sequence[Value]) -> tuple[list[TypedNode], list[Value]]:
            graph = op.attributes.get(attribute)
            if not isinstance(graph, structure.Graph):
                problem = f"{op.title} has no attribute {attribute!r}"
                expected = "a graph, which this operator runs"
                raise CostError(self.model.source, problem, expected=expected)
            values = zip((info.name for info in graph.inputs), inputs, strict=False)
            prefix = f"{op.name}/{attribute.removesuffix('_branch')}/"
            return self._graph(graph, dict(values), scope, prefix)

        return run

    def _apply(self, op: TypedNode, operator: Rule) -> list[Value]:
        """Applies an operator's shape rule and folding; returns its results."""
        outputs, failure = self._inferred(op, operator)
        if operator.fold is not None:
            self._fold(operator.fold, op, outputs)
        cause = failure or _cause(op)
        constant = bool(op.inputs) and all(map(_CONSTANT, op.given)) and operator.keeps_constants
        for value in outputs:
            value.constant = constant
            if value.unknown is None:
                value.unknown = cause
            if value.unknown is None and value.kind == "tensor" and value.size is None:
                options = self._option_for_data(op)
                value.unknown = f"{op.title}: the size of its result depends on data{options}"
        return outputs

    def _inferred(self, op: TypedNode, operator: Rule) -> tuple[list[Value], str | None]:
        """Returns what a shape rule gives, and why it gives nothing."""
        wanted = len(op.node.outputs)
        if not operator.has_results:
            return [Value() for _ in range(wanted)], _cause(op) or f"{op.title}: {operator.words}"
        try:
            outputs = operator.results(op, wanted)
        except RULE_ERRORS as error:
            if isinstance(error, operation.MismatchError):
                self.misfit = op
                shapes = (each.shape for each in op.given[: operation.MOST_SHAPES])
                shown = " and ".join("x".join(map(str, it)) for it in shapes if it is not None)
                self.misfits.append(f"{reason_of(error, op, 'shape rule')} (operands {shown})")
            outputs = [Value(operator.dtype(op, i)) for i in range(wanted)]
            return outputs, reason_of(error, op, "shape rule")
        while len(outputs) < wanted:
            outputs.append(Value())
        return outputs, None

    def _fold(self, fold: Fold, op: TypedNode, outputs: list[Value]) -> None:
        """Computes the elements of small results."""
        effort = folding_effort(op, outputs)
        if effort is None or not self.budget.allows(effort):
            return
        try:
            folded(fold, op, outputs)
        except UnknownError:
            pass  # its elements are not known
        except RULE_ERRORS as error:
            for value in outputs:
                value.unknown = reason_of(error, op, "folding rule")

    def _option_for_data(self, op: TypedNode) -> str:
        """What gives the elements of the inputs on which a node depends, as part of a reason."""
        first = 0 if op.kind in _FIRST_CARRIES_SHAPES else 1
        options = [self._askable[value] for value in op.inputs[first:] if value in self._askable]
        return f"; what it depends on is set with {' '.join(options)}" if options else ""

    def _call(self, function: Function, op: TypedNode) -> list[Value]:
        """Walks a local function with the caller's operands and attributes."""
        self.budget.enter()
        # An operand that the caller leaves out is one that the function's nodes leave out.
        given = op.inputs[: len(function.inputs)]
        scope = _Scope(dict(zip_longest(function.inputs, given)))
        self.budget.spend(len(function.inputs) + len(function.outputs) + len(function.defaults))
        arguments = {**function.defaults, **op.attributes}
        outer = self._opsets
        self._opsets = function.opsets or outer
        inner = self._nodes(function.nodes, scope, op.name + "/", arguments, {})
        op.bodies = (Body(inner, inlined=True),)
        self._opsets = outer
        self.budget.depth -= 1
        return [scope.get(name) or Value() for name in function.outputs]

    def _take_hint(self, op: TypedNode, value: Value, declared: Type) -> None:
        """Takes the shape that the model declares for a tensor for which no rule gives one.

        Only if the caller left the inputs as the model declares them: declared shapes do
        not follow other inputs. Of a shape that is known in part, the lengths whose names the
        caller gave.
        """
        shape, dims = value.shape, declared.shape
        is_known = shape is not None and None not in shape
        if is_known or value.kind != "tensor" or dims is None or op is self.misfit:
            return
        if shape is not None and len(shape) == len(dims):
            names = (dim if isinstance(dim, str) else None for dim in dims)
            value.shape = tuple(
                self._given.length(name) if length is None else length
                for length, name in zip(shape, names, strict=True)
            )
        elif (
            shape is None
            and self._trust_declared
            and value.dtype in (dtypes.UNKNOWN, declared.dtype)
        ):
            value.dtype = declared.dtype
            value.shape = self._symbols.shape(dims)
        if value.size is not None:
            value.unknown = None
        elif value.unknown is not None and value.unknown.startswith(op.title):
            value.unknown += _option_of(value, dims)


_SHAPES_OF_SHAPES: Final[frozenset[operation.Shape | None]] = frozenset(
    {(), *((n,) for n in range(65))}
)
"""Of an input whose elements a user may be asked for."""


def _askable(inputs: Mapping[str, Value]) -> dict[Value | None, str]:
    """The inputs that may carry shapes and whose elements are not given, with what gives them."""
    found: dict[Value | None, str] = {}
    for value in inputs.values():
        carries_shapes = value.dtype in _CARRY_SHAPES and value.shape in _SHAPES_OF_SHAPES
        if carries_shapes and value.data is None:
            lengths = "x".join(map(str, value.shape or ()))
            name = f"{value.name}:{dtypes.name_of(value.dtype)}:{lengths}:VALUES"
            found[value] = option_text("--input", name)
    return found


def _resolved(
    attributes: Mapping[str, Attribute], arguments: Mapping[str, Attribute]
) -> Mapping[str, Attribute]:
    """A node's attributes with references to its function's attributes replaced."""
    if structure.Reference not in map(type, attributes.values()):
        return attributes
    given = {
        name: arguments.get(value.name) if isinstance(value, structure.Reference) else value
        for name, value in attributes.items()
    }
    return {name: value for name, value in given.items() if value is not None}


def _missing(op: TypedNode, i: int) -> Value:
    """A result that the operator, function or body does not give."""
    value = Value()
    endless = [body.unknown for body in op.bodies[:1] if body.times is None]
    value.unknown = endless[0] if endless else f"{op.title}: nothing is known of result {i}"
    return value


def _cause(op: TypedNode) -> str | None:
    """Why something of an operation's operands is not known; the first of those without a size."""
    lacking = [value for value in op.given if value.unknown is not None]
    if not lacking:
        return None
    return min(lacking, key=lambda value: value.size is not None).unknown


def _option_of(value: Value, dims: Sequence[structure.Dim]) -> str:
    """What gives a result the length that it lacks, as part of a reason."""
    lengths = value.shape or (None,) * len(dims)
    for length, dim in zip(lengths, dims, strict=False):
        if length is None and is_name(dim):
            return f"; {option_text('--dim', f'{dim}=LENGTH')} gives it"
    return ""
