"""How far off the weights of quantized layers are from those of the float model, a few rows at a time."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from otel_quant.auditing.checkpoint import StoredTensor
from otel_quant.auditing.layouts import Fit, Tensors

_WIDTHS: Final = {"F16": "<f2", "F32": "<f4", "F64": "<f8", "I8": "i1", "I32": "<i4", "BF16": "<u2"}
_FP8: Final = {"F8_E4M3": (3, 7), "F8_E5M2": (2, 15)}  # Bits of the fraction, bias of the exponent
_FP4: Final = (0, 0.5, 1, 1.5, 2, 3, 4, 6)
_ORDER: Final = (0, 4, 1, 5, 2, 6, 3, 7)  # In which AWQ and Quark have codes of 4 bits in an int32

_ZEROS: Final = ("qzeros", "_weight_zero_point", "weight_zero_point")
_WEIGHTS: Final = 1 << 21  # Weights that are looked at at a time
_TINY: Final = 1e-30
_SCALED: Final = 0.05  # Median of a channel's factor from which on a library has scaled channels


def sqnr(found: Fit, tensors: Tensors, other: StoredTensor, method: str) -> float | None:
    """Returns the signal to quantization noise of a layer's weights in dB; None where it is not known.

    Channels that were scaled before (AWQ, SmoothQuant) are compared with what they were scaled from.
    """
    if found.copies != 1 or found.misfits or other.shape != (found.outputs, found.inputs):
        return None
    try:
        with np.errstate(all="ignore"):
            return _sqnr(found, tensors, other, method)
    except (ValueError, LookupError, OSError):  # a tensor is missing, cut, or makes no sense
        return None


def _sqnr(found: Fit, tensors: Tensors, other: StoredTensor, method: str) -> float | None:
    products, squares = np.zeros(found.inputs), np.zeros(found.inputs)
    for made, real in _parts(found, tensors, other, method):
        products += (made * real).sum(0, dtype=float)
        squares += (real * real).sum(0, dtype=float)
    if not products.any():  # all of them are 0
        return 0.0
    factors = products / np.maximum(squares, _TINY)
    factors = factors if np.median(abs(factors - 1)) > _SCALED else np.ones(found.inputs)
    signal = noise = 0.0
    for made, real in _parts(found, tensors, other, method):
        real = real * factors
        rows = (made * real).sum(1) / np.maximum((real * real).sum(1), _TINY)
        real = real * (rows[:, None] if np.median(abs(rows - 1)) > _SCALED else 1)
        signal += float((real * real).sum(dtype=float))
        noise += float(((made - real) ** 2).sum(dtype=float))
    return 10 * math.log10(signal / noise) if signal > 0 and noise > 0 else None


def _parts(
    found: Fit, tensors: Tensors, other: StoredTensor, method: str
) -> Iterator[tuple[Any, Any]]:
    """Yields weights as they are used, and as they were, some rows at a time."""
    rows = max(32, _WEIGHTS // found.inputs // 32 * 32)
    arrays = {suffix: _array(each) for suffix, each in tensors.items()}
    for at in range(0, found.outputs, rows):
        part = slice(at, min(at + rows, found.outputs))
        real = _floats(_array(other)[part], other.dtype)
        yield _dequantized(found, tensors, arrays, part, method), real


def _array(tensor: StoredTensor) -> Any:
    """Returns a tensor as an array that is read where it is used."""
    width = _WIDTHS.get(tensor.dtype, "u1")
    return np.memmap(tensor.file, width, "r", tensor.begin, tensor.shape or (1,))


def _floats(values: Any, dtype: str) -> Any:
    """Returns values of a safetensors type as float32."""
    if dtype == "BF16":
        return (values.astype("<u4") << 16).view("<f4")
    if dtype in ("U8", "F8_E8M0"):
        return np.exp2(values.astype("<f4") - 127)
    if dtype in _FP8:
        bits, bias = _FP8[dtype]
        codes = np.arange(128)
        exponents, fractions = codes >> bits, (codes & ((1 << bits) - 1)) / (1 << bits)
        sizes = (fractions + (exponents > 0)) * 2.0 ** (np.maximum(exponents, 1) - bias)
        return np.concatenate([sizes, -sizes]).astype("<f4")[values]
    return values.astype("<f4")


def _unpacked(values: Any, bits: int, axis: int, order: tuple[int, ...] = ()) -> Any:
    """Returns the codes in int32, along an axis."""
    places = np.arange(32 // bits, dtype="<u4") if not order else np.array(order, "<u4")
    words = np.ascontiguousarray(values).view("<u4")
    shifts = (places * bits).reshape((-1, 1) if axis == 0 else (1, -1))
    codes = (np.expand_dims(words, axis + 1) >> shifts) & ((1 << bits) - 1)
    return codes.reshape([-1 if at == axis else length for at, length in enumerate(values.shape)])


def _dequantized(
    found: Fit, tensors: Tensors, arrays: dict[str, Any], part: slice, method: str
) -> Any:
    """Returns rows of a weight, as they are used."""
    name, is_turned = next((name, words == "n o") for name, words in found.form.scales.items())
    rows, which = np.arange(part.start, part.stop), arrays.get("g_idx")
    made, zeros = _codes(found, tensors, arrays, part, method)
    scales = _floats(arrays[name], tensors[name].dtype)
    scale, zero = (_spread(found, it.T if is_turned else it, rows, which) for it in (scales, zeros))
    over, times = (
        float(arrays[it].reshape(-1)[0]) if it in arrays else 1.0
        for it in ("weight_global_scale", "weight_scale_2")
    )
    return (made.astype("<f4") - zero) * scale * (times / over / (127 if name == "SCB" else 1))


def _codes(
    found: Fit, tensors: Tensors, arrays: dict[str, Any], part: slice, method: str
) -> tuple[Any, Any]:
    """Returns the codes of rows, and the zero points of all."""
    form, bits = found.form, found.bits
    key = next((it for it in _ZEROS if it in arrays), "")
    codes, zeros = arrays[form.codes], arrays[key] if key else np.zeros(1)
    if form.bits == 0 and bits in (2, 4, 8):
        return _of_int32(found, codes, zeros, part, method)
    if form.shape == "o i2":
        made = np.stack([codes[part] & 15, codes[part] >> 4], -1)
        made = made.reshape(part.stop - part.start, -1)
        return np.array([*_FP4, *(-each for each in _FP4)], "<f4")[made], zeros
    if form.shape == "o i":
        zeros = _floats(zeros, tensors[key].dtype) if key else zeros
        return _floats(codes[part], tensors[form.codes].dtype), zeros
    raise LookupError(form.shape)  # codes that are not read here


def _of_int32(found: Fit, codes: Any, zeros: Any, part: slice, method: str) -> tuple[Any, Any]:
    """Returns the codes of rows, and the zero points of all, where they are packed."""
    shape, bits, half = found.form.shape, found.bits, 1 << (found.bits - 1)
    order = _ORDER if bits == 4 and method in ("awq", "quark") else ()
    by_outputs, is_turned = shape.endswith("o*"), shape[0] == "i"
    outer = slice(part.start * bits // 32, -(-part.stop * bits // 32))
    made = codes[:, outer if by_outputs else part].T if is_turned else codes[part]
    made = _unpacked(made, bits, 0 if by_outputs else 1, order)
    if zeros.size > 1:  # packed along the outputs; GPTQ's first format has one less
        zeros = zeros.T if is_turned else zeros.reshape(len(zeros), -1)
        zeros = _unpacked(zeros, bits, 0, order) + (shape == "i* o" and method != "gptq_v2")
        zeros = zeros.T if is_turned else zeros
    elif method != "quark":
        zeros = np.array([half])
    if method == "quark" and not zeros.any():  # signed
        made = np.where(made >= half, made.astype("<i4") - 2 * half, made)
    return made, zeros


def _spread(found: Fit, values: Any, rows: Any, which: Any) -> Any:
    """Returns the scale, or zero point, of each weight in some rows."""
    bare = values.squeeze()
    if bare.ndim < 2:
        bare = bare.reshape((-1, 1) if bare.size == found.outputs else (1, -1))
    rows = rows // -(-found.outputs // bare.shape[0])
    columns = np.arange(found.inputs) // -(-found.inputs // bare.shape[1])
    return bare[rows][:, columns if which is None else which]
