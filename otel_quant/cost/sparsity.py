"""Zeros in weights: how many, in which blocks, and whether two in every four.

The only module of the package that reads weights, and that imports numpy. They are read in pieces
and kept as one byte per element. External data is opened only inside the model's own folder, symbolic links resolved: the
location comes from the file, and a file may be hostile.

Definition (onnx_tool's, restated): the block is the largest for which the share of all-zero
blocks stays within a tolerated loss of the share of zeros. Two corrections: uint8 weights
have their zeros at the zero point, and a block counts only if its zeros come together more
often than zeros strewn at random would, which at 95 % zeros they do for 1x2 in nine blocks
out of ten.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from contextlib import suppress
from io import BytesIO, FileIO
from math import prod, sqrt
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np

from otel_quant.cost import dtypes
from otel_quant.cost.operation import TypedNode, UnknownError
from otel_quant.cost.operators import operator_of
from otel_quant.cost.results import WeightSparsity
from otel_quant.cost.structure import CostError, Tensor, printable

_MIN_ELEMENTS: Final = 256  # A smaller tensor is not looked at: a few zeros in it are a large share

_MAX_ELEMENTS: Final = 1 << 31
"""Elements up to which a tensor is looked at: two gigabytes of memory."""

_SEARCHED_FROM: Final = 0.4  # Share of zeros from which blocks are looked for

_TOLERATED_LOSS: Final = 0.1
"""By how much the share of all-zero blocks may fall short of the share of zeros."""

_LARGEST_BLOCK: Final = 64
_CHUNK: Final = 1 << 18  # Elements read at a time

_AS_THEY_ARE: Final = frozenset({9, 4, 10})
"""Fields of a TensorProto whose bytes are the elements: raw_data, float_data and double_data."""

_Zeros: TypeAlias = "np.ndarray[Any, np.dtype[np.bool_]]"
"""Which elements of a weight are zero, as [outer, inner, window]."""

_Opened: TypeAlias = tuple[FileIO | BytesIO, int, int]
"""A file, where the bytes start in it, and how many they are."""

Source: TypeAlias = str | os.PathLike[str] | bytes  # A model's file or its content


def _opened(model: Source, tensor: Tensor) -> _Opened | None:
    """Opens what the elements of a weight lie in; None if they do not lie there as they are."""
    if isinstance(model, str | os.PathLike) and tensor.external is not None:
        return _external(Path(model), tensor)
    if len(tensor.spans) != 1 or tensor.spans[0].field not in _AS_THEY_ARE:
        return None
    file = FileIO(os.fspath(model)) if isinstance(model, str | os.PathLike) else BytesIO(model)
    return file, tensor.spans[0].offset, tensor.spans[0].length


def _external(model: Path, tensor: Tensor) -> _Opened:
    """Opens external data."""
    assert tensor.external is not None
    location = tensor.external.location
    what = f"external data {printable(location)!r} of tensor {printable(tensor.name)}"
    try:
        folder = model.parent.resolve()
        place = (folder / location).resolve()
        inside = location != "" and place.is_relative_to(folder)
        # Non-blocking: a FIFO of that name must not be waited for.
        flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)
        file = FileIO(os.open(place, flags), closefd=True) if inside else None
    except (OSError, RuntimeError, ValueError) as error:  # a circle of symbolic links; a NUL
        reason = error.strerror if isinstance(error, OSError) else error
        raise CostError(str(model), f"{what} cannot be opened: {reason}") from error
    if file is None:
        expected = "a file in that folder; links are resolved"
        raise CostError(str(model), f"{what} lies outside the model's folder", expected=expected)
    found = os.fstat(file.fileno())
    end = tensor.external.offset + tensor.stored
    if not stat.S_ISREG(found.st_mode) or end > found.st_size:
        file.close()
        expected = f"a regular file of at least {end} bytes"
        raise CostError(str(model), f"{what} has {found.st_size} bytes", expected=expected)
    return file, tensor.external.offset, tensor.stored


def weight_sparsity(
    op: TypedNode, model: Source, check: Callable[[], None]
) -> WeightSparsity | None:
    """Returns the sparsity of an operation's largest weight."""
    candidates = [
        (value.weight, i)
        for i, value in enumerate(op.inputs)
        if value is not None
        and value.weight is not None
        and value.weight.dims == value.shape
        and len(value.weight.dims) >= 2
        and _MIN_ELEMENTS <= value.weight.elements <= _MAX_ELEMENTS
    ]
    if not candidates:
        return None
    tensor, i = max(candidates, key=lambda pair: pair[0].elements)
    zeros = _zeros(tensor, _zero_point(op, i), model, check)
    if zeros is None:
        return None
    ratio = int(zeros.sum()) / tensor.elements
    block, block_ratio = (1, 1), ratio
    if ratio > _SEARCHED_FROM:
        block, block_ratio = _block(zeros, ratio, check)
    two_of_four = ratio >= 0.5 and _has_two_of_four(zeros, _input_axis(op))
    name = tensor.name or op.input(i).name  # a Constant node's has none
    return WeightSparsity(name, ratio, block, block_ratio, two_of_four)


def _input_axis(op: TypedNode) -> int:
    """The axis that is summed over: hardware skips two of four zeros along it."""
    if op.kind == "Gemm":
        return int(bool(op.attributes.get("transB", 0)))
    return int("MatMul" not in op.kind)


def _zero_point(op: TypedNode, i: int) -> tuple[int, ...]:
    """The stored values that mean zero: one, or one per channel."""
    weight, zero_point = operator_of(op.kind).precision.zero_point or (None, 0)
    if weight == i:
        with suppress(UnknownError):  # it is left out, or they are too many to be kept
            return op.ints(zero_point) or (0,)
    return (0,)


def _zeros(
    tensor: Tensor, zero_point: tuple[int, ...], model: Source, check: Callable[[], None]
) -> _Zeros | None:
    """Reads a tensor once."""
    uniform = len(set(zero_point)) == 1
    needed = dtypes.stored_bytes(tensor.dtype, tensor.elements)
    if tensor.dtype not in _NUMPY or not (uniform or len(zero_point) in tensor.dims):
        return None
    opened = _opened(model, tensor)
    if opened is None:
        return None
    file, start, length = opened
    with file:
        if needed is None or length < needed:  # the shape does not fit the bytes
            return None
        zeros = np.zeros(tensor.elements, np.bool_)
        file.seek(start)
        for at in range(0, tensor.elements, _CHUNK):
            check()
            piece = zeros[at : at + _CHUNK]
            data = file.read(dtypes.stored_bytes(tensor.dtype, piece.size) or 0)
            found = _are_zero(data, tensor, zero_point, at)[: piece.size]
            piece[: found.size] = found
    return zeros.reshape(tensor.dims[0], tensor.dims[1], -1)


_NUMPY: Final = {
    **{code: f"<{letter}" for code, letter in dtypes.LETTERS.items() if code != dtypes.BOOL},
    dtypes.BFLOAT16: "<u2",
    dtypes.INT4: "",
    dtypes.UINT4: "",
}
"""What numpy calls the types whose zeros are looked for; of 4-bit ones a byte holds two."""


def _are_zero(data: bytes, tensor: Tensor, zero_point: tuple[int, ...], start: int) -> Any:
    array: Any
    if not _NUMPY[tensor.dtype]:
        pairs = np.frombuffer(data, np.uint8)
        array = np.stack((pairs & 15, pairs >> 4), axis=1).reshape(-1)
        zero_point = tuple(item & 15 for item in zero_point)
    else:
        array = np.frombuffer(data, _NUMPY[tensor.dtype])
        if tensor.dtype == dtypes.BFLOAT16:
            array = array & 0x7FFF  # minus zero is zero
    if len(set(zero_point)) == 1:
        return array == zero_point[0]
    axis = tensor.dims.index(len(zero_point))
    inner = prod(tensor.dims[axis + 1 :])
    channel = (np.arange(start, start + array.size) // inner) % len(zero_point)
    return array == np.asarray(zero_point)[channel]


def _share(zeros: _Zeros, height: int, width: int) -> float | None:
    """Share of blocks of ``height`` x ``width`` that are all zero; None if they do not fit."""
    outer, inner, window = zeros.shape
    if outer % height or inner % width:
        return None
    split = zeros.reshape(outer // height, height, inner // width, width, window)
    whole = split.all(axis=(1, 3))
    return int(whole.sum()) / whole.size


def _block(zeros: _Zeros, ratio: float, check: Callable[[], None]) -> tuple[tuple[int, int], float]:
    """Returns the largest block in which the zeros come, and the share of such blocks."""
    best, best_share = (1, 1), ratio
    for grow in ((1, 0), (0, 1), (1, 1)):
        size, share = (1, 1), ratio
        while max(size) < _LARGEST_BLOCK:
            check()
            bigger = (size[0] << grow[0], size[1] << grow[1])
            found = _share(zeros, *bigger)
            chance = share ** (4 if grow == (1, 1) else 2)
            blocks = zeros.size / prod(bigger)
            if found is None or not _structured(ratio, share, found, chance, blocks):
                break
            size, share = bigger, found
        if prod(size) > prod(best):
            best, best_share = size, share
    return best, best_share


def _structured(ratio: float, before: float, found: float, chance: float, blocks: float) -> bool:
    """Whether joining blocks keeps their zeros together, more than chance would."""
    noise = 4 * sqrt(max(chance * (1 - chance), 1e-9) / max(blocks, 1))
    return found > ratio - _TOLERATED_LOSS and found - chance >= max(
        (before - chance) / 2, min(noise, before - chance)
    )


def _has_two_of_four(zeros: _Zeros, axis: int) -> bool:
    """Whether of every four adjacent weights along an axis at least two are zero."""
    outer, inner, window = zeros.shape
    if zeros.shape[axis] % 4:
        return False
    shape = (outer // 4, 4, inner, window) if axis == 0 else (outer, inner // 4, 4, window)
    return bool((zeros.reshape(shape).sum(axis=axis + 1, dtype=np.uint8) >= 2).all())
