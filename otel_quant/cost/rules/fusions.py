"""Operators for which runtimes have a kernel on integers, and when it takes the place of a node.

The conditions are those of onnxruntime's CPU provider at its extended level of optimization; a
test holds them against the nodes that it runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from otel_quant.cost import dtypes

BYTES: Final = frozenset({dtypes.INT8, dtypes.UINT8})
_WORDS: Final = BYTES | {dtypes.INT16, dtypes.UINT16}


@dataclass(frozen=True, slots=True, eq=False)
class Fusion:
    """When an operator has a kernel on integers."""

    first: int = 0  # The first operand that has to be dequantized
    count: int | None = 1  # How many have to be, from there; None for all that the node has
    types: frozenset[int] = BYTES  # What the first may be quantized to
    weight: bool = False  # The second is a weight, of 8 bits, and signed if the first is
    # Where an operand is that has to be dequantized from int32 or a constant, if it is there;
    # None for none
    bias: int | None = None
    # ``quantized`` to the type of the first, ``equal`` to it in type, scale and zero point as
    # well, ``either`` quantized or left in floats, or ``plain``: never quantized
    result: str = "quantized"
    since: int = 0  # First version of the operator set


_ONE: Final = Fusion()
_ALL: Final = Fusion(count=None)
_MOVE: Final = Fusion(types=_WORDS, result="equal")

FUSIONS: Final[Mapping[str, Fusion]] = {
    **dict.fromkeys(("AveragePool", "GlobalAveragePool", "LeakyRelu", "Sigmoid", "Softmax"), _ONE),
    **dict.fromkeys(("Add", "Mul", "Concat"), _ALL),
    "Where": Fusion(first=1, count=2),
    "Conv": Fusion(count=2, weight=True, bias=2),
    "MatMul": Fusion(count=2, weight=True, result="either"),
    "Gemm": Fusion(count=2, weight=True, bias=2, result="either"),
    "ArgMax": Fusion(result="plain"),
    "MaxPool": Fusion(result="equal", since=12),
    **dict.fromkeys(
        ("DepthToSpace", "ReduceMax", "ReduceMin", "Resize"),
        Fusion(result="equal"),
    ),
    **dict.fromkeys(
        (
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
        ),
        _MOVE,
    ),
}
"""Operator -> its kernel on integers."""

CARRIES: Final = frozenset({"MaxPool", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze"})
"""Operators beyond which a quantization holds too, so that it is moved there."""
