"""What a shape rule is, and the pieces that most of them are made of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple, TypeAlias

from otel_quant.cost import dtypes
from otel_quant.cost.operation import RULE_ERRORS, MisfitError, Operation, UnknownError
from otel_quant.cost.values import Shape, Value

TypeOf: TypeAlias = Callable[[Operation], int]
ShapesOf: TypeAlias = Callable[[Operation], Sequence[Shape | None]]
ValuesOf: TypeAlias = Callable[[Operation], list[Value]]


class ShapeRule(NamedTuple):
    """Type and shape of an operator's results."""

    shapes: ShapesOf  # Shapes of the results; may be more than the node has
    # Element type of each result; the last one holds for all that follow
    types: tuple[TypeOf, ...] = ()
    values: ValuesOf | None = None  # Instead of both, for operators on sequences and optionals

    def apply(self, op: Operation, wanted: int) -> list[Value]:
        """Returns what is known of the results."""
        if self.values is not None:
            return self.values(op)
        shapes = self.shapes(op)
        results = [Value(self.dtype(op, i)) for i in range(wanted)]
        for value, shape in zip(results, shapes, strict=False):
            if shape is not None and _is_possible(shape):
                value.shape = tuple(shape)
            elif shape is not None:
                value.unknown = f"{op.title}: a result would have an impossible shape"
        if wanted > len(shapes) or None in shapes:
            unknown = f"{op.title}: its shape rule does not cover all of its results"
            for value in results:
                if value.shape is None and value.unknown is None:
                    value.unknown = unknown
        return results

    def dtype(self, op: Operation, i: int) -> int:
        """Returns result ``i``'s element type, UNKNOWN if even that is not known."""
        if not self.types:
            return dtypes.UNKNOWN
        try:
            return self.types[min(i, len(self.types) - 1)](op)
        except RULE_ERRORS:
            return dtypes.UNKNOWN


_MAX_RANK: Final = 64
_MAX_DIM: Final = 1 << 63


def _is_possible(shape: Shape) -> bool:
    """Whether a tensor may have a shape: no negative length, nothing that no runtime has."""
    if len(shape) > _MAX_RANK:
        return False
    for dim in shape:  # noqa: SIM110  # a generator takes three times as long
        if dim is not None and not 0 <= dim < _MAX_DIM:
            return False
    return True


def like(i: int) -> TypeOf:
    """The type of operand ``i``."""
    return lambda op: op.dtype(i)


def always(dtype: int) -> TypeOf:
    """One type."""
    return lambda op: dtype


def named(attribute: str, otherwise: TypeOf) -> TypeOf:
    """The type that an attribute names, else another."""

    def of(op: Operation) -> int:
        code = op.attr(attribute, 0)
        return code if code else otherwise(op)

    return of


def same_shape(op: Operation) -> Sequence[Shape]:
    """Every result has the shape of the first operand."""
    return (op.shape(0),) * max(1, len(op.node.outputs))


T0: Final = like(0)
T1: Final = like(1)
BOOL: Final = always(dtypes.BOOL)
INT64: Final = always(dtypes.INT64)
INT32: Final = always(dtypes.INT32)
FLOAT: Final = always(dtypes.FLOAT)
SAME: Final = ShapeRule(same_shape, (T0,))
"""Element by element, type kept."""


def broadcast(shapes: Iterable[Shape]) -> Shape:
    """Returns the shape of shapes broadcast against each other, as numpy does."""
    given = list(shapes)
    rank = max((len(shape) for shape in given), default=0)
    result: list[int | None] = []
    for axis in range(-rank, 0):
        dims = {shape[axis] for shape in given if len(shape) >= -axis}
        dims.discard(1)
        unknown = None in dims
        dims.discard(None)
        if len(dims) > 1:
            lengths = " and ".join(str(dim) for dim in dims)
            raise MisfitError(f"lengths {lengths} of axis {axis} cannot be broadcast")
        if dims:
            result.append(dims.pop())
        else:
            result.append(None if unknown else 1)
    return tuple(result)


def agree(what: str, *lengths: int | None) -> None:
    """Checks that lengths that have to be equal are."""
    different = dict.fromkeys(length for length in lengths if length is not None)
    if len(different) > 1:
        raise MisfitError(f"{what} differ: {', '.join(map(str, different))}")


def broadcast_all(op: Operation) -> Sequence[Shape]:
    """The shape of all operands broadcast."""
    return (broadcast(op.shape(i) for i in range(len(op.inputs)) if op.has(i)),)


def axis_of(axis: int, rank: int) -> int:
    """Returns an axis counted from the front."""
    if not -rank <= axis < max(rank, 1):
        raise UnknownError(
            f"axis {axis} of a tensor of {rank} dimensions; "
            f"{-rank} to {max(rank, 1) - 1} is expected"
        )
    return axis + rank if axis < 0 else axis


def with_dim(shape: Shape, axis: int, dim: int | None) -> Shape:
    """Returns the shape with one length replaced."""
    return (*shape[:axis], dim, *shape[axis + 1 :])
