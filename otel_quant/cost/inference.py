"""Shape inference: walks a graph once, in order, and finds what is known of every tensor in it.

Types, shapes and the small integers that carry shapes go forward together: a Reshape's
target is often computed from another tensor's shape by ten nodes in between. Local
functions and the bodies of If, Loop and Scan are walked where they are used, with the
shapes they are used with.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from otel_quant.cost import dtypes
from otel_quant.cost.budget import MAX_OPS, Budget
from otel_quant.cost.constants import Constants
from otel_quant.cost.dimensions import Symbols, is_anonymous
from otel_quant.cost.errors import printable
from otel_quant.cost.graph_scope import GraphScope
from otel_quant.cost.inputs import option_text
from otel_quant.cost.node_order import ordered
from otel_quant.cost.operation import (
    RULE_ERRORS,
    Body,
    MisfitError,
    Operation,
    UnknownError,
    reason_of,
)
from otel_quant.cost.operators import operator_of
from otel_quant.cost.rules.operator import Operator
from otel_quant.cost.shapes.folding import folded, folding_effort
from otel_quant.cost.structure import (
    Attribute,
    Function,
    Graph,
    Model,
    Node,
    Reference,
    Type,
)
from otel_quant.cost.values import Value

_CARRIES_SHAPES: Final = frozenset({dtypes.INT32, dtypes.INT64, dtypes.BOOL})
_FIRST_CARRIES_SHAPES: Final = frozenset({"ConstantOfShape", "Loop", "Range"})
"""Operators whose first operand decides on a size; that of others is what they work on."""
_MOST_VALUES: Final = 64
"""Elements of an input that a user may be asked for."""

_TITLE_CHARACTERS: Final = 32
"""Characters of a name that are as much work to copy as one operand."""


class Walk:
    """One walk over a model."""

    def __init__(
        self,
        model: Model,
        inputs: Mapping[str, Value],
        *,
        symbols: Symbols,
        trust_declared: bool,
        dims: Mapping[str, int] | None = None,
        deadline: float | None = None,
        max_nodes: int = MAX_OPS,
    ) -> None:
        self.model = model
        self.inputs = inputs
        self.budget = Budget(model.source, deadline, max_nodes)
        self.outputs: list[Value] = []
        self.dequantizes = False
        self._symbols = symbols
        self._given = Symbols(dims or {})
        self._trust_declared = trust_declared
        self._misfit: Operation | None = None  # the last one whose operands do not fit
        self._opsets: Mapping[str, int] = model.opsets
        self.constants = Constants()
        self._orders: dict[int, tuple[Sequence[int], tuple[Node, ...]]] = {}

    @property
    def source(self) -> str:
        """The model's name, for errors."""
        return self.model.source

    def run(self) -> list[Operation]:
        """Walks the main graph; returns its operations in order."""
        self.budget.check_time()
        ops, self.outputs = self.graph(self.model.graph, self.inputs, None, "")
        return ops

    def graph(
        self, graph: Graph, inputs: Mapping[str, Value], outer: GraphScope | None, prefix: str
    ) -> tuple[list[Operation], list[Value]]:
        """Walks a graph."""
        self.budget.enter()
        self.budget.spend(
            len(graph.initializers)
            + len(graph.sparse_initializers)
            + len(graph.inputs)
            + len(graph.outputs)
            + len(graph.value_info)
        )
        scope = GraphScope(outer)
        for sparse in graph.sparse_initializers:
            scope.values[sparse.values.name] = self.constants.sparse(sparse)
        for tensor in graph.initializers:
            scope.values[tensor.name] = self.constants.tensor(tensor)
        for info in graph.inputs:
            if info.name in inputs:
                scope.values[info.name] = inputs[info.name]
            elif info.name not in scope.values:
                scope.values[info.name] = self.declared(info.type, info.name)
        hints = {info.name: info.type for info in (*graph.outputs, *graph.value_info)}
        ops = self._nodes(graph.nodes, scope, prefix, {}, hints)
        outputs = [
            scope.find(info.name) or self.declared(info.type, info.name) for info in graph.outputs
        ]
        self.budget.depth -= 1
        return ops, outputs

    def declared(self, declared: Type, name: str = "") -> Value:
        """Returns a value as a model declares it, symbols as this walk assumes them."""
        value = Value(declared.dtype, name=name)
        if declared.kind in ("tensor", "unknown"):
            if declared.shape is not None:
                value.shape = tuple(self._symbols.length(dim) for dim in declared.shape)
            return value
        value.kind = declared.kind
        if declared.element is not None:
            value.element = self.declared(declared.element)
        return value

    def _nodes(
        self,
        nodes: tuple[Node, ...],
        scope: GraphScope,
        prefix: str,
        arguments: Mapping[str, Attribute] | None,
        hints: Mapping[str, Type],
    ) -> list[Operation]:
        order = self._orders.get(id(nodes))
        if order is None:
            sequence = ordered(nodes, self.source)
            places: Sequence[int] = range(len(nodes))
            if sequence is not nodes:
                place = {id(node): i for i, node in enumerate(nodes)}
                places = [place[id(node)] for node in sequence]
            order = self._orders[id(nodes)] = (places, sequence)
        ops: list[Operation] = []
        for i, node in zip(*order, strict=True):
            self.budget.count_operation()
            self.budget.spend(
                len(node.inputs)
                + len(node.outputs)
                + len(node.attributes)
                + (len(prefix) + len(node.name)) // _TITLE_CHARACTERS
            )
            if node.op_type == "Constant" and not node.domain:
                name = prefix + (node.name or f"Constant_{i}")
                ops.append(self._constant(node, scope, name, arguments))
                continue
            name = prefix + (node.name or f"{node.op_type}_{i}")
            ops.append(self._node(node, scope, name, arguments, hints))
        return ops

    def _constant(
        self,
        node: Node,
        scope: GraphScope,
        title: str,
        arguments: Mapping[str, Attribute] | None,
    ) -> Operation:
        """A Constant is its tensor, as if it were an initializer."""
        attributes = resolved(node.attributes, arguments)
        value = self.constants.node(node, attributes)
        if not value.name:
            value.name = node.outputs[0] if node.outputs else node.name
        for name in node.outputs:
            scope.values[name] = value
        opset = self._opsets.get("", 0)
        return Operation(title, "Constant", node, (), (value,), attributes, opset)

    def _node(
        self,
        node: Node,
        scope: GraphScope,
        title: str,
        arguments: Mapping[str, Attribute] | None,
        hints: Mapping[str, Type],
    ) -> Operation:
        inputs: list[Value | None] = []
        for name in node.inputs:
            if not name:
                inputs.append(None)
                continue
            value = scope.values.get(name) or scope.find(name)
            if value is None:  # an invalid model; the rest of it may be right
                value = scope.values[name] = Value(name=name)
                value.unknown = f"nothing in the model makes '{printable(name)}'"
            inputs.append(value)
        op = Operation(
            title,
            f"{node.domain}:{node.op_type}" if node.domain else node.op_type,
            node,
            tuple(inputs),
            (),
            resolved(node.attributes, arguments),
            self._opsets.get(node.domain, 0),
        )
        function = self.model.functions.get((node.domain, node.op_type, node.overload))
        operator = operator_of(op.kind)
        self.dequantizes |= operator.precision.dequantizes
        if function is not None:
            outputs = self._call(function, op)
        elif operator.bodies is not None:
            outputs = operator.bodies(self, op, scope)
            for body in op.bodies:
                if body.times is None:
                    body.unknown += self._option_for_data(op)
        else:
            outputs = self._apply(op, operator)
        made: list[Value] = []
        for i, name in enumerate(node.outputs):
            value = outputs[i] if i < len(outputs) else _missing(op, i)
            if name:
                shape = value.shape
                if (shape is None or None in shape) and value.kind == "tensor" and name in hints:
                    self._take_hint(op, value, hints[name])
                if not value.name:
                    value.name = name
                scope.values[name] = value
            made.append(value)
        op.outputs = tuple(made)
        return op

    def _apply(self, op: Operation, operator: Operator) -> list[Value]:
        """Applies an operator's shape rule and folding; returns its results."""
        wanted = len(op.node.outputs)
        rule = operator.shape
        outputs: list[Value] = []
        failure: str | None = None
        if rule is None:
            failure = _cause(op) or f"{op.title}: {operator.cost.source}"
        else:
            try:
                outputs = rule.apply(op, wanted)
            except RULE_ERRORS as error:
                failure = reason_of(error, op, "shape rule")
                if isinstance(error, MisfitError):
                    self._misfit = op
                outputs = [Value(rule.dtype(op, i)) for i in range(wanted)]
        if operator.fold is not None and self.budget.allows(folding_effort(op, outputs)):
            try:
                folded(operator.fold, op, outputs)
            except UnknownError:
                pass  # its elements are not known
            except RULE_ERRORS as error:
                for value in outputs:
                    value.unknown = reason_of(error, op, "folding rule")
        while len(outputs) < wanted:
            outputs.append(Value())
        constant = (
            bool(op.inputs)
            and not operator.random
            and operator.cost.contraction is None  # counted even on constants, as papers do
            and (op.inputs[0] is None or op.inputs[0].constant)  # all() is slow
            and all(value is None or value.constant for value in op.inputs)
        )
        for value in outputs:
            value.constant = constant
        cause = failure or _cause(op)
        for value in outputs:
            if value.unknown is None and cause is not None:
                value.unknown = cause
            elif value.unknown is None and value.kind == "tensor" and value.size is None:
                value.unknown = (
                    f"{op.title}: the size of its result depends on data{self._option_for_data(op)}"
                )
        return outputs

    def _option_for_data(self, op: Operation) -> str:
        """What gives the elements of the inputs on which a node depends, as part of a reason."""
        options: list[str] = []
        for i, value in enumerate(op.inputs):
            if (
                value is not None
                and value.data is None
                and (i > 0 or op.kind in _FIRST_CARRIES_SHAPES)
                and self.inputs.get(value.name) is value
                and value.dtype in _CARRIES_SHAPES
                and value.size is not None
                and value.size <= _MOST_VALUES
                and len(value.shape or ()) < 2
            ):
                shape = "x".join(map(str, value.shape or ()))
                name = f"{value.name}:{dtypes.name_of(value.dtype)}:{shape}:VALUES"
                options.append(option_text("--input", name))
        return f"; what it depends on is set with {' '.join(options)}" if options else ""

    def _call(self, function: Function, op: Operation) -> list[Value]:
        """Walks a local function with the caller's operands and attributes."""
        self.budget.enter()
        scope = GraphScope()
        for i, name in enumerate(function.inputs):
            value = op.inputs[i] if i < len(op.inputs) else None
            if value is not None:
                scope.values[name] = value
        self.budget.spend(len(function.inputs) + len(function.outputs) + len(function.defaults))
        arguments = {**function.defaults, **op.attributes}
        outer = self._opsets
        self._opsets = function.opsets or outer
        # An operand that the caller leaves out is one that the function's nodes leave out.
        missing = set(function.inputs) - set(scope.values)
        nodes = function.nodes
        if missing:
            self.budget.spend(sum(len(node.inputs) for node in nodes))
            nodes = tuple(_without(node, missing) for node in nodes)
        inner = self._nodes(nodes, scope, op.name + "/", arguments, {})
        op.bodies = (Body(inner, inlined=True),)
        if missing:
            self._orders.pop(id(nodes), None)
        self._opsets = outer
        self.budget.depth -= 1
        return [scope.find(name) or Value() for name in function.outputs]

    def _take_hint(self, op: Operation, value: Value, declared: Type) -> None:
        """Takes the shape that the model declares for a tensor for which no rule gives one.

        Only if the caller left the inputs as the model declares them: declared shapes do
        not follow other inputs. Of a shape that is known in part, the lengths whose names the
        caller gave.
        """
        if declared.kind != "tensor" or declared.shape is None or op is self._misfit:
            return
        if value.shape is None:
            hint = self.declared(declared)
            if self._trust_declared and value.dtype in (dtypes.UNKNOWN, hint.dtype):
                value.dtype = hint.dtype
                value.shape = hint.shape
        elif len(value.shape) == len(declared.shape):
            value.shape = tuple(
                self._given.length(dim) if length is None and isinstance(dim, str) else length
                for length, dim in zip(value.shape, declared.shape, strict=True)
            )
        if value.size is not None:
            value.unknown = None
        elif value.unknown is not None and value.unknown.startswith(op.title):
            value.unknown += _option_of(value, declared)


def resolved(
    attributes: Mapping[str, Attribute], arguments: Mapping[str, Attribute] | None
) -> Mapping[str, Attribute]:
    """Returns a node's attributes with references to its function's attributes replaced."""
    if not attributes or not any(isinstance(value, Reference) for value in attributes.values()):
        return attributes
    result: dict[str, Attribute] = {}
    for name, value in attributes.items():
        if isinstance(value, Reference):
            given = (arguments or {}).get(value.name)
            if given is not None:
                result[name] = given
        else:
            result[name] = value
    return result


def _without(node: Node, missing: set[str]) -> Node:
    if missing.isdisjoint(node.inputs):
        return node
    inputs = tuple("" if name in missing else name for name in node.inputs)
    return Node(
        node.name, node.op_type, node.domain, inputs, node.outputs, node.attributes, node.overload
    )


def _missing(op: Operation, i: int) -> Value:
    """A result that the operator, function or body does not give."""
    value = Value()
    if op.bodies and op.bodies[0].times is None:
        value.unknown = op.bodies[0].unknown
    else:
        value.unknown = f"{op.title}: nothing is known of result {i}"
    return value


def _cause(op: Operation) -> str | None:
    """Why something of an operation's operands is not known; the first of those without a size."""
    found = None
    for value in op.inputs:
        if value is not None and value.unknown is not None:
            if value.size is None:
                return value.unknown
            found = found or value.unknown
    return found


def _option_of(value: Value, declared: Type) -> str:
    """What gives a result the length that it lacks, as part of a reason."""
    for i, dim in enumerate(declared.shape or ()):
        known = value.shape is not None and value.shape[i] is not None
        if isinstance(dim, str) and not known and not is_anonymous(dim):
            return f"; {option_text('--dim', f'{dim}=LENGTH')} gives it"
    return ""
