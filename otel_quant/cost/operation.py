"""One operation of a graph with what is known of its tensors; every rule is given one.

Of a tensor are known type, shape and, if it is small, its elements. An unknown is None and stays
None: nothing here guesses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import prod
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar, cast

from otel_quant.cost import dtypes
from otel_quant.cost.structure import Attribute, GraphNode, Kind, Tensor, printable

Shape: TypeAlias = tuple[int | None, ...]
"""Lengths; None for one that is not known. A shape of unknown rank is None itself."""

Data: TypeAlias = tuple[int | float | None, ...]
"""A small tensor's elements, row-major; None for one that is not known."""


MAX_DATA: Final = 2048  # Elements of the largest tensor whose elements are followed


class Value:
    """One value of the graph. Its identity is the tensor's: nodes that share it share it."""

    __slots__ = ("constant", "data", "dtype", "items", "kind", "name", "shape", "unknown", "weight")

    def __init__(
        self, dtype: int = dtypes.UNKNOWN, shape: Shape | None = None, data: Data | None = None, *,
        name: str = "", kind: Kind = "tensor",
    ) -> None:  # fmt: skip
        self.name, self.dtype = name, dtype
        self.shape, self.data = shape, data
        self.kind: Kind = kind
        self.items: tuple[Value, ...] | None = None
        self.weight: Tensor | None = None
        self.constant = False
        self.unknown: str | None = None

    @property
    def size(self) -> int | None:
        """Elements, or None where the shape is not known."""
        return volume(self.shape)

    @property
    def bytes(self) -> int | None:
        """Bytes that the tensor takes, or None where type or shape is not known."""
        count = self.size
        if count is None or self.kind != "tensor":
            return None
        return dtypes.stored_bytes(self.dtype, count)

    def explain(self, why: str) -> None:
        """Gives the reason why the size is not known, if it is not and none is given yet."""
        if self.unknown is None and self.size is None:
            self.unknown = why


def volume(shape: Shape | None) -> int | None:
    """Returns the number of elements (rank 0 has one), or None where it is not known."""
    if shape is None:
        return None
    if None in shape:
        return 0 if 0 in shape else None
    return _product(shape)


_product: Final = cast("Callable[[Shape], int]", prod)  # Of lengths none of which is None


_Item = TypeVar("_Item")


def first_known(items: Iterable[_Item | None]) -> _Item | None:
    """Returns the first item that is not None; None if there is none."""
    return next((item for item in items if item is not None), None)


def _common(items: Sequence[_Item], otherwise: _Item) -> _Item:
    """What all items are, else another."""
    return items[0] if items.count(items[0]) == len(items) else otherwise


def merged(*values: Value) -> Value:
    """Returns what is true of every one of ``values``, as after an If."""
    result = Value(kind=_common([value.kind for value in values], "unknown"))
    result.unknown = first_known(value.unknown for value in values)
    if result.kind == values[0].kind:
        result.dtype = _common([value.dtype for value in values], dtypes.UNKNOWN)
        result.shape = _common_shape([value.shape for value in values])
        result.data = _common([value.data for value in values], None)
    return result


def _common_shape(shapes: Sequence[Shape | None]) -> Shape | None:
    """The shape in which every dimension that differs is unknown."""
    ranked = [shape for shape in shapes if shape is not None]
    if len(ranked) < len(shapes) or len(set(map(len, ranked))) > 1:
        return None
    return tuple(_common(lengths, None) for lengths in zip(*ranked, strict=True))


SHOWN: Final = 80  # Characters of a name that a reason shows


class UnknownError(Exception):
    """A rule cannot give its result."""

    def __init__(self, problem: str, cause: str | None = None) -> None:
        super().__init__(problem)
        self.problem, self.cause = problem, cause


class MismatchError(UnknownError):
    """Operands do not fit together: no runtime runs the node, whatever the model declares."""


RULE_ERRORS: Final = (UnknownError, ArithmeticError, LookupError, TypeError, ValueError)
"""What a rule may raise on a node that breaks its operator's contract: the node is then unknown.

All but the first are what Python raises where a shape has fewer axes, an operand more elements or
an attribute another type than the operator allows.
"""


class Carried(NamedTuple):
    """A value that changes from one iteration of a body to the next."""

    first: Value | None  # What it is before the first iteration; None if that operand is left out
    entering: Value  # What the body reads
    leaving: Value  # What the body makes of it


class Body(NamedTuple):
    """Operations run as part of another: a branch, a loop's body, a function's."""

    ops: Sequence[TypedNode]
    times: int | None = 1  # How often; None if that is not known
    unknown: str = ""  # Why it is not
    outputs: Sequence[Value] = ()
    carried: Sequence[Carried] = ()
    inlined: bool = False  # It is a local function's: the call itself is nothing


class TypedNode:
    """A node with its operands."""

    __slots__ = (
        "attributes", "bodies", "branches", "given", "inputs", "kind", "name", "node", "opset", "outputs", "taken",
    )  # fmt: skip

    def __init__(
        self, name: str, kind: str, node: GraphNode, inputs: Sequence[Value | None],
        outputs: Sequence[Value], attributes: Mapping[str, Attribute], opset: int,
    ) -> None:  # fmt: skip
        self.name, self.kind, self.node = name, kind, node
        self.inputs = inputs
        # Shared where it can be: another list would cost as much as the rest.
        given: Sequence[Any] = tuple(filter(None, inputs)) if None in inputs else inputs
        self.given: Sequence[Value] = given
        self.outputs, self.attributes, self.opset = outputs, attributes, opset
        self.bodies: Sequence[Body] = ()
        self.branches: Sequence[Body] = ()
        self.taken: int | None = None

    @property
    def inlined(self) -> bool:
        """Whether it is a call of a local function: only its body counts."""
        return bool(self.bodies) and self.bodies[0].inlined

    @property
    def title(self) -> str:
        """The node's name and operator, for reasons."""
        return f"node '{printable(self.name, SHOWN)}' ({printable(self.kind, SHOWN)})"

    def has(self, i: int) -> bool:
        """Returns whether operand ``i`` is there."""
        return i < len(self.inputs) and self.inputs[i] is not None

    def operand(self, i: int) -> Value | None:
        """Returns operand ``i``; None if it is left out."""
        return self.inputs[i] if i < len(self.inputs) else None

    def input(self, i: int) -> Value:
        """Returns operand ``i``, which has to be there."""
        value = self.inputs[i] if i < len(self.inputs) else None
        if value is None:
            raise UnknownError(f"operand {i} is left out")
        return value

    def dtype(self, i: int) -> int:
        """Returns operand ``i``'s element type, UNKNOWN if it is left out."""
        value = self.operand(i)
        return dtypes.UNKNOWN if value is None else value.dtype

    def shape(self, i: int) -> Shape:
        """Returns operand ``i``'s shape; some of its lengths may be None."""
        value = self.input(i)
        if value.shape is None:
            raise UnknownError(f"the shape of {_named(i, value)} is not known", value.unknown)
        return value.shape

    def dims(self, i: int) -> tuple[int, ...]:
        """Returns operand ``i``'s shape, all of whose lengths have to be known."""
        return _fixed(self.input(i), i)

    def out(self) -> tuple[int, ...]:
        """Returns the first result's shape."""
        return _fixed(self.outputs[0])

    def size(self, i: int) -> int:
        """Returns operand ``i``'s number of elements, or raises UnknownError."""
        return prod(self.dims(i))

    def size_if_given(self, i: int) -> int:
        """Returns operand ``i``'s number of elements, 0 if it is left out."""
        return self.size(i) if self.has(i) else 0

    def out_size(self) -> int:
        """Returns the first result's number of elements, or raises UnknownError."""
        return prod(self.out())

    def data(self, i: int) -> Data:
        """Returns operand ``i``'s elements, some of which may be None."""
        value = self.input(i)
        if value.data is None:
            raise UnknownError(f"the elements of {_named(i, value)} are not known", value.unknown)
        return value.data

    def known_data(self, i: int) -> Data:
        """Returns operand ``i``'s elements; none if they are not known or it is left out."""
        return self.input(i).data or () if self.has(i) else ()

    def ints(self, i: int) -> tuple[int, ...]:
        """Returns operand ``i``'s elements as integers, or raises UnknownError."""
        return tuple(map(int, self._whole_data(i)))

    def floats(self, i: int) -> tuple[float, ...]:
        """Returns operand ``i``'s elements as floats, or raises UnknownError."""
        return tuple(map(float, self._whole_data(i)))

    def _whole_data(self, i: int) -> tuple[int | float, ...]:
        data = self.data(i)
        if None in data:
            value = self.input(i)
            raise UnknownError(f"not all elements of {_named(i, value)} are known", value.unknown)
        return cast("tuple[int | float, ...]", data)

    def _attribute(self, name: str, expected: str, default: _Item) -> _Item:
        """An attribute of the type of its default."""
        value = self.attributes.get(name, default)
        if type(value) is not type(default):  # named tuples are tuples, too
            raise UnknownError(f"attribute '{printable(name, SHOWN)}' is not {expected}")
        return value

    def attr(self, name: str, default: int) -> int:
        """Returns an integer attribute."""
        return self._attribute(name, "an integer", default)

    def axis(self, default: int, *, extra: int = 0) -> int:
        """Returns the attribute ``axis`` of operand 0, or of so many axes more, counted from the front."""
        return axis_of(self.attr("axis", default), len(self.shape(0)) + extra)

    def attr_ints(self, name: str) -> tuple[int, ...] | None:
        """Returns an attribute that is a list of integers, None if it is not given."""
        if name not in self.attributes:
            return None
        items: tuple[object, ...] = self._attribute(name, "a list of integers", ())
        return tuple(item for item in items if isinstance(item, int))

    def attr_list(self, name: str, default: Sequence[int] = ()) -> Sequence[int]:
        """Returns an attribute that is a list of integers, another if it is empty or not given."""
        return self.attr_ints(name) or default

    def attr_str(self, name: str, default: str) -> str:
        """Returns a string attribute."""
        return self._attribute(name, "a text", default.encode()).decode("utf-8", "replace")

    def attr_choice(self, name: str, default: str, choices: Mapping[str, int]) -> int:
        """Returns the entry of a table for a string attribute."""
        value = self.attr_str(name, default)
        if value not in choices:
            expected = ", ".join(choice or "none" for choice in choices)
            problem = f"attribute '{name}' is '{printable(value, SHOWN)}'"
            raise UnknownError(f"{problem}; expected one of {expected}")
        return choices[value]

    def attr_tensor(self, name: str) -> Tensor | None:
        """Returns a tensor attribute, None if it is not given."""
        value = self.attributes.get(name)
        return value if isinstance(value, Tensor) else None


def executed(ops: Sequence[TypedNode]) -> Iterator[TypedNode]:
    """Yields the operations of one graph in order, a function's operations in place of its call."""
    for op in ops:
        if op.bodies and op.inlined:
            for body in op.bodies:
                yield from executed(body.ops)
        else:
            yield op


def known(lengths: Sequence[int | None], what: str, cause: str | None = None) -> tuple[int, ...]:
    """Returns lengths that all have to be known."""
    if None in lengths:
        raise UnknownError(f"a length of {what} is not known", cause)
    return cast("tuple[int, ...]", tuple(lengths))


def axis_of(axis: int, rank: int) -> int:
    """Returns an axis counted from the front."""
    if not -rank <= axis < max(rank, 1):
        expected = f"{-rank} to {max(rank, 1) - 1} is expected"
        raise UnknownError(f"axis {axis} of a tensor of {rank} dimensions; {expected}")
    return axis + rank if axis < 0 else axis


MOST_SHAPES: Final = 4  # Operands that a reason shows the shapes of


def reason_of(error: Exception, op: TypedNode, rule: str) -> str:
    """Returns why a rule failed, as one sentence with a node's name."""
    if isinstance(error, UnknownError):
        return error.cause or f"{op.title}: {error.problem}"
    given = [value.shape for value in op.inputs[:MOST_SHAPES] if value]
    shapes = [None if shape is None else list(shape) for shape in given]
    return (
        f"{op.title}: operands of shapes {', '.join(map(str, shapes))}, or its attributes, do not fit "
        f"the operator ({type(error).__name__} in its {rule})"
    )


def _named(i: int, value: Value) -> str:
    return f"operand {i} '{printable(value.name, SHOWN)}'"


def _fixed(value: Value, operand: int | None = None) -> tuple[int, ...]:
    shape = value.shape
    if shape is None or None in shape:
        lacking = "shape" if shape is None else f"length of axis {shape.index(None)}"
        what = "result 0" if operand is None else _named(operand, value)
        raise UnknownError(f"the {lacking} of {what} is not known", value.unknown)
    fixed: tuple[Any, ...] = shape  # no None is in it
    return fixed
