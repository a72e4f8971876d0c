"""ONNX element types: code, name and size, as TensorProto.DataType numbers them."""

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
COMPLEX64: Final = 14
COMPLEX128: Final = 15
BFLOAT16: Final = 16
FLOAT8E4M3FN: Final = 17
UINT4: Final = 21
INT4: Final = 22

NAMES: Final = {
    FLOAT: "float32",
    UINT8: "uint8",
    INT8: "int8",
    UINT16: "uint16",
    INT16: "int16",
    INT32: "int32",
    INT64: "int64",
    STRING: "string",
    BOOL: "bool",
    FLOAT16: "float16",
    DOUBLE: "float64",
    UINT32: "uint32",
    UINT64: "uint64",
    COMPLEX64: "complex64",
    COMPLEX128: "complex128",
    BFLOAT16: "bfloat16",
    FLOAT8E4M3FN: "float8e4m3fn",
    18: "float8e4m3fnuz",
    19: "float8e5m2",
    20: "float8e5m2fnuz",
    UINT4: "uint4",
    INT4: "int4",
    23: "float4e2m1",
    24: "float8e8m0",
    25: "uint2",
    26: "int2",
}

BITS: Final = {
    FLOAT: 32,
    UINT8: 8,
    INT8: 8,
    UINT16: 16,
    INT16: 16,
    INT32: 32,
    INT64: 64,
    BOOL: 8,
    FLOAT16: 16,
    DOUBLE: 64,
    UINT32: 32,
    UINT64: 64,
    COMPLEX64: 64,
    COMPLEX128: 128,
    BFLOAT16: 16,
    FLOAT8E4M3FN: 8,
    18: 8,
    19: 8,
    20: 8,
    UINT4: 4,
    INT4: 4,
    23: 4,
    24: 8,
    25: 2,
    26: 2,
}
"""Bits of one stored element. Strings have no fixed size and no entry."""

FLOATS: Final = frozenset({FLOAT, FLOAT16, DOUBLE, BFLOAT16, 17, 18, 19, 20, 23, 24})
INTEGERS: Final = frozenset(
    {UINT8, INT8, UINT16, INT16, INT32, INT64, UINT32, UINT64, UINT4, INT4, 25, 26}
)

_BY_NAME: Final = {name: code for code, name in NAMES.items()} | {
    "f16": FLOAT16,
    "f32": FLOAT,
    "f64": DOUBLE,
    "bf16": BFLOAT16,
    "i8": INT8,
    "i16": INT16,
    "i32": INT32,
    "i64": INT64,
    "u8": UINT8,
    "u16": UINT16,
    "u32": UINT32,
    "u64": UINT64,
    "s8": INT8,
    "s32": INT32,
    "s64": INT64,
    "float": FLOAT,
    "double": DOUBLE,
}


def code_of(name: str) -> int:
    """Returns the element type called ``name`` (``f32``, ``int64`` ...), or UNKNOWN."""
    return _BY_NAME.get(name, UNKNOWN)


def name_of(dtype: int) -> str:
    """Returns the type's name, ``unknown`` if there is none, ``type N`` if it is new to us."""
    if dtype == UNKNOWN:
        return "unknown"
    return NAMES.get(dtype, f"type {dtype}")


def stored_bytes(dtype: int, elements: int) -> int | None:
    """Returns the bytes that ``elements`` take, sub-byte types packed; None if not known."""
    bits = BITS.get(dtype)
    return None if bits is None else (elements * bits + 7) // 8
