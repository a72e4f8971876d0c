"""An ONNX model's structure as read from a file: names, types, shapes and small constants.

Weights are not here, only where they lie. Everything is immutable, so that one graph can
be walked several times (both branches of an If, each call of a local function). Records are
not compared, only their identity is. What is never an attribute's value is a ``NamedTuple``, here
and in other modules: such a class is made in a third of a dataclass's time, and a command makes
forty of them before it does anything. Of the others the methods to compare are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from types import MappingProxyType
from typing import Literal, NamedTuple, TypeAlias

Dim: TypeAlias = int | str | None
"""A declared dimension: its length, the name of a symbol, or nothing at all."""


class Span(NamedTuple):
    """A run of bytes in the model's file."""

    field: int  # Number of the TensorProto field that it is the content of
    offset: int  # Where it starts, in bytes from the start of the file
    length: int  # Its length in bytes


class External(NamedTuple):
    """Where a tensor's bytes lie outside the model's file, as the model declares."""

    location: str  # Path relative to the model's folder; not checked here
    offset: int  # Start in bytes
    length: int | None  # Length in bytes, or None if it is the file's rest


class Tensor(NamedTuple):
    """A constant: an initializer or a Constant node's value."""

    name: str  # The initializer's name; may be empty for an attribute
    dtype: int  # Element type code
    dims: tuple[int, ...]  # Shape
    # Bytes that it takes where it is stored, as the shape says (external data: as declared, where
    # that is less); sub-byte types are packed
    stored: int
    # The elements, flat, if they are few enough to be a shape, an axis list or a scalar; None for
    # weights
    values: tuple[int | float, ...] | None = None
    # Where the payload lies in the model's file; empty for external data
    spans: tuple[Span, ...] = ()
    external: External | None = None  # Where it lies elsewhere, or None

    @property
    def elements(self) -> int:
        """Number of elements; 1 for rank 0."""
        return prod(self.dims)


class SparseTensor(NamedTuple):
    """A sparse constant: its dense shape and the two tensors that hold it."""

    dims: tuple[int, ...]  # Dense shape
    values: Tensor  # The elements that are not zero; its name is the initializer's
    indices: Tensor  # Their positions


class Elided(NamedTuple):
    """An attribute too long to keep."""

    length: int  # Elements or bytes that it has


class Reference(NamedTuple):
    """An attribute of a node in a local function that takes the caller's value."""

    name: str  # The caller's attribute


Kind: TypeAlias = Literal["tensor", "sparse", "sequence", "optional", "map", "unknown"]


class Type(NamedTuple):
    """A declared type."""

    kind: Kind = "unknown"  # What it is a type of
    dtype: int = 0  # Element type code of a tensor
    # Declared dimensions of a tensor; None if not even the rank is declared
    shape: tuple[Dim, ...] | None = None
    element: Type | None = None  # What a sequence or an optional holds


class ValueInfo(NamedTuple):
    """A name and its declared type."""

    name: str
    type: Type


class Node(NamedTuple):
    """One operation."""

    name: str  # As in the file; may be empty, and need not be unique
    op_type: str  # Operator or local function
    domain: str  # Operator set; ``ai.onnx`` is written as the empty string
    inputs: tuple[str, ...]  # Names; an empty one is an optional input left out
    outputs: tuple[str, ...]  # Names; an empty one is an output that is not used
    attributes: Mapping[str, Attribute]  # By name
    overload: str = ""  # Which local function of that name


class Graph(NamedTuple):
    """A graph: the model's, or the body of a control-flow node."""

    name: str = ""
    nodes: tuple[Node, ...] = ()
    inputs: tuple[ValueInfo, ...] = ()
    outputs: tuple[ValueInfo, ...] = ()
    value_info: tuple[ValueInfo, ...] = ()
    initializers: tuple[Tensor, ...] = ()
    sparse_initializers: tuple[SparseTensor, ...] = ()


class Function(NamedTuple):
    """A local function: nodes with named inputs, outputs and attributes."""

    name: str
    domain: str
    overload: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: tuple[Node, ...]
    # Attributes that a call may leave out, with the value they then have
    defaults: Mapping[str, Attribute]
    opsets: Mapping[str, int]  # Operator set versions by domain


class Model(NamedTuple):
    """A model's structure."""

    source: str  # Path as given, or ``<bytes>`` or ``<ModelProto>``
    graph: Graph  # The main graph
    # Local functions by (domain, name, overload)
    functions: Mapping[tuple[str, str, str], Function] = MappingProxyType({})
    opsets: Mapping[str, int] = MappingProxyType({})  # Operator set versions by domain
    producer: str = ""  # Name of the program that wrote it
    size: int = 0  # Bytes of the model's file, without external data


Attribute: TypeAlias = (
    int
    | float
    | bytes
    | Tensor
    | SparseTensor
    | Graph
    | Type
    | Elided
    | Reference
    | tuple[int, ...]
    | tuple[float, ...]
    | tuple[bytes, ...]
    | tuple[Tensor, ...]
    | tuple[Graph, ...]
    | tuple[Type, ...]
)
