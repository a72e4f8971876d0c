"""Values of constants: one for each, however often a walk meets it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from otel_quant.cost import dtypes
from otel_quant.cost.structure import Attribute, Node, SparseTensor, Tensor
from otel_quant.cost.values import MAX_DATA, Value

_CONSTANT_ATTRIBUTES: Final = (
    ("value_ints", dtypes.INT64),
    ("value_floats", dtypes.FLOAT),
    ("value_int", dtypes.INT64),
    ("value_float", dtypes.FLOAT),
    ("value_string", dtypes.STRING),
    ("value_strings", dtypes.STRING),
)
"""Attributes of a Constant node, one of which it has, beside its tensor ones."""


class Constants:
    """The constants that a walk has met."""

    def __init__(self) -> None:
        self.met: list[Value] = []
        self.of_nodes: set[Value] = set()
        self._known: dict[int, Value] = {}

    def tensor(self, tensor: Tensor) -> Value:
        """Returns the value of a constant tensor; the same one each time."""
        value = self._known.get(id(tensor))
        if value is None:
            value = Value(tensor.dtype, tensor.dims, tensor.values, name=tensor.name)
            value.weight = tensor
            value.constant = True
            self._known[id(tensor)] = value
            self.met.append(value)
        return value

    def sparse(self, sparse: SparseTensor) -> Value:
        """Returns the dense value of a sparse constant; its weight is what is stored."""
        value = self._known.get(id(sparse))
        if value is None:
            value = Value(sparse.values.dtype, sparse.dims, name=sparse.values.name)
            stored = sparse.values.stored + sparse.indices.stored
            value.weight = sparse.values._replace(stored=stored, values=None)
            value.constant = True
            self._known[id(sparse)] = value
            self.met.append(value)
        return value

    def node(self, node: Node, attributes: Mapping[str, Attribute]) -> Value:
        """Returns the value of a Constant node."""
        own = attributes is node.attributes
        value = self._known.get(id(node)) if own else None
        if value is None:
            value = self._of(attributes)
            self.of_nodes.add(value)
            if own:
                self._known[id(node)] = value
        return value

    def _of(self, attributes: Mapping[str, Attribute]) -> Value:
        tensor = attributes.get("value")
        if isinstance(tensor, Tensor):
            return self.tensor(tensor)
        sparse = attributes.get("sparse_value")
        if isinstance(sparse, SparseTensor):
            return self.sparse(sparse)
        for name, dtype in _CONSTANT_ATTRIBUTES:
            held = attributes.get(name)
            if type(held) is tuple:
                data = tuple(item for item in held if isinstance(item, int | float))
                if len(held) > MAX_DATA or len(data) != len(held):
                    data = ()
                return self._made(dtype, (len(held),), data or None)
            if isinstance(held, int | float):
                return self._made(dtype, (), (held,))
            if isinstance(held, bytes):
                return self._made(dtype, (), None)
        value = Value()
        value.constant = True
        return value

    def _made(
        self, dtype: int, dims: tuple[int, ...], data: tuple[int | float, ...] | None
    ) -> Value:
        count = dims[0] if dims else 1
        stored = dtypes.stored_bytes(dtype, count) or 0
        value = Value(dtype, dims, data)
        value.weight = Tensor("", dtype, dims, stored, data)
        value.constant = True
        self.met.append(value)
        return value
