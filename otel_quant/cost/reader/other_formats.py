"""Recognizes files of other formats by their first bytes, for a clear error."""

from __future__ import annotations

from typing import Final

from otel_quant.cost.errors import CostError
from otel_quant.cost.reader.wire import Reader

_NOT_ONNX: Final = (
    (b"PK\x03\x04", "is a ZIP archive"),
    (b"GGUF", "is a GGUF file"),
    (b"\x89HDF", "is an HDF5 file"),
    (b"\x80\x02", "is a Python pickle"),
    (b"\x80\x04", "is a Python pickle"),
    (b"\x1f\x8b", "is gzip-compressed"),
    (b"version https://git-lfs", "is a Git LFS pointer, the model itself was not fetched"),
    (b"<", "is a text file"),
    (b"{", "is a text file"),
)


def refuse_other_formats(reader: Reader) -> None:
    """Looks at the start of a file; the reader stays there.

    Raises:
        CostError: It is empty, or of a format that is known not to be ONNX.
    """
    if reader.size == 0:
        raise CostError(reader.source, "is empty", expected="an ONNX ModelProto")
    start = reader.take(min(reader.size, 32))
    reader.pos = 0
    for magic, what in _NOT_ONNX:
        if start.startswith(magic):
            raise CostError(reader.source, what, expected="an ONNX ModelProto")
    if start[4:8] == b"ORTM":
        raise CostError(
            reader.source, "is in onnxruntime's ORT format", expected="an ONNX ModelProto"
        )
