"""ONNX element types, one table: TensorProto.DataType's code, name, size and form in memory."""

from __future__ import annotations

from typing import Final

UNKNOWN: Final = 0
FLOAT: Final = 1
UINT8: Final = 2
INT8: Final = 3
UINT16: Final = 4
INT16: Final = 5
INT32: Final = 6
INT64: Final = 7
STRING: Final = 8
BOOL: Final = 9
FLOAT16: Final = 10
DOUBLE: Final = 11
UINT32: Final = 12
UINT64: Final = 13
BFLOAT16: Final = 16
UINT4: Final = 21
INT4: Final = 22
UINT2: Final = 25
INT2: Final = 26

_TYPES: Final = (
    # code, name, bits of a stored element, letter in struct, other names
    (FLOAT, "float32", 32, "f", "f32 float"),
    (UINT8, "uint8", 8, "B", "u8"),
    (INT8, "int8", 8, "b", "i8 s8"),
    (UINT16, "uint16", 16, "H", "u16"),
    (INT16, "int16", 16, "h", "i16"),
    (INT32, "int32", 32, "i", "i32 s32"),
    (INT64, "int64", 64, "q", "i64 s64"),
    (STRING, "string", 0, "", ""),
    (BOOL, "bool", 8, "?", ""),
    (FLOAT16, "float16", 16, "e", "f16"),
    (DOUBLE, "float64", 64, "d", "f64 double"),
    (UINT32, "uint32", 32, "I", "u32"),
    (UINT64, "uint64", 64, "Q", "u64"),
    (14, "complex64", 64, "", ""),
    (15, "complex128", 128, "", ""),
    (BFLOAT16, "bfloat16", 16, "", "bf16"),
    (17, "float8e4m3fn", 8, "", ""),
    (18, "float8e4m3fnuz", 8, "", ""),
    (19, "float8e5m2", 8, "", ""),
    (20, "float8e5m2fnuz", 8, "", ""),
    (UINT4, "uint4", 4, "", ""),
    (INT4, "int4", 4, "", ""),
    (23, "float4e2m1", 4, "", ""),
    (24, "float8e8m0", 8, "", ""),
    (UINT2, "uint2", 2, "", ""),
    (INT2, "int2", 2, "", ""),
)

NAMES: Final = {code: name for code, name, *_ in _TYPES}

_BITS: Final = {code: bits for code, _, bits, *_ in _TYPES if bits}
"""Strings have no fixed size and no entry."""

LETTERS: Final = {code: letter for code, _, _, letter, _ in _TYPES if letter}
"""What struct and numpy call the types that they have."""

FLOATS: Final = frozenset(code for code, name in NAMES.items() if "float" in name)
INTEGERS: Final = frozenset(code for code, name in NAMES.items() if "int" in name)
ARITHMETIC: Final = frozenset({FLOAT, FLOAT16, DOUBLE, BFLOAT16})
"""Floats that processors compute in."""

_BY_NAME: Final = {name: code for code, own, *_, more in _TYPES for name in (own, *more.split())}

QUANTIZED: Final = {
    code: name.removeprefix("u").partition("e")[0]
    for code, name in NAMES.items()
    if (code in INTEGERS and _BITS[code] <= 16) or code in (17, 18, 19, 20, 23)
}
"""Types that contractions are quantized to; signed or not is the same arithmetic."""

LIMITS: Final = {
    INT8: (-128, 127), UINT8: (0, 255), INT16: (-32768, 32767), UINT16: (0, 65535),
}  # fmt: skip
"""The lowest and the highest code."""


def code_of(name: str) -> int:
    """Returns the element type called ``name`` (``f32``, ``int64`` ...), or UNKNOWN."""
    return _BY_NAME.get(name, UNKNOWN)


def name_of(dtype: int) -> str:
    """Returns the type's name, ``unknown`` if there is none, ``type N`` if it is new to us."""
    return "unknown" if dtype == UNKNOWN else NAMES.get(dtype, f"type {dtype}")


def stored_bytes(dtype: int, elements: int) -> int | None:
    """Returns the bytes that ``elements`` take, sub-byte types packed; None if not known."""
    bits = _BITS.get(dtype)
    return None if bits is None else (elements * bits + 7) // 8
