"""An ONNX model's structure as read from a file, in order of execution, and the package's error.

Weights are not here, only where they lie. Everything is immutable, so that one graph can
be walked several times (both branches of an If, each call of a local function). Records are
not compared, only their identity is; they are ``NamedTuple``s, here and in other modules, because
such a class is made in a third of a dataclass's time, and a command makes forty of them first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from heapq import heappop, heappush
from math import prod
from types import MappingProxyType
from typing import Final, Literal, NamedTuple, TypeAlias

LONGER: Final = "a longer one: --time-limit, in a quantization OTEL_QUANT_COST_TIMEOUT"
"""What is expected where the time limit has passed."""


class CostError(ValueError):
    """A model cannot be read or costed, or an argument makes no sense.

    Attributes:
        source: The file's path as the caller gave it, or ``<bytes>`` or ``<ModelProto>``.
        problem: What is wrong, naming the value.
        expected: What would have been right; empty if the problem leaves no doubt.
        offset: Position in the file in bytes, or None if the problem has none.
        reason: All of this but the source, for those who may not name files.
    """

    def __init__(
        self, source: str, problem: str, *, expected: str = "", offset: int | None = None
    ) -> None:
        self.source, self.problem = source, problem
        self.expected, self.offset = expected, offset
        self.reason = problem
        if offset is not None:
            self.reason += f" at byte {offset}"
        if expected:
            self.reason += f"; expected {expected}"
        super().__init__(f"{printable(source)}: {self.reason}")


def printable(text: str, limit: int = 200) -> str:
    """Returns text from a file as it may be shown on a terminal.

    Names come from files that may be hostile: newlines and escape sequences are
    written as escapes, and a name longer than ``limit`` characters is cut.
    """
    if len(text) > limit:
        text = text[:limit] + "..."
    return text if text.isprintable() else text.encode("unicode_escape").decode("ascii")


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
    # Bytes that it takes where it is stored, by its shape (external data: as declared, where
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


class Elided(NamedTuple):
    """An attribute too long to keep."""

    length: int  # Elements or bytes that it has


class Reference(NamedTuple):
    """An attribute of a node in a local function that takes the caller's value."""

    name: str  # The caller's attribute


Kind: TypeAlias = Literal["tensor", "sequence", "optional", "map", "unknown"]


class Type(NamedTuple):
    """A declared type."""

    kind: Kind = "unknown"  # What it is a type of
    dtype: int = 0  # Element type code of a tensor
    # Declared dimensions of a tensor; None if not even the rank is declared
    shape: tuple[Dim, ...] | None = None

    @property
    def may_be_tensor(self) -> bool:
        """Whether it is not another type's."""
        return self.kind in ("tensor", "unknown")


class ValueInfo(NamedTuple):
    """A name and its declared type."""

    name: str
    type: Type


class GraphNode(NamedTuple):
    """One operation."""

    name: str  # As in the file; may be empty, and need not be unique
    op_type: str  # Operator or local function
    domain: str  # Operator set; ``ai.onnx`` is written as the empty string
    inputs: tuple[str, ...]  # Names; an empty one is an optional input left out
    outputs: tuple[str, ...]  # Names; an empty one is an output that is not used
    attributes: Mapping[str, Attribute]  # By name
    overload: str = ""  # Which local function of that name


_BEFORE_QUANTIZE: Final = "_QuantizeLinear_Input"
"""onnxruntime's quantizer gives the tensor of a result this ending, and the result's name to what it dequantizes."""


def node_name(*nodes: GraphNode) -> str:
    """Names a node, or nodes that run as one: as the first is named, or else by the tensor that they make.

    The tensor has the same name in a quantized file, where numbers of nodes differ.
    """
    read = {name for node in nodes for name in node.inputs}
    made = (name for node in nodes for name in node.outputs if name and name not in read)
    return nodes[0].name or next(made, nodes[0].op_type).removesuffix(_BEFORE_QUANTIZE)


class Graph(NamedTuple):
    """A graph: the model's, or the body of a control-flow node."""

    nodes: tuple[GraphNode, ...] = ()
    inputs: tuple[ValueInfo, ...] = ()
    outputs: tuple[ValueInfo, ...] = ()
    value_info: tuple[ValueInfo, ...] = ()
    initializers: tuple[Tensor, ...] = ()

    def within(self) -> Iterator[Graph]:
        """Yields this graph and those that its nodes run, at any depth."""
        graphs = [self]
        while graphs:
            graph = graphs.pop()
            yield graph
            values = (value for node in graph.nodes for value in node.attributes.values())
            graphs += [value for value in values if isinstance(value, Graph)]


class Function(NamedTuple):
    """A local function: nodes with named inputs, outputs and attributes."""

    name: str
    domain: str
    overload: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: tuple[GraphNode, ...]
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
    size: int = 0  # Bytes of the model's file, without external data
    producer: str = ""  # What has written it


Attribute: TypeAlias = (
    int | float | bytes | Tensor | Graph | Elided | Reference
    | tuple[int, ...] | tuple[float, ...] | tuple[bytes, ...]
)  # fmt: skip


def ordered(nodes: tuple[GraphNode, ...], source: str) -> tuple[GraphNode, ...]:
    """Returns ``nodes`` in dependency order; a list already in order comes back as it is.

    Of the nodes that are ready, the first in the file comes first.
    """
    maker = {output: i for i, node in enumerate(nodes) for output in node.outputs if output}
    # A set for each node would take half of the time and of the memory of reading them.
    reads = (_reads(node) if node.attributes else node.inputs for node in nodes)
    # An operand left out has no maker.
    if not any(maker.get(name, -1) > i for i, names in enumerate(reads) for name in names):
        return nodes
    made = (_reads(each) & maker.keys() for each in nodes)
    waits = [{maker[name] for name in names} - {i} for i, names in enumerate(made)]
    readers: dict[int, list[int]] = {}
    for i, wait in enumerate(waits):
        for before in wait:
            readers.setdefault(before, []).append(i)
    ready = [i for i, wait in enumerate(waits) if not wait]  # ascending, so a heap
    result: list[GraphNode] = []
    while ready:
        i = heappop(ready)
        result.append(nodes[i])
        for reader in readers.get(i, ()):
            waits[reader].discard(i)
            if not waits[reader]:
                heappush(ready, reader)
    for node, wait in zip(nodes, waits, strict=True):
        if wait:
            problem = f"node {printable(node.name or node.op_type)} depends on its own result"
            expected = "nodes that can be ordered, each after those whose results it reads"
            raise CostError(source, problem, expected=expected)
    return tuple(result)


def _reads(node: GraphNode) -> set[str]:
    """Names that a node reads, those that its subgraphs take from outside among them."""
    names = set(node.inputs)
    for attribute in node.attributes.values():
        if isinstance(attribute, Graph):
            names |= _outer_names(attribute)
    names.discard("")
    return names


def _outer_names(graph: Graph) -> set[str]:
    """Names that a subgraph reads from the graphs around it."""
    inner = {info.name for info in graph.inputs} | {each.name for each in graph.initializers}
    read = {info.name for info in graph.outputs}
    for node in graph.nodes:
        inner.update(node.outputs)
        read |= _reads(node)
    return read - inner
