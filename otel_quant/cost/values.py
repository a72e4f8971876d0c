"""What is known of a tensor while a graph is walked: type, shape and, if small, its elements.

An unknown is None and stays None: nothing here guesses.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from otel_quant.cost import dtypes
from otel_quant.cost.structure import Kind, Tensor

Shape: TypeAlias = tuple[int | None, ...]
"""Lengths; None for one that is not known. A shape of unknown rank is None itself."""

Data: TypeAlias = tuple[int | float | None, ...]
"""A small tensor's elements, row-major; None for one that is not known."""


MAX_DATA: Final = 2048
"""Elements of the largest tensor whose elements are followed."""


class Value:
    """One value of the graph. Its identity is the tensor's: nodes that share it share it."""

    __slots__ = (
        "constant",
        "data",
        "dtype",
        "element",
        "items",
        "kind",
        "name",
        "shape",
        "unknown",
        "weight",
    )

    def __init__(
        self,
        dtype: int = dtypes.UNKNOWN,
        shape: Shape | None = None,
        data: Data | None = None,
        *,
        name: str = "",
        kind: Kind = "tensor",
    ) -> None:
        self.name = name
        self.dtype = dtype
        self.shape = shape
        self.data = data
        self.kind: Kind = kind
        self.element: Value | None = None
        self.items: tuple[Value, ...] | None = None
        self.weight: Tensor | None = None
        self.constant = False
        self.unknown: str | None = None

    def __repr__(self) -> str:
        return f"Value({self.name!r}, {dtypes.name_of(self.dtype)}, {self.shape}, {self.kind})"

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


def volume(shape: Shape | None) -> int | None:
    """Returns the number of elements (rank 0 has one), or None where it is not known."""
    if shape is None:
        return None
    total = 1
    for dim in shape:
        if dim is None:
            return 0 if 0 in shape else None
        total *= dim
    return total


def merged(values: list[Value]) -> Value:
    """Returns what is true of every one of ``values``, as after an If."""
    first = values[0]
    result = Value(kind=first.kind)
    result.unknown = next((value.unknown for value in values if value.unknown is not None), None)
    if any(value.kind != first.kind for value in values):
        result.kind = "unknown"
        return result
    if all(value.dtype == first.dtype for value in values):
        result.dtype = first.dtype
    shapes = [value.shape for value in values]
    result.shape = common_shape(shapes)
    if all(value.data is not None and value.data == first.data for value in values):
        result.data = first.data
    inner = [value.element for value in values]
    if all(element is not None for element in inner):
        result.element = merged([element for element in inner if element is not None])
    return result


def common_shape(shapes: list[Shape | None]) -> Shape | None:
    """Returns the shape in which every dimension that differs is unknown."""
    first = shapes[0]
    if first is None or any(shape is None or len(shape) != len(first) for shape in shapes):
        return None
    columns = zip(*(shape for shape in shapes if shape is not None), strict=True)
    return tuple(column[0] if len(set(column)) == 1 else None for column in columns)
