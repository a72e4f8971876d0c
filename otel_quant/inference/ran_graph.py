"""The graph that onnxruntime has made of a model, as it writes it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from otel_quant.cost import CostError
from otel_quant.cost.graph import Node, dtypes, read_graph
from otel_quant.inference.profile_json import ProfiledKernel, Tensor


class RanGraph:
    """The nodes that ran, and what is between them."""

    def __init__(self, path: Path) -> None:
        graph = read_graph(str(path))
        self.weight_bytes = sum(tensor.stored for tensor in graph.initializers)
        self._nodes = {node.name: node for node in graph.nodes if node.name}
        self._makers = {name: node for node in graph.nodes for name in node.outputs if name}
        self._constants = {
            each.name: Tensor(dtypes.name_of(each.dtype), each.dims) for each in graph.initializers
        }
        self._readers: dict[str, list[Node]] = {}
        for node in graph.nodes:
            for name in filter(None, node.inputs):
                self._readers.setdefault(name, []).append(node)

    def node(self, name: str) -> Node | None:
        """Returns the node of a name."""
        return self._nodes.get(name)

    def operands(self, kernel: ProfiledKernel) -> Sequence[Tensor]:
        """Returns a kernel's operands, with those constants that the profile leaves out.

        A kernel that has packed its weights has let go of them, and the profile has no type and no
        shape for what is not there. What cannot be told for certain stays as the profile has it.
        """
        node = self.node(kernel.name)
        names = [] if node is None else [name for name in node.inputs if name]
        found: list[Tensor] = []
        left = list(kernel.inputs)
        for name in names:
            constant = self._constants.get(name)
            if constant is not None and (not left or left[0] != constant):
                found.append(constant)
            elif left:
                found.append(left.pop(0))
        return found if len(found) == len(names) and not left else kernel.inputs

    def maker(self, tensor: str) -> Node | None:
        """Returns the node that makes a tensor."""
        return self._makers.get(tensor)

    def readers(self, tensor: str) -> list[Node]:
        """Returns the nodes that read a tensor."""
        return self._readers.get(tensor, [])


def ran_graph(path: str | None) -> RanGraph | None:
    """Returns the graph of a file; None if there is none, or it cannot be read."""
    if path is None:
        return None
    try:
        return RanGraph(Path(path))
    except CostError:
        return None
