"""Says in words that a file is no ONNX model, and of what format it is if that is known."""

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
    (b"\x93NUMPY", "is a NumPy array"),
    (b"\x89PNG", "is a PNG image"),
    (b"\xff\xd8\xff", "is a JPEG image"),
    (b"%PDF", "is a PDF document"),
    (b"\x7fELF", "is a program or library"),
)

_AT_4: Final = {
    b"ORTM": "is in onnxruntime's ORT format",
    b"TFL3": "is a TensorFlow Lite model",
}

_EXPECTED: Final = "an ONNX ModelProto"


def refuse_other_formats(reader: Reader) -> None:
    """Looks at the start of a file; the reader stays there."""
    if reader.size == 0:
        raise CostError(reader.source, "is empty", expected=_EXPECTED)
    start = reader.take(min(reader.size, _LOOKED_AT))
    reader.pos = 0
    for magic, what in _NOT_ONNX:
        if start.startswith(magic):
            raise CostError(reader.source, what, expected=_EXPECTED)
    if start[4:8] in _AT_4:
        raise CostError(reader.source, _AT_4[start[4:8]], expected=_EXPECTED)


def no_model(reader: Reader, error: CostError) -> CostError:
    """Returns the error for a file in which no graph was reached."""
    reader.pos = 0
    start = reader.take(min(reader.size, _LOOKED_AT))
    if start[8:10] == b'{"':
        return CostError(reader.source, "is a safetensors file", expected=_EXPECTED)
    if len(start) >= _SHORTEST_TEXT and _is_text(start):
        return CostError(reader.source, "is a text file", expected=_EXPECTED)
    return CostError(
        reader.source,
        f"is not an ONNX model, or only a part of one: {error.problem}",
        expected=error.expected or _EXPECTED,
        offset=error.offset,
    )


_LOOKED_AT: Final = 64
"""Bytes from the start of a file."""

_SHORTEST_TEXT: Final = 4
"""Bytes; a shorter file may look like text by chance."""


def _is_text(start: bytes) -> bool:
    """Whether the first bytes of a file are those of a text; its last letter may be cut."""
    text = start.decode("utf-8", "ignore")
    return len(start) - len(text.encode()) < 4 and all(
        letter.isprintable() or letter.isspace() for letter in text
    )
