"""Zeros in weights: how many, in which blocks, and whether two in every four.

Weights are read in pieces and kept as one bit per element, so that the largest one costs an
eighth of a byte for each of its elements. numpy is imported here and nowhere else.

Definition (onnx_tool's, restated): the block is the largest for which the share of all-zero
blocks stays within a tolerated loss of the share of zeros. Two corrections: uint8 weights
have their zeros at the zero point, and a block counts only if its zeros come together more
often than zeros strewn at random would, which at 95 % zeros they do for 1x2 in nine blocks
out of ten.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod, sqrt
from typing import TYPE_CHECKING, Any, Final

from otel_quant.cost import dtypes
from otel_quant.cost.operation import Operation
from otel_quant.cost.operators import operator_of
from otel_quant.cost.reader.weights import Source, pieces
from otel_quant.cost.results import WeightSparsity
from otel_quant.cost.structure import Tensor

if TYPE_CHECKING:
    import numpy as np

MIN_ELEMENTS: Final = 256
"""A smaller tensor is not looked at: a few zeros in it are a large share."""

MAX_ELEMENTS: Final = 1 << 33
"""Elements up to which a tensor is looked at: a gigabyte of bits."""

SEARCHED_FROM: Final = 0.4
"""Share of zeros from which blocks are looked for."""

TOLERATED_LOSS: Final = 0.1
"""By how much the share of all-zero blocks may fall short of the share of zeros."""

LARGEST_BLOCK: Final = 64

_ROWS: Final = 1 << 22
"""Elements whose bits are unpacked at a time."""

_NUMPY: Final = {
    dtypes.FLOAT: "<f4",
    dtypes.DOUBLE: "<f8",
    dtypes.FLOAT16: "<f2",
    dtypes.INT8: "i1",
    dtypes.UINT8: "u1",
    dtypes.INT16: "<i2",
    dtypes.UINT16: "<u2",
    dtypes.INT32: "<i4",
    dtypes.UINT32: "<u4",
    dtypes.INT64: "<i8",
    dtypes.UINT64: "<u8",
    dtypes.BFLOAT16: "<u2",
}


def weight_sparsity(
    op: Operation, source: Source, check: Callable[[], None]
) -> WeightSparsity | None:
    """Returns the sparsity of an operation's largest weight."""
    candidates = [
        (value.weight, i)
        for i, value in enumerate(op.inputs)
        if value is not None
        and value.weight is not None
        and value.weight.dims == value.shape
        and len(value.weight.dims) >= 2
        and MIN_ELEMENTS <= value.weight.elements <= MAX_ELEMENTS
    ]
    if not candidates:
        return None
    tensor, i = max(candidates, key=lambda pair: pair[0].elements)
    bits = _zero_bits(tensor, _zero_point(op, i), source, check)
    if bits is None:
        return None
    zeros = _Zeros(bits, tensor.dims, check)
    ratio = zeros.count() / tensor.elements
    block, block_ratio = zeros.block(ratio) if ratio > SEARCHED_FROM else ((1, 1), ratio)
    two_of_four = ratio >= 0.5 and zeros.two_of_four(_input_axis(op))
    value = op.inputs[i]
    name = tensor.name or (value.name if value is not None else "")  # a Constant node's has none
    return WeightSparsity(name, ratio, block, block_ratio, two_of_four)


def _input_axis(op: Operation) -> int:
    """The axis that is summed over: hardware skips two of four zeros along it."""
    if op.kind == "Gemm":
        return 1 if op.attributes.get("transB", 0) else 0
    return 0 if "MatMul" in op.kind else 1


def _zero_point(op: Operation, i: int) -> tuple[int, ...]:
    """The stored values that mean zero: one, or one per channel."""
    where = operator_of(op.kind).precision.zero_point
    if where is None or where[0] != i or not op.has(where[1]):
        return (0,)
    data = op.inputs[where[1]]
    if data is None or not data.data or any(item is None for item in data.data):
        return (0,)
    return tuple(int(item) for item in data.data if item is not None)


def _zero_bits(
    tensor: Tensor, zero_point: tuple[int, ...], source: Source, check: Callable[[], None]
) -> np.ndarray[Any, np.dtype[np.uint8]] | None:
    """Reads a tensor once; returns one bit per element, packed, set where it is zero."""
    import numpy as np

    four_bit = tensor.dtype in (dtypes.INT4, dtypes.UINT4)
    code = _NUMPY.get(tensor.dtype)
    if code is None and not four_bit:
        return None
    uniform = len(set(zero_point)) == 1
    if not uniform and len(zero_point) not in tensor.dims:
        return None
    packed: list[np.ndarray[Any, np.dtype[np.uint8]]] = []
    seen = 0
    left = b""
    with pieces(source, tensor) as chunks:
        if chunks is None:
            return None
        for chunk in chunks:
            check()
            data = left + chunk
            keep = len(data) % 64  # whole elements, and whole bytes of eight bits
            left = data[len(data) - keep :] if keep else b""
            packed.append(_packed(data[: len(data) - keep], tensor, zero_point, seen, code))
            seen += packed[-1].size * 8
        if left:
            packed.append(_packed(left, tensor, zero_point, seen, code))
    bits = np.concatenate(packed) if packed else np.zeros(0, np.uint8)
    return bits if bits.size * 8 >= tensor.elements else None


def _packed(
    data: bytes, tensor: Tensor, zero_point: tuple[int, ...], start: int, code: str | None
) -> np.ndarray[Any, np.dtype[np.uint8]]:
    import numpy as np

    if code is None:
        pairs = np.frombuffer(data, np.uint8)
        array = np.stack((pairs & 15, pairs >> 4), axis=1).reshape(-1)
        zero_point = tuple(item & 15 for item in zero_point)
    else:
        array = np.frombuffer(data, code)
        if tensor.dtype == dtypes.BFLOAT16:
            array = array & 0x7FFF  # minus zero is zero
    if len(set(zero_point)) == 1:
        return np.packbits(array == zero_point[0])
    axis = tensor.dims.index(len(zero_point))
    inner = prod(tensor.dims[axis + 1 :])
    channel = (np.arange(start, start + array.size) // inner) % len(zero_point)
    return np.packbits(array == np.asarray(zero_point)[channel])


class _Zeros:
    """Which elements of a weight are zero, seen as [outer, inner, window]."""

    def __init__(
        self,
        bits: np.ndarray[Any, np.dtype[np.uint8]],
        dims: tuple[int, ...],
        check: Callable[[], None],
    ) -> None:
        self._bits = bits
        self._check = check
        self._outer, self._inner = dims[0], dims[1]
        self._window = prod(dims[2:])
        self._total = prod(dims)

    def count(self) -> int:
        """Number of zeros."""
        import numpy as np

        ones = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).sum(axis=1)
        table = ones.astype(np.uint8)  # set bits of each byte
        whole = int(table[self._bits[: self._total // 8]].sum())
        tail = self._bits[self._total // 8 :]
        return whole + int(np.unpackbits(tail, count=self._total % 8).sum())

    def _bands(self, height: int) -> Any:
        """Yields [rows, inner, window] pieces whose rows are a multiple of ``height``."""
        import numpy as np

        row = self._inner * self._window
        step = max(1, _ROWS // max(1, row) // height) * height
        for start in range(0, self._outer, step):
            self._check()
            stop = min(self._outer, start + step)
            first, last = start * row, stop * row
            bits = np.unpackbits(self._bits[first // 8 : -(-last // 8)])
            piece = bits[first % 8 : first % 8 + last - first]
            yield piece.reshape(stop - start, self._inner, self._window)

    def share(self, height: int, width: int) -> float | None:
        """Share of blocks of ``height`` x ``width`` that are all zero; None if they do not fit."""
        if self._outer % height or self._inner % width:
            return None
        full = blocks = 0
        for band in self._bands(height):
            split = band.reshape(
                band.shape[0] // height, height, self._inner // width, width, self._window
            )
            whole = split.min(axis=(1, 3))
            full += int(whole.sum())
            blocks += whole.size
        return full / blocks if blocks else None

    def block(self, ratio: float) -> tuple[tuple[int, int], float]:
        """Returns the largest block in which the zeros come, and the share of such blocks."""
        best = (1, 1)
        best_share = ratio
        for grow in ((1, 0), (0, 1), (1, 1)):
            size = (1, 1)
            share = ratio
            while max(size) < LARGEST_BLOCK:
                bigger = (size[0] << grow[0], size[1] << grow[1])
                found = self.share(*bigger)
                joined = 4 if grow == (1, 1) else 2
                if found is None or not self._structured(ratio, share, found, joined, bigger):
                    break
                size, share = bigger, found
            if prod(size) > prod(best):
                best, best_share = size, share
        return best, best_share

    def _structured(
        self, ratio: float, before: float, found: float, joined: int, size: tuple[int, int]
    ) -> bool:
        """Whether joining blocks keeps their zeros together, more than chance would."""
        chance = before**joined
        blocks = self._total / prod(size)
        noise = 4 * sqrt(max(chance * (1 - chance), 1e-9) / max(blocks, 1))
        return found > ratio - TOLERATED_LOSS and found - chance >= max(
            (before - chance) / 2, min(noise, before - chance)
        )

    def two_of_four(self, axis: int) -> bool:
        """Whether of every four adjacent weights along an axis at least two are zero."""
        length = self._outer if axis == 0 else self._inner
        if length % 4:
            return False
        for band in self._bands(4):
            if axis == 0:
                groups = band.reshape(band.shape[0] // 4, 4, self._inner, self._window).sum(axis=1)
            else:
                groups = band.reshape(band.shape[0], self._inner // 4, 4, self._window).sum(axis=2)
            if int(groups.min()) < 2:
                return False
        return True
