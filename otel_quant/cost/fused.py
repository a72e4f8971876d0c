"""Which QuantizeLinear and DequantizeLinear nodes onnxruntime makes part of the kernel between them.

The floats between them are then never in memory. :mod:`otel_quant.cost.runtimes` lists the operators
that have such a kernel; any other node runs as it is in the file. A test holds this against the nodes that
onnxruntime runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from math import nan
from typing import Final, NamedTuple

from otel_quant.cost import dtypes, runtimes
from otel_quant.cost.operation import Data, Operation, Value, executed
from otel_quant.cost.operators import operator_of
from otel_quant.cost.runtimes import (
    BYTES,
    CARRIES,
    FUSIONS,
    WORDS,
    Fusion,
    Obstacle,
    Quantized,
    Runtime,
    runtime_here,
)

QUANTIZES: Final = frozenset({"QuantizeLinear", "com.microsoft:QuantizeLinear"})
DEQUANTIZES: Final = frozenset({"DequantizeLinear", "com.microsoft:DequantizeLinear"})

_CLAMPS: Final = frozenset({"Clip", "Relu"})

_LIMITS: Final = {
    dtypes.INT8: (-128, 127),
    dtypes.UINT8: (0, 255),
    dtypes.INT16: (-32768, 32767),
    dtypes.UINT16: (0, 65535),
}


class Kernel(NamedTuple):
    """An operation as a runtime executes it."""

    reads: Sequence[Value | None]  # Tensors in memory that it reads
    # Tensors that it writes to memory; none if it is part of another's kernel
    makes: Sequence[Value]


class Fused(NamedTuple):
    """What a runtime makes of a quantized graph, bodies included."""

    # What operations read and make where it differs from the file
    kernels: dict[Operation, Kernel]
    on_integers: set[Operation]  # Operations that have a kernel on integers
    # Contractions of floats by integers that are one kernel (MatMulNBits), and those integers
    by_weights: dict[Operation, Value]
    obstacles: dict[Operation, Obstacle]  # Why others, whose operands are quantized, have none
    runtime: Runtime  # What runs it


def fused_kernels(
    ops: Sequence[Operation], outputs: Iterable[Value], runtime: Runtime | None = None
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
    found = _Graph(graph, set(outputs), captured, fused)
    fused.kernels.update(found.kernels())
    fused.on_integers.update(found.fused)
    return found.read


class _Graph:
    """The operations of one graph, bodies left out: a kernel does not reach into a body."""

    def __init__(
        self, ops: Sequence[Operation], outputs: set[Value], captured: set[Value], into: Fused
    ) -> None:
        self._ops = ops
        self._runtime = into.runtime
        self._by_weights = into.by_weights
        self._obstacles = into.obstacles
        self._captured = captured
        self._kept = kept = outputs | captured
        self._makers = {value: op for op in ops for value in op.outputs}
        self._edges: dict[Value, int] = {}
        # How many operands read a constant of one element, by its type and that. onnxruntime makes those one.
        self._scalars = Counter[tuple[int, Data | None]]()
        self._readers: dict[Value, Operation] = {}  # The last one
        self._quantizers: set[Value] = set()
        self._twins = _twins(ops, kept)
        for op in ops:
            if op.outputs and op.outputs[0] in self._twins:
                continue
            for value in op.inputs:
                if value is not None:
                    self._edges[value] = self._edges.get(value, 0) + 1
                    if value.constant and value.shape == ():
                        self._scalars[value.dtype, value.data] += 1
                    self._readers[value] = op
            if op.kind in QUANTIZES and op.has(0):
                self._quantizers.add(op.input(0))
        self.read = kept | set(self._edges)
        self._wanted: dict[Value, Quantized] = {}
        self._held: dict[Value, Quantized] = {}
        self._foreign: set[Value] = set()  # Made by operators that dequantize as others do
        self.fused: dict[Operation, list[Quantized]] = {}
        self._clamped: dict[Value, Value] = {}
        self._only_quantizes: set[Operation] = set()
        self._at_rest: set[Value] = set()  # quantizations are moved before operators are left out
        self._shares = self._shared()

    def _shared(self) -> dict[Value, int]:
        """How many nodes read integers, each with a DequantizeLinear of its own."""
        found: dict[Value, int] = {}
        for op in self._ops:
            if op.has(0):
                integers, count = self._twins.get(op.input(0), op.input(0)), 1
                if op.kind in DEQUANTIZES and op.outputs:
                    count = self._reads(op.outputs[0])
                found[integers] = found.get(integers, integers in self._kept) + count
        return found

    def _reads(self, value: Value) -> int:
        """How many operands read a value, those outside the graph as one."""
        return self._edges.get(value, 0) + (value in self._kept)

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
        scale, zero_point = (op.input(i) if op.has(i) else None for i in (1, 2))
        maker, dtype = self._makers.get(integers), integers.dtype
        if maker is not None and maker.kind in QUANTIZES:
            dtype = self._dtype(integers, zero_point, self._shares.get(integers, 0))
        return Quantized(integers, dtype, scale, zero_point)

    def _moved(self, held: Quantized, value: Value) -> Quantized:
        """What stands for another tensor with the same scale."""
        integers = Value(held.value.dtype, value.shape, name=value.name)
        dtype = self._dtype(integers, held.zero_point, self._reads(value))
        return Quantized(integers, dtype, held.scale, held.zero_point, node=False)

    def kernels(self) -> dict[Operation, Kernel]:
        """Returns what its operations read and make where it differs from the file."""
        for op in reversed(self._ops):
            self._look_behind(op)
        for op in self._ops:
            self._look_ahead(op)
        return self._made()

    def _alone(self, value: Value) -> bool:
        """Whether one operand, and nothing outside, reads a value."""
        return value in self._edges and self._reads(value) == 1

    def _look_behind(self, op: Operation) -> None:
        """Finds what is quantized as soon as it is made."""
        if not op.has(0) or not op.outputs:
            return
        value = op.input(0)
        if op.kind in QUANTIZES:
            if self._alone(value) and op.outputs[0] not in self._twins:
                self._wanted[value] = self._conversion(op, op.outputs[0])
            return
        wanted = self._wanted.get(op.outputs[0])
        if wanted is None:
            return
        if op.kind in _CLAMPS and _clamps_nothing(op, wanted):
            maker = self._makers.get(value)
            moves = maker is not None and maker.kind in FUSIONS.keys() - CARRIES
            if wanted.node or (moves and self._alone(value)):
                self._clamped[op.outputs[0]] = value
                if self._alone(value):
                    self._wanted[value] = wanted
                    self._at_rest.add(value)
            else:  # what is moved has no node that would take this one's place
                self._only_quantizes.add(op)
        elif (
            op.kind in CARRIES
            and wanted.even
            and self._alone(value)
            and op.outputs[0] not in self._at_rest
        ):
            maker = self._makers.get(value)
            if maker is not None and maker.kind not in DEQUANTIZES:
                self._wanted[value] = self._moved(wanted, value)

    def _look_ahead(self, op: Operation) -> None:
        """Finds the operators whose operands are integers and whose results will be."""
        if op.kind in DEQUANTIZES:
            if op.has(0) and op.outputs:
                integers = self._twins.get(op.input(0), op.input(0))
                self._held[op.outputs[0]] = self._conversion(op, integers)
            return
        if not op.outputs or not op.has(0):
            return
        precision = operator_of(op.kind).precision
        if precision.dequantizes or precision.rounds_to:
            self._foreign.add(op.outputs[0])
        if op.kind in QUANTIZES:
            # Of integers that were dequantized in the same way nothing new is made.
            source, result = self._held.get(self._source(op)), op.outputs[0]
            same = source is not None and source.equals(self._conversion(op, result))
            if source is not None and same and result not in self._kept:
                self._twins[result] = source.value
            return
        rule = FUSIONS.get(op.kind)
        value = op.outputs[0]
        if rule is not None and op.opset >= rule.since:
            results = self._results(op, rule)
            if rule.weight and not isinstance(results, list):
                results = self._weighted(op, results)
            if isinstance(results, Obstacle):
                self._obstacles[op] = results
            elif results is not None:
                self.fused[op] = results
        wanted = self._wanted.get(value)
        if wanted is not None and not wanted.node and value not in self._held:
            self._held[value] = wanted

    def _results(self, op: Operation, rule: Fusion) -> list[Quantized] | Obstacle | None:
        """What a kernel makes in place of results; empty for the results.

        An obstacle if there is no kernel, None if an operand is not quantized.
        """
        operands = [self._operand(op, i) for i in rule.operands(op)]
        held = [item for item in operands if item is not None]
        if any(op.has(i) and op.input(i) in self._foreign for i in rule.operands(op)):
            return runtimes.FOREIGN
        if not held or len(held) != len(operands):
            return None
        dtype = held[0].dtype
        others = {item.dtype for item in held[1:]}
        if rule.weight:
            fits = others <= ({dtypes.INT8} if dtype == dtypes.INT8 else BYTES)
        else:
            fits = others <= {dtype}
        if dtype == dtypes.INT8 and not rule.signed and not self._runtime.arm:
            return runtimes.SIGNED
        if dtype not in rule.types or not fits:
            return self._other_types(held)
        if rule.result == "plain":
            return []
        wanted = [self._wanted.get(value) for value in _named(op)]
        found = [item for item in wanted if item is not None]
        quantized = len(found) == len(wanted)
        if (bias := self._against_bias(op, rule, held, quantized=quantized)) is not None:
            return bias
        if not quantized:
            if rule.result == "either" and op.outputs[0] not in self._quantizers:
                clamped = runtimes.BEFORE_A_CLAMP if self._before_a_clamp(op) else None
                return self._takes(op, held, quantized=False) or clamped or []
            carried = self._carried_on(op, held[0]) if rule.result == "equal" else None
            return runtimes.NOT_QUANTIZED if carried is None else carried
        if any(item.dtype != dtype for item in found):
            return self._other_types([*held, *found])
        if rule.result == "equal" and not all(held[0].equals(item) for item in found):
            return runtimes.OTHER_SCALE
        return (self._takes(op, held, quantized=True) if rule.weight else None) or found

    def _other_types(self, items: Sequence[Quantized]) -> Obstacle:
        """The obstacle of operands and results that are not of the types that a kernel takes."""
        moved = [item for item in items if not item.value.constant]
        signed = any(item.dtype == dtypes.INT8 for item in moved)
        if signed and not self._runtime.arm and all(item.dtype in BYTES for item in items):
            return runtimes.SIGNED
        names = " and ".join(dict.fromkeys(dtypes.name_of(item.dtype) for item in items))
        return Obstacle(f"its operands and result are {names}", runtimes.EIGHT_BITS)

    def _takes(self, op: Operation, held: list[Quantized], *, quantized: bool) -> Obstacle | None:
        """Why the kernel on integers does not take the scales or zero points of a weight."""
        spared = op.kind in self._runtime.rules.spared and (quantized or op.kind == "Gemm")
        needs_zeros = held[:2] if op.kind == "Gemm" else held[:1] * (held[0].dtype == dtypes.INT8)
        if any(item.zero_point is None for item in needs_zeros):
            obstacle, spared = runtimes.NO_ZERO_POINT, spared and op.kind == "Gemm"
        elif self._has_other_scales(op, held[1], exactly=spared and op.kind == "MatMul"):
            obstacle = runtimes.OTHER_SCALES
        else:
            return None
        if spared:
            return obstacle
        why = f"{obstacle.reason}, with which its kernel on integers fails"
        return Obstacle(why, obstacle.remedy)

    def _has_other_scales(self, op: Operation, weight: Quantized, *, exactly: bool) -> bool:
        """Whether a weight has other scales than one, or as many as there are output channels.

        ``exactly``: along the axis of the output channels of a matrix, too.
        """
        scales = None if weight.scale is None else weight.scale.size
        shape, maker = op.outputs[0].shape, self._makers.get(op.input(1))
        if scales is None or scales == 1 or not shape:
            return False
        if scales != shape[1 if op.kind == "Conv" else -1]:
            return True
        axis = maker.attributes.get("axis", 1) if maker and maker.kind in DEQUANTIZES else -1
        return exactly and axis not in (-1, len(weight.value.shape or ()) - 1)

    def _before_a_clamp(self, op: Operation) -> bool:
        """Whether a Relu or Clip alone reads a result, which one other reads in turn.

        onnxruntime takes it for a part of the QuantizeLinear behind, and finds none.
        """
        reader = self._readers.get(op.outputs[0]) if self._alone(op.outputs[0]) else None
        clamped = reader.outputs[:1] if reader is not None and reader.kind in _CLAMPS else ()
        return any(map(self._alone, clamped))

    def _weighted(self, op: Operation, otherwise: Obstacle | None) -> Obstacle | None:
        """Finds whether a contraction of floats by integers has a kernel; why it has none."""
        first, weights = (self._operand(op, i) for i in (0, 1))
        rules = self._runtime.rules
        if weights is None or not weights.value.constant:
            return otherwise
        words = first is not None and first.value.dtype in WORDS and rules.words
        if first is not None and not (words and op.kind in rules.by_weights):
            return otherwise
        obstacle = self._against_weights(op, weights)
        if obstacle is None:
            self._by_weights[op] = weights.value
        return obstacle

    def _against_weights(self, op: Operation, weights: Quantized) -> Obstacle | None:
        rules = self._runtime.rules
        if op.kind not in rules.by_weights:
            return runtimes.NO_WEIGHT_KERNEL if weights.value.dtype in BYTES else runtimes.NO_KERNEL
        if weights.value.dtype not in rules.weights:
            name = dtypes.name_of(weights.value.dtype)
            bits = "4" if rules.only_blocks else "2, 4 or 8"
            why = f"there is no kernel for floats by weights of {name}"
            return Obstacle(why, f"weights of {bits} bits")
        value = op.input(1)
        # Equal DequantizeLinear nodes are made one before.
        read = {self._edges.get(each) for each in (value, weights.value)}
        shared = read != {1} or value in self._kept
        if shared and not rules.shared_weights:
            return runtimes.WEIGHTS_SHARED
        scale = weights.scale
        shared = scale is not None and self._scalars[scale.dtype, scale.data] > 1
        against = runtimes.against_scales(self._makers[value], weights, rules, shared=shared)
        if against is None and op.kind == "Gemm" and not runtimes.is_plain_gemm(op, weights.value):
            against = runtimes.NO_PLAIN_GEMM
        if against is not None:
            return against
        result = op.outputs[0]
        wanted = self._wanted.get(result)
        words_behind = wanted is not None and wanted.value.dtype in WORDS and rules.words
        if (result in self._quantizers or wanted is not None) and not words_behind:
            return runtimes.RESULT_QUANTIZED
        clamped = not words_behind and self._before_a_clamp(op)
        return runtimes.CLAMPED_FLOATS if clamped else None

    def _against_bias(
        self, op: Operation, rule: Fusion, held: Sequence[Quantized], *, quantized: bool
    ) -> Obstacle | None:
        """Why a kernel on integers does not take the bias."""
        if rule.bias is None or not op.has(rule.bias):
            return None
        bias = self._operand(op, rule.bias)
        at_load = self._runtime.rules.float_bias and op.input(rule.bias).constant
        if bias is None and quantized and at_load:
            return None  # it is quantized when the model is loaded
        dtype = op.dtype(rule.bias) if bias is None else bias.dtype
        if bias is None or dtype != dtypes.INT32:
            return Obstacle(f"the bias is {dtypes.name_of(dtype)}", "a bias of int32")
        if op.kind == "Gemm" and op.attributes.get("beta", 1.0) != 1.0:
            return runtimes.BETA
        if (
            op.kind == "Conv"
            and self._runtime.rules.bias_scale
            and not runtimes.is_product(bias, *held)
        ):
            return runtimes.BIAS_SCALE
        return None

    def _carried_on(self, op: Operation, held: Quantized) -> list[Quantized] | None:
        """A result that is not quantized but keeps its operand's scale: it could be at once."""
        value = op.outputs[0]
        if (
            op.kind not in CARRIES
            or len(_named(op)) != 1
            or not held.even
            or held.zero_point is None
            or value in self._captured
            or value in self._quantizers
            or (value in self._kept and value in self._edges)
        ):
            return None
        self._held[value] = moved = self._moved(held, value)
        return [moved]

    def _operand(self, op: Operation, i: int) -> Quantized | None:
        return self._held.get(op.input(i)) if op.has(i) else None

    def _made(self) -> dict[Operation, Kernel]:
        """Kernels, once it is known who still needs floats."""
        rules = {op: FUSIONS[op.kind] for op in self._ops if op in self.fused}
        floats = set(self._kept)
        reads: dict[Operation, list[Value | None]] = {}
        for op in self._ops:
            rule = rules.get(op)
            taken = list(op.inputs)
            if self._twins:
                taken = [value and self._twins.get(value, value) for value in taken]
            if rule is not None:
                for i in (*rule.operands(op), *(() if rule.bias is None else (rule.bias,))):
                    held = self._operand(op, i)
                    if held is not None:
                        taken[i] = held.value
            elif op in self._by_weights:
                taken[1] = self._by_weights[op]
            reads[op] = taken
        made = {item.value for items in self.fused.values() for item in items}
        made |= set(self._twins) | set(self._clamped)
        # Their results are made by others, or by none.
        gone = {
            op
            for op in self._ops
            if op.kind in QUANTIZES | _CLAMPS and op.outputs and op.outputs[0] in made
        }
        for op in self._ops:
            if op in gone:
                reads[op] = []
            elif op.kind in QUANTIZES and op.has(0):
                reads[op] = [self._source(op), *op.inputs[1:]]
            floats.update(value for value in reads[op] if value is not None)
        found: dict[Operation, Kernel] = {}
        for op in self._ops:
            makes = self._makes(op, floats, gone)
            if makes is not None:
                found[op] = Kernel(reads[op] if makes else [], makes)
        return found

    def _source(self, op: Operation) -> Value:
        """What a node quantizes, operators that need not run left out."""
        source = op.input(0)
        while source in self._clamped:
            source = self._clamped[source]
        return source

    def _makes(
        self, op: Operation, floats: set[Value], gone: set[Operation]
    ) -> Sequence[Value] | None:
        """What an operation writes to memory; None if it is the same as in the file."""
        if op in gone:
            return []
        if op.kind in QUANTIZES:
            return op.outputs
        needed = [value for value in op.outputs if value in floats]
        if op.kind in DEQUANTIZES:
            return needed
        items = self.fused.get(op)
        if items:
            return [*(item.value for item in items), *needed]
        if items is not None or op in self._by_weights:
            return op.outputs
        moved = [
            item.value
            for value in op.outputs
            if (item := self._wanted.get(value)) is not None and not item.node
        ]
        floats_made = needed if op in self._only_quantizes else op.outputs
        return [*floats_made, *moved] if moved else None


def _twins(ops: Sequence[Operation], kept: set[Value]) -> dict[Value, Value]:
    """Results of nodes that quantize a tensor once more in the same way -> the first's result."""
    firsts: dict[tuple[object, ...], Value] = {}
    twins: dict[Value, Value] = {}
    for op in ops:
        if op.kind not in QUANTIZES or not op.outputs or not op.has(0):
            continue
        result = op.outputs[0]
        how = (
            None if value is None else (value.dtype, value.data) if value.data else value
            for value in op.inputs[1:]
        )
        first = firsts.setdefault((op.input(0), result.dtype, *how), result)
        if first is not result and result not in kept:
            twins[result] = first
    return twins


def _named(op: Operation) -> list[Value]:
    return [value for value, name in zip(op.outputs, op.node.outputs, strict=False) if name]


def _clamps_nothing(op: Operation, wanted: Quantized) -> bool:
    """Whether quantization alone limits the result as much as a Relu or Clip does."""
    limits = _LIMITS.get(wanted.value.dtype)
    scale = None if wanted.scale is None else _number(wanted.scale)
    zero = 0.0 if wanted.zero_point is None else _number(wanted.zero_point)
    if limits is None or not scale or zero is None or not wanted.even:
        return False
    low, high = (0.0, None) if op.kind == "Relu" else _clip_limits(op)
    return (low is None or low / scale + zero < limits[0] + 0.5) and (
        high is None or high / scale + zero > limits[1] - 0.5
    )


def _clip_limits(op: Operation) -> list[float | None]:
    """A Clip's limits; NaN, which no number is below or above, for one that is not known."""
    if op.attributes:  # before version 11 of the operator set
        return [nan, nan]
    numbers = (_number(op.input(i)) if op.has(i) else None for i in (1, 2))
    return [nan if each is None and op.has(i) else each for i, each in enumerate(numbers, 1)]


def _number(value: Value) -> float | None:
    data = value.data
    return float(data[0]) if data and len(data) == 1 and data[0] is not None else None


def executed_in(op: Operation, stored: str, fused: Fused) -> tuple[str, Obstacle | None] | None:
    """Returns what a contraction of dequantized integers is expected to execute in, and why in float.

    ``stored`` is the type that the file asks for. None for a contraction of others.
    """
    rule, floats = operator_of(op.kind).precision, dtypes.name_of(op.dtype(0))
    if rule.executes_in is not None or stored == floats:
        return None
    if not all(op.dtype(i) in dtypes.ARITHMETIC for i in rule.operands):
        return None
    if op in fused.on_integers:
        return stored, None
    if op in fused.by_weights:
        return f"{dtypes.QUANTIZED[fused.by_weights[op].dtype]} weight-only", None
    otherwise = runtimes.NO_KERNEL
    if op.kind in FUSIONS:
        otherwise = (
            runtimes.NO_WEIGHT_KERNEL if stored.endswith("weight-only") else runtimes.NOT_DIRECTLY
        )
    return floats, fused.obstacles.get(op, otherwise)
