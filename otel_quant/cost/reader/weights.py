"""Opens the bytes of a weight: in the model's file, beside it, or in memory.

The only module of the package that reads weights. External data is opened only inside the
model's own folder, symbolic links resolved: the location comes from the file, and a file
may be hostile.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BytesIO, FileIO
from pathlib import Path
from typing import Any, Final, TypeAlias

from otel_quant.cost import dtypes
from otel_quant.cost.errors import CostError, printable
from otel_quant.cost.structure import Tensor

CHUNK: Final = 1 << 20
"""Bytes read at a time."""

RAW: Final = 9
"""TensorProto.raw_data."""

FLOATS: Final = 4
"""TensorProto.float_data, packed: the same bytes as raw data would have."""

DOUBLES: Final = 10
"""TensorProto.double_data, likewise."""

Opened: TypeAlias = tuple[FileIO | BytesIO, int, int]
"""A file, where the bytes start in it, and how many they are."""

Source: TypeAlias = Callable[[Tensor], Opened | None]


def source_of(model: Any) -> Source:
    """Returns where the weights of a model lie."""
    if not isinstance(model, str | os.PathLike | bytes | bytearray | memoryview):
        held = {tensor.name: tensor for tensor in model.graph.initializer}

        def in_memory(tensor: Tensor) -> Opened | None:
            data = held[tensor.name].raw_data if tensor.name in held else b""
            return (BytesIO(data), 0, len(data)) if data else None

        return in_memory

    def in_file(tensor: Tensor) -> Opened | None:
        if isinstance(model, str | os.PathLike):
            if tensor.external is not None:
                return _external(Path(model), tensor)
            span = _span(tensor)
            return None if span is None else (FileIO(os.fspath(model)), *span)
        span = _span(tensor)
        return None if span is None else (BytesIO(model), *span)

    return in_file


def _span(tensor: Tensor) -> tuple[int, int] | None:
    if len(tensor.spans) != 1 or tensor.spans[0].field not in (RAW, FLOATS, DOUBLES):
        return None
    return tensor.spans[0].offset, tensor.spans[0].length


def _external(model: Path, tensor: Tensor) -> Opened:
    """Opens external data."""
    assert tensor.external is not None
    location = tensor.external.location
    what = f"external data {printable(location)!r} of tensor {printable(tensor.name)}"
    try:
        folder = model.parent.resolve()
        place = (folder / location).resolve()
        if not location or not place.is_relative_to(folder):
            raise CostError(
                str(model),
                f"{what} lies outside the model's folder",
                expected="a file in that folder; links are resolved",
            )
        # Non-blocking: a FIFO of that name must not be waited for.
        descriptor = os.open(place, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
        file = FileIO(descriptor, closefd=True)
        found = os.fstat(descriptor)
    except OSError as error:
        raise CostError(str(model), f"{what} cannot be opened: {error.strerror}") from error
    except CostError:  # a ValueError too
        raise
    except (RuntimeError, ValueError) as error:  # a circle of symbolic links; a NUL
        raise CostError(str(model), f"{what} cannot be opened: {error}") from error
    length = tensor.stored
    end = tensor.external.offset + length
    if not stat.S_ISREG(found.st_mode) or end > found.st_size:
        file.close()
        raise CostError(
            str(model),
            f"{what} has {found.st_size} bytes",
            expected=f"a regular file of at least {end} bytes",
        )
    return file, tensor.external.offset, length


@contextmanager
def pieces(source: Source, tensor: Tensor) -> Iterator[Iterator[bytes] | None]:
    """Opens a tensor's bytes and gives them piece by piece; None if they cannot be had."""
    opened = source(tensor)
    if opened is None:
        yield None
        return
    file, start, length = opened
    needed = dtypes.stored_bytes(tensor.dtype, tensor.elements)
    try:
        if needed is None or length < needed:  # the shape says something else than the bytes
            yield None
        else:
            yield _chunks(file, start, needed)
    finally:
        file.close()


def _chunks(file: FileIO | BytesIO, start: int, length: int) -> Iterator[bytes]:
    file.seek(start)
    left = length
    while left > 0:
        data = file.read(min(CHUNK, left))
        if not data:
            return
        left -= len(data)
        yield data
