"""The values of a graph by name."""

from __future__ import annotations

from otel_quant.cost.values import Value


class GraphScope:
    """The values of one graph by name; names that it lacks are those of the graphs around it."""

    __slots__ = ("_outer", "values")

    def __init__(self, outer: GraphScope | None = None) -> None:
        self._outer = outer
        self.values: dict[str, Value] = {}

    def find(self, name: str) -> Value | None:
        """Returns the value of that name in this graph or one around it."""
        scope: GraphScope | None = self
        while scope is not None:
            value = scope.values.get(name)
            if value is not None:
                return value
            scope = scope._outer
        return None
