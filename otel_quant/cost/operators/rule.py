"""An operator's rule, all that is known of it, and the pieces that rules are made of.

Shape inference, folding, cost, precision, sparsity and liveness all read this rule, so that
an operator cannot be known to one of them and forgotten by another.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import product
from math import prod
from struct import pack, unpack
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias, cast

from otel_quant.cost import dtypes, operation
from otel_quant.cost.operation import Data, MismatchError, Shape, TypedNode, UnknownError, Value

Formula: TypeAlias = Callable[[TypedNode], int]
"""MACs of one execution of a node; raises one of ``RULE_ERRORS`` where they are not known."""

ShapesOf: TypeAlias = Callable[[TypedNode], Sequence[Shape | None]]
"""Shapes of the results; may be more than the node has."""

Types: TypeAlias = tuple[Callable[[TypedNode], int], ...]
"""Element type of each result; the last one holds for all that follow."""

ValuesOf: TypeAlias = Callable[[TypedNode], list[Value]]
Fold: TypeAlias = Callable[[TypedNode, list[Value]], list[Data]]
Scalar: TypeAlias = int | float | None

RunGraph: TypeAlias = Callable[[str, Sequence[Value]], tuple[list[TypedNode], list[Value]]]
"""Walks a graph that is an attribute of a node; returns its operations, and its outputs."""

BodyRule: TypeAlias = Callable[[TypedNode, RunGraph], list[Value]]
"""Walks the graphs that an operation runs; returns its results."""


class Precision(NamedTuple):
    """What an operator has to do with the types that contractions execute in."""

    moves: bool = False  # Its result has the elements of its first operand, and so their type
    quantizes: bool = False  # It only converts floats to a quantized type
    dequantizes: bool = False  # It only converts a quantized type to floats
    rounds_to: str = ""  # What it quantizes to and dequantizes from at once; empty if it does not
    operands: tuple[int, int] = (0, 1)  # Of a contraction: where the two that are multiplied are
    # Of a contraction: what it executes in where the operator alone decides
    executes_in: Callable[[TypedNode], str] | None = None
    # Where a quantized weight and its zero point are, if it has them
    zero_point: tuple[int, int] | None = None


NO_PRECISION: Final = Precision()
MOVES: Final = Precision(moves=True)


class Rule(NamedTuple):
    """The rule of one operator; without a formula it is not costed."""

    words: str  # The formula in words, or why there is none; for the documentation and reasons
    # None where ``values`` or ``bodies`` give the results, and of Constant, whose result is its tensor
    shapes: ShapesOf | None
    types: Types = ()
    # Multiply-adds of its contractions (Conv, MatMul ...), None if it has none
    contraction: Formula | None = None
    rest: Formula | None = None  # Everything else, in MACs, the graphs that it runs left out
    # onnx_tool's own figure; None where it is ``contraction + rest``, or where it aborts
    tool: Formula | None = None
    # Elements of its results where they are few; None if they are not followed
    fold: Fold | None = None
    values: ValuesOf | None = None  # Results of operators on sequences and optionals
    bodies: BodyRule | None = None  # Of control flow: walks the graphs that it runs
    precision: Precision = NO_PRECISION  # Its part in what contractions execute in
    # Its first result is its first operand under another shape: no bytes of its own
    view: bool = False
    random: bool = False  # Its result changes from run to run, whatever its operands
    # Operand -> elements of the constant there, where one stored element holds several
    packed: Mapping[int, Formula] = MappingProxyType({})
    # Its results come from a graph that it runs, which counts them
    results_in_bodies: bool = False

    @property
    def costed(self) -> bool:
        """Whether it has a formula."""
        return self.contraction is not None or self.rest is not None

    @property
    def keeps_constants(self) -> bool:
        """Whether it makes constants of constants; contractions count even then, as papers do."""
        return self.contraction is None and not self.random

    @property
    def has_results(self) -> bool:
        """Whether it has a rule for types and shapes of its results."""
        return self.shapes is not None or self.values is not None

    def results(self, op: TypedNode, wanted: int) -> list[Value]:
        """Returns what is known of a node's results."""
        if self.values is not None:
            return self.values(op)
        shapes = self.shapes(op) if self.shapes is not None else ()
        return [_result(op, self.dtype(op, i), *shapes[i : i + 1]) for i in range(wanted)]

    def dtype(self, op: TypedNode, i: int) -> int:
        """Returns result ``i``'s element type, UNKNOWN if even that is not known."""
        try:
            return self.types[min(i, len(self.types) - 1)](op)
        except operation.RULE_ERRORS:  # there may be no type at all
            return dtypes.UNKNOWN


_MAX_RANK: Final = 64
_MAX_DIM: Final = 1 << 63


def _result(op: TypedNode, dtype: int, shape: Shape | None = None) -> Value:
    """A result of a type and shape; what no tensor of a runtime may have is an unknown shape."""
    value = Value(dtype)
    impossible = [dim for dim in shape or () if dim and not 0 < dim < _MAX_DIM]  # 0 is possible
    if shape is None:
        value.unknown = f"{op.title}: its shape rule does not cover all of its results"
    elif impossible or len(shape) > _MAX_RANK:
        value.unknown = f"{op.title}: a result would have an impossible shape"
    else:
        value.shape = tuple(shape)
    return value


def like(i: int) -> Types:
    """The type of operand ``i``."""
    return (lambda op: op.dtype(i),)


def always(dtype: int) -> Types:
    """One type."""
    return (lambda op: dtype,)


def named(attribute: str, otherwise: Types) -> Types:
    """The type that an attribute names, else another."""
    return (lambda op: op.attr(attribute, 0) or otherwise[0](op),)


T0: Final = like(0)
T1: Final = like(1)
BOOL: Final = always(dtypes.BOOL)
INT64: Final = always(dtypes.INT64)
INT32: Final = always(dtypes.INT32)
UINT8: Final = always(dtypes.UINT8)
FLOAT: Final = always(dtypes.FLOAT)


def same_shape(op: TypedNode) -> Sequence[Shape]:
    """Every result has the shape of the first operand."""
    return (op.shape(0),) * max(1, len(op.node.outputs))


def broadcast(shapes: Iterable[Shape]) -> Shape:
    """Returns the shape of shapes broadcast against each other, as numpy does."""
    given = list(shapes)
    if given and given.count(given[0]) == len(given):  # mostly
        return given[0]
    rank = max((len(shape) for shape in given), default=0)
    result: list[int | None] = []
    for axis in range(-rank, 0):
        dims = {shape[axis] for shape in given if len(shape) >= -axis}
        dims.discard(1)
        unknown = dims & {None}
        dims.discard(None)
        if len(dims) > 1:
            lengths = " and ".join(map(str, dims))
            raise MismatchError(f"lengths {lengths} of axis {axis} cannot be broadcast")
        result.append((dims or unknown or {1}).pop())
    return tuple(result)


def broadcast_all(op: TypedNode) -> Sequence[Shape]:
    """The shape of all operands broadcast."""
    return (broadcast(op.shape(i) for i in range(len(op.inputs)) if op.has(i)),)


def broadcast_of(*operands: int) -> ShapesOf:
    """The shape of some operands broadcast."""
    return lambda op: [broadcast(op.shape(i) for i in operands)]


def agree(what: str, *lengths: int | None) -> None:
    """Checks that lengths that have to be equal are."""
    different = dict.fromkeys(length for length in lengths if length is not None)
    if len(different) > 1:
        raise MismatchError(f"{what} differ: {', '.join(map(str, different))}")


def with_dim(shape: Shape, axis: int, dim: int | None) -> Shape:
    """Returns the shape with one length replaced."""
    return (*shape[:axis], dim, *shape[axis + 1 :])


def without(shape: Shape, axes: Collection[int]) -> Shape:
    """Returns the lengths of the other axes."""
    return tuple(dim for i, dim in enumerate(shape) if i not in axes)


def total(lengths: Sequence[int | None]) -> int | None:
    """Returns the sum of lengths; None if one is not known."""
    return None if None in lengths else _sum(lengths)


_sum: Final = cast("Callable[[Sequence[int | None]], int]", sum)  # Of lengths none of which is None


def scaled(length: int | None, factor: int, divisor: int = 1) -> int | None:
    """Returns a length times a fraction, rounded down; None if it is not known or divided by 0."""
    return None if length is None or not divisor else length * factor // divisor


def first_of(op: TypedNode, i: int) -> int | None:
    """Returns the first element of an operand; None if it is left out or not known."""
    return next(iter(whole(op.known_data(i)[:1])), None)


def has_known_keys(op: TypedNode) -> bool:
    """Whether it is known to how many keys a node attends: a GroupQueryAttention may be given the number as data."""
    takes_number = op.kind == "com.microsoft:GroupQueryAttention" and op.has(6)
    return not takes_number or first_of(op, 6) is not None


def whole(items: Iterable[Scalar]) -> Shape:
    """Returns elements as integers, None for one that is not known."""
    return tuple(None if item is None else int(item) for item in items)


# What scalar functions take, as onnx_tool counts the instructions of a usual sequence for them.
MUL: Final = 1
ADD: Final = 1
CMP: Final = 1
DIV: Final = 4
EXP: Final = 32
LOG: Final = 43
SIN: Final = 39
SQRT: Final = 24
TANH: Final = EXP + 2 * ADD + DIV
ATAN: Final = SQRT + 4 * MUL + DIV
ERF: Final = EXP + DIV + 10
"""Abramowitz and Stegun 7.1.26: |x|, 1+px, a reciprocal, five Horner steps, x^2, exp, 1-, sign."""

GELU_ERF: Final = ERF + 4
GELU_TANH: Final = TANH + 8
SOFTMAX: Final = EXP + 4  # Per element: exp and division
ROW: Final = ADD + SQRT + DIV  # Per normalized row: epsilon, square root, reciprocal


def zero(op: TypedNode) -> int:
    """Nothing is computed."""
    return 0


def volume0(shape: tuple[int, ...]) -> int:
    """Returns onnx_tool's number of elements: a rank-0 tensor has none."""
    return prod(shape) if shape else 0


def per_output(macs: int) -> Formula:
    """A number of MACs for each element of the first result."""
    return lambda op: macs * op.out_size()


def per_output0(macs: int) -> Formula:
    """As :func:`per_output`, rank 0 counted as onnx_tool does."""
    return lambda op: macs * volume0(op.out())


def per_input0(macs: int) -> Formula:
    """As :func:`per_input`, rank 0 counted as onnx_tool does."""
    return lambda op: macs * volume0(op.dims(0))


def elements_of(i: int) -> Formula:
    """A MAC for each element of operand ``i``."""
    return lambda op: op.size(i)


def per_input(macs: int) -> Formula:
    """A number of MACs for each element of the first operand."""
    return lambda op: macs * op.size(0)


def given(i: int, formula: Formula) -> Formula:
    """A formula if operand ``i`` is there, else nothing."""
    return lambda op: formula(op) if op.has(i) else 0


def present(i: int) -> Formula:
    """A MAC per result if operand ``i`` is there: a bias, a residual."""
    return given(i, per_output(1))


def added(*formulas: Formula) -> Formula:
    """The sum of formulas."""
    return lambda op: sum(formula(op) for formula in formulas)


def same(words: str, rest: Formula, tool: Formula | None = None) -> Rule:
    """An operator whose results have the first operand's shape and type."""
    return Rule(words, same_shape, T0, rest=rest, tool=tool)


def elementwise(
    macs: int, shapes: ShapesOf = same_shape, types: Types = T0, fold: Fold | None = None
) -> Rule:
    """A number of MACs per result."""
    rest, tool = per_output(macs), per_output0(macs)
    return Rule(f"{macs} per result", shapes, types, rest=rest, tool=tool, fold=fold)


def free(
    shapes: ShapesOf, types: Types = T0, fold: Fold | None = None,
    precision: Precision = NO_PRECISION, view: bool = False,
) -> Rule:  # fmt: skip
    """An operator that computes nothing."""
    words = "moves or makes elements"
    return Rule(words, shapes, types, rest=zero, fold=fold, precision=precision, view=view)


def not_costed(why: str, shapes: ShapesOf, types: Types = T0, tool: Formula | None = None) -> Rule:
    """An operator without a formula, and the reason."""
    return Rule(f"not costed: {why}", shapes, types, tool=tool)


# Elements of the small tensors that carry shapes. Each is known or not by itself: Concat([batch, -1, 768])
# is known in two places even where the batch is not. Floats are rounded to float32, because a Resize's scale
# that went through float32 decides whether a length is 13 or 14.

_MAX_TARGET: Final = 64  # Dimensions that a shape given as a tensor may have


def folded(fold: Fold, op: TypedNode, outputs: list[Value]) -> None:
    """Sets the elements of the results that can be known."""
    if outputs[0].size == 0:  # its other lengths may be anything, and nothing may loop over them
        outputs[0].data = ()
        return
    for value, data in zip(outputs, fold(op, outputs), strict=False):
        if len(data) == value.size and set(data) != {None}:
            value.data = tuple(_typed(item, value.dtype) for item in data)


def folding_effort(op: TypedNode, outputs: list[Value]) -> int | None:
    """Returns how many elements are looked at, at most, to compute the results'; None if they are too many."""
    size = outputs[0].size if outputs else None
    if size is None or size > operation.MAX_DATA:
        return None
    return sum(len(value.data or ()) for value in op.given) + size * (1 + len(op.inputs))


def _rounded(value: float, form: str) -> float:
    rounded: float = unpack(form, pack(form, value))[0]
    return rounded


def single(value: float) -> float:
    """Returns the value rounded to float32, in which runtimes scale lengths."""
    return _rounded(value, "<f")


_FORMS: Final = {
    dtypes.FLOAT: ("<f", 3e38), dtypes.FLOAT16: ("<e", 65504.0), dtypes.DOUBLE: ("<d", math.inf)
}  # fmt: skip
"""In struct, and what elements have to stay below to be followed."""


def _typed(item: Scalar, dtype: int) -> Scalar:
    """The element as its type holds it."""
    if item is None:
        return None
    if dtype == dtypes.BOOL:
        return int(bool(item))
    if dtype not in dtypes.FLOATS:
        return int(item) if -(1 << 63) <= item < 1 << 64 else None
    if not math.isfinite(item):
        return float(item)
    form, limit = _FORMS.get(dtype, ("", 0.0))
    return _rounded(item, form) if abs(item) < limit else None


def strides_of(shape: Sequence[int]) -> tuple[int, ...]:
    """Returns by how many elements the neighbours of each axis are apart."""
    return tuple(prod(shape[i + 1 :]) for i in range(len(shape)))


def taken(data: Data, strides: Sequence[int], ranges: Sequence[range]) -> Data:
    """Returns the elements at every combination of positions."""
    if not all(ranges):  # else long ranges beside an empty one would be written out
        return ()
    if prod(len(each) for each in ranges) > operation.MAX_DATA:
        problem = f"the result has more than {operation.MAX_DATA} elements; no more are computed"
        raise UnknownError(problem)
    return tuple(data[sum(map(operator.mul, strides, at))] for at in product(*ranges))


def stretched(value: Value, shape: tuple[int, ...]) -> Data:
    """Returns the elements of a tensor broadcast to ``shape``."""
    if value.data is None:
        return (None,) * prod(shape)
    if value.shape == shape:
        return value.data
    if len(value.data) == 1:
        return value.data * prod(shape)
    own = fixed(value)
    strides = [0 if dim == 1 else each for dim, each in zip(own, strides_of(own), strict=True)]
    return taken(value.data, [0] * (len(shape) - len(own)) + strides, list(map(range, shape)))


def fixed(value: Value) -> tuple[int, ...]:
    """Returns the shape of a value whose size is known."""
    return tuple(dim or 0 for dim in value.shape or ())


def copied(op: TypedNode, outputs: list[Value]) -> list[Data]:
    """The operand's elements, unchanged."""
    return [op.data(0)]


def axes_operand(op: TypedNode) -> tuple[int, ...] | None:
    """Returns axes, an attribute in old operator sets and operand 1 in new ones."""
    return op.ints(1) if op.has(1) else op.attr_ints("axes")


def target_shape(op: TypedNode, i: int) -> tuple[int | None, ...]:
    """Returns a shape given as a tensor; if only its length is known, that many unknowns."""
    data = op.input(i).data
    if data is not None:
        return whole(data)
    shape = op.dims(i)
    if len(shape) != 1 or shape[0] > _MAX_TARGET:
        why = f"operand {i} has shape {list(shape)}; one axis of at most {_MAX_TARGET} is expected"
        raise UnknownError(why)
    return (None,) * shape[0]
