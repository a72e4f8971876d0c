"""Finds the nodes of the file that a kernel is of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from otel_quant.cost.graph import Node, Operation
from otel_quant.inference.file_graph import FileGraph
from otel_quant.inference.profile_json import Profile, ProfiledKernel
from otel_quant.inference.ran_graph import RanGraph

CONVERSIONS: Final = frozenset(
    {"Cast", "Transpose", "ReorderInput", "ReorderOutput", "MemcpyFromHost", "MemcpyToHost"}
)
"""Kernels that only convert: the runtime puts them in where kernels do not fit each other."""


@dataclass(frozen=True, slots=True, eq=False)
class Kernel:
    """A kernel with what is known of it."""

    # As the profile has it, with the constants that its operands lack there
    profiled: ProfiledKernel
    # Nodes of the file that it does the work of; the one that it is named by first
    nodes: tuple[Operation, ...]
    inserted: bool  # Whether the runtime has put it in: no node of the file asks for it
    before: Operation | None  # The node of the file in front of it, if it was put in
    after: Operation | None  # The one behind it
    micros: float  # Mean time in a run, in microseconds
    share: float  # Its part of the time of all kernels, 0 to 1
    macs: int | None  # MACs of one run; None where not known

    @property
    def node(self) -> Operation | None:
        """The node that it is named by."""
        return self.nodes[0] if self.nodes else None

    @property
    def macs_per_second(self) -> float | None:
        """MACs per second; None where not known or where the time is none."""
        return None if not self.macs or not self.micros else 1e6 * self.macs / self.micros


def joined(profile: Profile, file: FileGraph, ran: RanGraph | None) -> list[Kernel]:
    """Returns the kernels of a profile, in order of their first execution."""
    join = _Join(file, ran)
    runs, total = len(profile.runs), sum(kernel.micros for kernel in profile.kernels)
    found = []
    for profiled in profile.kernels:
        if not profiled.calls:
            continue
        nodes = join.nodes(profiled)
        inserted = join.is_inserted(profiled, nodes)
        before, after = join.around(profiled) if inserted else (None, None)
        if ran is not None:
            profiled = replace(profiled, inputs=tuple(ran.operands(profiled)))
        found.append(
            Kernel(
                profiled,
                () if inserted else nodes,
                inserted,
                before,
                after,
                profiled.micros / runs,
                profiled.micros / total if total else 0.0,
                None if inserted else file.macs(nodes),
            )
        )
    return found


class _Join:
    def __init__(self, file: FileGraph, ran: RanGraph | None) -> None:
        self._file, self._ran = file, ran

    def nodes(self, kernel: ProfiledKernel) -> tuple[Operation, ...]:
        """Returns the nodes that a kernel does the work of."""
        found = self._nodes(kernel)
        kind = next((each for each in _FUSED_WITH_MORE if each in kernel.op_type), None)
        if not found or kind is None or any(kind in op.node.op_type for op in found):
            return found
        # A Conv that has been fused with the Relu behind it may have the Relu's name.
        behind: list[Operation] = []
        op: Operation | None = found[0]
        while op is not None and len(behind) < _MOST_BEHIND and op.has(0):
            behind.append(op)
            op = self._file.maker(op.input(0))
            if op is not None and op.node.op_type == kind:
                return (op, *behind[::-1])
        return found

    def _nodes(self, kernel: ProfiledKernel) -> tuple[Operation, ...]:
        own = self._own(kernel.name, kernel)
        node = None if self._ran is None else self._ran.node(kernel.name)
        covered = () if node is None else self._covered(node)
        if own is not None:
            others = [op for op in covered if op is not own] if own in covered else []
            return (own, *others)
        if covered:
            return covered
        named = self._file.named_before(kernel.name)
        return () if named is None else (named,)

    def _own(self, name: str, kernel: ProfiledKernel | None = None) -> Operation | None:
        op = self._file.named(name)
        if op is None and kernel is not None:
            op = self._file.numbered(kernel.index, kernel.op_type)
        return op

    def _covered(self, node: Node) -> tuple[Operation, ...]:
        """Returns the nodes of the file between what a node reads and what it makes."""
        reads = set(node.inputs)
        found: dict[Operation, None] = {}
        left = [name for name in node.outputs if name]
        while left:
            tensor = left.pop()
            op = self._file.maker_of(tensor)
            if op is None:
                if tensor in self._file.bound.values or tensor in node.outputs:
                    return ()  # it reaches beyond what the node reads: the name means another
                continue
            if op not in found:
                found[op] = None
                left += [name for name in op.node.inputs if name and name not in reads]
            if len(found) > _MOST:
                return ()
        return tuple(found)

    def is_inserted(self, kernel: ProfiledKernel, nodes: Sequence[Operation]) -> bool:
        if kernel.op_type not in CONVERSIONS or self._own(kernel.name, kernel) is not None:
            return False
        return not any(op.node.op_type == kernel.op_type for op in nodes)

    def around(self, kernel: ProfiledKernel) -> tuple[Operation | None, Operation | None]:
        """Returns the nodes of the file in front of an inserted kernel and behind it."""
        node = None if self._ran is None else self._ran.node(kernel.name)
        if node is None or self._ran is None:
            named = self._file.named_before(kernel.name)
            return named, named  # on which side of it is not known
        before = self._near(self._ran.maker(node.inputs[0])) if node.inputs else None
        after = None
        for name in node.outputs:
            for reader in self._ran.readers(name):
                after = after or self._near(reader)
        return before, after

    def _near(self, node: Node | None) -> Operation | None:
        if node is None:
            return None
        return (
            self._file.named(node.name)
            or next(iter(self._covered(node)), None)
            or self._file.named_before(node.name)
        )


_FUSED_WITH_MORE: Final = ("Conv", "Gemm", "MatMul")
"""Parts of the names of kernels that have taken in what follows a node of that operator."""

_MOST_BEHIND: Final = 4

_MOST: Final = 2000
"""Nodes of the file that one kernel may do the work of."""
