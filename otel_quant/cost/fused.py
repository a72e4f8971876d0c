"""Which QuantizeLinear and DequantizeLinear nodes a runtime makes part of the kernel between them.

A quantized graph in QDQ form converts to floats in front of every operator and back behind it. A
runtime that has a kernel on integers for that operator runs the kernel alone: the floats are
never in memory. ``FUSIONS`` says which operators have one; any other node runs as the file says. The
conditions are those of onnxruntime's CPU provider at its extended level of optimization; a test
holds them against the nodes that it runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import nan
from typing import Final, NamedTuple

from otel_quant.cost import dtypes
from otel_quant.cost.operation import Operation, Value, executed
from otel_quant.cost.operators import operator_of
from otel_quant.cost.results import InFloat

_BYTES: Final = frozenset({dtypes.INT8, dtypes.UINT8})
_WORDS: Final = _BYTES | {dtypes.INT16, dtypes.UINT16}


class Fusion(NamedTuple):
    """When an operator has a kernel on integers."""

    first: int = 0  # The first operand that has to be dequantized
    many: int | None = 1  # How many have to be, from there; None for all that the node has
    types: frozenset[int] = _BYTES  # What the first may be quantized to
    weight: bool = False  # The second is a weight, of 8 bits, and signed if the first is
    # Where an operand is that has to be dequantized from int32 or a constant, if it is there;
    # None for none
    bias: int | None = None
    # ``quantized`` to the type of the first, ``equal`` to it in type, scale and zero point as
    # well, ``either`` quantized or left in floats, or ``plain``: never quantized
    result: str = "quantized"
    since: int = 0  # First version of the operator set

    def operands(self, op: Operation) -> range:
        """Returns which operands have to be dequantized, but for the bias."""
        end = len(op.inputs) if self.many is None else self.first + self.many
        return range(self.first, end)


_ONE: Final = Fusion()
_ALL: Final = Fusion(many=None)
_MOVE: Final = Fusion(types=_WORDS, result="equal")

FUSIONS: Final[Mapping[str, Fusion]] = {
    **dict.fromkeys(("AveragePool", "GlobalAveragePool", "LeakyRelu", "Sigmoid", "Softmax"), _ONE),
    **dict.fromkeys(("Add", "Mul", "Concat"), _ALL),
    "Where": Fusion(first=1, many=2),
    "Conv": Fusion(many=2, weight=True, bias=2),
    "MatMul": Fusion(many=2, weight=True, result="either"),
    "Gemm": Fusion(many=2, weight=True, bias=2, result="either"),
    "ArgMax": Fusion(result="plain"),
    "MaxPool": Fusion(result="equal", since=12),
    **dict.fromkeys(("DepthToSpace", "ReduceMax", "ReduceMin", "Resize"), Fusion(result="equal")),
    **dict.fromkeys(
        [
            "Expand",
            "Flatten",
            "Gather",
            "GatherElements",
            "Reshape",
            "Slice",
            "Split",
            "Squeeze",
            "Tile",
            "Transpose",
            "Unsqueeze",
        ],
        _MOVE,
    ),
}
"""Operator -> its kernel on integers."""

CARRIES: Final = frozenset({"MaxPool", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze"})
"""Operators beyond which a quantization holds too, so that it is moved there."""

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


class Obstacle(NamedTuple):
    """Why an operator whose operands are quantized has no kernel on integers."""

    reason: str  # In words
    remedy: str  # What in the model would give it one; empty if nothing would


class Fused(NamedTuple):
    """What a runtime makes of a quantized graph, bodies included."""

    # What operations read and make where it is not what the file says
    kernels: dict[Operation, Kernel]
    on_integers: set[Operation]  # Operations that have a kernel on integers
    obstacles: dict[Operation, Obstacle]  # Why others, whose operands are quantized, have none


class _Quantized(NamedTuple):
    """Integers that stand for a float tensor."""

    value: Value  # The integers
    scale: Value | None  # Their scale
    zero_point: Value | None  # Their zero point; None if it is left out
    # Whether a node of the file makes them, or they are where one would be moved to
    node: bool = True

    @property
    def even(self) -> bool:
        """Whether scale and zero point are constants, one number each."""
        scale, zero = self.scale, self.zero_point
        return scale is not None and _single(scale) and (zero is None or _single(zero))

    def equals(self, other: _Quantized) -> bool:
        """Whether the integers of either can be used for the other's."""
        pairs = ((self.scale, other.scale), (self.zero_point, other.zero_point))
        return (
            self.even
            and other.even
            and self.value.dtype == other.value.dtype
            and all(a is not None and b is not None and _same(a, b) for a, b in pairs)
        )

    def moved(self, value: Value) -> _Quantized:
        """Returns what stands for another tensor with the same scale."""
        integers = Value(self.value.dtype, value.shape, name=value.name)
        return _Quantized(integers, self.scale, self.zero_point, node=False)


def _single(value: Value) -> bool:
    return value.constant and value.size == 1


def _same(a: Value, b: Value) -> bool:
    return a is b or (a.data is not None and a.dtype == b.dtype and a.data == b.data)


def fused_kernels(ops: Sequence[Operation], outputs: Iterable[Value]) -> Fused:
    """Returns where kernels on integers are used."""
    fused = Fused({}, set(), {})
    _fuse(ops, outputs, fused)
    return fused


def _fuse(ops: Sequence[Operation], outputs: Iterable[Value], fused: Fused) -> set[Value]:
    """Fuses one graph; returns the values that it and its bodies read."""
    graph = list(executed(ops))
    captured: set[Value] = set()
    for op in graph:
        for body in (*op.bodies, *op.branches):
            captured |= _fuse(body.ops, body.outputs, fused)
    found = _Graph(graph, set(outputs), captured)
    fused.kernels.update(found.kernels())
    fused.on_integers.update(found.fused)
    fused.obstacles.update(found.obstacles)
    return found.read


class _Graph:
    """The operations of one graph, bodies left out: a kernel does not reach into a body."""

    def __init__(self, ops: Sequence[Operation], outputs: set[Value], captured: set[Value]) -> None:
        self._ops = ops
        self._captured = captured
        self._kept = kept = outputs | captured
        self._makers = {value: op for op in ops for value in op.outputs}
        self._edges: dict[Value, int] = {}
        self._quantizers: set[Value] = set()
        self._twins = _twins(ops, kept)
        for op in ops:
            if op.outputs and op.outputs[0] in self._twins:
                continue
            for value in op.inputs:
                if value is not None:
                    self._edges[value] = self._edges.get(value, 0) + 1
            if op.kind in QUANTIZES and op.has(0):
                self._quantizers.add(op.input(0))
        self.read = kept | set(self._edges)
        self._wanted: dict[Value, _Quantized] = {}
        self._held: dict[Value, _Quantized] = {}
        self.fused: dict[Operation, list[_Quantized]] = {}
        self.obstacles: dict[Operation, Obstacle] = {}
        self._clamped: dict[Value, Value] = {}
        self._only_quantizes: set[Operation] = set()
        self._at_rest: set[Value] = set()  # quantizations are moved before operators are left out

    def kernels(self) -> dict[Operation, Kernel]:
        """Returns what its operations read and make where it is not what they say."""
        for op in reversed(self._ops):
            self._look_behind(op)
        for op in self._ops:
            self._look_ahead(op)
        return self._made()

    def _alone(self, value: Value) -> bool:
        """Whether one operand, and nothing outside, reads a value."""
        return self._edges.get(value) == 1 and value not in self._kept

    def _look_behind(self, op: Operation) -> None:
        """Finds what is quantized as soon as it is made."""
        if not op.has(0) or not op.outputs:
            return
        value = op.input(0)
        if op.kind in QUANTIZES:
            if self._alone(value) and op.outputs[0] not in self._twins:
                self._wanted[value] = _conversion(op, op.outputs[0])
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
                self._wanted[value] = wanted.moved(value)

    def _look_ahead(self, op: Operation) -> None:
        """Finds the operators whose operands are integers and whose results will be."""
        if op.kind in DEQUANTIZES:
            if op.has(0) and op.outputs:
                integers = self._twins.get(op.input(0), op.input(0))
                self._held[op.outputs[0]] = _conversion(op, integers)
            return
        if not op.outputs or not op.has(0):
            return
        if op.kind in QUANTIZES:
            # Of integers that were dequantized in the same way nothing new is made.
            source, result = self._held.get(self._source(op)), op.outputs[0]
            same = source is not None and source.equals(_conversion(op, result))
            if source is not None and same and result not in self._kept:
                self._twins[result] = source.value
            return
        rule = FUSIONS.get(op.kind)
        value = op.outputs[0]
        if rule is not None and op.opset >= rule.since:
            results = self._results(op, rule)
            if isinstance(results, Obstacle):
                self.obstacles[op] = results
            elif results is not None:
                self.fused[op] = results
        wanted = self._wanted.get(value)
        if wanted is not None and not wanted.node and value not in self._held:
            self._held[value] = wanted

    def _results(self, op: Operation, rule: Fusion) -> list[_Quantized] | Obstacle | None:
        """What a kernel makes in place of results; empty for the results.

        An obstacle if there is no kernel, None if an operand is not quantized.
        """
        operands = [self._operand(op, i) for i in rule.operands(op)]
        held = [item for item in operands if item is not None]
        if not held or len(held) != len(operands):
            return None
        dtype = held[0].value.dtype
        others = {item.value.dtype for item in held[1:]}
        if rule.weight:
            fits = others <= ({dtypes.INT8} if dtype == dtypes.INT8 else _BYTES)
        else:
            fits = others <= {dtype}
        if dtype not in rule.types or not fits:
            return _other_types(item.value.dtype for item in held)
        if rule.result == "plain":
            return []
        wanted = [self._wanted.get(value) for value in _named(op)]
        found = [item for item in wanted if item is not None]
        quantized = len(found) == len(wanted)
        if not self._has_bias(op, rule, quantized=quantized):
            bias = self._operand(op, rule.bias or 0)
            name = dtypes.name_of((op.input(rule.bias or 0) if bias is None else bias.value).dtype)
            return Obstacle(f"the bias is {name}", "a bias of int32")
        if not quantized:
            if rule.result == "either" and op.outputs[0] not in self._quantizers:
                return []
            carried = self._carried_on(op, held[0]) if rule.result == "equal" else None
            return NOT_QUANTIZED if carried is None else carried
        if any(item.value.dtype != dtype for item in found):
            return _other_types([dtype, *(item.value.dtype for item in found)])
        if rule.result == "equal" and not all(held[0].equals(item) for item in found):
            return _OTHER_SCALE
        return found

    def _has_bias(self, op: Operation, rule: Fusion, *, quantized: bool) -> bool:
        """Whether the bias, if there is one, is of a type that a kernel takes."""
        if rule.bias is None or not op.has(rule.bias):
            return True
        bias = self._operand(op, rule.bias)
        if bias is None:  # it is quantized when the model is loaded
            return quantized and op.input(rule.bias).constant
        return bias.value.dtype == dtypes.INT32

    def _carried_on(self, op: Operation, held: _Quantized) -> list[_Quantized] | None:
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
        self._held[value] = moved = held.moved(value)
        return [moved]

    def _operand(self, op: Operation, i: int) -> _Quantized | None:
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
        """What an operation writes to memory; None if it is what the file says."""
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
        if items is not None:
            return op.outputs
        moved = [
            item.value
            for value in op.outputs
            if (item := self._wanted.get(value)) is not None and not item.node
        ]
        floats_made = needed if op in self._only_quantizes else op.outputs
        return [*floats_made, *moved] if moved else None


NOT_QUANTIZED: Final = Obstacle(
    "its result is not quantized right behind it", "a QuantizeLinear as the only reader of it"
)
_OTHER_SCALE: Final = Obstacle(
    "its result has another scale or zero point than its operand", "the same ones"
)


def _other_types(found: Iterable[int]) -> Obstacle:
    names = " and ".join(dict.fromkeys(map(dtypes.name_of, found)))
    return Obstacle(
        f"its operands and result are {names}", "8 bits, all unsigned with int8 weights or all int8"
    )


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


def _conversion(op: Operation, integers: Value) -> _Quantized:
    return _Quantized(
        integers, op.input(1) if op.has(1) else None, op.input(2) if op.has(2) else None
    )


def _named(op: Operation) -> list[Value]:
    return [value for value, name in zip(op.outputs, op.node.outputs, strict=False) if name]


def _clamps_nothing(op: Operation, wanted: _Quantized) -> bool:
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


def _clip_limits(op: Operation) -> tuple[float | None, float | None]:
    """A Clip's limits; NaN, which no number is below or above, for one that is not known."""
    limits: list[float | None] = []
    for i, name in enumerate(("min", "max")):
        given = op.attributes.get(name)
        if isinstance(given, float | int):
            limits.append(float(given))
        elif op.has(i + 1):
            number = _number(op.input(i + 1))
            limits.append(nan if number is None else number)
        else:
            limits.append(None)
    return limits[0], limits[1]


def _number(value: Value) -> float | None:
    data = value.data
    return float(data[0]) if data and len(data) == 1 and data[0] is not None else None


_INTEGERS: Final = frozenset({"int2", "int4", "int8", "int16"})

_NOT_DIRECTLY: Final = Obstacle(
    "something stands between it and the DequantizeLinear of an operand",
    "a DequantizeLinear right in front of each operand",
)
NO_KERNEL: Final = Obstacle("there is no kernel on integers for it", "")


def in_float(
    contractions: Iterable[tuple[Operation, str]], fused: Fused
) -> tuple[int, tuple[InFloat, ...]]:
    """Returns how many contractions, with what they execute in, are of dequantized integers.

    With them those that are expected to run in float, by what is in the way of a kernel.
    """
    count = 0
    met: dict[Obstacle, list[Operation]] = {}
    for op, precision in contractions:
        rule = operator_of(op.kind).precision
        floats = all(op.dtype(i) in dtypes.ARITHMETIC for i in rule.operands)
        if not floats or rule.executes_in is not None or precision not in _INTEGERS:
            continue
        count += 1
        if op not in fused.on_integers:
            otherwise = _NOT_DIRECTLY if op.kind in FUSIONS else NO_KERNEL
            met.setdefault(fused.obstacles.get(op, otherwise), []).append(op)
    return count, tuple(
        InFloat(dict(Counter(op.kind for op in ops)), ops[0].name, *obstacle)
        for obstacle, ops in met.items()
    )
