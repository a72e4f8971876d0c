"""What is known of operators by their names, as torch's profiler has them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Final

from otel_quant.cost.graph import printable

QUANTIZE: Final = "quantize"
DEQUANTIZE: Final = "dequantize"
OBSERVE: Final = "observe"
SCALES: Final = "choose scales"
CONVERT: Final = "convert"

_KINDS: Final[Mapping[str, re.Pattern[str]]] = {
    OBSERVE: re.compile(
        r"aten::_?fake_quantize_.*|aten::_?fused_moving_avg_obs.*|quantized_decomposed::fake_quant.*"
    ),
    DEQUANTIZE: re.compile(r"\w+::_?dequantize(_.*)?"),
    QUANTIZE: re.compile(r"\w+::_?quantize_.*"),
    SCALES: re.compile(r"\w+::_?choose_(qparams|scale).*"),
}
"""Operators that change how numbers are stored, by what they do. Those within them belong to them."""

_CONTRACTIONS: Final = re.compile(
    r"(aten|mkldnn|mkl|onednn)::_?(mkl_)?(linear|conv(_transpose)?[123]d|convolution|convolution_pointwise"
    r"|linear_pointwise|matmul|einsum|mm|bmm|addmm|baddbmm)"
)

_PRODUCTS: Final = re.compile(r"\w+::_?(.*_)?(linear|conv|mm|matmul|addmm|bmm|baddbmm).*")

COPY: Final = "aten::copy_"
"""Operator of a conversion: its first operand is what is written, its second what is read."""

COPIES: Final = frozenset({"aten::to", "aten::_to_copy", COPY})
"""Operators that contain nothing but a copy."""

_ARITHMETIC: Final = frozenset({"aten::mul", "aten::sub", "aten::div"})
"""Operators that make floats of integers where the other operand, a scale, is one."""

_WITHOUT_COMPUTING: Final = frozenset(
    f"aten::{name}"
    for name in (
        "_reshape_alias", "_unsafe_view", "alias", "as_strided", "chunk", "clone", "contiguous", "detach",
        "expand", "flatten", "narrow", "permute", "reshape", "select", "slice", "split", "squeeze", "t",
        "transpose", "unbind", "unflatten", "unsqueeze", "view", "empty", "empty_like", "empty_strided",
        "item", "_local_scalar_dense", "dropout", "resolve_conj",
    )
)  # fmt: skip

COMPILED: Final = "## Call CompiledFxGraph "
"""Begin of the event around code that torch.compile has generated; its key follows."""

_GENERATED: Final = (COMPILED, "cpp_", "triton_")

_TYPES: Final[Mapping[str, str]] = {
    "float": "float32",
    "double": "float64",
    "signed char": "int8",
    "unsigned char": "uint8",
    "short int": "int16",
    "int": "int32",
    "long int": "int64",
    "long": "int64",
    "Half": "float16",
    "BFloat16": "bfloat16",
}
"""Types that the profiler has under C++'s names."""

_INTEGERS: Final = re.compile(r"q?u?int[1-8](x\d)?|float8.*|bits.*")
"""Types of at most eight bits, which weights are quantized to."""


@cache
def kind_of(name: str) -> str | None:
    """Returns what an operator does to how numbers are stored; None for any other operator."""
    return next((kind for kind, names in _KINDS.items() if names.fullmatch(name)), None)


@cache
def is_operator(name: str) -> bool:
    """Whether an event of the profiler is a kernel and not a part of the runtime's Python."""
    return "::" in name or name.startswith(_GENERATED)


@cache
def contracts(name: str) -> bool:
    """Whether an operator is a matrix product or a convolution of floats."""
    return _CONTRACTIONS.fullmatch(name) is not None


@cache
def multiplies(name: str) -> bool:
    """Whether an operator is a matrix product or a convolution of whatever type."""
    return _PRODUCTS.fullmatch(name) is not None


def makes_floats(name: str) -> bool:
    """Whether an operator that takes integers and returns floats dequantizes them."""
    return name in COPIES or name in _ARITHMETIC


def computes(name: str) -> bool:
    """Whether an operator computes something, rather than to look at a tensor in another way."""
    return name not in _WITHOUT_COMPUTING and name not in COPIES and kind_of(name) is None


@cache
def type_of(name: str) -> str:
    """Returns a type as torch names it in Python."""
    plain = name.removeprefix("c10::")
    return _TYPES.get(plain, plain.lower())


def is_small(dtype: str) -> bool:
    """Whether a type has eight bits at most."""
    return _INTEGERS.fullmatch(dtype) is not None


_ALLOCATES: Final = re.compile(r"aten::(_?empty(_.*)?|new_empty(_.*)?|resize_)")


def allocates(name: str) -> bool:
    """Whether an operator only allocates, for the operator within which it runs."""
    return _ALLOCATES.fullmatch(name) is not None


def shown(name: str) -> str:
    """Returns an operator as people are shown it."""
    if not name.startswith(COMPILED):
        return name
    key = name[len(COMPILED) :].removesuffix(" ##")
    return "compiled code" if key == "None" else f"compiled code {key[:8]}"


MODEL: Final = "(model)"
"""What stands in place of a path for the model itself."""

_LONGEST: Final = 120


def place_name(module: str) -> str:
    """Returns the path of a module as people are shown it."""
    return printable(module, _LONGEST) if module else MODEL
