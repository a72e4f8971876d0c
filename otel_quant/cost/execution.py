"""The operations of a walk as they are executed: how often, at what cost, in what memory.

There are two ways of reading the operators' formulas: ``corrected`` is what goes on spans;
``onnx_tool`` gives the figures of onnx_tool 1.0.1 so that numbers compare, and the corrected ones
where that tool has none.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, chain
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from otel_quant.cost import dtypes, operation
from otel_quant.cost.operation import Body, TypedNode, UnknownError, Value, executed, reason_of
from otel_quant.cost.operators import operator_of
from otel_quant.cost.operators.rule import Formula, Rule, total
from otel_quant.cost.structure import Tensor
from otel_quant.cost.walk import Walk

if TYPE_CHECKING:
    from otel_quant.cost.obstacles import Hindered, Obstacle

_MAX_MACS: Final = (1 << 63) - 1
"""MACs that a node may have: what an attribute of a span can hold, and years of a GPU's work."""

_TOO_MANY_MACS: Final = f"that is more than {_MAX_MACS:,} MACs, which no machine runs"


class Macs(NamedTuple):
    """MACs of a node."""

    contraction: int  # Multiply-adds of contractions
    total: int  # All of them


class RuleSet:
    """A way of reading the operators' formulas; this one is ``corrected``."""

    view = "fused"  # What memory is of unless told

    def macs(self, op: TypedNode) -> Macs:
        """Returns what one execution of a node costs, its bodies left out."""
        operator = operator_of(op.kind)
        if (
            operator.has_results
            and op.outputs
            and op.outputs[0].constant  # all() takes as long as the rest of this
            and all(value.constant for value in op.outputs)
        ):
            return Macs(0, 0)
        return _by_formulas(op, operator)

    def counts(self, constant: Tensor, *, of_node: bool) -> bool:
        """Whether a constant is a parameter; ``of_node``: of a Constant node."""
        return True

    def takes_memory(self, result: Value) -> bool:
        """Whether a result takes memory when the model runs."""
        return not result.constant

    def uncounted(self, results: Sequence[Value]) -> int:
        """Returns the bytes of results that are no memory of their node."""
        return 0


class _OnnxTool(RuleSet):
    """What onnx_tool does otherwise beside the formulas.

    A rank-0 tensor has no element, what depends only on constants is computed in each run, and a
    Constant node's tensor is no parameter.
    """

    view = "file"

    def macs(self, op: TypedNode) -> Macs:
        operator = operator_of(op.kind)
        if operator.tool is None:
            return _by_formulas(op, operator)
        inner = _counted(operator.contraction, op)
        total = _counted(operator.tool, op)
        return Macs(min(inner, total), total)

    def counts(self, constant: Tensor, *, of_node: bool) -> bool:
        return bool(constant.dims) and not of_node

    def takes_memory(self, result: Value) -> bool:
        return True

    def uncounted(self, results: Sequence[Value]) -> int:
        return sum(value.bytes or 0 for value in results if value.shape == ())


CORRECTED: Final = RuleSet()
RULE_SETS: Final = {"corrected": CORRECTED, "onnx_tool": _OnnxTool()}
"""By the names that users give."""


def _by_formulas(op: TypedNode, operator: Rule) -> Macs:
    if not operator.costed:
        raise UnknownError(operator.words)
    inner = _counted(operator.contraction, op)
    return Macs(inner, inner + _counted(operator.rest, op))


def _counted(formula: Formula | None, op: TypedNode) -> int:
    """Checks that a formula gives a count; of a kernel below zero or a rank too low it gives none."""
    macs: object = formula(op) if formula is not None else 0
    if not isinstance(macs, int) or macs < 0:
        problem = "its cost formula gives no count of MACs: a length or attribute is wrong"
        raise UnknownError(problem)
    if macs > _MAX_MACS:
        raise UnknownError(_TOO_MANY_MACS)
    return macs


class Execution(NamedTuple):
    """An operation as it is executed."""

    op: TypedNode  # The operation
    times: int | None  # How often; None if that is not known
    macs: Macs | None  # Of one execution; None if they are not known
    unknown: str | None  # Why ``times`` or ``macs`` is not known; None if both are
    idle: Sequence[TypedNode] = ()  # Of branches not taken, whose constants it answers for
    # Of a node with branches that takes one on a condition that is not known: which is taken here,
    # and the MACs of each, None where they are not known
    assumed: tuple[int, Sequence[int | None]] | None = None

    def all_macs(self) -> tuple[Macs | None, str | None]:
        """Returns the MACs of all its executions, or None and why they are not known."""
        if self.macs is None or self.macs.total == 0:  # none remain none, however often
            return self.macs, self.unknown
        macs = self.macs
        if self.times is None:
            return None, self.unknown
        if self.times != 1:  # by one the integers would be made anew, for each node
            macs = Macs(macs.contraction * self.times, macs.total * self.times)
        if macs.total > _MAX_MACS:
            return None, f"{self.op.title}: it runs {self.times:,} times; {_TOO_MANY_MACS}"
        return macs, None


def executions(
    ops: Iterable[TypedNode],
    rules: RuleSet = CORRECTED,
    times: int | None = 1,
    unknown: str | None = None,
) -> Iterator[Execution]:
    """Yields operations in order of execution, bodies in place; of branches the taken or dearest."""
    for op in ops:
        if op.branches:
            yield from _of_branches(op, rules, times, unknown)
        elif op.bodies:
            yield from _of_body(op, rules, times, unknown)
        else:
            yield _execution(op, rules, times, unknown)


def _execution(op: TypedNode, rules: RuleSet, times: int | None, unknown: str | None) -> Execution:
    macs: Macs | None = None
    try:
        macs = rules.macs(op)
    except operation.RULE_ERRORS as error:
        unknown = unknown or _unsized(op) or reason_of(error, op, "cost rule")
    return Execution(op, times, macs, unknown)


def _of_body(
    op: TypedNode, rules: RuleSet, times: int | None, unknown: str | None
) -> Iterator[Execution]:
    """Yields a loop or a call, which itself is nothing, and what it runs."""
    (body,) = op.bodies
    why = unknown
    if body.times is None:
        why = unknown or body.unknown
        yield Execution(op, times, None, why)
    elif not op.inlined:
        yield _execution(op, rules, times, unknown)
    yield from executions(body.ops, rules, multiplied(times, body.times), why)


def _of_branches(
    op: TypedNode, rules: RuleSet, times: int | None, unknown: str | None
) -> Iterator[Execution]:
    """Yields an If and the branch that it takes; the dearest where the condition is not known."""
    costed = [list(executions(body.ops, rules, times, unknown)) for body in op.branches]
    taken, assumed = op.taken, None
    if taken is None:
        macs = [[multiplied(it.macs and it.macs.total, it.times) for it in runs] for runs in costed]
        known = [sum(filter(None, each)) for each in macs]
        taken = known.index(max(known))
        assumed = taken, list(map(total, macs))
    inner = costed.pop(taken)
    idle = [each for run in chain.from_iterable(costed) for each in (run.op, *run.idle)]
    yield _execution(op, rules, times, unknown)._replace(idle=idle, assumed=assumed)
    yield from inner


def multiplied(count: int | None, times: int | None) -> int | None:
    """Returns a count times a number; None if either is not known."""
    return None if count is None or times is None else count * times


def _unsized(op: TypedNode) -> str | None:
    """Why an operator that has a formula could not give a shape to put into it; None if it could."""
    if not operator_of(op.kind).costed:
        return None
    unsized = (value.unknown for value in op.outputs if value.unknown and value.size is None)
    return next(unsized, None)


_MAX_STEPS: Final = 16  # Operators that are looked through behind one operand

_DEQUANTIZED: Final = dtypes.QUANTIZED | {dtypes.UNKNOWN: "", dtypes.INT32: ""}
"""What a DequantizeLinear's operand is quantized to; a bias of int32 is no such type."""

_WIDTHS: Final = {"int2": 0, "int4": 1, "float4": 2, "float8": 3, "int8": 4, "int16": 5}


def precision_of(op: TypedNode, makers: Mapping[Value, TypedNode]) -> str:
    """Returns what a contraction executes in.

    Two quantized operands execute in the wider of their types; a quantized weight against a
    float activation is dequantized first, which is ``weight-only``. An operand counts as
    quantized if it is one, or a DequantizeLinear makes it.
    """
    rule = operator_of(op.kind).precision
    if rule.executes_in is not None:
        try:
            return rule.executes_in(op)
        except UnknownError:  # an attribute of the wrong type
            return "unknown"
    stored = [_stored(op.input(i), makers) for i in rule.operands if op.has(i)]
    if stored and all(stored):
        return max(stored, key=lambda name: _WIDTHS.get(name, -1))
    if len(stored) == 2 and stored[1]:
        return f"{stored[1]} weight-only"
    return dtypes.name_of(op.dtype(rule.operands[0]))


def _stored(value: Value, makers: Mapping[Value, TypedNode]) -> str:
    """The quantized type behind an operand; empty if it is a float one."""
    for _ in range(_MAX_STEPS):
        if value.dtype in dtypes.QUANTIZED:
            return dtypes.QUANTIZED[value.dtype]
        maker = makers.get(value)
        if maker is None or not maker.has(0):
            return ""
        rule, value = operator_of(maker.kind).precision, maker.input(0)
        if rule.dequantizes:
            return _DEQUANTIZED.get(value.dtype, dtypes.name_of(value.dtype))
        if not rule.moves:
            return rule.rounds_to
    return ""


class MemoryAccess(NamedTuple):
    """Tensors in memory that an operation reads and makes as a runtime executes it."""

    reads: Sequence[Value | None]
    makes: Sequence[Value]  # Empty if it is part of another's kernel


Kernels: TypeAlias = Mapping[TypedNode, MemoryAccess]
"""What operations read and make where a runtime does not execute them as they are in the file."""


_HALVES: Final = frozenset({"float16", "bfloat16"})

NO_KERNEL_FOR_TYPE: Final = "no kernel"
"""What stands in place of a type of a contraction because of which a model cannot be loaded."""


class AsStored:
    """What contractions are expected to execute in: what they ask for, of a float model."""

    kernels: Kernels = MappingProxyType({})

    def __init__(self) -> None:
        self.quantized = 0  # Contractions of dequantized integers
        self.in_float: dict[Obstacle, Hindered] = {}  # Those expected to run in float
        self.on_loading: dict[Obstacle, Hindered] = {}  # Float ones expected on integers
        self.runtime = ""  # Title of the runtime that this is of, if there are any

    def expected(self, op: TypedNode, stored: str) -> str:
        """Returns the type that a contraction is expected to execute in; they come in order.

        On x86-64 few have a kernel for float16: others run in float32, between conversions. None
        has one for bfloat16, and the model cannot be loaded. Of Arm it is not known.
        """
        if stored not in _HALVES:
            return stored
        from otel_quant.cost.runtimes import FLOAT16, runtime_here  # of few models alone

        here = runtime_here()
        if here.arm or (stored == "float16" and op.kind in FLOAT16):
            return stored
        self.runtime = here.title
        return "float32" if stored == "float16" else NO_KERNEL_FOR_TYPE


def named_results(op: TypedNode) -> list[Value]:
    """Returns the results of an operation that are not left out."""
    return [value for value, name in zip(op.outputs, op.node.outputs, strict=False) if name]


def branches_taken(op: TypedNode) -> Sequence[Body]:
    """Returns the branch that an operation takes, all of them where that is not known."""
    return op.branches if op.taken is None else [op.branches[op.taken]]


VIEWS: Final = ("fused", "file")
"""Operators as onnxruntime runs them, or every node by itself."""


class MemoryView:
    """Memory in one view, added up node by node."""

    def __init__(self, kernels: Kernels, walk: Walk, rules: RuleSet = CORRECTED) -> None:
        self._kernels = kernels
        self._rules = rules
        self.bytes = 0
        self.peak_bytes = _Timeline(kernels).peak(walk)
        self.unsized = 0

    def add(self, op: TypedNode, held: int) -> tuple[int | None, int | None]:
        """Adds a node that is executed, with the bytes of constants that it is the first to read.

        Returns the bytes of these and its results, and the bytes that it moves; None where they
        are not known.
        """
        if op.kind == "Constant":
            self.bytes += held
            return held, 0
        read = self._read(op)
        if operator_of(op.kind).results_in_bodies:
            self.bytes += held
            return held, read
        results = self.results(op)
        sizes = [value.bytes for value in results]
        self.unsized += sizes.count(None)
        written = total(sizes)
        if written is None:
            return None, None
        folded = _folded(op, held) if self._kernels else 0
        memory = held + folded + written - self._rules.uncounted(results)
        self.bytes += memory
        return memory, total((read, written))

    def _read(self, op: TypedNode) -> int | None:
        """Bytes that one execution of a node reads; None if they are not known."""
        reads, _ = self._kernels.get(op, (op.inputs, ()))
        operands = dict.fromkeys(filter(None, reads))  # one given twice is read once
        sizes = [it.bytes if it.weight is None else it.weight.stored for it in operands]
        return total(sizes)

    def results(self, op: TypedNode) -> list[Value]:
        """Returns what takes memory of an operation's results when the model runs."""
        kernel = self._kernels.get(op)
        made = named_results(op) if kernel is None else kernel.makes
        return list(filter(self._rules.takes_memory, made))


def memory_views(walk: Walk, kernels: Kernels, rules: RuleSet = CORRECTED) -> dict[str, MemoryView]:
    """Returns an empty view of memory for each of ``VIEWS``."""
    file, kernels = MemoryView({}, walk, rules), {**_InOne(walk, kernels).kernels(), **kernels}
    return {"fused": MemoryView(kernels, walk, rules) if kernels else file, "file": file}


_ACTIVATIONS: Final = dict.fromkeys(("HardSigmoid", "LeakyRelu", "Relu", "Sigmoid", "Tanh"), "")

_BEHIND: Final[Mapping[str, Mapping[str, str]]] = {
    "Conv": {**_ACTIVATIONS, "Clip": "", "BatchNormalization": "Conv", "Add": "Conv"},
    "Gemm": {**_ACTIVATIONS, "Elu": "", "Softplus": ""},
    "MatMul": {"Add": "Gemm"},
    "MatMulInteger": {"Cast": "as floats"}, "as floats": {"Mul": "scaled"}, "scaled": {"Add": ""},
}  # fmt: skip
"""Contraction -> what onnxruntime makes one kernel with it -> where to look for what follows that."""

_IN_BLOCKS: Final = frozenset(
    {"AveragePool", "Conv", "GlobalAveragePool", "GlobalMaxPool", "MaxPool"}
)
"""Operators whose results another Conv can add to its own, as onnxruntime has the channels in blocks then."""


class _InOne:
    """What onnxruntime runs as one kernel of a contraction of floats, or of dynamic integers, and what alone reads it."""

    def __init__(self, walk: Walk, kernels: Kernels) -> None:
        ops, kept = list(walk.ops), list(walk.outputs)
        for op in ops:  # with what bodies have, which are added
            for body in (*op.bodies, *op.branches):
                ops += body.ops
                kept += body.outputs
        self._ops, self._kernels = ops, kernels
        self._read = Counter(chain(chain.from_iterable(op.given for op in ops), kept))
        self._readers = {value: op for op in ops for value in op.given}
        self._makers = {value: op for op in ops for value in op.outputs}
        self._in_blocks: set[Value] = set()
        self._found: dict[TypedNode, MemoryAccess] = {}

    def kernels(self) -> Kernels:
        """Returns what each such contraction reads and makes; what is a part of it makes nothing."""
        for op in self._ops:
            if op in self._kernels or op in self._found or not op.outputs:
                continue
            is_dynamic = op.kind == "MatMulInteger"
            if is_dynamic or op.dtype(0) == dtypes.FLOAT:
                self._add(op, is_dynamic=is_dynamic)
        return self._found

    def _add(self, op: TypedNode, *, is_dynamic: bool) -> None:
        state, end, reads = op.kind, op, list(op.inputs)
        while (after := self._behind(state, end.outputs[0])) is not None:
            reads += [value for value in after.given if value is not end.outputs[0]]
            self._found[after] = MemoryAccess([], [])
            state, end = _BEHIND[state][after.kind], after
        if op.kind in _IN_BLOCKS:
            self._in_blocks.add(end.outputs[0])
        if end is op:
            return
        maker = self._makers.get(op.input(0)) if is_dynamic else None
        if maker is not None and self._read[maker.outputs[0]] == 1:
            self._found[maker], reads[0] = MemoryAccess([], []), maker.input(0)
        self._found[op] = MemoryAccess(reads, end.outputs)

    def _behind(self, state: str, value: Value) -> TypedNode | None:
        """Returns what is in the kernel of what makes a value; None if nothing is."""
        after = self._readers.get(value)
        is_apart = after is None or self._read[value] > 1 or after in self._kernels
        if after is None or is_apart or after.kind not in _BEHIND.get(state, ()):
            return None
        others = [each for each in after.given if each is not value]
        if state == "Conv" and after.kind == "Add":
            are_alike = all(it in self._in_blocks and it.shape == value.shape for it in others)
            return after if are_alike else None
        return after if state == "as floats" or all(each.constant for each in others) else None


def _folded(op: TypedNode, held: int) -> int:
    """What quantizing a constant when the model is loaded adds to its bytes, or takes away."""
    if not (operator_of(op.kind).precision.quantizes and op.outputs and op.has(0)):
        return 0
    weight, size = op.input(0).weight, op.outputs[0].bytes
    if weight is None or size is None or held < weight.stored:
        return 0
    return size - weight.stored


class _Timeline:
    """When tensors are made and read for the last time.

    A tensor lives from the operation that makes it to its last reader; inputs from the
    start, outputs to the end; what a body reads from outside as long as the body runs. Constants
    do not count. A view keeps the tensor behind it alive. Tensors of unknown size count nothing.
    """

    def __init__(self, kernels: Kernels) -> None:
        self.now = 0
        self._kernels = kernels
        self._behind: dict[Value, Value] = {}
        self._index: dict[Value, int] = {}  # of each tensor in the arrays
        self._made = array("q")  # tensors may be many, and numbers in lists take five times as much
        self._last = array("q")
        self._unchanged: set[Value] = set()
        self._around: list[set[Value]] = []

    def peak(self, walk: Walk) -> int:
        """Returns the most bytes of activations alive at once."""
        for value in walk.inputs.values():
            self.make(value)
        self.run(walk.ops)
        self.now += 1
        for value in walk.outputs:
            self.read(value)
        changes = [0] * (self.now + 2)
        for value, made, last in zip(self._index, self._made, self._last, strict=True):
            size = 0 if value in self._unchanged else value.bytes or 0
            changes[made] += size
            changes[last + 1] -= size
        return max(accumulate(changes))

    def make(self, value: Value) -> None:
        """Notes that a tensor comes into being, if its memory is its own."""
        held = self._behind.get(value, value)
        index = self._index.get(held)
        if index is not None:
            self._last[index] = self.now
        elif not held.constant:
            self._index[held] = len(self._made)
            self._made.append(self.now)
            self._last.append(self.now)

    def read(self, value: Value) -> None:
        """Notes that a tensor is still needed."""
        held = self._behind.get(value, value)
        index = self._index.get(held)
        if index is not None:
            self._last[index] = self.now
        if self._around:
            self._around[-1].add(held)

    def run(self, ops: Sequence[TypedNode]) -> None:
        """Runs operations one after the other, calls of functions in place."""
        for op in executed(ops):
            self.now += 1
            reads, makes = self._kernels.get(op, (op.inputs, op.outputs))
            for value in reads:
                if value is not None:
                    self.read(value)
            if operator_of(op.kind).view and makes and reads and reads[0] is not None:
                # The root of its operand, not the operand: views of views may be many.
                self._behind[makes[0]] = self._root(reads[0])
            if op.bodies or op.branches:
                self._run_bodies(op)
            for value in makes:
                self.make(value)

    def _run_bodies(self, op: TypedNode) -> None:
        """Runs what an operation runs; its operands and what is captured live until then."""
        start = self.now
        self._around.append(set(map(self._root, op.given)))
        for body in op.bodies:
            self._run_loop(body, op.outputs)
        for body in branches_taken(op):
            self._run_body(body)
        self.now += 1
        used = self._around.pop()
        for held in used:
            index = self._index.get(held)
            if index is not None and self._made[index] < start:
                self._last[index] = self.now
        if self._around:
            self._around[-1] |= used

    def _run_loop(self, body: Body, results: Sequence[Value]) -> None:
        for value in results[len(body.carried) :]:  # a slice comes with each iteration
            self.make(value)
        self._run_body(body)
        for item, result in zip(body.carried, results, strict=False):
            if item.first is not None and self._root(item.leaving) is item.entering:
                # No iteration changes it: it is the same tensor all the time.
                self._unchanged.add(item.entering)
                self._behind[result] = self._root(item.first)

    def _run_body(self, body: Body) -> None:
        if body.times == 0:
            return
        self.now += 1
        for item in body.carried:
            if body.times == 1 and item.first is not None:
                self._behind[item.entering] = self._root(item.first)
            self.make(item.entering)
        self.run(body.ops)
        for value in body.outputs:
            self.read(value)

    def _root(self, value: Value) -> Value:
        return self._behind.get(value, value)
