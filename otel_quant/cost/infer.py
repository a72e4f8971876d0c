"""Walks a graph once, in order, and says what is known of every tensor in it.

Types, shapes and the small integers that carry shapes go forward together: a Reshape's
target is often computed from another tensor's shape by ten nodes in between. Local
functions and the bodies of If, Loop and Scan are walked where they are used, with the
shapes they are used with.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from time import monotonic
from typing import Final

from otel_quant.cost import elements
from otel_quant.cost.errors import CostError
from otel_quant.cost.ir import (
    Attribute,
    Function,
    Graph,
    Model,
    Node,
    Reference,
    SparseTensor,
    Tensor,
    Type,
)
from otel_quant.cost.op import RULE_ERRORS, Body, Op
from otel_quant.cost.order import ordered
from otel_quant.cost.rules.table import COST_RULES
from otel_quant.cost.shapes.control import CONTROL_RULES
from otel_quant.cost.shapes.folding import folded, folding_effort
from otel_quant.cost.shapes.table import shape_rule
from otel_quant.cost.values import MAX_DATA, Value

MAX_OPS: Final = 200_000
"""Operations that a model may unfold into; real ones stay below half of it."""

MAX_WORK: Final = 5_000_000
"""Operands, attributes and constants looked at while they unfold: a few seconds' worth."""

MAX_EFFORT: Final = 4_000_000
"""Elements of small tensors computed, likewise; beyond it only those of ``SMALL_EFFORT``."""

SMALL_EFFORT: Final = 64
"""Elements that it takes to compute a shape from shapes."""

_TITLE_CHARACTERS: Final = 32
"""Characters of a name that are as much work to copy as one operand."""

MAX_CALL_DEPTH: Final = 64
"""Functions calling functions, and graphs in graphs."""

_RANDOM: Final = frozenset(
    {
        "RandomNormal",
        "RandomUniform",
        "RandomNormalLike",
        "RandomUniformLike",
        "Multinomial",
        "Bernoulli",
        "Dropout",
    }
)


_CONTRACTIONS: Final = frozenset(
    kind for kind, rule in COST_RULES.items() if rule.contraction is not None
)
"""Counted whenever they run, even on constants: a paper's count of MACs has them."""


class Scope:
    """Names of one graph, and behind them those of the graphs around it."""

    __slots__ = ("_outer", "values")

    def __init__(self, outer: Scope | None = None) -> None:
        self._outer = outer
        self.values: dict[str, Value] = {}

    def find(self, name: str) -> Value | None:
        """Returns the value of that name in this graph or one around it."""
        scope: Scope | None = self
        while scope is not None:
            value = scope.values.get(name)
            if value is not None:
                return value
            scope = scope._outer
        return None


class Walk:
    """One walk over a model.

    Attributes:
        model: The model.
        inputs: Values of the main graph's inputs, set by the caller before :meth:`run`.
        weights: Every constant tensor met, once, with the value that stands for it.
    """

    def __init__(
        self,
        model: Model,
        inputs: Mapping[str, Value],
        *,
        symbols: Mapping[str, int],
        trust_declared: bool,
        deadline: float | None = None,
    ) -> None:
        self.model = model
        self.inputs = inputs
        self.weights: list[Value] = []
        self.outputs: list[Value] = []
        self._symbols = symbols
        self._trust_declared = trust_declared
        self._deadline = deadline
        self._count = 0
        self._work = 0
        self._effort = 0
        self.depth = 0
        self._opsets: Mapping[str, int] = model.opsets
        self._known_weights: dict[int, Value] = {}
        self._orders: dict[int, tuple[tuple[int, Node], ...]] = {}

    @property
    def source(self) -> str:
        """The model's name, for errors."""
        return self.model.source

    def run(self) -> list[Op]:
        """Walks the main graph; returns its operations in order.

        Raises:
            CostError: The graph is circular, recursive, or unfolds beyond ``MAX_OPS``, or
                the time limit has passed.
        """
        self.check_time()
        ops, self.outputs = self.graph(self.model.graph, self.inputs, None, "")
        return ops

    def graph(
        self, graph: Graph, inputs: Mapping[str, Value], outer: Scope | None, prefix: str
    ) -> tuple[list[Op], list[Value]]:
        """Walks a graph.

        Args:
            graph: The main graph or a body.
            inputs: Values of its inputs by name.
            outer: Names that it may read from around it.
            prefix: Goes before the names of its nodes.

        Returns:
            Its operations, and the values of its outputs.
        """
        self._enter()
        self._spend(
            len(graph.initializers)
            + len(graph.sparse_initializers)
            + len(graph.inputs)
            + len(graph.outputs)
            + len(graph.value_info)
        )
        scope = Scope(outer)
        for sparse in graph.sparse_initializers:
            scope.values[sparse.values.name] = self.sparse_weight(sparse)
        for tensor in graph.initializers:
            scope.values[tensor.name] = self.weight(tensor)
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
        self.depth -= 1
        return ops, outputs

    def declared(self, declared: Type, name: str = "") -> Value:
        """Returns a value as a model declares it, symbols as this walk assumes them."""
        value = Value(declared.dtype, name=name)
        if declared.kind in ("tensor", "unknown"):
            if declared.shape is not None:
                value.shape = tuple(
                    dim
                    if isinstance(dim, int) and dim >= 0
                    else self._symbols.get(dim)
                    if isinstance(dim, str)
                    else None
                    for dim in declared.shape
                )
            return value
        value.kind = declared.kind  # type: ignore[assignment]  # Type.kind has the same names
        if declared.element is not None:
            value.element = self.declared(declared.element)
        return value

    def weight(self, tensor: Tensor) -> Value:
        """Returns the value of a constant tensor; the same one each time."""
        value = self._known_weights.get(id(tensor))
        if value is None:
            value = Value(tensor.dtype, tensor.dims, tensor.values, name=tensor.name)
            value.weight = tensor
            value.constant = True
            self._known_weights[id(tensor)] = value
            self.weights.append(value)
        return value

    def sparse_weight(self, sparse: SparseTensor) -> Value:
        """Returns the dense value of a sparse constant; its weight is what is stored."""
        value = self._known_weights.get(id(sparse))
        if value is None:
            value = Value(sparse.values.dtype, sparse.dims, name=sparse.values.name)
            stored = sparse.values.stored + sparse.indices.stored
            value.weight = replace(sparse.values, stored=stored, values=None)
            value.constant = True
            self._known_weights[id(sparse)] = value
            self.weights.append(value)
        return value

    def _nodes(
        self,
        nodes: tuple[Node, ...],
        scope: Scope,
        prefix: str,
        arguments: Mapping[str, Attribute] | None,
        hints: Mapping[str, Type],
    ) -> list[Op]:
        order = self._orders.get(id(nodes))
        if order is None:
            place = {id(node): i for i, node in enumerate(nodes)}
            order = tuple((place[id(node)], node) for node in ordered(nodes, self.source))
            self._orders[id(nodes)] = order
        ops: list[Op] = []
        for i, node in order:
            self._count += 1
            if self._count > MAX_OPS:
                raise CostError(
                    self.source, f"unfolds into more than {MAX_OPS} operations", expected="fewer"
                )
            if not self._count & 0xFF and self._deadline is not None:
                self.check_time()
            self._spend(
                len(node.inputs)
                + len(node.outputs)
                + len(node.attributes)
                + (len(prefix) + len(node.name)) // _TITLE_CHARACTERS
            )
            if node.op_type == "Constant" and not node.domain:
                name = prefix + (node.name or f"Constant_{i}")
                self._constant(node, scope, arguments, ops, name)
                continue
            name = prefix + (node.name or f"{node.op_type}_{i}")
            ops.append(self._node(node, scope, name, arguments, hints))
        return ops

    def _spend(self, work: int) -> None:
        self._work += work
        if self._work > MAX_WORK:
            raise CostError(
                self.source,
                f"unfolds into operations with more than {MAX_WORK} operands and attributes",
                expected="fewer",
            )

    def check_time(self) -> None:
        """Raises CostError if the time limit has passed."""
        if self._deadline is not None and monotonic() > self._deadline:
            raise CostError(self.source, "the time limit passed")

    def _constant(
        self,
        node: Node,
        scope: Scope,
        arguments: Mapping[str, Attribute] | None,
        ops: list[Op],
        title: str,
    ) -> None:
        """A Constant is its tensor, as if it were an initializer."""
        attributes = resolved(node.attributes, arguments)
        own = attributes is node.attributes  # else it differs from call to call
        value = self._known_weights.get(id(node)) if own else None
        if value is None:
            value = self._constant_value(attributes)
            if own:
                self._known_weights[id(node)] = value
        if not value.name:
            value.name = node.outputs[0] if node.outputs else node.name
        value.producer = self._count
        for name in node.outputs:
            scope.values[name] = value
        ops.append(
            Op(
                title,
                "Constant",
                node,
                [],
                [value],
                attributes,
                self._opsets.get("", 0),
                number=self._count,
            )
        )

    def _constant_value(self, attributes: Mapping[str, Attribute]) -> Value:
        tensor = attributes.get("value")
        if isinstance(tensor, Tensor):
            return self.weight(tensor)
        sparse = attributes.get("sparse_value")
        if isinstance(sparse, SparseTensor):
            return self.sparse_weight(sparse)
        for name, dtype in _CONSTANT_ATTRIBUTES:
            held = attributes.get(name)
            if isinstance(held, tuple):
                data = tuple(item for item in held if isinstance(item, int | float))
                if len(held) > MAX_DATA or len(data) != len(held):
                    data = ()
                return self._made_constant(dtype, (len(held),), data or None)
            if isinstance(held, int | float):
                return self._made_constant(dtype, (), (held,))
            if isinstance(held, bytes):
                return self._made_constant(dtype, (), None)
        value = Value()
        value.constant = True
        return value

    def _made_constant(
        self, dtype: int, dims: tuple[int, ...], data: tuple[int | float, ...] | None
    ) -> Value:
        count = dims[0] if dims else 1
        stored = elements.stored_bytes(dtype, count) or 0
        value = Value(dtype, dims, data)
        value.weight = Tensor("", dtype, dims, stored, data)
        value.constant = True
        self.weights.append(value)
        return value

    def _node(
        self,
        node: Node,
        scope: Scope,
        title: str,
        arguments: Mapping[str, Attribute] | None,
        hints: Mapping[str, Type],
    ) -> Op:
        inputs: list[Value | None] = []
        for name in node.inputs:
            if not name:
                inputs.append(None)
                continue
            value = scope.find(name)
            if value is None:  # nothing makes it: an invalid model, of which the rest may be right
                value = scope.values[name] = Value(name=name)
            inputs.append(value)
        op = Op(
            title,
            f"{node.domain}:{node.op_type}" if node.domain else node.op_type,
            node,
            inputs,
            [],
            resolved(node.attributes, arguments),
            self._opsets.get(node.domain, 0),
            number=self._count,
        )
        function = self.model.functions.get((node.domain, node.op_type, node.overload))
        control = CONTROL_RULES.get(op.kind)
        if function is not None:
            outputs = self._call(function, op)
        elif control is not None:
            outputs = control(self, op, scope)
        else:
            outputs = self._apply(op)
        for i, name in enumerate(node.outputs):
            value = outputs[i] if i < len(outputs) else Value()
            if name:
                if value.shape is None and value.kind == "tensor" and name in hints:
                    self._take_hint(value, hints[name])
                if not value.name:
                    value.name = name
                scope.values[name] = value
            op.outputs.append(value)
        return op

    def _apply(self, op: Op) -> list[Value]:
        rule = shape_rule(op.kind)
        wanted = len(op.node.outputs)
        outputs: list[Value] = []
        if rule is not None:
            try:
                outputs = rule.apply(op, wanted)
            except RULE_ERRORS:
                outputs = [Value(rule.dtype(op, i)) for i in range(wanted)]
            effort = folding_effort(op, outputs)
            if self._effort + effort <= MAX_EFFORT or effort <= SMALL_EFFORT:
                self._effort += effort
                try:
                    folded(op, outputs)
                except RULE_ERRORS:
                    pass  # its elements are not known
        while len(outputs) < wanted:
            outputs.append(Value())
        constant = (
            bool(op.inputs)
            and op.node.op_type not in _RANDOM
            and op.kind not in _CONTRACTIONS
            and all(value is None or value.constant for value in op.inputs)
        )
        for value in outputs:
            value.producer = op.number
            value.constant = constant
        return outputs

    def _call(self, function: Function, op: Op) -> list[Value]:
        """Walks a local function with the caller's operands and attributes."""
        self._enter()
        op.inlined = True
        scope = Scope()
        for i, name in enumerate(function.inputs):
            value = op.inputs[i] if i < len(op.inputs) else None
            if value is not None:
                scope.values[name] = value
        self._spend(len(function.inputs) + len(function.outputs) + len(function.defaults))
        arguments = {**function.defaults, **op.attributes}
        outer = self._opsets
        self._opsets = function.opsets or outer
        # An operand that the caller leaves out is one that the function's nodes leave out.
        missing = set(function.inputs) - set(scope.values)
        nodes = function.nodes
        if missing:
            self._spend(sum(len(node.inputs) for node in nodes))
            nodes = tuple(_without(node, missing) for node in nodes)
        op.bodies = [Body(self._nodes(nodes, scope, op.name + "/", arguments, {}))]
        if missing:
            self._orders.pop(id(nodes), None)
        self._opsets = outer
        self.depth -= 1
        return [scope.find(name) or Value() for name in function.outputs]

    def _take_hint(self, value: Value, declared: Type) -> None:
        """Takes a shape that the model declares for a tensor that no rule speaks of.

        Only if the caller left the inputs as the model declares them: declared shapes do
        not follow other inputs.
        """
        if not self._trust_declared or declared.kind != "tensor":
            return
        hint = self.declared(declared)
        if value.dtype in (elements.UNKNOWN, hint.dtype):
            value.dtype = hint.dtype
            value.shape = hint.shape

    def _enter(self) -> None:
        self.depth += 1
        if self.depth > MAX_CALL_DEPTH:
            raise CostError(
                self.source,
                f"functions or graphs nested more than {MAX_CALL_DEPTH} deep",
                expected="functions that do not call themselves",
            )


_CONSTANT_ATTRIBUTES: Final = (
    ("value_ints", elements.INT64),
    ("value_floats", elements.FLOAT),
    ("value_int", elements.INT64),
    ("value_float", elements.FLOAT),
    ("value_string", elements.STRING),
    ("value_strings", elements.STRING),
)


def resolved(
    attributes: Mapping[str, Attribute], arguments: Mapping[str, Attribute] | None
) -> Mapping[str, Attribute]:
    """Returns a node's attributes with references to its function's attributes replaced."""
    if not any(isinstance(value, Reference) for value in attributes.values()):
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
