"""Which QuantizeLinear and DequantizeLinear nodes onnxruntime makes part of the kernel between them.

The floats between them are then never in memory. :mod:`otel_quant.cost.runtimes` lists the operators
that have such a kernel; any other node runs as it is in the file. A test holds this against the nodes that
onnxruntime runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from math import inf, nan
from typing import Final, NamedTuple

from otel_quant.cost import dtypes, obstacles, runtimes
from otel_quant.cost.execution import AsStored, MemoryAccess, named_results
from otel_quant.cost.obstacles import Hindered, Obstacle, Remedy
from otel_quant.cost.operation import TypedNode, Value, executed
from otel_quant.cost.operators import operator_of
from otel_quant.cost.runtimes import CARRIES, FUSIONS, Fusion, Quantized, same

QUANTIZES: Final = frozenset({"QuantizeLinear", "com.microsoft:QuantizeLinear"})
DEQUANTIZES: Final = frozenset({"DequantizeLinear", "com.microsoft:DequantizeLinear"})

CLAMPS: Final = frozenset({"Clip", "Relu"})

_OPERANDS: Final = {
    **dict.fromkeys(CLAMPS, 1),
    **dict.fromkeys(QUANTIZES | DEQUANTIZES, 2),
    **{kind: rule.first + (rule.many or 1) for kind, rule in FUSIONS.items()},
}
"""Operands that have to be there, else a model is broken and the node is left as it is."""

_MATRIX: Final = 2  # Dimensions


class Fused(NamedTuple):
    """What a runtime makes of a quantized graph, bodies included."""

    # What operations read and make where it differs from the file
    kernels: dict[TypedNode, MemoryAccess]
    on_integers: set[TypedNode]  # Operations that have a kernel on integers
    # Contractions of floats by integers that are one kernel (MatMulNBits), and those integers
    by_weights: dict[TypedNode, Value]
    # Why others, whose operands are quantized, have none: an obstacle for each remedy
    obstacles: dict[TypedNode, Sequence[Obstacle]]
    runtime: runtimes.Onnxruntime  # What runs it


def fused_kernels(
    ops: Sequence[TypedNode], outputs: Iterable[Value], runtime: runtimes.Onnxruntime | None = None
) -> Fused:
    """Returns where kernels on integers are used, by the onnxruntime that is here unless told."""
    fused = Fused({}, set(), {}, {}, runtime or runtimes.runtime_here())
    _fuse(ops, outputs, fused)
    return fused


def _fuse(ops: Sequence[TypedNode], outputs: Iterable[Value], fused: Fused) -> set[Value]:
    """Fuses one graph; returns the values that it and its bodies read."""
    graph = list(executed(ops))
    captured: set[Value] = set()
    for op in graph:
        for body in (*op.bodies, *op.branches):
            captured |= _fuse(body.ops, body.outputs, fused)
    full = [op for op in graph if op.outputs and all(map(op.has, range(_OPERANDS.get(op.kind, 0))))]
    found = _Graph(full, set(outputs), captured, fused)
    fused.kernels.update(found.kernels())
    fused.on_integers.update(found.fused)
    return found.read


class _Candidate(NamedTuple):
    """An operator that may have a kernel on integers."""

    op: TypedNode
    rule: Fusion
    held: list[Quantized]  # Its operands, as far as they are integers
    found: Sequence[Quantized]  # What its results are quantized to
    quantized: bool  # Whether all of them are


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
    Case 6: an operator has a kernel on integers, or for floats by integers.
    Case 7: a quantization was moved to where a value is made.
    """

    def __init__(
        self, ops: Sequence[TypedNode], outputs: set[Value], captured: set[Value], into: Fused
    ) -> None:
        self._ops = ops
        self._operating = [op for op in ops if op.has(0)]
        self._runtime, self._rules = into.runtime, into.runtime.rules
        self._by_weights, self._obstacles = into.by_weights, into.obstacles
        self._kept = kept = outputs | captured
        self._kinds = {value: op.kind for op in ops for value in op.outputs}
        self._twins = _twins(ops, kept)
        reading = [(it, op) for op in ops if op.outputs[0] not in self._twins for it in op.given]
        self._readers = dict(reading)  # The last one
        self._edges = Counter(value for value, _ in reading)
        # How many operands read a constant of one element. onnxruntime makes those one.
        self._scalars = Counter(same(value) for value, _ in reading if value.shape == ())
        self.read = kept | self._edges.keys()
        self._quantizers = quantizers = {op.input(0) for op in ops if op.kind in QUANTIZES}
        # Floats that are made in any case
        self._floats = captured | quantizers | (kept & self._edges.keys())
        self._wanted: dict[Value, Quantized] = {}
        self._held: dict[Value | None, Quantized] = {}
        self._foreign: set[Value] = set()  # Made by operators that dequantize as others do
        self._unfolded: set[Value] = set()  # Made of what is dequantized, as constants are not
        # Operations that have a kernel on integers, and the integers that it makes in place of results
        self.fused: dict[TypedNode, list[Value]] = {}
        # Integers in place of a value that no node of the file makes
        self._moves: dict[Value, Value] = {}
        self._clamped: dict[Value, Value] = {}
        self._only_quantizes: set[TypedNode] = set()
        self._at_rest: set[Value] = set()  # quantizations are moved before operators are left out
        self._integers: dict[Value | None, Value] = {}  # What is read in place of floats or twins
        self._shares = self._shared()
        # Results of two QuantizeLinear in a row of which onnxruntime makes one -> its scale and zero point
        self._joined: dict[Value, tuple[Value, Value]] = {}
        self._before_joined: dict[Value, Value] = {}  # Their scale -> the second one's in the file
        self._join()

    def _join(self) -> None:
        """Finds Q, DQ, Q, DQ in a row: one quantization to the range that both have (DoubleQDQPairsRemover)."""
        makers = {op.outputs[0]: op for op in self._operating}
        for op in (each for each in self._operating if each.kind in QUANTIZES):
            middle = makers.get(op.input(0))
            first = makers.get(middle.input(0)) if middle and middle.kind in DEQUANTIZES else None
            if first is None or first.kind not in QUANTIZES or op.outputs[0] in self._kept:
                continue
            result, other = op.outputs[0], first.outputs[0]
            is_alike = result.dtype == other.dtype and other.dtype in dtypes.LIMITS
            pairs = self._conversion(first, other), self._conversion(op, result)
            are_known = all(each.even and each.zero_point is not None for each in pairs)
            if not (is_alike and are_known and self._alone(other) and self._alone(op.input(0))):
                continue
            self._shares[other] = self._shares.get(result, 0)
            if _range(pairs[0]) != _range(pairs[1]):
                lows, highs = zip(*map(_range, pairs), strict=True)
                lowest, highest = dtypes.LIMITS[other.dtype]
                scale = (min(highs) - max(lows)) / (highest - lowest)
                zero = round(lowest - max(lows) / scale)
                both = _constant(dtypes.FLOAT, scale), _constant(other.dtype, zero)
                self._joined |= dict.fromkeys((other, result), both)
                self._before_joined[both[0]] = op.input(1)

    def _shared(self) -> dict[Value, int]:
        """How many nodes read what a QuantizeLinear makes, each with a DequantizeLinear of its own."""
        found = Counter[Value]()
        for op in self._operating:
            reads = self._reads(op.outputs[0]) if op.kind in DEQUANTIZES else 1
            integers = op.input(0)
            found[self._twins.get(integers, integers)] += reads
        known = {it: reads for it, reads in found.items() if self._kinds.get(it) in QUANTIZES}
        return {value: reads + (value in self._kept) for value, reads in known.items()}

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

    def _conversion(self, op: TypedNode, integers: Value) -> Quantized:
        """What a node that quantizes or dequantizes makes or takes."""
        own = op.outputs[0] if op.kind in QUANTIZES else op.input(0)
        scale, zero_point = self._joined.get(own, (op.input(1), op.operand(2)))
        dtype = self._dtype(integers, zero_point, self._shares.get(integers, 0))
        return Quantized(integers, dtype, scale, zero_point, op.attributes)

    def _moved(self, held: Quantized, value: Value) -> Quantized:
        """What stands for another tensor with the same scale."""
        integers = Value(held.value.dtype, value.shape, name=value.name)
        dtype = self._dtype(integers, held.zero_point, self._reads(value))
        return Quantized(integers, dtype, held.scale, held.zero_point)

    def kernels(self) -> dict[TypedNode, MemoryAccess]:
        """Returns what its operations read and make where it differs from the file."""
        for op in reversed(self._operating):
            self._look_behind(op)
        for op in self._operating:
            self._look_ahead(op)
        return self._accesses()

    def _look_behind(self, op: TypedNode) -> None:
        """Finds what is quantized as soon as it is made."""
        value, result = op.input(0), op.outputs[0]
        wanted = self._wanted.get(result)
        if op.kind in QUANTIZES:
            if self._alone(value) and result not in self._twins:
                self._wanted[value] = self._conversion(op, result)  # Case 1
        elif wanted is None:
            return
        elif op.kind in CLAMPS and _clamps_nothing(op, wanted):
            self._leave_out(op, wanted)  # Case 2
        elif op.kind == "Identity" and self._alone(value):
            self._wanted[value] = wanted
        elif (
            op.kind in CARRIES
            and wanted.even
            and self._alone(value)
            and result not in self._at_rest
            and value in self._kinds
            and self._kinds[value] not in DEQUANTIZES
        ):
            self._wanted[value] = moved = self._moved(wanted, value)  # Case 3
            self._moves[value] = moved.value

    def _leave_out(self, op: TypedNode, wanted: Quantized) -> None:
        """Leaves out a Relu or Clip that the quantization behind it makes superfluous."""
        value, result = op.input(0), op.outputs[0]
        is_alone, is_moved = self._alone(value), result in self._moves
        if is_moved and not (is_alone and self._kinds.get(value) in FUSIONS.keys() - CARRIES):
            self._only_quantizes.add(op)  # no node would take this one's place
            return
        self._clamped[result] = value
        if is_alone:
            self._wanted[value] = wanted
            self._at_rest.add(value)
        if is_moved:
            self._moves[value] = wanted.value

    def _look_ahead(self, op: TypedNode) -> None:
        """Finds what is integers, and what runs on them."""
        result = op.outputs[0]
        if op.kind in DEQUANTIZES:  # Case 4
            integers = self._twins.get(op.input(0), op.input(0))
            self._held[result] = self._conversion(op, integers)
        elif op.kind in QUANTIZES:  # Case 5
            source = self._held.get(self._source(op))
            is_same = source is not None and source.equals(self._conversion(op, result))
            if source is not None and is_same and result not in self._kept:
                self._twins[result] = source.value
        elif (held := self._behind(op)) is not None:  # Case 4
            self._held[result] = held
        else:
            self._look_at(op)
            if result in self._moves:  # Case 7
                self._held.setdefault(result, self._wanted[result])

    def _behind(self, op: TypedNode) -> Quantized | None:
        """What a node makes that is gone before kernels are chosen: others find integers behind it.

        onnxruntime leaves out an Identity, transposes constants on loading, and makes the Pad in
        front of a Conv a part of that.
        """
        result, reader = op.outputs[0], self._readers.get(op.outputs[0])
        held = self._held.get(op.input(0))
        if any(each in self._held or each in self._unfolded for each in op.given):
            self._unfolded.update(op.outputs)
        if held is None or result in self._kept:
            return None
        is_before_conv = reader is not None and reader.kind == "Conv"
        if op.kind == "Pad" and is_before_conv and self._alone(result):
            is_plain = self._rules.pads and op.attributes.get("mode", b"constant") == b"constant"
            return held if is_plain and _number(op.operand(2), 0) == 0 else None
        axes, axis = op.attributes.get("perm", ()), held.attributes.get("axis", 1)
        is_moved = op.kind == "Transpose" and held.value.constant
        if is_moved and isinstance(axes, tuple) and axis in axes:
            weights = Value(held.value.dtype, result.shape, name=result.name)
            weights.constant = True
            attributes = {**held.attributes, "axis": axes.index(axis)}
            return held._replace(value=weights, attributes=attributes)
        return held if op.kind == "Identity" else None

    def _look_at(self, op: TypedNode) -> None:
        """Case 6: notes the kernel of an operator, or what is in the way of one."""
        precision, rule = operator_of(op.kind).precision, FUSIONS.get(op.kind)
        if precision.dequantizes or precision.rounds_to:
            self._foreign.add(op.outputs[0])
        if rule is None or op.opset < rule.since:
            return
        operands = [op.inputs[i] for i in rule.operands(op)]
        held = [self._held[value] for value in operands if value in self._held]
        results = named_results(op)
        found = [self._wanted[value] for value in results if value in self._wanted]
        it = _Candidate(op, rule, held, found, quantized=len(found) == len(results))
        weights = self._weights(op, rule)
        if weights is not None:
            against = self._against_weights(op, weights)
        elif not self._foreign.isdisjoint(operands):
            against = iter([obstacles.FOREIGN])
        elif len(held) == len(operands):
            against = self._against_integers(it)
        elif self._on_loading(it):
            against = iter(())
        else:  # of floats
            return
        firsts: dict[Remedy, Obstacle] = {}
        for each in against:
            firsts.setdefault(each.remedy, each)
        if firsts:
            self._obstacles[op] = tuple(firsts.values())
        elif weights is not None:
            self._by_weights[op] = weights.value
        elif rule.result == "equal" and not it.quantized:  # it can be at once
            self._held[op.outputs[0]] = moved = self._moved(held[0], op.outputs[0])
            self.fused[op] = [moved.value]
        else:
            self.fused[op] = [item.value for item in found]

    def _against_integers(self, it: _Candidate) -> Iterator[Obstacle]:
        """Yields what is in the way of a kernel on integers, which makes one of three things.

        Case 1: the integers of its results, if all are quantized.
        Case 2: its results, if they need not be.
        Case 3: integers with the scale of its operand, if they could be at once.
        """
        yield from self._against_types(it)
        yield from self._against_bias(it)
        if it.rule.result == "plain":
            return  # its results are no numbers that could be quantized
        if it.quantized:  # Case 1
            if not {it.held[0].dtype}.issuperset(item.dtype for item in it.found):
                yield self._other_types([*it.held, *it.found])
            if it.rule.result == "equal" and not all(map(it.held[0].equals, it.found)):
                yield obstacles.OTHER_SCALE
            if it.rule.weight:
                yield from self._against_scales(it)
        elif it.rule.result == "either" and it.op.outputs[0] not in self._quantizers:  # Case 2
            yield from self._against_scales(it)
            if self._before_a_clamp(it.op):
                yield obstacles.BEFORE_A_CLAMP
            add = self._added(it.op)
            is_rounded = add is not None and self._rounded(add) is not None
            on_integers = self._rules.float_bias or not it.held[1].value.constant
            if add is not None and not (is_rounded and on_integers):
                yield obstacles.FUSED_WITH_ADD
        elif it.rule.result != "equal" or not self._carries_on(it):  # else Case 3
            yield from self._against_result(it)

    def _against_types(self, it: _Candidate) -> Iterator[Obstacle]:
        """Yields why a kernel on integers does not take the types of its operands."""
        dtype, *others = (item.dtype for item in it.held)
        if it.op.dtype(it.rule.first) != dtypes.FLOAT:
            yield obstacles.HALF_FLOATS
        if dtype == dtypes.INT8 and not it.rule.signed and not self._runtime.arm:
            yield obstacles.SIGNED
        if dtype not in it.rule.types or not it.rule.types[dtype].issuperset(others):
            yield self._other_types(it.held)

    def _other_types(self, items: Sequence[Quantized]) -> Obstacle:
        """The obstacle of operands and results that are not of the types that a kernel takes."""
        moved = {item.dtype for item in items if not item.value.constant}
        found = dict.fromkeys(item.dtype for item in items)
        if any(item.dtype != item.value.dtype for item in items):
            return obstacles.SIGNED
        if dtypes.INT8 in moved and not self._runtime.arm and found.keys() <= runtimes.BYTES:
            return obstacles.SIGNED
        names = " and ".join(map(dtypes.name_of, found))
        return Obstacle(f"its operands and result are {names}", obstacles.EIGHT_BITS)

    def _against_bias(self, it: _Candidate) -> Iterator[Obstacle]:
        """Yields why a kernel on integers does not take the bias."""
        if it.rule.bias is None or not it.op.has(it.rule.bias):
            return
        value = it.op.input(it.rule.bias)
        bias = self._held.get(value)
        dtype = value.dtype if bias is None else bias.dtype
        if bias is None and it.quantized and self._rules.float_bias and value.constant:
            return  # it is quantized when the model is loaded
        if bias is None or dtype != dtypes.INT32:
            yield Obstacle(f"the bias is {dtypes.name_of(dtype)}", obstacles.REWRITES["bias"])
        elif it.op.attributes.get("beta", 1.0) != 1.0:
            yield obstacles.BETA
        elif it.op.kind in self._rules.bias_scale and not runtimes.is_product(bias, *it.held):
            x, weight = it.held
            second = x._replace(scale=self._before_joined.get(x.scale, x.scale))
            is_joined = runtimes.is_product(bias, second, weight)
            yield obstacles.JOINED if is_joined else obstacles.BIAS_SCALE

    def _against_scales(self, it: _Candidate) -> Iterator[Obstacle]:
        """Yields why the kernel on integers does not take the scales or zero points of a weight."""
        is_gemm = it.op.kind == "Gemm"
        spared = (it.op.kind, it.quantized) in self._rules.spared
        needs_zeros = it.held if is_gemm else it.held[:1] * (it.held[0].dtype == dtypes.INT8)
        if any(item.zero_point is None for item in needs_zeros):
            yield _spared(obstacles.NO_ZERO_POINT, spared=spared and is_gemm)
        elif _has_other_scales(it.op, it.held[1], exactly=spared and not is_gemm):
            yield _spared(obstacles.OTHER_SCALES, spared=spared)

    def _before_a_clamp(self, op: TypedNode) -> bool:
        """Whether a Relu or Clip alone reads a result, which one other reads in turn.

        onnxruntime takes it for a part of the QuantizeLinear behind, and finds none.
        """
        if not self._alone(op.outputs[0]):
            return False
        reader = self._readers[op.outputs[0]]
        return reader.kind in CLAMPS and self._alone(reader.outputs[0])

    def _against_result(self, it: _Candidate) -> Iterator[Obstacle]:
        """Yields what stands between a result and the QuantizeLinear behind, or that there is none."""
        result = it.op.outputs[0]
        behind = self._readers[result].outputs[0] if self._alone(result) else result
        wanted = self._wanted.get(behind)
        if self._before_a_clamp(it.op) and behind in self._quantizers:
            yield obstacles.CLAMPED
            if wanted is not None and wanted.dtype != it.held[0].dtype:
                yield self._other_types([*it.held, wanted])
            return
        kind = None if wanted is None else self._kinds.get(behind)
        known = {"BatchNormalization": obstacles.NORMED, "LeakyRelu": obstacles.LEAKY}
        yield known.get(kind or "", obstacles.NOT_QUANTIZED)

    def _added(self, op: TypedNode) -> TypedNode | None:
        """The Add that alone reads a product and adds a bias, with which onnxruntime makes a Gemm of it."""
        add = self._readers.get(op.outputs[0])
        if op.kind != "MatMul" or add is None or add.kind != "Add":
            return None
        weights, result = op.input(1).shape or (), op.outputs[0]
        biases = [each.shape for each in add.given if each is not result]
        is_alone = self._alone(result) and len(weights) == _MATRIX
        taken = [weights[1:]]
        if len(made := result.shape or ()) == _MATRIX:
            taken += [(1, made[1]), (made[0], 1), made]
        return add if is_alone and len(biases) == 1 and biases[0] in taken else None

    def _rounded(self, add: TypedNode) -> Quantized | None:
        """What the result of a Gemm that was a MatMul and an Add is quantized to, if a kernel finds that.

        Of three dimensions it is reshaped, and a Relu or Clip behind that stays. A bias of two has none.
        """
        result = add.outputs[0]
        reader, ranks = self._readers.get(result), [len(each.shape or ()) for each in add.given]
        is_behind = max(ranks) > _MATRIX and reader and reader.kind in CLAMPS
        return None if is_behind or ranks == [_MATRIX] * 2 else self._wanted.get(result)

    def _on_loading(self, it: _Candidate) -> bool:
        """Whether onnxruntime quantizes float weights when it loads the model.

        It does so between a DequantizeLinear and a QuantizeLinear that alone reads the result, where
        there is no bias, or one in float.
        """
        op, x, add = it.op, self._held.get(it.op.input(0)), self._added(it.op)
        made = it.found if add is None else [self._rounded(add)]
        if x is None or None in made or not made or not (it.rule.bias or add):
            return False
        floats = [*op.given[1:], *([] if add is None else add.given)]
        names = ("beta",) if self._rules.any_alpha else ("alpha", "beta")
        factors = {op.attributes.get(name, 1.0) for name in names}
        types = runtimes.BYTES if self._runtime.arm else {dtypes.UINT8}
        return (
            {x.dtype} == {item.dtype for item in made if item} <= types
            and factors == {1.0}
            and all(
                each is op.outputs[0]
                or (each.constant and each not in self._unfolded | self._held.keys())
                for each in floats
            )
        )

    def _weights(self, op: TypedNode, rule: Fusion) -> Quantized | None:
        """The constant integers by which a contraction multiplies floats; None if it does not."""
        if not rule.weight:
            return None
        first, weights = map(self._held.get, op.inputs[:2])
        of_floats = first is None or first.value.dtype in self._rules.words.get(op.kind, ())
        is_constant = weights is not None and weights.value.constant
        return weights if of_floats and is_constant else None

    def _against_weights(self, op: TypedNode, weights: Quantized) -> Iterator[Obstacle]:
        """Yields what is in the way of a kernel for floats by integers.

        Case 1: the operator or the integers are of none of the types that have one.
        Case 2: others read the weights, too.
        Case 3: their scales are not what the kernel takes.
        Case 4: a Gemm does more than multiply and add.
        Case 5: the result is quantized, other than to words where the kernel takes those.
        Case 6: onnxruntime looks for a QuantizeLinear behind a Relu or Clip, of a Gemm that it makes too.
        """
        rules, value, dtype = self._rules, op.input(1), weights.value.dtype
        if op.kind not in rules.by_weights:  # Case 1
            yield obstacles.NO_WEIGHT_KERNEL if dtype in runtimes.BYTES else obstacles.NO_KERNEL
            if op.has(2) and op.input(2) in self._held:
                yield obstacles.BIAS_SCALE  # its operand has none
            return
        if dtype not in rules.weights:
            why = f"there is no kernel for floats by weights of {dtypes.name_of(dtype)}"
            yield Obstacle(why, Remedy(f"weights of {rules.bits} bits"))
        is_own = self._alone(value) and self._edges[weights.value] == 1
        if not (is_own or rules.shared_weights):  # Case 2
            yield obstacles.WEIGHTS_SHARED
        shared = self._scalars[same(weights.scale)] > 1 and not rules.shared_weights
        yield from runtimes.against_scales(weights, rules, shared=shared)  # Case 3
        if op.kind == "Gemm" and not runtimes.is_plain_gemm(op, weights.shape):  # Case 4
            yield obstacles.NO_PLAIN_GEMM
        wanted = self._wanted.get(op.outputs[0])
        if wanted is not None and wanted.value.dtype in rules.words.get(op.kind, ()):
            return
        if wanted is not None or op.outputs[0] in self._quantizers:  # Case 5
            yield obstacles.RESULT_QUANTIZED
        add = self._added(op)
        is_gemm = len(op.outputs[0].shape or ()) == _MATRIX
        if self._before_a_clamp(add if add and is_gemm else op):  # Case 6
            yield obstacles.CLAMPED_FLOATS

    def _carries_on(self, it: _Candidate) -> bool:
        """Whether a result that is not quantized, but keeps its operand's scale, could be at once."""
        return (
            it.op.kind in CARRIES
            and (self._rules.reshapes_weights or not it.held[0].value.constant)
            and len(named_results(it.op)) == 1
            and it.held[0].even
            and it.held[0].zero_point is not None
            and it.op.outputs[0] not in self._floats
        )

    def _accesses(self) -> dict[TypedNode, MemoryAccess]:
        """What operations read and make, once it is known who still needs floats."""
        made = {*chain.from_iterable(self.fused.values()), *self._twins, *self._clamped}
        # Their results are made by others, or by none.
        gone = {op for op in self._ops if op.kind in QUANTIZES | CLAMPS and op.outputs[0] in made}
        self._integers = self._twins | {value: item.value for value, item in self._held.items()}
        reads = {op: self._read_by(op) for op in self._ops if op not in gone}
        floats = self._kept.union(chain.from_iterable(reads.values()))
        found = dict.fromkeys(gone, MemoryAccess([], []))
        for op, read in reads.items():
            makes = self._made_by(op, floats)
            if makes is not None:
                found[op] = MemoryAccess(read if makes else [], makes)
        return found

    def _read_by(self, op: TypedNode) -> Sequence[Value | None]:
        """What an operation reads from memory."""
        if op.kind in QUANTIZES:
            return [self._source(op), *op.inputs[1:]]
        instead = self._integers if op in self.fused else self._twins
        read = [instead.get(value, value) for value in op.inputs]
        if op in self._by_weights:
            read[1] = self._by_weights[op]
        return read

    def _source(self, op: TypedNode) -> Value:
        """What a node quantizes, operators that need not run left out."""
        source = op.input(0)
        while source in self._clamped:
            source = self._clamped[source]
        return source

    def _made_by(self, op: TypedNode, floats: set[Value | None]) -> Sequence[Value] | None:
        """What an operation writes to memory; None if it is the same as in the file."""
        needed = [value for value in op.outputs if value in floats]
        if op.kind in DEQUANTIZES:
            return needed
        if op.kind in QUANTIZES or op in self._by_weights:
            return op.outputs
        if op in self.fused:
            return [*self.fused[op], *needed] if self.fused[op] else op.outputs
        moved = [self._moves[value] for value in op.outputs if value in self._moves]
        floats_made = needed if op in self._only_quantizes else op.outputs
        return [*floats_made, *moved] if moved else None


def _twins(ops: Sequence[TypedNode], kept: set[Value]) -> dict[Value | None, Value]:
    """Results of nodes that quantize a tensor once more in the same way -> the first's result."""
    firsts: dict[tuple[object, ...], Value] = {}
    twins: dict[Value | None, Value] = {}
    for op in ops:
        if op.kind in QUANTIZES:
            result = op.outputs[0]
            how = (op.input(0), result.dtype, *map(same, op.inputs[1:]))
            first = firsts.setdefault(how, result)
            if first is not result and result not in kept:
                twins[result] = first
    return twins


def _spared(obstacle: Obstacle, *, spared: bool) -> Obstacle:
    """An obstacle that onnxruntime knows, or runs into."""
    if spared:
        return obstacle
    why = f"{obstacle.reason}, with which its kernel on integers fails"
    return Obstacle(why, obstacle.remedy)


def _has_other_scales(op: TypedNode, weight: Quantized, *, exactly: bool) -> bool:
    """Whether a weight has other scales than one, or as many as there are output channels.

    ``exactly``: along the axis of the output channels of a matrix, too.
    """
    shape, scales = op.outputs[0].shape, weight.scale.size
    if scales in (None, 1) or not shape:
        return False
    if scales != shape[1 if op.kind == "Conv" else -1]:
        return True
    return exactly and weight.attributes.get("axis", 1) not in (-1, len(weight.shape) - 1)


def _clamps_nothing(op: TypedNode, wanted: Quantized) -> bool:
    """Whether quantization alone limits the result as much as a Relu or Clip does."""
    lowest, highest = dtypes.LIMITS.get(wanted.value.dtype, (nan, nan))
    low, high = _clip_limits(op)
    scale, zero = _number(wanted.scale, nan), _number(wanted.zero_point, 0)
    if not wanted.even or scale == 0:
        return False
    return low / scale + zero < lowest + 0.5 and high / scale + zero > highest - 0.5


def _clip_limits(op: TypedNode) -> tuple[float, float]:
    """The limits of a Relu or Clip; NaN, which no number is below or above, for one that is not known."""
    if op.kind == "Relu":
        return 0, inf
    if op.attributes:  # before version 11 of the operator set
        return nan, nan
    return _number(op.operand(1), -inf), _number(op.operand(2), inf)


def _constant(dtype: int, number: float) -> Value:
    made = Value(dtype, (), (number,))
    made.constant = True
    return made


def _range(quantized: Quantized) -> tuple[float, float]:
    """The lowest and the highest number that integers stand for."""
    scale, zero = _number(quantized.scale, nan), _number(quantized.zero_point, 0)
    low, high = dtypes.LIMITS[quantized.value.dtype]
    return (low - zero) * scale, (high - zero) * scale


def _number(value: Value | None, otherwise: float) -> float:
    """The number that a value is; another where it is left out, NaN where it is not known."""
    if value is None:
        return otherwise
    found = runtimes.numbers(value)
    return found[0] if len(found) == 1 else nan


class AsRun(AsStored):
    """What contractions are expected to execute in by onnxruntime."""

    def __init__(self, fused: Fused) -> None:
        super().__init__()
        self.kernels = fused.kernels
        self._fused, self._title = fused, fused.runtime.title

    def expected(self, op: TypedNode, stored: str) -> str:
        """Returns the type that a contraction is expected to execute in; they come in order."""
        rule, floats = operator_of(op.kind).precision, dtypes.name_of(op.dtype(0))
        given = {op.dtype(i) for i in rule.operands}
        if stored == floats and op in self._fused.on_integers:
            self.runtime = self._title
            self._add(self.on_loading, op, obstacles.ON_LOADING)
            return dtypes.QUANTIZED[dtypes.INT8]
        if rule.executes_in is not None or stored == floats or not given <= dtypes.ARITHMETIC:
            return super().expected(op, stored)
        self.quantized += 1
        self.runtime = self._title
        if op in self._fused.on_integers:
            return stored.removesuffix(" weight-only")
        if op in self._fused.by_weights:
            return f"{dtypes.QUANTIZED[self._fused.by_weights[op].dtype]} weight-only"
        self._add(self.in_float, op, *self._obstacles(op, stored))
        return super().expected(op, floats)

    def _add(self, to: dict[Obstacle, Hindered], op: TypedNode, *why: Obstacle) -> None:
        group = to.setdefault(why[0], Hindered(why[0]))
        group.kinds[op.kind] += 1
        group.names.append(op.name)
        group.then.update(each.remedy.text for each in why[1:2])

    def _obstacles(self, op: TypedNode, stored: str) -> Sequence[Obstacle]:
        """Why a contraction runs in float."""
        if op in self._fused.obstacles:
            return self._fused.obstacles[op]
        if op.kind not in FUSIONS:
            return [obstacles.NO_KERNEL]
        is_by_weights = stored.endswith("weight-only")
        return [obstacles.NO_WEIGHT_KERNEL if is_by_weights else obstacles.NOT_DIRECTLY]
