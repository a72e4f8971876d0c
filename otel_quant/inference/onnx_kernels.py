"""The kernels that onnxruntime's profiler has seen, each with the nodes of the file that it does the work of."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

from otel_quant.cost import CostError, InputSpec
from otel_quant.cost.graph import (
    CARRIES,
    DEQUANTIZES,
    QDQ,
    QUANTIZES,
    ModelGraph,
    Node,
    Operation,
    Value,
    converts,
    dtypes,
    node_name,
    printable,
    read_graph,
)
from otel_quant.inference.results import CONVERSIONS, RanKernel, is_of_few_bits, tensor_text

_KERNEL: Final = "_kernel_time"
_RUN: Final = "model_run"

_Key: TypeAlias = tuple[str, object]
"""Name and number of a kernel, since nodes need not have different names."""

_BODIES: Final = frozenset({"If", "Loop", "Scan"})
"""Operators whose kernels contain the kernels of other nodes."""

_NAMES: Final = {"float": "float32", "double": "float64"}
"""Types that the profile has under C++'s names."""


@dataclass(frozen=True, slots=True)
class OnnxProfile:
    """What the profiler has seen in the faster half of the runs.

    Of the others something else on the machine has made many slower, by a single kernel each.
    """

    # In order of their first execution, each with all nodes of the file still unknown
    kernels: tuple[RanKernel, ...]
    runs: tuple[tuple[int, int], ...]  # Begin and length of each of these runs, in microseconds
    # The most bytes of the arena that were in use; None where there is none
    arena_used: int | None = None

    @property
    def run_micros(self) -> float:
        """Mean time of a run."""
        return sum(length for _, length in self.runs) / len(self.runs)


def _events(path: Path) -> Iterator[Mapping[str, Any]]:
    """Yields the events of a profile; onnxruntime 1.22 writes names with quotes as no JSON has them."""
    for line in path.read_bytes().splitlines():
        if line.startswith(b"{"):
            with suppress(ValueError):
                yield json.loads(line.rstrip(b","))


def read_profile(path: Path, warmup: int = 1) -> OnnxProfile:
    """Reads a profile."""
    first: dict[_Key, Mapping[str, Any]] = {}
    events: list[tuple[int, int, _Key]] = []  # begin, end, kernel
    all_runs: list[tuple[int, int]] = []
    last: Mapping[str, Any] = {}
    for event in _events(path):
        name, begin, length = event["name"], event["ts"], event["dur"]
        if name.endswith(_KERNEL):
            last = event["args"]
            key = (name.removesuffix(_KERNEL), last.get("node_index"))
            first.setdefault(key, last)
            events.append((begin, begin + length, key))
        elif name == _RUN:
            all_runs.append((begin, length))
    counted = sorted(all_runs)[warmup:]
    faster = sorted(counted, key=lambda run: run[1])[: (len(counted) + 1) // 2]
    runs = sorted(faster)
    holders = {key for key, args in first.items() if args.get("op_name") in _BODIES}
    calls, micros = _calls_and_times(events, runs, holders)
    count, total = len(runs) or 1, sum(micros.values()) or 1
    kernels = tuple(
        RanKernel(
            key[0],
            args.get("op_name", ""),
            None,
            0,
            args.get("provider", ""),
            micros[key] / count,
            micros[key] / total,
            calls[key] / count,
            _tensors(args.get("input_type_shape", ())),
            _tensors(args.get("output_type_shape", ())),
        )
        for key, args in first.items()
    )
    return OnnxProfile(kernels, tuple(runs), _number(last.get("mem_in_use_peak")))


def _calls_and_times(
    events: Sequence[tuple[int, int, _Key]], runs: Sequence[tuple[int, int]], holders: set[_Key]
) -> tuple[Counter[_Key], Mapping[_Key, int]]:
    """Returns how often each kernel ran in some runs, and its time without its bodies' time."""
    calls, micros = Counter[_Key](), Counter[_Key]()
    open_: list[tuple[int, _Key]] = []  # end and kernel of those with bodies
    begins = [begin for begin, _ in runs]
    # Of two that begin at once the longer one holds the other.
    for begin, end, kernel in sorted(events, key=lambda each: (each[0], -each[1])):
        at = bisect_right(begins, begin) - 1
        if at < 0 or begin > sum(runs[at]):
            continue
        calls[kernel] += 1
        micros[kernel] += end - begin
        while open_ and open_[-1][0] < end:
            open_.pop()
        if open_:
            micros[open_[-1][1]] -= end - begin
        if kernel in holders:
            open_.append((end, kernel))
    return calls, +micros  # none below zero


def _number(text: object) -> int | None:
    return int(text) if isinstance(text, str) and text.isdecimal() else None


def _tensors(listed: Sequence[Mapping[str, Sequence[int]]]) -> tuple[str, ...]:
    return tuple(
        tensor_text(_NAMES.get(dtype, dtype), shape)
        for each in listed
        for dtype, shape in each.items()
    )


_FUSED_WITH_MORE: Final = ("Conv", "Gemm", "MatMul")
"""Parts of the names of kernels that have taken in what follows a node of that operator."""

_MOST_BEHIND: Final = 4

_MOST_READERS: Final = 8
"""Nodes that read a constant which shows where a kernel belongs; more may share a zero point."""

_MOST: Final = 2000
"""Nodes of the file that one kernel may do the work of."""

_LONGEST: Final = 120
"""Characters of a name in a result."""

_MOST_TENSORS: Final = 16
"""Operands or results of a kernel in a result."""


class FileGraph(ModelGraph):
    """A model's nodes, by the names that they have at run time too."""

    def __init__(self, path: str, inputs: Mapping[str, InputSpec], dims: Mapping[str, int]) -> None:
        super().__init__(path, inputs, dims)
        self._by_name: dict[str, Operation] = {}
        for op in self.ops:
            self._by_name.setdefault(node_name(op.node), op)
        self._of_constant: dict[str, list[Operation]] = {}
        for op in self.main:
            for name in filter(None, op.node.inputs):
                if self.maker_of(name) is None and name not in self.bound.values:
                    self._of_constant.setdefault(name, []).append(op)

    def is_given_out(self, value: Value) -> bool:
        """Whether the model gives a value out, perhaps through an Identity, which stays for its name."""
        return self.is_output(value) or any(
            op.kind == "Identity" and self.is_given_out(op.outputs[0]) for op in self.readers(value)
        )

    def computed_by(self, tensor: str) -> Operation | None:
        """Returns the node that makes a tensor, or the one before those that only quantize it."""
        op = self.maker_of(tensor)
        while op is not None and op.kind in QDQ:
            op = self.maker(op.input(0))
        return op

    def users(self, value: Value) -> Iterator[Operation]:
        """Yields the nodes that read a value; for those that only change its shape their readers."""
        for op in self.readers(value):
            if op.kind in CARRIES:
                yield from self.users(op.outputs[0])
            else:
                yield op

    def named(self, name: str) -> Operation | None:
        """Returns the node of a name."""
        return self._by_name.get(name)

    def of_constants(self, names: Iterable[str], op_type: str) -> Operation | None:
        """Returns the node, of a kernel's operator, that most of some constants belong to."""
        counts: Counter[Operation] = Counter()
        for name in names:
            readers = self._of_constant.get(name, ())
            for op in readers if len(readers) <= _MOST_READERS else ():
                maker = self.maker(op.input(0)) if op.kind in QUANTIZES else op
                known = (
                    self.users(op.outputs[0]) if op.kind in DEQUANTIZES else filter(None, [maker])
                )
                counts.update(each for each in known if each.node.op_type in op_type)
        (op, most), *others = [*counts.most_common(2), (None, 0)]
        return op if others and most > others[0][1] else None

    def named_before(self, name: str) -> Operation | None:
        """Returns the node whose name, or whose tensor's, a name begins with, as made ones do."""
        for end in range(len(name) - 1, 0, -1):
            begin = name[:end]
            op = None if name[end].isalnum() else self._by_name.get(begin) or self.maker_of(begin)
            if op is not None:
                return op
        return None

    @property
    def weight_bytes(self) -> int:
        """Bytes of its constants."""
        operands = (value for op in self.ops for value in op.inputs if value is not None)
        weights = {id(each): each.weight.stored for each in operands if each.weight is not None}
        return sum(weights.values())

    @property
    def is_quantized(self) -> bool:
        """Whether it has operators that only quantized models have."""
        return any(
            converts(op.kind)
            or (
                run.macs is not None
                and run.macs.contraction
                and any(is_of_few_bits(dtypes.name_of(each.dtype)) for each in op.inputs if each)
            )
            for op, run in self.runs.items()
        )

    @property
    def has_open_lengths(self) -> bool:
        """Whether an input has a length that is not fixed."""
        return any(
            shape is None or not all(isinstance(each, int) for each in shape)
            for shape in (
                info.type.shape
                for info in self.model.graph.inputs
                if info.name in self.bound.values
            )
        )


class RanGraph:
    """The graph that onnxruntime has made of a model, as it writes it; empty where it cannot be read."""

    def __init__(self, path: str | Path | None) -> None:
        self.weight_bytes: int | None = None
        self.nodes: dict[str, Node] = {}
        self._unnamed: dict[str, list[Node]] = {}  # By operator, in the order in which they run
        self.makers: dict[str, Node] = {}
        self.readers: dict[str, list[Node]] = {}
        self._constants: dict[str, str] = {}
        try:
            graph = read_graph(str(path)) if path is not None else None
        except CostError:
            graph = None
        if graph is None:
            return
        self.weight_bytes = sum(tensor.stored for tensor in graph.initializers)
        for each in graph.initializers:
            self._constants[each.name] = tensor_text(dtypes.name_of(each.dtype), each.dims)
        for node in graph.nodes:
            if node.name:
                self.nodes[node.name] = node
            else:
                self._unnamed.setdefault(node.op_type, []).append(node)
            self.makers.update((name, node) for name in node.outputs if name)
            for name in filter(None, node.inputs):
                self.readers.setdefault(name, []).append(node)

    def nodes_of(self, kernels: Sequence[RanKernel]) -> list[Node | None]:
        """Returns the nodes of kernels in the order in which they ran, which tells those without a name."""
        found = [self.nodes.get(each.name) for each in kernels]
        unnamed: dict[str, list[int]] = {}
        for place, each in enumerate(kernels):
            if found[place] is None and each.name.removeprefix(f"{each.op_type}_").isdecimal():
                unnamed.setdefault(each.op_type, []).append(place)
        for op_type, places in unnamed.items():
            nodes = self._unnamed.get(op_type, ())
            if len(nodes) == len(places):  # else some may be of the body of an If
                for place, node in zip(places, nodes, strict=True):
                    found[place] = node
        return found

    def is_constant(self, tensor: str) -> bool:
        """Whether a tensor is a constant of the graph."""
        return tensor in self._constants

    def operands(self, kernel: RanKernel, node: Node | None) -> tuple[str, ...]:
        """Returns a kernel's operands, with packed constants, which the profile leaves out, if that is certain."""
        names = [] if node is None else [name for name in node.inputs if name]
        found: list[str] = []
        left = list(kernel.inputs)
        for name in names:
            constant = self._constants.get(name)
            if constant is not None and (not left or left[0] != constant):
                found.append(constant)
            elif left:
                found.append(left.pop(0))
        return tuple(found) if len(found) == len(names) and not left else kernel.inputs


class Part(NamedTuple):
    """Nodes that a provider was given together: the nodes of a kernel that it compiles, or a single one."""

    provider: str
    nodes: Sequence[tuple[str, str]]  # Name, which may be empty, and operator


@dataclass(frozen=True, slots=True, eq=False)
class Placed:
    """A kernel with its place in the file."""

    ran: RanKernel  # With the constants that its operands lack in the profile
    # Nodes of the file that it does the work of; the one that it is named by first, if it is
    nodes: tuple[Operation, ...]
    inserted: bool  # Whether the runtime has inserted it: no node of the file asks for it
    before: Operation | None  # The node of the file in front of it, if it was inserted
    after: Operation | None  # The one behind it

    @property
    def node(self) -> Operation | None:
        """The node that it is named by."""
        return self.nodes[0] if self.nodes and not self.ran.is_compiled else None

    @property
    def place(self) -> str:
        """The node of the file that it is named by or, inserted, next to; else its own name."""
        near = self.after or self.before
        return self.ran.node or (self.ran.name if near is None else near.name)

    @property
    def title(self) -> str:
        """Its name in results."""
        return self.ran.name

    @property
    def time(self) -> float:
        """Its time in a run, in microseconds."""
        return self.ran.micros


def placed(
    profile: OnnxProfile, file: FileGraph, ran: RanGraph, parts: Sequence[Part] = ()
) -> list[Placed]:
    """Returns the kernels of a profile that ran, in order of their first execution."""
    join = _Join(file, ran)
    found = []
    compilers = {kernel.provider for kernel in profile.kernels if _part(kernel) is not None}
    compiled = [part for part in parts if part.provider in compilers]
    for kernel, node in zip(profile.kernels, ran.nodes_of(profile.kernels), strict=True):
        if not kernel.calls:
            continue
        own = file.named(kernel.name)
        part = _part(kernel)
        if part is None:
            nodes = join.nodes(kernel, own, node)
            count = len(nodes)
        else:
            nodes, count = _within(compiled[part : part + 1], file)
        asked_for = own is not None or any(op.node.op_type == kernel.op_type for op in nodes)
        inserted = kernel.op_type in CONVERSIONS and not asked_for
        before, after = join.around(kernel, node) if inserted else (None, None)
        nodes = () if inserted else nodes
        macs = file.macs(nodes)
        known = replace(
            kernel,
            name=printable(kernel.name, _LONGEST),
            node=_place(nodes) if nodes and part is None else None,
            nodes=0 if inserted else count,
            inputs=ran.operands(kernel, node)[:_MOST_TENSORS],
            outputs=kernel.outputs[:_MOST_TENSORS],
            macs=macs,
            is_compiled=part is not None,
        )
        found.append(Placed(known, nodes, inserted, before, after))
    return found


def _place(nodes: Sequence[Operation]) -> str:
    """Returns what a kernel is called by whose first node is in the file."""
    kept = [op.node for op in nodes if op.kind not in QDQ]
    is_named = nodes[0].node.name or not kept
    return printable(nodes[0].name if is_named else node_name(*kept), _LONGEST)


def _part(kernel: RanKernel) -> int | None:
    """Returns which part of the graph a provider has compiled into a kernel; None if it has not.

    onnxruntime names such kernels by provider, operator and the number of the part.
    """
    head = f"{kernel.provider}_{kernel.op_type}_"
    number = kernel.name.removeprefix(head)
    return int(number) if kernel.name.startswith(head) and number.isdecimal() else None


def _within(parts: Sequence[Part], file: FileGraph) -> tuple[tuple[Operation, ...], int]:
    """Returns those nodes of the file in parts that are known by their names, and the number of all."""
    nodes = [node for part in parts for node in part.nodes]
    named = (file.named(name) or file.named_before(name) for name, _ in nodes if name)
    known = tuple(dict.fromkeys(op for op in named if op is not None))
    return known, len(known) + sum(not name for name, _ in nodes)


class _Join:
    def __init__(self, file: FileGraph, ran: RanGraph) -> None:
        self._file, self._ran = file, ran

    def nodes(
        self, kernel: RanKernel, own: Operation | None, node: Node | None
    ) -> tuple[Operation, ...]:
        """Returns the nodes that a kernel does the work of, the one of its name first."""
        found = () if node is None else self._covered(node)
        if own is not None:
            found = (own, *(op for op in found if op is not own)) if own in found else (own,)
        elif not found and (near := self._near(kernel.name, kernel.op_type, node)) is not None:
            found = (near,)
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

    def around(
        self, kernel: RanKernel, node: Node | None
    ) -> tuple[Operation | None, Operation | None]:
        """Returns the nodes of the file in front of an inserted kernel and behind it."""
        if node is None:
            named = self._file.named_before(kernel.name)
            return named, named  # on which side of it is not known
        makers = [self._ran.makers[name] for name in node.inputs[:1] if name in self._ran.makers]
        readers = [reader for name in node.outputs for reader in self._ran.readers.get(name, ())]
        before, after = (
            next(filter(None, map(self._of, each)), None) for each in (makers, readers)
        )
        return before, after

    def _of(self, node: Node) -> Operation | None:
        covered = next(iter(self._covered(node)), None)
        return self._file.named(node.name) or covered or self._near(node.name, node.op_type, node)

    def _near(self, name: str, op_type: str, node: Node | None) -> Operation | None:
        """Returns the node whose tensors a kernel has, by its name or by its constants."""
        known = () if node is None else filter(self._ran.is_constant, node.inputs)
        return self._file.named_before(name) or self._file.of_constants(known, op_type)
