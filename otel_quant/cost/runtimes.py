"""What onnxruntime runs on integers, by version and processor.

A quantized graph in QDQ form converts to floats in front of every operator and back behind it. Where
the runtime has a kernel on integers for that operator, it runs the kernel alone. The rules here
are those of a default session on onnxruntime's CPU provider. All were found by running:
``scripts/onnxruntime_rules.py`` builds every form, runs it in some version and compares.

The rules depend on the family of the processor, not on its instructions: with and without AVX512-VNNI
the same kernels are chosen. On x86-64 most kernels take no int8 activations; the runtime makes them
uint8 first, where one node alone reads them. On Arm it does not (``session.qdqisint8allowed``).
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from typing import Final, NamedTuple

from otel_quant.cost import dtypes
from otel_quant.cost.operation import Operation

BYTES: Final = frozenset({dtypes.INT8, dtypes.UINT8})
WORDS: Final = frozenset({dtypes.INT16, dtypes.UINT16})
NARROW: Final = BYTES | {dtypes.INT4, dtypes.UINT4, dtypes.INT2, dtypes.UINT2}


class Fusion(NamedTuple):
    """When an operator has a kernel on integers."""

    first: int = 0  # The first operand that has to be dequantized
    many: int | None = 1  # How many have to be, from there; None for all that the node has
    types: frozenset[int] = BYTES  # What the first may be quantized to
    weight: bool = False  # The second is a weight, of 8 bits, and signed if the first is
    signed: bool = True  # The first may be int8 on x86-64 too
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
_MOVE: Final = Fusion(types=BYTES | WORDS, result="equal")

FUSIONS: Final[Mapping[str, Fusion]] = {
    **dict.fromkeys(("AveragePool", "GlobalAveragePool", "LeakyRelu", "Sigmoid", "Softmax"), _ONE),
    **dict.fromkeys(("Add", "Mul", "Concat"), _ALL),
    "Where": Fusion(first=1, many=2),
    "Conv": Fusion(many=2, weight=True, signed=False, bias=2),
    "MatMul": Fusion(many=2, weight=True, signed=False, result="either"),
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


class Version(NamedTuple):
    """What is not the same in all versions."""

    # Operators of which MatMulNBits takes the place where a constant is dequantized for operand 1
    by_weights: frozenset[str] = frozenset({"MatMul", "Gemm"})
    weights: frozenset[int] = NARROW  # The types of such constants
    only_blocks: bool = False  # Such constants have to be quantized in blocks
    words: bool = False  # MatMulNBits beside 16-bit activations, too
    shared_weights: bool = False  # MatMulNBits for weights that others read, too
    float_bias: bool = True  # A bias in float is quantized when the model is loaded
    bias_scale: bool = True  # The scale of a Conv's bias has to be that of the products
    # Operators that are left in float where the kernel on integers does not take the scales or
    # zero points of the weight; of others the kernel is used, and fails when it is run
    spared: frozenset[str] = frozenset()


_FOUR_BITS: Final = frozenset({dtypes.INT4, dtypes.UINT4})

_1_23: Final = Version(frozenset({"MatMul"}), _FOUR_BITS, only_blocks=True, bias_scale=False)
_1_27: Final = Version()
VERSIONS: Final[Mapping[str, Version]] = {
    "1.22": _1_23._replace(float_bias=False),
    "1.23": _1_23,
    "1.25": _1_27._replace(bias_scale=False, shared_weights=True),
    "1.27": _1_27,
    "1.28": _1_27._replace(spared=frozenset({"Gemm"})),
    "1.32": _1_27._replace(spared=frozenset({"Gemm", "MatMul"}), words=True),
}
"""By the first version that has them. Older ones than the first, which nothing here supports, are taken for it."""

NEWEST: Final = "1.32.0"
"""The newest version that the rules were compared with by running."""


class Runtime(NamedTuple):
    """An onnxruntime, and the processor that it runs on."""

    version: str = NEWEST
    arm: bool = False  # Else x86-64
    installed: bool = True  # Whether it is there, or only the newest that is known

    @property
    def rules(self) -> Version:
        """What holds for its version."""
        found = [rules for since, rules in VERSIONS.items() if _key(since) <= _key(self.version)]
        return (found or list(VERSIONS.values())[:1])[-1]

    @property
    def title(self) -> str:
        """What the rules are of, for sentences."""
        title = f"onnxruntime {self.version} on an {'Arm' if self.arm else 'x86-64'} CPU"
        if not self.installed:
            return f"{title} (none is installed; this is the newest that is known)"
        newer = _key(self.version) > _key(NEWEST)
        return f"{title} (by the rules of {NEWEST}, the newest that is known)" if newer else title


def runtime_here() -> Runtime:
    """Returns the onnxruntime that this Python would import, else the newest that is known."""
    from platform import machine  # only for quantized models

    arm = machine().lower().startswith(("arm", "aarch64"))
    version = _installed_version()
    return Runtime(version or NEWEST, arm, installed=version is not None)


def _installed_version() -> str | None:
    """Reads it from the package's file: to import the package takes longer than all else."""
    for folder in sys.path:
        try:
            with open(os.path.join(folder, "onnxruntime", "__init__.py"), encoding="utf-8") as file:  # noqa: PTH118, PTH123  # pathlib takes 2 ms to import
                found = re.search(r'(?m)^__version__ = "([^"]+)"', file.read())
        except (OSError, ValueError):
            continue
        return found[1] if found else None
    return None


def _key(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])
