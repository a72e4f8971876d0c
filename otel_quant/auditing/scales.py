"""Looks at the values of scales, read piece by piece from their files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path
from time import monotonic
from typing import Any, Final

from otel_quant.auditing.checkpoint import StoredTensor
from otel_quant.auditing.results import Problems, ScalesRead

_PIECE: Final = 1 << 22  # Bytes that are read at a time
_SMALLEST: Final = {"F16": 1e-6, "F32": 1.2e-38, "BF16": 1.2e-38, "F64": 1e-307}
"""Below these a scale has lost its digits. Of F16 not all that are denormal: half of its range has seven bits and more."""

_BIASES: Final = {"F8_E4M3": (7, 3, 0x7F), "F8_E5M2": (15, 2, 0x7C)}
_ZERO_IS_FINE: Final = ("absmax", "nested_absmax")  # of blocks that are zero


def check_scales(
    tensors: Iterable[StoredTensor], problems: Problems, seconds: float | None = None
) -> ScalesRead:
    """Adds scales that no weight can have: not finite, zero, or denormal; stops when the time is over."""
    wanted = [
        each
        for each in tensors
        if each.dtype in (*_SMALLEST, *_BIASES, "F8_E8M0", "U8") and each.size
    ]
    whole, read = sum(each.size for each in wanted), 0
    if find_spec("numpy") is None:
        return ScalesRead(0, whole, "numpy is not installed; pip install otel-quant[inference]")
    until = None if seconds is None else monotonic() + seconds
    for each in sorted(wanted, key=lambda it: (it.file, it.begin)):
        counts: dict[str, int] = {}
        for piece in pieces(each):
            if until is not None and monotonic() > until:
                return ScalesRead(read, whole, "the time was over")
            read += len(piece)
            for what, count in _wrong(each, piece):
                counts[what] = counts.get(what, 0) + count
        for what, count in counts.items():
            how = "all" if count == each.elements else f"{count:,} of {each.elements:,}"
            problems.add("scale", each.name, f"{how} {what}")
    return ScalesRead(read, whole)


def pieces(tensor: StoredTensor) -> Iterator[bytes]:
    """Yields a tensor's bytes, as far as its file has them."""
    with Path(tensor.file).open("rb") as file:
        file.seek(tensor.begin)
        left = tensor.size
        while left > 0 and (piece := file.read(min(_PIECE, left))):
            left -= len(piece)
            yield piece


def values_of(dtype: str, data: bytes) -> Any:
    """Returns floats of a safetensors type as an array of numpy."""
    import numpy as np

    if dtype == "BF16":
        return (np.frombuffer(data[: len(data) // 2 * 2], "<u2").astype("<u4") << 16).view("<f4")
    if dtype in _BIASES:
        bias, bits, first_special = _BIASES[dtype]
        codes = np.arange(256)
        exponent, fraction = (codes & 0x7F) >> bits, codes & ((1 << bits) - 1)
        table = np.where(
            exponent == 0,
            fraction * 2.0 ** (1 - bias - bits),
            (1 + fraction / (1 << bits)) * 2.0 ** (exponent - bias),
        )
        table[(codes & 0x7F) >= first_special] = np.nan
        return np.where(codes & 0x80, -table, table).astype("<f4")[np.frombuffer(data, "u1")]
    if dtype in ("U8", "F8_E8M0"):
        codes = np.frombuffer(data, "u1")
        return np.where(codes == 255, np.nan, np.exp2(codes.astype("<f4") - 127)).astype("<f4")
    width = {"F16": 2, "F32": 4, "F64": 8}[dtype]
    return np.frombuffer(data[: len(data) // width * width], f"<f{width}")


def _wrong(tensor: StoredTensor, piece: bytes) -> Iterator[tuple[str, int]]:
    import numpy as np

    suffix = tensor.name.rpartition(".")[2]
    if tensor.dtype == "U8" and suffix != "weight_scale":
        return  # codes of scales that are quantized themselves
    values = values_of(tensor.dtype, piece)
    sizes = np.abs(values)
    nan, infinite = int(np.isnan(values).sum()), int(np.isinf(values).sum())
    zero = int((sizes == 0).sum())
    small = int((sizes < _SMALLEST.get(tensor.dtype, 0)).sum()) - zero
    yield from (
        (what, count)
        for what, count in (("are NaN", nan), ("are infinite", infinite), ("are denormal", small))
        if count > 0
    )
    if zero and suffix not in _ZERO_IS_FINE:
        yield "are zero", zero
