"""Which QuantizeLinear and DequantizeLinear nodes onnxruntime makes part of the kernel between them.

The floats between them are then never in memory. :mod:`otel_quant.cost.runtimes` lists the operators
that have such a kernel; any other node runs as it is in the file. A test holds this against the nodes that
onnxruntime runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain
from math import inf, nan
from typing import Final, NamedTuple

from otel_quant.cost import dtypes, runtimes
from otel_quant.cost.execution import AsStored, MemoryAccess, named_results
from otel_quant.cost.operation import Operation, Value, executed
from otel_quant.cost.operators import operator_of
from otel_quant.cost.runtimes import (
    BYTES,
    CARRIES,
    FUSIONS,
    Fusion,
    Obstacle,
    Onnxruntime,
    Quantized,
    numbers,
    runtime_here,
    same,
)

QUANTIZES: Final = frozenset({"QuantizeLinear", "com.microsoft:QuantizeLinear"})
DEQUANTIZES: Final = frozenset({"DequantizeLinear", "com.microsoft:DequantizeLinear"})

_CLAMPS: Final = frozenset({"Clip", "Relu"})

_OPERANDS: Final = {
    **dict.fromkeys(_CLAMPS, 1),
    **dict.fromkeys(QUANTIZES | DEQUANTIZES, 2),
    **{kind: rule.first + (rule.many or 1) for kind, rule in FUSIONS.items()},
}
"""Operands that have to be there, else a model is broken and the node is left as it is."""

_LIMITS: Final = {
    dtypes.INT8: (-128, 127),
    dtypes.UINT8: (0, 255),
    dtypes.INT16: (-32768, 32767),
    dtypes.UINT16: (0, 65535),
}


class Fused(NamedTuple):
    """What a runtime makes of a quantized graph, bodies included."""

    # What operations read and make where it differs from the file
    kernels: dict[Operation, MemoryAccess]
    on_integers: set[Operation]  # Operations that have a kernel on integers
    # Contractions of floats by integers that are one kernel (MatMulNBits), and those integers
    by_weights: dict[Operation, Value]
    obstacles: dict[Operation, Obstacle]  # Why others, whose operands are quantized, have none
    runtime: Onnxruntime  # What runs it


def fused_kernels(
    ops: Sequence[Operation], outputs: Iterable[Value], runtime: Onnxruntime | None = None
) -> Fused:
    """Returns where kernels on integers are used, by the onnxruntime that is here unless told."""
    fused = Fused({}, set(), {}, {}, runtime or runtime_here())
    _fuse(ops, outputs, fused)
    return fused


def _fuse(ops: Sequence[Operation], outputs: Iterable[Value], fused: Fused) -> set[Value]:
    """Fuses one graph; returns the values that it and its bodies read."""
    graph = list(executed(ops))
    captured: set[Value] = set()
    for op in graph:
        for body in (*op.bodies, *op.branches):
            captured |= _fuse(body.ops, body.outputs, fused)
    found = _Graph(list(filter(_is_complete, graph)), set(outputs), captured, fused)
    fused.kernels.update(found.kernels())
    fused.on_integers.update(found.fused)
    return found.read


def _is_complete(op: Operation) -> bool:
    return bool(op.outputs) and all(map(op.has, range(_OPERANDS.get(op.kind, 0))))


class _Graph:
    """The operations of one graph, bodies left out: a kernel does not reach into a body.

    First backward, to find what is quantized as soon as it is made:

    Case 1: one QuantizeLinear alone reads a value.
    Case 2: a Relu or Clip limits its result no more than the quantization behind it does. It is
        left out.
    Case 3: an operator only moves elements. The quantization is moved before it.

    Then forward, to find what is integers:

    Case 4: a DequantizeLinear takes them.
    Case 5: a QuantizeLinear makes the same ones again of what was dequantized. It is left out.
    Case 6: an operator has a kernel on integers (``_kernel``), or for floats by integers.
    Case 7: a quantization was moved to where a value is made.
    """

    def __init__(
        self, ops: Sequence[Operation], outputs: set[Value], captured: set[Value], into: Fused
    ) -> None:
        self._ops = ops
        self._runtime, self._rules = into.runtime, into.runtime.rules
        self._by_weights, self._obstacles = into.by_weights, into.obstacles
        self._kept = kept = outputs | captured
        self._kinds = {value: op.kind for op in ops for value in op.outputs}
        self._twins = _twins(ops, kept)
        reading = [
            (value, op)
            for op in ops
            if op.outputs[0] not in self._twins
            for value in op.inputs
            if value is not None
        ]
        self._readers = dict(reading)  # The last one
        self._edges = Counter(value for value, _ in reading)
        # How many operands read a constant of one element. onnxruntime makes those one.
        self._scalars = Counter(
            same(value) for value, _ in reading if value.constant and value.shape == ()
        )
        self.read = kept | self._edges.keys()
        quantizers = {op.input(0) for op in ops if op.kind in QUANTIZES}
        self._quantizers = quantizers
        # Floats that are made in any case
        self._floats = captured | quantizers | (kept & self._edges.keys())
        self._wanted: dict[Value, Quantized] = {}
        self._held: dict[Value | None, Quantized] = {}
        self._foreign: set[Value] = set()  # Made by operators that dequantize as others do
        self.fused: dict[Operation, Sequence[Quantized]] = {}
        self._clamped: dict[Value, Value] = {}
        self._only_quantizes: set[Operation] = set()
        self._at_rest: set[Value] = set()  # quantizations are moved before operators are left out
        self._shares = self._shared()

    def _shared(self) -> dict[Value, int]:
        """How many nodes read what a QuantizeLinear makes, each with a DequantizeLinear of its own."""
        found = Counter[Value]()
        for op in self._ops:
            if op.has(0):
                reads = self._reads(op.outputs[0]) if op.kind in DEQUANTIZES else 1
                found[self._first(op.input(0))] += reads
        return {
            value: reads + (value in self._kept)
            for value, reads in found.items()
            if self._kinds.get(value) in QUANTIZES
        }

    def _first(self, integers: Value) -> Value:
        """The integers that others are equal to."""
        return self._twins.get(integers, integers)

    def _reads(self, value: Value) -> int:
        """How many operands read a value, those outside the graph as one."""
        return self._edges[value] + (value in self._kept)

    def _alone(self, value: Value) -> bool:
        """Whether one operand, and nothing outside, reads a value."""
        return self._edges[value] == 1 and value not in self._kept

    def _dtype(self, integers: Value, zero_point: Value | None, readers: int) -> int:
        """The type of the results of a QuantizeLinear when they are run.

        On x86-64 onnxruntime makes int8 uint8 between two conversions that no others share.
        """
        made_unsigned = (
            integers.dtype == dtypes.INT8
            and not self._runtime.arm
            and readers == 1
            and zero_point is not None
            and runtimes.is_single(zero_point)
        )
        return dtypes.UINT8 if made_unsigned else integers.dtype

    def _conversion(self, op: Operation, integers: Value) -> Quantized:
        """What a node that quantizes or dequantizes makes or takes."""
        zero_point = op.input(2) if op.has(2) else None
        dtype = self._dtype(integers, zero_point, self._shares.get(integers, 0))
        return Quantized(integers, dtype, op.input(1), zero_point, op.attributes)

    def _moved(self, held: Quantized, value: Value) -> Quantized:
        """What stands for another tensor with the same scale."""
        integers = Value(held.value.dtype, value.shape, name=value.name)
        dtype = self._dtype(integers, held.zero_point, self._reads(value))
        return Quantized(integers, dtype, held.scale, held.zero_point, node=False)

    def kernels(self) -> dict[Operation, MemoryAccess]:
        """Returns what its operations read and make where it differs from the file."""
        operating = [op for op in self._ops if op.has(0)]
        for op in reversed(operating):
            self._look_behind(op)
        for op in operating:
            self._look_ahead(op)
        return self._accesses()

    def _look_behind(self, op: Operation) -> None:
        value, result = op.input(0), op.outputs[0]
        wanted = self._wanted.get(result)
        if op.kind in QUANTIZES:
            if self._alone(value) and result not in self._twins:
                self._wanted[value] = self._conversion(op, result)  # Case 1
        elif wanted is None:
            return
        elif op.kind in _CLAMPS and _clamps_nothing(op, wanted):
            self._leave_out(op, wanted)  # Case 2
        elif (
            op.kind in CARRIES
            and wanted.even
            and self._alone(value)
            and result not in self._at_rest
            and value in self._kinds
            and self._kinds[value] not in DEQUANTIZES
        ):
            self._wanted[value] = self._moved(wanted, value)  # Case 3

    def _leave_out(self, op: Operation, wanted: Quantized) -> None:
        """Leaves out a Relu or Clip that the quantization behind it makes superfluous."""
        value, is_alone = op.input(0), self._alone(op.input(0))
        if wanted.node or (is_alone and self._kinds.get(value) in FUSIONS.keys() - CARRIES):
            self._clamped[op.outputs[0]] = value
            if is_alone:
                self._wanted[value] = wanted
                self._at_rest.add(value)
        else:  # what is moved has no node that would take this one's place
            self._only_quantizes.add(op)

    def _look_ahead(self, op: Operation) -> None:
        result = op.outputs[0]
        if op.kind in DEQUANTIZES:  # Case 4
            self._held[result] = self._conversion(op, self._first(op.input(0)))
        elif op.kind in QUANTIZES:  # Case 5
            source = self._held.get(self._source(op))
            is_same = source is not None and source.equals(self._conversion(op, result))
            if source is not None and is_same and result not in self._kept:
                self._twins[result] = source.value
        else:
            self._look_at(op)
            wanted = self._wanted.get(result)
            if wanted is not None and not wanted.node:  # Case 7
                self._held.setdefault(result, wanted)

    def _look_at(self, op: Operation) -> None:
        """Case 6: notes the kernel of an operator, or why it has none."""
        precision, rule = operator_of(op.kind).precision, FUSIONS.get(op.kind)
        if precision.dequantizes or precision.rounds_to:
            self._foreign.add(op.outputs[0])
        if rule is None or op.opset < rule.since:
            return
        operands = [op.inputs[i] for i in rule.operands(op)]
        held = [self._held[value] for value in operands if value in self._held]
        found: Sequence[Quantized] | Obstacle | None
        if rule.weight and (weights := self._weights(op)) is not None:
            found = self._against_weights(op, weights)
            if found is None:
                self._by_weights[op] = weights.value
                return
        elif not self._foreign.isdisjoint(operands):
            found = runtimes.FOREIGN
        elif len(held) == len(operands):
            found = self._kernel(op, rule, held)
        else:  # of floats
            return
        if isinstance(found, Obstacle):
            self._obstacles[op] = found
        else:
            self.fused[op] = found

    def _kernel(
        self, op: Operation, rule: Fusion, held: list[Quantized]
    ) -> Sequence[Quantized] | Obstacle:
        """What a kernel on integers makes in place of results, or why there is none.

        Case 1: it makes the results, as they are no numbers that could be quantized.
        Case 2: the results are all quantized. It makes those integers.
        Case 3: they need not be. It makes the results.
        Case 4: they could be at once, with the scale of the operand. It makes such integers.
        Case 5: they have to be.
        """
        results, value = named_results(op), op.outputs[0]
        found = [self._wanted[each] for each in results if each in self._wanted]
        quantized = len(found) == len(results)
        obstacle = self._against_types(rule, held) or self._against_bias(op, rule, held, quantized)
        if obstacle is not None:
            return obstacle
        if rule.result == "plain":  # Case 1
            return []
        if quantized:  # Case 2
            return self._against_results(op, rule, held, found) or found
        if rule.result == "either" and value not in self._quantizers:  # Case 3
            clamped = runtimes.BEFORE_A_CLAMP if self._before_a_clamp(op) else None
            return self._against_scales(op, held, quantized) or clamped or []
        if rule.result == "equal" and self._carries_on(op, held[0]):  # Case 4
            self._held[value] = moved = self._moved(held[0], value)
            return [moved]
        return runtimes.NOT_QUANTIZED  # Case 5

    def _against_types(self, rule: Fusion, held: Sequence[Quantized]) -> Obstacle | None:
        """Why a kernel on integers does not take the types of its operands."""
        dtype, *others = (item.dtype for item in held)
        if dtype == dtypes.INT8 and not rule.signed and not self._runtime.arm:
            return runtimes.SIGNED
        beside = rule.types.get(dtype)
        fits = beside is not None and beside.issuperset(others)
        return None if fits else self._other_types(held)

    def _against_results(
        self, op: Operation, rule: Fusion, held: list[Quantized], found: list[Quantized]
    ) -> Obstacle | None:
        """Why a kernel on integers does not make what its results are quantized to."""
        if any(item.dtype != held[0].dtype for item in found):
            return self._other_types([*held, *found])
        if rule.result == "equal" and not all(map(held[0].equals, found)):
            return runtimes.OTHER_SCALE
        return self._against_scales(op, held, quantized=True) if rule.weight else None

    def _other_types(self, items: Sequence[Quantized]) -> Obstacle:
        """The obstacle of operands and results that are not of the types that a kernel takes."""
        moved = {item.dtype for item in items if not item.value.constant}
        found = dict.fromkeys(item.dtype for item in items)
        if dtypes.INT8 in moved and not self._runtime.arm and found.keys() <= BYTES:
            return runtimes.SIGNED
        names = " and ".join(map(dtypes.name_of, found))
        return Obstacle(f"its operands and result are {names}", runtimes.EIGHT_BITS)

    def _against_scales(
        self, op: Operation, held: list[Quantized], quantized: bool
    ) -> Obstacle | None:
        """Why the kernel on integers does not take the scales or zero points of a weight."""
        is_gemm = op.kind == "Gemm"
        spared = op.kind in self._rules.spared and (quantized or is_gemm)
        needs_zeros = held if is_gemm else held[:1] * (held[0].dtype == dtypes.INT8)
        if any(item.zero_point is None for item in needs_zeros):
            obstacle, spared = runtimes.NO_ZERO_POINT, spared and is_gemm
        elif _has_other_scales(op, held[1], exactly=spared and not is_gemm):
            obstacle = runtimes.OTHER_SCALES
        else:
            return None
        if spared:
            return obstacle
        why = f"{obstacle.reason}, with which its kernel on integers fails"
        return Obstacle(why, obstacle.remedy)

    def _before_a_clamp(self, op: Operation) -> bool:
        """Whether a Relu or Clip alone reads a result, which one other reads in turn.

        onnxruntime takes it for a part of the QuantizeLinear behind, and finds none.
        """
        if not self._alone(op.outputs[0]):
            return False
        reader = self._readers[op.outputs[0]]
        return reader.kind in _CLAMPS and self._alone(reader.outputs[0])

    def _weights(self, op: Operation) -> Quantized | None:
        """The constant integers by which a contraction multiplies floats; None if it does not."""
        first, weights = map(self._held.get, op.inputs[:2])
        if weights is None or not weights.value.constant:
            return None
        by_words = op.kind in self._rules.by_weights and self._rules.words
        return weights if first is None or (by_words and first.value.dtype in by_words) else None

    def _against_weights(self, op: Operation, weights: Quantized) -> Obstacle | None:
        """Why there is no kernel for floats by integers; None if there is.

        Case 1: the operator or the integers are of none of the types that have one.
        Case 2: others read the weights, too.
        Case 3: their scales are not what the kernel takes.
        Case 4: a Gemm does more than multiply and add.
        Case 5: the result is quantized, other than to words where the kernel takes those.
        Case 6: onnxruntime looks for a QuantizeLinear behind a Relu or Clip.
        """
        rules, value, dtype = self._rules, op.input(1), weights.value.dtype
        if op.kind not in rules.by_weights:  # Case 1
            return runtimes.NO_WEIGHT_KERNEL if dtype in BYTES else runtimes.NO_KERNEL
        if dtype not in rules.weights:
            bits = "4" if rules.only_blocks else "2, 4 or 8"
            why = f"there is no kernel for floats by weights of {dtypes.name_of(dtype)}"
            return Obstacle(why, f"weights of {bits} bits")
        is_own = self._alone(value) and self._edges[weights.value] == 1
        if not (is_own or rules.shared_weights):  # Case 2
            return runtimes.WEIGHTS_SHARED
        shared = self._scalars[same(weights.scale)] > 1 and not rules.shared_weights
        against = runtimes.against_scales(weights, rules, shared=shared)
        if against is not None:  # Case 3
            return against
        if op.kind == "Gemm" and not runtimes.is_plain_gemm(op, weights.value):  # Case 4
            return runtimes.NO_PLAIN_GEMM
        wanted = self._wanted.get(op.outputs[0])
        if wanted is not None and wanted.value.dtype in rules.words:
            return None
        if wanted is not None or op.outputs[0] in self._quantizers:  # Case 5
            return runtimes.RESULT_QUANTIZED
        return runtimes.CLAMPED_FLOATS if self._before_a_clamp(op) else None  # Case 6

    def _against_bias(
        self, op: Operation, rule: Fusion, held: Sequence[Quantized], quantized: bool
    ) -> Obstacle | None:
        """Why a kernel on integers does not take the bias."""
        if rule.bias is None or not op.has(rule.bias):
            return None
        value = op.input(rule.bias)
        bias = self._held.get(value)
        if bias is None and quantized and self._rules.float_bias and value.constant:
            return None  # it is quantized when the model is loaded
        dtype = value.dtype if bias is None else bias.dtype
        if bias is None or dtype != dtypes.INT32:
            return Obstacle(f"the bias is {dtypes.name_of(dtype)}", "a bias of int32")
        if op.attributes.get("beta", 1.0) != 1.0:
            return runtimes.BETA
        wants_product = op.kind in self._rules.bias_scale
        if wants_product and not runtimes.is_product(bias, *held):
            return runtimes.BIAS_SCALE
        return None

    def _carries_on(self, op: Operation, held: Quantized) -> bool:
        """Whether a result that is not quantized, but keeps its operand's scale, could be at once."""
        return (
            op.kind in CARRIES
            and len(named_results(op)) == 1
            and held.even
            and held.zero_point is not None
            and op.outputs[0] not in self._floats
        )

    def _accesses(self) -> dict[Operation, MemoryAccess]:
        """What operations read and make, once it is known who still needs floats."""
        made = {item.value for items in self.fused.values() for item in items}
        made |= self._twins.keys() | self._clamped.keys()
        # Their results are made by others, or by none.
        gone = {op for op in self._ops if op.kind in QUANTIZES | _CLAMPS and op.outputs[0] in made}
        reads = {op: self._read_by(op) for op in self._ops if op not in gone}
        floats = self._kept.union(chain.from_iterable(reads.values()))
        found = dict.fromkeys(gone, MemoryAccess([], []))
        for op, read in reads.items():
            makes = self._made_by(op, floats)
            if makes is not None:
                found[op] = MemoryAccess(read if makes else [], makes)
        return found

    def _read_by(self, op: Operation) -> Sequence[Value | None]:
        """What an operation reads from memory."""
        if op.kind in QUANTIZES:
            return [self._source(op), *op.inputs[1:]]
        read = [value and self._first(value) for value in op.inputs]
        if op in self.fused:
            return [
                self._held[value].value if value in self._held else first
                for value, first in zip(op.inputs, read, strict=True)
            ]
        if op in self._by_weights:
            read[1] = self._by_weights[op]
        return read

    def _source(self, op: Operation) -> Value:
        """What a node quantizes, operators that need not run left out."""
        source = op.input(0)
        while source in self._clamped:
            source = self._clamped[source]
        return source

    def _made_by(self, op: Operation, floats: set[Value | None]) -> Sequence[Value] | None:
        """What an operation writes to memory; None if it is the same as in the file."""
        needed = [value for value in op.outputs if value in floats]
        if op.kind in DEQUANTIZES:
            return needed
        if op.kind in QUANTIZES or op in self._by_weights:
            return op.outputs
        if op in self.fused:
            integers = [item.value for item in self.fused[op]]
            return [*integers, *needed] if integers else op.outputs
        wanted = [self._wanted[value] for value in op.outputs if value in self._wanted]
        moved = [item.value for item in wanted if not item.node]
        floats_made = needed if op in self._only_quantizes else op.outputs
        return [*floats_made, *moved] if moved else None


def _twins(ops: Sequence[Operation], kept: set[Value]) -> dict[Value, Value]:
    """Results of nodes that quantize a tensor once more in the same way -> the first's result."""
    firsts: dict[tuple[object, ...], Value] = {}
    twins: dict[Value, Value] = {}
    for op in ops:
        if op.kind in QUANTIZES:
            result = op.outputs[0]
            how = (op.input(0), result.dtype, *map(same, op.inputs[1:]))
            first = firsts.setdefault(how, result)
            if first is not result and result not in kept:
                twins[result] = first
    return twins


def _has_other_scales(op: Operation, weight: Quantized, *, exactly: bool) -> bool:
    """Whether a weight has other scales than one, or as many as there are output channels.

    ``exactly``: along the axis of the output channels of a matrix, too.
    """
    shape, scales = op.outputs[0].shape, weight.scale.size
    if scales in (None, 1) or not shape:
        return False
    if scales != shape[1 if op.kind == "Conv" else -1]:
        return True
    last = len(weight.value.shape or ()) - 1
    return exactly and weight.attributes.get("axis", 1) not in (-1, last)


def _clamps_nothing(op: Operation, wanted: Quantized) -> bool:
    """Whether quantization alone limits the result as much as a Relu or Clip does."""
    lowest, highest = _LIMITS.get(wanted.value.dtype, (nan, nan))
    low, high = _clip_limits(op)
    scale, zero = _number(wanted.scale, nan), _number(wanted.zero_point, 0)
    return (
        wanted.even
        and scale != 0
        and low / scale + zero < lowest + 0.5
        and high / scale + zero > highest - 0.5
    )


def _clip_limits(op: Operation) -> tuple[float, float]:
    """The limits of a Relu or Clip; NaN, which no number is below or above, for one that is not known."""
    if op.kind == "Relu":
        return 0, inf
    if op.attributes:  # before version 11 of the operator set
        return nan, nan
    low, high = (op.input(i) if op.has(i) else None for i in (1, 2))
    return _number(low, -inf), _number(high, inf)


def _number(value: Value | None, otherwise: float) -> float:
    """The number that a value is; another where it is left out, NaN where it is not known."""
    if value is None:
        return otherwise
    found = numbers(value)
    return found[0] if len(found) == 1 else nan


class AsRun(AsStored):
    """What contractions are expected to execute in by onnxruntime."""

    def __init__(self, fused: Fused) -> None:
        super().__init__()
        self.kernels = fused.kernels
        self._fused, self._title = fused, fused.runtime.title

    def expected(self, op: Operation, stored: str) -> str:
        """Returns the type that a contraction is expected to execute in; they come in order."""
        rule, floats = operator_of(op.kind).precision, dtypes.name_of(op.dtype(0))
        given = {op.dtype(i) for i in rule.operands}
        if rule.executes_in is not None or stored == floats or not given <= dtypes.ARITHMETIC:
            return stored
        self.quantized += 1
        self.runtime = self._title
        if op in self._fused.on_integers:
            return stored
        if op in self._fused.by_weights:
            return f"{dtypes.QUANTIZED[self._fused.by_weights[op].dtype]} weight-only"
        self.in_float.setdefault(self._obstacle(op, stored), []).append(op)
        return floats

    def _obstacle(self, op: Operation, stored: str) -> Obstacle:
        """Why a contraction runs in float."""
        if op in self._fused.obstacles:
            return self._fused.obstacles[op]
        if op.kind not in FUSIONS:
            return runtimes.NO_KERNEL
        is_by_weights = stored.endswith("weight-only")
        return runtimes.NO_WEIGHT_KERNEL if is_by_weights else runtimes.NOT_DIRECTLY
