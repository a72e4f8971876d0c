"""What onnxruntime runs on integers, by version and processor.

A quantized graph in QDQ form converts to floats in front of every operator and back behind it. Where
the runtime has a kernel on integers for that operator, it runs the kernel alone. The rules here
apply to a default session on onnxruntime's CPU provider. All were found by running:
``scripts/onnxruntime_rules.py`` builds every form, runs it in some version and compares.

The rules depend on the family of the processor, not on its instructions: with and without AVX512-VNNI
the same kernels are chosen. On x86-64 most kernels take no int8 activations; the runtime makes them
uint8 first, where one node alone reads them. On Arm it does not (``session.qdqisint8allowed``).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from math import nan
from types import MappingProxyType
from typing import Final, NamedTuple

from otel_quant.cost import dtypes, obstacles
from otel_quant.cost.obstacles import Obstacle
from otel_quant.cost.operation import Shape, TypedNode, Value
from otel_quant.cost.structure import Attribute

BYTES: Final = frozenset({dtypes.INT8, dtypes.UINT8})
WORDS: Final = frozenset({dtypes.INT16, dtypes.UINT16})
NARROW: Final = BYTES | {dtypes.INT4, dtypes.UINT4, dtypes.INT2, dtypes.UINT2}

_ALIKE: Final = {dtype: frozenset({dtype}) for dtype in BYTES}
_WEIGHTS: Final = {dtypes.INT8: frozenset({dtypes.INT8}), dtypes.UINT8: BYTES}


class Fusion(NamedTuple):
    """When an operator has a kernel on integers."""

    first: int = 0  # The first operand that has to be dequantized
    many: int | None = 1  # How many have to be, from there; None for all that the node has
    # What the first may be quantized to -> what the others then may be
    types: Mapping[int, frozenset[int]] = _ALIKE
    weight: bool = False  # The second is a weight
    signed: bool = True  # The first may be int8 on x86-64 too
    # Where an operand is that has to be dequantized from int32 or a constant, if it is there;
    # None for none
    bias: int | None = None
    # ``quantized`` to the type of the first, ``equal`` to it in type, scale and zero point as
    # well, ``either`` quantized or left in floats, or ``plain``: never quantized
    result: str = "quantized"
    since: int = 0  # First version of the operator set

    def operands(self, op: TypedNode) -> range:
        """Returns which operands have to be dequantized, but for the bias."""
        end = len(op.inputs) if self.many is None else self.first + self.many
        return range(self.first, end)


_ONE: Final = Fusion()
_ALL: Final = Fusion(many=None)
_MOVE: Final = Fusion(types=dict.fromkeys(BYTES | WORDS, frozenset()), result="equal")
_MOVING: Final = (
    "Expand", "Flatten", "Gather", "GatherElements", "Reshape", "Slice", "Split", "Squeeze", "Tile", "Transpose",
    "Unsqueeze",
)  # fmt: skip

FUSIONS: Final[Mapping[str, Fusion]] = {
    **dict.fromkeys(("AveragePool", "GlobalAveragePool", "LeakyRelu", "Sigmoid", "Softmax"), _ONE),
    **dict.fromkeys(("Add", "Mul", "Concat"), _ALL),
    "Where": Fusion(first=1, many=2),
    "Conv": Fusion(many=2, types=_WEIGHTS, weight=True, signed=False, bias=2),
    "MatMul": Fusion(many=2, types=_WEIGHTS, weight=True, signed=False, result="either"),
    "Gemm": Fusion(many=2, types=_WEIGHTS, weight=True, bias=2, result="either"),
    "ArgMax": Fusion(result="plain"),
    "MaxPool": Fusion(result="equal", since=12),
    **dict.fromkeys(("DepthToSpace", "ReduceMax", "ReduceMin", "Resize"), Fusion(result="equal")),
    **dict.fromkeys(_MOVING, _MOVE),
}
"""Operator -> its kernel on integers."""

CARRIES: Final = frozenset({"MaxPool", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze"})
"""Operators beyond which a quantization holds too, so that it is moved there."""


FLOAT16: Final = frozenset({
    "Attention", "com.microsoft:GroupQueryAttention", "com.microsoft:MatMulNBits", "com.microsoft:QMoE",
})  # fmt: skip
"""Contractions with a kernel for float16 on x86-64, in all versions: ``scripts/onnxruntime_rules.py`` asks each."""


class Version(NamedTuple):
    """What is not the same in all versions."""

    # Operators of which MatMulNBits takes the place where a constant is dequantized for operand 1
    by_weights: frozenset[str] = frozenset({"MatMul", "Gemm"})
    weights: frozenset[int] = NARROW  # The types of such constants
    bits: str = "2, 4 or 8"  # The same in words
    # How such constants may be quantized, beside blocks along axis 0: with one scale, or columns
    layouts: frozenset[str] = frozenset({"one", "columns"})
    # Types of 16-bit activations beside which MatMulNBits takes their place, too
    words: Mapping[str, frozenset[int]] = MappingProxyType({})
    shared_weights: bool = False  # MatMulNBits for weights or scales that others read, too
    float_bias: bool = True  # A bias in float is quantized when the model is loaded
    pads: bool = True  # A Pad in front of a Conv is made a part of that
    # Weights are dequantized behind what reshapes them; a Gemm with an alpha is quantized on loading
    reshapes_weights: bool = False
    any_alpha: bool = False
    # Operators the scale of whose bias has to be the scale of the products
    bias_scale: frozenset[str] = frozenset({"Conv"})
    # Operators, and whether their results are quantized, that are left in float where the kernel on
    # integers does not take the scales or zero points of the weight; of others it is used, and fails
    spared: frozenset[tuple[str, bool]] = frozenset()


_FOUR_BITS: Final = frozenset({dtypes.INT4, dtypes.UINT4})

_1_25: Final = Version(
    bias_scale=frozenset(), shared_weights=True, reshapes_weights=True, any_alpha=True
)
_1_23: Final = _1_25._replace(
    by_weights=frozenset({"MatMul"}), weights=_FOUR_BITS, bits="4", layouts=frozenset(),
    shared_weights=False, pads=False,
)  # fmt: skip
_1_22: Final = _1_23._replace(float_bias=False)
_1_27: Final = Version(any_alpha=True)
_GEMMS: Final = frozenset({("Gemm", True), ("Gemm", False)})
VERSIONS: Final[Mapping[str, Version]] = {
    "1.22": _1_22, "1.23": _1_23, "1.25": _1_25, "1.27": _1_27, "1.28": Version(spared=_GEMMS),
    "1.32": Version(
        spared=_GEMMS | {("MatMul", True)}, words=dict.fromkeys(("Gemm", "MatMul"), WORDS)
    ),
}  # fmt: skip
"""By the first version that has them. Older ones than the first, which nothing here supports, are taken for it."""

NEWEST: Final = "1.32.0"  # The newest version that the rules were compared with by running


class Onnxruntime(NamedTuple):
    """An onnxruntime, and the processor that it runs on."""

    version: str = NEWEST
    arm: bool = False  # Else x86-64
    installed: bool = True  # Whether it is there, or only the newest that is known

    @property
    def rules(self) -> Version:
        """What holds for its version."""
        known = [rules for since, rules in VERSIONS.items() if _key(since) <= _key(self.version)]
        return [_1_22, *known][-1]

    @property
    def title(self) -> str:
        """What the rules are of, for sentences."""
        title = f"onnxruntime {self.version} on an {'Arm' if self.arm else 'x86-64'} CPU"
        if not self.installed:
            return f"{title} (none is installed; this is the newest that is known)"
        newer = _key(self.version) > _key(NEWEST)
        return f"{title} (by the rules of {NEWEST}, the newest that is known)" if newer else title


def runtime_here() -> Onnxruntime:
    """Returns the onnxruntime that this Python would import, else the newest that is known."""
    # As platform.machine(), which takes 2 ms to import
    machine = os.uname().machine if hasattr(os, "uname") else os.environ["PROCESSOR_ARCHITECTURE"]
    arm = machine.lower().startswith(("arm", "aarch64"))
    version = _installed_version()
    return Onnxruntime(version or NEWEST, arm, installed=version is not None)


def _installed_version() -> str | None:
    """Reads it from the package's source: to import the package takes longer than all else."""
    from importlib.machinery import PathFinder, SourceFileLoader

    spec = PathFinder.find_spec("onnxruntime")
    if spec is None or not isinstance(spec.loader, SourceFileLoader):
        return None
    with suppress(ImportError):  # it cannot be read
        source = spec.loader.get_source(spec.name) or ""
        return next(iter(re.findall(r'(?m)^__version__ = "([^"]+)"', source)), None)
    return None


def _key(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])


class Quantized(NamedTuple):
    """Integers that stand for a float tensor."""

    value: Value  # The integers
    dtype: int  # Their type when they are run; onnxruntime makes some int8 uint8
    scale: Value  # Their scale
    zero_point: Value | None  # Their zero point; None if it is left out
    # Of the node that converts them
    attributes: Mapping[str, Attribute] = MappingProxyType({})

    @property
    def shape(self) -> Shape:
        """Their lengths; none where the rank is not known."""
        return self.value.shape or ()

    @property
    def even(self) -> bool:
        """Whether scale and zero point are constants, one number each."""
        return is_single(self.scale) and (self.zero_point is None or is_single(self.zero_point))

    def equals(self, other: Quantized) -> bool:
        """Whether the integers of either can be used for the other's."""
        return (
            self.even
            and other.even
            and self.value.dtype == other.value.dtype
            and self.zero_point is not None
            and same(self.scale) == same(other.scale)
            and same(self.zero_point) == same(other.zero_point)
        )


def is_single(value: Value) -> bool:
    """Whether it is a constant of one element."""
    return value.constant and value.size == 1


def same(value: Value | None) -> object:
    """Returns what equal constants have in common: their elements if these are few."""
    return (value.dtype, value.data) if value is not None and value.data else value


def is_product(bias: Quantized, x: Quantized, weight: Quantized) -> bool:
    """Whether a bias has the scale of the products, as near as onnxruntime wants it.

    Where scales are too many to be kept, it is taken to have.
    """
    of_bias, of_x, of_weight = map(numbers, (bias.scale, x.scale, weight.scale))
    for i in range(max(len(of_bias), len(of_weight))):
        found, one, other = (each[i % len(each)] for each in (of_bias, of_x, of_weight))
        if abs(found - one * other) > 1e-6 + 0.01 * abs(one * other):
            return False
    return True


def numbers(value: Value) -> list[float]:
    """Returns the elements of a constant; NaN, which nothing is beyond, for what is not known."""
    return [nan if item is None else float(item) for item in value.data or (None,)]


def against_scales(weights: Quantized, rules: Version, *, shared: bool) -> Iterator[Obstacle]:
    """Yields why the kernel for floats by integers does not take the scales of weights.

    ``shared``: others read the scales too, and the version minds.
    """
    layout = _layout(weights)
    if layout == "rows":
        yield obstacles.BY_ROWS
    elif layout not in rules.layouts | {"blocks"} or (layout == "one" and shared):
        yield obstacles.OTHER_GROUPS


_BLOCKS: Final = tuple((0, 1 << bits) for bits in range(4, 31))
"""Axis and length of the blocks that there are kernels for."""


def _layout(weights: Quantized) -> str:
    """How the scales of a matrix are laid out; empty for other ones, and of what is no matrix.

    Case 1: the scales or zero points are computed, or not alike.
    Case 2: one for each block of 16, 32, 64 ... rows in each column.
    Case 3: one.
    Case 4: one for each row, over which the products are summed.
    Case 5: one for each column.
    """
    shape, grid, given = weights.shape, weights.scale.shape, weights.attributes
    axis, block = given.get("axis", 1), given.get("block_size", 0)
    constants = (weights.scale, weights.zero_point or weights.scale)
    if len(shape) != 2 or not all(each.constant and each.shape == grid for each in constants):
        return ""  # Case 1
    if block:  # Case 2
        return "blocks" if (axis, block) in _BLOCKS else ""
    if grid == ():  # Case 3
        return "one"
    if (axis, grid) == (0, shape[:1]):  # Case 4
        return "rows"
    return "columns" if (axis, grid) == (1, shape[1:]) else ""  # Case 5


_PLAIN: Final = {"transA": 0, "transB": 0, "alpha": 1.0}


def is_plain_gemm(op: TypedNode, weights: Shape) -> bool:
    """Whether a Gemm is a MatMul, and perhaps adds a bias."""
    given = op.attributes
    if any(given.get(name, plain) != plain for name, plain in _PLAIN.items()):
        return False
    if not op.has(2):
        return True
    return given.get("beta", 1.0) == 1.0 and op.input(2).shape == weights[1:]
