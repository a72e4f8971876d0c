"""Writes a model again with the shapes that were inferred, without reading its weights.

The file is copied in pieces of a megabyte, as it is; only the declared shapes are written anew.
External data stays where it is. Viewers and compilers for accelerators want the shapes in the file,
and onnx's own inference stops at onnxruntime's operators and at 2 GB.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from io import BufferedWriter
from pathlib import Path
from typing import BinaryIO, Final, TypeAlias

from otel_quant.cost import dtypes
from otel_quant.cost.model_reader import ModelReader
from otel_quant.cost.operation import Shape
from otel_quant.cost.results import ModelCost
from otel_quant.cost.structure import CostError, ValueInfo, printable
from otel_quant.cost.wire import LENGTH, Reader, open_reader

_CHUNK: Final = 1 << 20
"""Bytes copied at a time."""

_GRAPH, _INPUT, _OUTPUT, _VALUE_INFO = 7, 11, 12, 13

_Piece: TypeAlias = bytes | range
"""New bytes, or a range of the model's file."""

_Known: TypeAlias = Mapping[str, tuple[int, Shape]]
"""Element type and shape of tensors by name."""


def write_with_shapes(
    model: str | os.PathLike[str], cost: ModelCost, target: str | os.PathLike[str]
) -> None:
    """Writes a model with the shapes of all tensors of its main graph for which they are known.

    The shapes of its inputs and results are written too: they are those of ``cost``.

    Args:
        model: The model's file, not changed.
        cost: What :func:`otel_quant.cost.analyze` gave for it, with ``tensors=True``.
        target: Where to write; what is there is replaced.

    Raises:
        CostError: A length was assumed or overridden, so that the shapes would be wrong; the
            target would lose the model's external data; or a file cannot be read or written.
    """
    path, out = Path(model), Path(target)
    part = out.with_name(out.name + ".part")
    _refuse(path, out, part, cost)
    reader = open_reader(path)
    try:
        pieces = _new_model(reader, _known(cost))
        with path.open("rb") as source, part.open("wb") as file:
            for piece in pieces:
                _write(piece, source, file)
        part.replace(out)
    except OSError as error:
        raise CostError(
            os.fspath(target), f"cannot be written: {error.strerror}", expected="a place for a file"
        ) from error
    finally:
        reader.close()
        with suppress(OSError):
            part.unlink()


def _refuse(path: Path, out: Path, part: Path, cost: ModelCost) -> None:
    if cost.tensors is None:
        raise CostError(cost.path, "its tensors are not listed", expected="tensors=True")
    if cost.assumed:
        first = cost.assumed[0]
        raise CostError(
            cost.path,
            f"the length {printable(first.name)} = {first.length} is assumed, which would not be "
            "true of every run",
            expected=f"{first.option} or another length",
        )
    if cost.overridden_dims:
        raise CostError(
            cost.path,
            f"the length {printable(next(iter(cost.overridden_dims)))} is not the model's own",
            expected="the lengths that the model fixes",
        )
    if any(each.exists() and each.samefile(path) for each in (out, part)):
        raise CostError(os.fspath(out), "is the model itself", expected="another file")
    external = cost.file_bytes > path.stat().st_size
    if external and path.resolve().parent != out.resolve().parent:
        raise CostError(
            os.fspath(out),
            "is not where the model's external data lies",
            expected=f"a file in {path.resolve().parent}",
        )


def _known(cost: ModelCost) -> _Known:
    known: dict[str, tuple[int, Shape]] = {}
    for tensor in cost.tensors or ():
        dtype = dtypes.code_of(tensor.dtype)
        if not tensor.in_body and tensor.shape is not None and dtype != dtypes.UNKNOWN:
            known[tensor.name] = (dtype, tensor.shape)
    for name, shape in cost.input_shapes.items():
        if shape is not None:
            known[name] = (dtypes.UNKNOWN, shape)  # its type is the declared one
    return known


def _fields(
    reader: Reader, end: int, renewed: Callable[[int, int], Sequence[_Piece]]
) -> list[_Piece]:
    """The fields from here to ``end``: anew where there is anything new for one, else as they are."""
    pieces: list[_Piece] = []
    start = reader.pos
    for number, kind, length in reader.fields(end):
        stop = reader.pos + (length if kind == LENGTH else 0)
        new = renewed(number, stop) if kind == LENGTH else ()
        last = pieces[-1] if pieces else None
        if new:
            pieces += new
        elif isinstance(last, range) and last.stop == start:
            pieces[-1] = range(last.start, stop)  # most of a file is in a few long ranges
        else:
            pieces.append(range(start, stop))
        start = stop
    return pieces


def _new_model(reader: Reader, known: _Known) -> list[_Piece]:
    graphs: list[list[_Piece]] = []

    def renewed(number: int, stop: int) -> Sequence[_Piece]:
        if number != _GRAPH:
            return ()
        graphs.append(_new_graph(reader, stop, known))
        return _key(_GRAPH) + _varint(sum(map(len, graphs[-1]))), *graphs[-1]

    pieces = _fields(reader, reader.size, renewed)
    if len(graphs) != 1:
        raise reader.error(f"the model has {len(graphs)} graphs", "one")
    return pieces


def _new_graph(reader: Reader, end: int, known: _Known) -> list[_Piece]:
    messages = ModelReader(reader)
    written: set[str] = set()

    def renewed(number: int, stop: int) -> Sequence[_Piece]:
        if number not in (_INPUT, _OUTPUT, _VALUE_INFO):
            return ()
        info = messages.value_info(stop)
        written.add(info.name)
        new = _renewed(info, known)
        return (_field(number, new),) if new else ()

    pieces = _fields(reader, end, renewed)
    return pieces + [
        _field(_VALUE_INFO, _value_info(name, dtype, shape))
        for name, (dtype, shape) in known.items()
        if name not in written and dtype != dtypes.UNKNOWN
    ]


def _renewed(info: ValueInfo, known: _Known) -> bytes:
    """A declaration with the known shape; empty if it says as much, or is of no tensor."""
    dtype, shape = known.get(info.name, (dtypes.UNKNOWN, None))
    dtype = info.type.dtype or dtype
    declared = info.type.shape
    if info.type.kind not in ("tensor", "unknown") or shape is None or not dtype:
        return b""
    if declared is not None and (len(declared) != len(shape) or declared == shape):
        return b""
    lengths = [
        old if new is None else new
        for new, old in zip(shape, declared or (None,) * len(shape), strict=True)
    ]
    return _value_info(info.name, dtype, lengths)


def _value_info(name: str, dtype: int, shape: Iterable[int | str | None]) -> bytes:
    """An encoded ValueInfoProto of a tensor."""
    lengths = b"".join(_field(1, _length(length)) or b"\x0a\x00" for length in shape)
    tensor = _key(1, 0) + _varint(dtype) + _key(2) + _varint(len(lengths)) + lengths
    return _field(1, name.encode("utf-8", "surrogateescape")) + _field(2, _field(1, tensor))


def _length(length: int | str | None) -> bytes:
    """An encoded TensorShapeProto.Dimension; empty for a length that is not known."""
    if isinstance(length, str):
        return _field(2, length.encode("utf-8", "surrogateescape"))
    return b"" if length is None or length < 0 else _key(1, 0) + _varint(length)


def _field(number: int, content: bytes) -> bytes:
    return _key(number) + _varint(len(content)) + content if content else b""


def _key(number: int, kind: int = LENGTH) -> bytes:
    return _varint(number << 3 | kind)


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def _write(piece: _Piece, source: BinaryIO, file: BufferedWriter) -> None:
    if isinstance(piece, bytes):
        file.write(piece)
        return
    source.seek(piece.start)
    for at in range(piece.start, piece.stop, _CHUNK):
        size = min(_CHUNK, piece.stop - at)
        if file.write(source.read(size)) < size:
            raise CostError(
                os.fspath(source.name),
                "became shorter while it was copied",
                expected="a file that nothing else writes",
            )
