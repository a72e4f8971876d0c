"""One operation of the graph with what is known of its tensors; every rule is given one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Final

from otel_quant.cost import dtypes
from otel_quant.cost.errors import CostError
from otel_quant.cost.structure import Attribute, Elided, Graph, Node, Reference, Tensor
from otel_quant.cost.values import Data, Shape, Value


class UnknownError(Exception):
    """A rule needs a shape, value or attribute that is not known; its result is not either."""


RULE_ERRORS: Final = (
    UnknownError,
    IndexError,
    KeyError,
    TypeError,
    ValueError,
    ZeroDivisionError,
    OverflowError,
    AttributeError,
)
"""What a rule may raise on a node that breaks its operator's contract: the node is then unknown."""


@dataclass(slots=True)
class Body:
    """Operations run as part of another: a branch, a loop's body, a function's.

    Attributes:
        ops: In the order they run.
        times: How often they run each time the owner does; None if it is not known.
    """

    ops: list[Operation]
    times: int | None = 1


@dataclass(slots=True)
class Operation:
    """A node with its operands.

    Attributes:
        name: Unique readable name: the node's, behind those of the nodes that contain it.
        kind: Operator: ``Conv``, or ``com.microsoft:Attention`` outside ONNX's own domain.
        node: The node.
        inputs: Operands; None where an optional one is left out.
        outputs: Results.
        attributes: With references to a function's attributes replaced by their values.
        opset: Version of its operator set; 0 if the model does not say.
        bodies: What it runs as part of itself.
        branches: Of an If whose condition is not known: its alternatives.
        inlined: It is a call of a local function: only its body counts.
        number: Position in the order in which operations were reached.
    """

    name: str
    kind: str
    node: Node
    inputs: list[Value | None]
    outputs: list[Value]
    attributes: Mapping[str, Attribute]
    opset: int
    bodies: list[Body] = field(default_factory=list)
    branches: list[Body] = field(default_factory=list)
    inlined: bool = False
    number: int = 0

    def has(self, i: int) -> bool:
        """Returns whether operand ``i`` is there."""
        return i < len(self.inputs) and self.inputs[i] is not None

    def input(self, i: int) -> Value:
        """Returns operand ``i``.

        Raises:
            UnknownError: It is left out.
        """
        value = self.inputs[i] if i < len(self.inputs) else None
        if value is None:
            raise UnknownError
        return value

    def dtype(self, i: int) -> int:
        """Returns operand ``i``'s element type, UNKNOWN if it is left out."""
        value = self.inputs[i] if i < len(self.inputs) else None
        return dtypes.UNKNOWN if value is None else value.dtype

    def shape(self, i: int) -> Shape:
        """Returns operand ``i``'s shape; some of its lengths may be None.

        Raises:
            UnknownError: Its rank is not known.
        """
        shape = self.input(i).shape
        if shape is None:
            raise UnknownError
        return shape

    def dims(self, i: int) -> tuple[int, ...]:
        """Returns operand ``i``'s shape.

        Raises:
            UnknownError: One of its lengths is not known.
        """
        return known(self.shape(i))

    def out(self, i: int = 0) -> tuple[int, ...]:
        """Returns result ``i``'s shape.

        Raises:
            UnknownError: One of its lengths is not known.
        """
        if i >= len(self.outputs):
            raise UnknownError
        shape = self.outputs[i].shape
        if shape is None:
            raise UnknownError
        return known(shape)

    def size(self, i: int) -> int:
        """Returns operand ``i``'s number of elements, or raises UnknownError."""
        return prod(self.dims(i))

    def out_size(self, i: int = 0) -> int:
        """Returns result ``i``'s number of elements, or raises UnknownError."""
        return prod(self.out(i))

    def data(self, i: int) -> Data:
        """Returns operand ``i``'s elements, some of which may be None.

        Raises:
            UnknownError: None is known.
        """
        data = self.input(i).data
        if data is None:
            raise UnknownError
        return data

    def ints(self, i: int) -> tuple[int, ...]:
        """Returns operand ``i``'s elements as integers, or raises UnknownError."""
        data = self.data(i)
        if any(item is None for item in data):
            raise UnknownError
        return tuple(int(item) for item in data if item is not None)

    def int_(self, i: int) -> int:
        """Returns the only element of operand ``i``, or raises UnknownError."""
        return self.ints(i)[0]

    def floats(self, i: int) -> tuple[float, ...]:
        """Returns operand ``i``'s elements as floats, or raises UnknownError."""
        data = self.data(i)
        if any(item is None for item in data):
            raise UnknownError
        return tuple(float(item) for item in data if item is not None)

    def attr(self, name: str, default: int) -> int:
        """Returns an integer attribute."""
        value = self.attributes.get(name, default)
        if not isinstance(value, int):
            raise UnknownError
        return value

    def attr_float(self, name: str, default: float) -> float:
        """Returns a float attribute."""
        value = self.attributes.get(name, default)
        if not isinstance(value, float | int):
            raise UnknownError
        return float(value)

    def attr_ints(self, name: str) -> tuple[int, ...] | None:
        """Returns an attribute that is a list of integers, None if it is not given."""
        value = self.attributes.get(name)
        if value is None:
            return None
        if isinstance(value, Elided | Reference) or not isinstance(value, tuple):
            raise UnknownError
        return tuple(item for item in value if isinstance(item, int))

    def attr_floats(self, name: str) -> tuple[float, ...] | None:
        """Returns an attribute that is a list of floats, None if it is not given."""
        value = self.attributes.get(name)
        if value is None:
            return None
        if not isinstance(value, tuple):
            raise UnknownError
        return tuple(float(item) for item in value if isinstance(item, int | float))

    def attr_str(self, name: str, default: str) -> str:
        """Returns a string attribute."""
        value = self.attributes.get(name)
        if value is None:
            return default
        if not isinstance(value, bytes):
            raise UnknownError
        return value.decode("utf-8", "replace")

    def attr_tensor(self, name: str) -> Tensor | None:
        """Returns a tensor attribute, None if it is not given."""
        value = self.attributes.get(name)
        return value if isinstance(value, Tensor) else None

    def attr_graph(self, name: str, source: str) -> Graph:
        """Returns a graph attribute.

        Raises:
            CostError: There is none of that name.
        """
        value = self.attributes.get(name)
        if not isinstance(value, Graph):
            raise CostError(source, f"{self.kind} node has no graph {name!r}")
        return value


def known(shape: Shape | Sequence[int | None]) -> tuple[int, ...]:
    """Returns the shape if every length is known.

    Raises:
        UnknownError: One is not.
    """
    dims = tuple(dim for dim in shape if dim is not None)
    if len(dims) != len(shape):
        raise UnknownError
    return dims
