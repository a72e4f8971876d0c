"""Looks at the values of scales, read piece by piece from their files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path
from time import monotonic
from typing import Final

from otel_quant.auditing.checkpoint import StoredTensor
from otel_quant.auditing.results import Problems, ScalesRead

_PIECE: Final = 1 << 22  # Bytes that are read at a time

_BITS: Final = {
    "F16": ("<u2", 0x7FFF, 0x7C00, 0x11),
    "BF16": ("<u2", 0x7FFF, 0x7F80, 0x80),
    "F32": ("<u4", (1 << 31) - 1, 0x7F800000, 1 << 23),
    "F64": ("<u8", (1 << 63) - 1, 0x7FF << 52, 1 << 52),
    "F8_E4M3": ("u1", 0x7F, 0x7E + 0.5, 1),
    "F8_E5M2": ("u1", 0x7F, 0x7C, 1),
    "U8": ("u1", 0xFF, 0xFE + 0.5, -1),
    "F8_E8M0": ("u1", 0xFF, 0xFE + 0.5, -1),
}
"""Of a type its width, the bits without the sign, those of infinity, above which is NaN, and the least that is no denormal. Of
F16 that is 1e-6: scales of good models are denormal above it."""

_ZERO_IS_FINE: Final = ("absmax", "nested_absmax")  # of blocks that are zero


def check_scales(
    tensors: Iterable[StoredTensor], problems: Problems, seconds: float | None = None
) -> ScalesRead:
    """Adds scales that no weight can have: not finite, zero, or denormal; stops when the time is over."""
    wanted = [each for each in tensors if each.dtype in _BITS and not _are_codes(each)]
    whole, read = sum(each.size for each in wanted), 0
    if wanted and find_spec("numpy") is None:
        return ScalesRead(0, whole, "numpy is not installed; pip install otel-quant[inference]")
    until = None if seconds is None else monotonic() + seconds
    for each in sorted(wanted, key=lambda it: (it.file, it.begin)):
        counts: Counter[str] = Counter()
        for piece in pieces(each):
            if until is not None and monotonic() > until:
                return ScalesRead(read, whole, "the time was over")
            read += len(piece)
            counts.update(_wrong(each.dtype, piece))
        if each.name.endswith(_ZERO_IS_FINE):
            del counts["zero"]
        for what, count in counts.items():
            how = "all" if count == each.elements else f"{count:,} of {each.elements:,}"
            problems.add("scale", each.name, f"has {what} values: {how}")
    return ScalesRead(read, whole)


def _are_codes(tensor: StoredTensor) -> bool:
    """Whether scales are quantized themselves: bytes are exponents in MX types alone."""
    return tensor.dtype == "U8" and not tensor.name.endswith("weight_scale")


def pieces(tensor: StoredTensor) -> Iterator[bytes]:
    """Yields a tensor's bytes, as far as its file has them."""
    with Path(tensor.file).open("rb", buffering=0) as file:
        file.seek(tensor.begin)
        left = tensor.size
        while left > 0 and (piece := file.read(min(_PIECE, left))):
            left -= len(piece)
            yield piece


def _wrong(dtype: str, piece: bytes) -> dict[str, int]:
    """Returns how many values are none that a scale may have, by what they are."""
    import numpy as np

    width, unsigned, infinity, least = _BITS[dtype]
    bits = np.frombuffer(piece[: len(piece) // int(width[-1]) * int(width[-1])], width) & unsigned
    if not bits.size or (bits.max() < infinity and bits.min() >= least):
        return {}
    zero = 0 if least < 0 else np.count_nonzero(bits == 0)
    found = {
        "NaN": np.count_nonzero(bits > infinity),
        "infinite": np.count_nonzero(bits == infinity),
        "zero": zero,
        "denormal": np.count_nonzero(bits < least) - zero if least >= 0 else 0,
    }
    return {what: int(count) for what, count in found.items() if count}
