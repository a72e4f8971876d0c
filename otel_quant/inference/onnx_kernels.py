"""The kernels that onnxruntime's profiler has seen, each with the nodes of the file that it does the work of."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain, islice
from operator import attrgetter, itemgetter
from pathlib import Path
from statistics import quantiles
from typing import Any, Final, NamedTuple, TypeAlias

from otel_quant.cost import CostError, InputSpec, graph
from otel_quant.cost.graph import GraphNode, Tensor, TypedNode, Value, dtypes, node_name, printable
from otel_quant.inference.onnx_layers import layer_of, scaled_by
from otel_quant.inference.results import CONVERSIONS, RanKernel, grouped, has_few_bits, tensor_text

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
        """Time of the fastest run."""
        return min(length for _, length in self.runs)


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
    runs = sorted(sorted(counted, key=itemgetter(1))[: (len(counted) + 1) // 2])
    holders = {key for key, args in first.items() if args.get("op_name") in _BODIES}
    calls, times = _calls_and_times(events, runs, holders)
    fastest = {key: min(filter(None, times[key]), default=0) for key in first}
    count, total = len(runs) or 1, sum(fastest.values()) or 1
    kernels = []
    for key, args in first.items():
        op_type, provider = args.get("op_name", ""), args.get("provider", "")
        micros, spread = float(fastest[key]), _spread(times[key])
        figures = micros, micros / total, calls[key] / count
        inputs, outputs = _tensors(args, "input"), _tensors(args, "output")
        kernel = RanKernel(key[0], op_type, None, 0, provider, *figures, inputs, outputs)
        held = sum(int(args.get(size) or 0) for size in ("activation_size", "output_size"))
        kernels.append(replace(kernel, spread=spread, activations=held or None))
    used = str(last.get("mem_in_use_peak"))
    return OnnxProfile(tuple(kernels), tuple(runs), int(used) if used.isdecimal() else None)


def _spread(times: Sequence[int]) -> float | None:
    """Returns how far the first quartile of some times is above the least; None of fewer than four."""
    if len(times) < _FEWEST_FOR_SPREAD:
        return None
    return quantiles(times, n=4, method="inclusive")[0] - min(times)


_FEWEST_FOR_SPREAD: Final = 4


def _calls_and_times(
    events: Sequence[tuple[int, int, _Key]], runs: Sequence[tuple[int, int]], holders: set[_Key]
) -> tuple[Counter[_Key], Mapping[_Key, list[int]]]:
    """Returns how often each kernel ran in some runs, and its time in each without its bodies' time."""
    calls = Counter[_Key]()
    micros: defaultdict[_Key, list[int]] = defaultdict(lambda: [0] * len(runs))
    open_: list[tuple[int, _Key]] = []  # end and kernel of those with bodies
    begins = [begin for begin, _ in runs]
    # Of two that begin at once the longer one holds the other.
    for begin, end, kernel in sorted(events, key=lambda each: (each[0], -each[1])):
        at = bisect_right(begins, begin) - 1
        if at < 0 or begin > sum(runs[at]):
            continue
        calls[kernel] += 1
        micros[kernel][at] += end - begin
        while open_ and open_[-1][0] < end:
            open_.pop()
        if open_:
            micros[open_[-1][1]][at] -= end - begin
        if kernel in holders:
            open_.append((end, kernel))
    for kernel in holders:  # none below zero
        micros[kernel] = [max(0, each) for each in micros[kernel]]
    return calls, micros


def _tensors(args: Mapping[str, Any], side: str) -> tuple[str, ...]:
    listed = chain.from_iterable(each.items() for each in args.get(f"{side}_type_shape", ()))
    return tuple(tensor_text(_NAMES.get(dtype, dtype), shape) for dtype, shape in listed)


_CAST: Final = "InsertedPrecisionFreeCast_"
"""What onnxruntime puts before the name of a tensor, or of what makes it, that it has in another type."""


def _as_in_file(name: str) -> str:
    """Returns a tensor's name, or that of a node, without what onnxruntime puts before it."""
    return name.removeprefix("fused ").removeprefix(_CAST)


_FUSED: Final = ("Conv", "Gemm", "MatMul")
"""Parts of the names of kernels that take in nodes behind one of that operator, and may have their name."""

_MOST_BEHIND: Final = 4

_LAYOUTS: Final = frozenset({"ReorderInput", "ReorderOutput", "Transpose"})
"""Operators that put axes in another order."""

_MOST: Final = 2000  # Nodes of the file that one kernel may do the work of
_LONGEST: Final = 120  # Characters of a name in a result
CPU: Final = "CPUExecutionProvider"

_MOST_PARTS: Final = 64  # Nodes of a kernel in a result
_MOST_TENSORS: Final = 16  # Operands or results of a kernel in a result


def numbers(value: Value | None) -> tuple[float, ...]:
    """Returns the numbers of a constant; one 0 where it is left out, none where they are not known."""
    data = (0,) if value is None else value.data or ()
    return tuple(float(each) for each in data if each is not None)


class FileGraph(graph.ModelGraph):
    """A model's nodes, by the names that they have at run time too."""

    def __init__(self, path: str, inputs: Mapping[str, InputSpec], dims: Mapping[str, int]) -> None:
        super().__init__(path, inputs, dims)
        # Of several with the same name the first
        self.named = {node_name(op.node): op for op in reversed(self.ops)}.get

    def input_ranges(self) -> Iterator[tuple[str, float, float]]:
        """Yields inputs that are quantized by one scale, with the lowest and the highest value that has a code."""
        for op in self.main:
            codes = dtypes.LIMITS.get(op.outputs[0].dtype) if op.kind in graph.QUANTIZES else None
            if codes is None or not op.has(1):
                continue
            value, scales, zeros = op.input(0), *map(numbers, (op.input(1), op.operand(2)))
            while (maker := self.maker(value)) and maker.kind in graph.CARRIES:
                value = maker.input(0)
            if value.name in self.bound.values and len(scales) == len(zeros) == 1:
                low, high = (scales[0] * (code - zeros[0]) for code in codes)
                yield value.name, low, high

    def is_given_out(self, value: Value) -> bool:
        """Whether the model gives a value out, perhaps through an Identity, which stays for its name."""
        return self.is_output(value) or any(
            op.kind == "Identity" and self.is_given_out(op.outputs[0]) for op in self.readers(value)
        )

    def in_front(self, op: TypedNode | None) -> Iterator[TypedNode]:
        """Yields a node and those in front of it, by first operands."""
        while op is not None:
            yield op
            op = self.maker(op.input(0)) if op.has(0) else None

    def all_in_front(self, op: TypedNode | None) -> Iterator[TypedNode]:
        """Yields a node and all that it is made of."""
        left, seen = [op], {op, None}
        while left:
            if (found := left.pop()) is not None:
                yield found
                new = {self.maker(value) for value in found.given} - seen
                seen |= new
                left += new

    def past(self, op: TypedNode | None, kinds: Collection[str]) -> TypedNode | None:
        """Returns a node or, of some operators, the first other one in front by first operands."""
        return next((each for each in self.in_front(op) if each.kind not in kinds), None)

    def users(self, value: Value) -> Iterator[TypedNode]:
        """Yields the nodes that read a value; for those that only change its shape their readers."""
        for op in self.readers(value):
            if op.kind in graph.CARRIES:
                yield from self.users(op.outputs[0])
            else:
                yield op

    def named_before(self, name: str) -> TypedNode | None:
        """Returns the node whose name, or whose tensor's, a name begins with, as made ones do."""
        of_tensor = _as_in_file(name)
        ends = range(len(of_tensor) - (of_tensor == name), 0, -1)
        begins = (of_tensor[:end] for end in ends if not of_tensor[end : end + 1].isalnum())
        known = (self.named(begin) or self.maker_of(begin) for begin in begins)
        return next(filter(None, known), None)

    def weights(self, ops: Iterable[TypedNode]) -> Sequence[Tensor]:
        """Returns the constants that nodes read, through conversions of constants."""
        left, found = [value for op in ops for value in op.given], dict[Value, None]()
        while left:
            value = left.pop()
            op = self.maker(value) if value.constant and value not in found else None
            found[value] = None
            left += op.given if op is not None and op.kind in graph.QDQ else ()
        return [each.weight for each in found if each.weight is not None]

    @property
    def weight_bytes(self) -> int:
        """Bytes of its constants."""
        return sum(each.stored for each in self.weights(self.ops))

    @property
    def is_quantized(self) -> bool:
        """Whether it has operators that only quantized models have."""
        return any(
            graph.converts(op.kind)
            or (
                run.macs is not None
                and run.macs.contraction
                and any(has_few_bits(dtypes.name_of(each.dtype)) for each in op.given)
            )
            for op, run in self.runs.items()
        )


def _bodies(of: graph.Graph) -> Iterator[graph.Graph]:
    """Yields a graph and the bodies in it."""
    yield of
    for value in chain.from_iterable(node.attributes.values() for node in of.nodes):
        if isinstance(value, graph.Graph):
            yield from _bodies(value)


class RanGraph:
    """The graph that onnxruntime has made of a model, as it writes it; empty where it cannot be read."""

    def __init__(self, path: str | Path | None) -> None:
        graphs: list[graph.Graph] = []
        with suppress(CostError):
            if path is not None:
                graphs += _bodies(graph.read_graph(str(path)))
        constants = list(chain.from_iterable(each.initializers for each in graphs))
        nodes = list(chain.from_iterable(each.nodes for each in graphs))
        given = chain.from_iterable(node.attributes.values() for node in nodes)
        stored = (each.stored for each in chain(constants, given) if isinstance(each, Tensor))
        self.weight_bytes = sum(stored) if graphs else None
        self.constants = {
            each.name: tensor_text(dtypes.name_of(each.dtype), each.dims) for each in constants
        }
        self.nodes = {node.name: node for node in nodes if node.name}
        unnamed = (node for node in nodes if not node.name)
        self._unnamed = grouped(unnamed, attrgetter("op_type"))  # in the order in which they run
        self.makers = {name: node for node in nodes for name in node.outputs if name}
        self.readers: defaultdict[str, list[GraphNode]] = defaultdict(list)
        for node in nodes:
            for name in filter(None, node.inputs):
                self.readers[name].append(node)

    def nodes_of(self, kernels: Sequence[RanKernel]) -> list[GraphNode | None]:
        """Returns the nodes of kernels in the order in which they ran, which tells those without a name."""
        known, unnamed = dict(self.nodes), defaultdict[str, list[str]](list)
        for each in kernels:  # they have the number of a node in place of its name
            number = each.name.removeprefix(f"{each.op_type}_")
            if number.isdecimal() and each.name not in known:
                unnamed[each.op_type].append(each.name)
        for op_type, names in unnamed.items():
            nodes = self._unnamed.get(op_type, ())
            if len(nodes) == len(names):  # else some may be of the body of an If
                known |= zip(names, nodes, strict=True)
        return [known.get(each.name) for each in kernels]

    def operands(self, kernel: RanKernel, node: GraphNode) -> tuple[str, ...]:
        """Returns a kernel's operands, with packed constants, which the profile leaves out, if that is certain."""
        names = list(filter(None, node.inputs))
        found: list[str] = []
        left = kernel.inputs
        for constant in (self.constants.get(name, "") for name in names):
            if constant and left[:1] != (constant,):
                found.append(constant)
            else:
                found += left[:1]
                left = left[1:]
        return kernel.inputs if left or len(found) < len(names) else tuple(found)


class Part(NamedTuple):
    """Nodes that a provider was given together: the nodes of a kernel that it compiles, or a single one."""

    provider: str
    nodes: Sequence[tuple[str, str]]  # Name, which may be empty, and operator


@dataclass(frozen=True, slots=True, eq=False)
class Placed:
    """A kernel with its place in the file."""

    ran: RanKernel  # With the constants that its operands lack in the profile
    nodes: tuple[TypedNode, ...]  # Nodes of the file that it does the work of
    node: TypedNode | None = None  # The first of them, that it is named by; None if it is compiled
    inserted: bool = False  # Whether the runtime has inserted it: no node of the file asks for it
    before: TypedNode | None = None  # The node of the file in front of it, if it was inserted
    after: TypedNode | None = None  # The one behind it

    @property
    def op_type(self) -> str:
        """The operator of the node that it is named by, else its own."""
        return self.ran.op_type if self.node is None else self.node.node.op_type

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


_UNKNOWN: Final = GraphNode("", "", "", (), (), {})
"""GraphNode of a kernel that is not known in the graph that ran."""


def placed(
    profile: OnnxProfile, file: FileGraph, ran: RanGraph, parts: Sequence[Part] = ()
) -> list[Placed]:
    """Returns the kernels of a profile that ran, in order of their first execution."""
    compilers = {kernel.provider for kernel in profile.kernels if _part(kernel) is not None}
    join = _Join(file, ran, [part for part in parts if part.provider in compilers])
    nodes = ran.nodes_of(profile.kernels)
    pairs = zip(profile.kernels, nodes, strict=True)
    return [join.placed(kernel, node or _UNKNOWN) for kernel, node in pairs if kernel.calls]


def _place(nodes: Sequence[TypedNode]) -> str:
    """Returns what a kernel is called by whose first node is in the file."""
    kept = [op.node for op in nodes if op.kind not in graph.QDQ]
    is_named = nodes[0].node.name or not kept
    return printable(nodes[0].name if is_named else node_name(*kept), _LONGEST)


def _part(kernel: RanKernel) -> int | None:
    """Returns which part of the graph a provider has compiled into a kernel; None if it has not.

    onnxruntime names such kernels by provider, operator and the number of the part.
    """
    head = f"{kernel.provider}_{kernel.op_type}_"
    number = kernel.name.removeprefix(head)
    return int(number) if kernel.name.startswith(head) and number.isdecimal() else None


def _multiplies_int8(op: TypedNode) -> bool:
    """Whether a node rounds floats for its products with integers, as MatMulNBits does where it may, by running it."""
    given = op.attributes
    is_known = given.get("bits", 4) != 2 or given.get("block_size") not in (16, 256)
    return given.get("accuracy_level") == 4 and is_known


class _Join:
    """Joins kernels to the nodes of the file, by the graph that onnxruntime has made of it."""

    def __init__(self, file: FileGraph, ran: RanGraph, compiled: Sequence[Part]) -> None:
        self._file, self._ran, self._compiled = file, ran, compiled

    def placed(self, kernel: RanKernel, node: GraphNode) -> Placed:
        """Returns a kernel with its place, by its node in the graph that ran.

        Case 1: a provider has compiled it of a part of the graph.
        Case 2: it converts, or only changes a shape, which no node of the file asks for, and
            stands between two of them.
        Case 3: it does the work of nodes of the file.
        """
        shown = replace(
            kernel,
            name=printable(kernel.name, _LONGEST),
            inputs=self._ran.operands(kernel, node)[:_MOST_TENSORS],
            outputs=kernel.outputs[:_MOST_TENSORS],
        )
        if (number := _part(kernel)) is not None:  # Case 1
            nodes, count = self._within(self._compiled[number : number + 1])
            macs = self._file.macs(nodes)
            return Placed(replace(shown, nodes=count, macs=macs, is_compiled=True), nodes)
        nodes = self._nodes(kernel, node)
        nodes = self._contraction_first(nodes)
        asked = {op.node.op_type for op in nodes}
        is_asked_for = self._file.named(kernel.name) or kernel.op_type in asked
        is_conversion = kernel.op_type in CONVERSIONS and not is_asked_for
        if is_conversion or (kernel.op_type in graph.CARRIES and not nodes):  # Case 2
            before, after = self._around(kernel, node)
            near = [each for each in (after, before) if each is not None]
            shown = replace(shown, layer=self._layer_of(near))
            return Placed(shown, (), None, is_conversion, before, after)
        place = _place(nodes) if nodes else None  # Case 3
        found: dict[str, Any] = {
            "macs": self._file.macs(nodes),
            "layer": self._layer_of(nodes[:1]),
            "parts": self._parts_of(nodes[1:]),
            "rounds_to": "int8" * (kernel.provider == CPU and any(map(_multiplies_int8, nodes))),
            "is_scaling": bool(nodes) and all(scaled_by(self._file, op) for op in nodes),
            "weights": sum(each.stored for each in self._file.weights(nodes)),
        }
        shown = replace(shown, node=place, nodes=len(nodes), **found)
        return Placed(shown, nodes, next(iter(nodes), None))

    def _contraction_first(self, nodes: tuple[TypedNode, ...]) -> tuple[TypedNode, ...]:
        """Puts a contraction of a kernel's nodes before the others: it is named by that."""
        return tuple(sorted(nodes, key=lambda op: not self._file.is_contraction(op)))

    def _layer_of(self, nodes: Sequence[TypedNode]) -> str | None:
        """Returns the layer of the first of some nodes, of a contraction if there is one."""
        found = self._contraction_first(tuple(layer_of(self._file, op) for op in nodes))
        return printable(found[0].name, _LONGEST) if found else None

    def _parts_of(self, nodes: Sequence[TypedNode]) -> tuple[str, ...]:
        """Returns the names of nodes that compute something in each run."""
        found = (op for op in nodes if not graph.converts(op.kind) and not op.outputs[0].constant)
        return tuple(printable(op.name, _LONGEST) for op in islice(found, _MOST_PARTS))

    def _within(self, parts: Sequence[Part]) -> tuple[tuple[TypedNode, ...], int]:
        """Returns those nodes of the file in parts that are known by their names, and the number of all."""
        file, names = self._file, [name for part in parts for name, _ in part.nodes]
        known = (file.named(name) or file.named_before(name) for name in names if name)
        found = tuple(dict.fromkeys(filter(None, known)))
        return found, len(found) + names.count("")

    def _nodes(self, kernel: RanKernel, node: GraphNode) -> tuple[TypedNode, ...]:
        """Returns the nodes that a kernel does the work of, the one of its name first.

        Case 1: no node has its name: what its node covers, or the nearest node by other marks.
        Case 2: what its node covers, with the node of its name among it.
        Case 3: the node of its name alone, since it covers others.
        """
        covered, own = self._covered(node), self._file.named(kernel.name)
        if own in covered:  # Case 2
            return tuple(dict.fromkeys((own, *covered)))
        near = own or self._multiplying(kernel)
        found = () if near is None else (near,)
        return found if own else covered or found  # Case 3, Case 1

    def _covered(self, node: GraphNode) -> tuple[TypedNode, ...]:
        """Returns the nodes of the file between what a node reads and what it makes; none if it is not certain."""
        file, known = self._file, chain.from_iterable(map(self._read_as, node.inputs))
        reads = {"", *map(_as_in_file, known)}
        made = (_as_in_file(self._made_for(each, node)) for each in node.outputs)
        left = [name for name in made if name not in reads]
        beyond = {*file.bound.values, *left}
        found: dict[TypedNode, None] = {}
        while left and len(found) <= _MOST:
            tensor = left.pop()
            op = file.maker_of(tensor)
            if op is None:
                if tensor in beyond:
                    return ()  # it reaches beyond what the node reads: the name means another
            elif op not in found:
                found[op] = None
                left += [name for name in op.node.inputs if name not in reads]
        return tuple(found) if len(found) <= _MOST else ()

    def _read_as(self, tensor: str) -> Iterator[str]:
        """Yields the names that a tensor that is read may have in the file: before its axes were put in another order, too."""
        yield tensor
        maker = self._ran.makers.get(tensor, _UNKNOWN)
        if self._file.maker_of(_as_in_file(tensor)):
            return
        if op := self._of_name(maker):  # the first of all nodes that make it
            yield from (self._made_for(tensor, maker), *op.node.outputs)
        elif maker.op_type in _LAYOUTS:
            yield from self._read_as(maker.inputs[0])

    def _made_for(self, tensor: str, node: GraphNode) -> str:
        """Returns the tensor of the file that a result is a step to, or is in another order of axes.

        Nodes of functions, such as HardSwish, have no names, and tensors between them are not in the file.
        """
        readers = self._ran.readers.get(tensor, ())
        if self._file.maker_of(_as_in_file(tensor)):
            return tensor
        for reader in readers:
            op = self._multiplying(reader)
            given = {} if op is None else dict(zip(reader.inputs, op.node.inputs, strict=False))
            if op is not None and op.node.op_type == reader.op_type and tensor in given:
                return given[tensor]
            if reader.op_type in _LAYOUTS or not (node.name or reader.name or readers[1:]):
                return self._made_for(reader.outputs[0], node)
        return tensor

    def _of_name(self, node: GraphNode | RanKernel) -> TypedNode | None:
        """Returns the node of the file that a node of the graph that ran has its name of."""
        return self._file.named(node.name) or self._file.named_before(node.name)

    def _multiplying(self, node: GraphNode | RanKernel) -> TypedNode | None:
        """Returns the node that a kernel multiplies for: a Conv that is fused with the Relu behind it may have the Relu's name."""
        op, kind = self._of_name(node), next((it for it in _FUSED if it in node.op_type), None)
        if op is None or kind is None or kind in op.node.op_type:
            return op
        front = islice(self._file.in_front(op), 1, 1 + _MOST_BEHIND)
        return next((each for each in front if each.node.op_type == kind), op)

    def _around(
        self, kernel: RanKernel, node: GraphNode
    ) -> tuple[TypedNode | None, TypedNode | None]:
        """Returns the nodes of the file in front of an inserted kernel and behind it."""
        if node is _UNKNOWN:
            named = self._file.named_before(kernel.name)
            return named, named  # on which side of it is not known
        makers = map(self._ran.makers.get, node.inputs[:1])
        readers = (reader for name in node.outputs for reader in self._ran.readers.get(name, ()))
        return self._first_of(makers), self._first_of(readers)

    def _first_of(self, nodes: Iterable[GraphNode | None]) -> TypedNode | None:
        """Returns the first node of the file that is known of nodes of the graph that ran."""
        for node in filter(None, nodes):
            covered = self._contraction_first(self._covered(node))
            own = self._file.named(node.name)
            if found := own or next(iter(covered), self._file.named_before(node.name)):
                return found
        return None
