"""Reading any file ends soon, in a result or in one clear error."""

from __future__ import annotations

import os
import struct
import tracemalloc
from pathlib import Path

import onnx.parser
import pytest

from otel_quant.cost import CostError, analyze
from tests.fixtures.onnx_builder import varint


def message(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def small_model() -> bytes:
    text = f"""<ir_version: 10, opset_import: ["": 21]> g (float[2, 3] x) => (float[2, 4] y)
        <float[3, 4] w = {{{", ".join("0" * 12)}}}> {{ [gemm] y = Gemm (x, w) }}"""
    content: bytes = onnx.parser.parse_model(text).SerializeToString()
    return content


def test_a_file_cut_anywhere_is_an_error_or_a_model(tmp_path: Path) -> None:
    whole = small_model()
    path = tmp_path / "m.onnx"
    outcomes = set()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        try:
            analyze(path)
            outcomes.add("model")
        except CostError as error:
            outcomes.add(error.source)
    assert outcomes <= {"model", str(path)}
    assert str(path) in outcomes
    path.write_bytes(whole)
    assert analyze(path).macs == 2 * 3 * 4


def test_a_length_beyond_the_end_names_the_file_the_offset_and_what_was_expected(
    tmp_path: Path,
) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(varint(7 << 3 | 2) + varint(1 << 62) + b"abc")
    with pytest.raises(CostError) as caught:
        analyze(path)
    assert str(caught.value) == (
        f"{path}: is not an ONNX model, or only a part of one: field 7 claims {1 << 62} bytes where 3 are left at byte 0; "
        "expected a whole ONNX file; this one is truncated or damaged"
    )
    assert caught.value.offset == 0


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "is empty"),
        (b"PK\x03\x04model", "is a ZIP archive; expected an ONNX ModelProto"),
        (b"GGUF\x03\x00\x00\x00", "is a GGUF file"),
        (b"version https://git-lfs.github.com/spec/v1\n", "is a Git LFS pointer"),
        (b"\x20\x00\x00\x00ORTM\x00\x00", "is in onnxruntime's ORT format"),
        (b"\x80\x04\x95", "is a Python pickle"),
        (b"\x1f\x8b\x08\x00", "is gzip-compressed"),
        (b"\x08\x07", "has no graph"),
        (b"\x00\x00\x00", "field number 0"),
        (b"\x3b", "field 7 has wire type 3"),
        (b"\x38\x01", "field 7 has wire type 0 instead of 2"),
        (b"\xff" * 11, "an integer of more than 64 bits"),
        (b"# A readme\n\nof lines", "m.onnx: is a text file; expected an ONNX ModelProto"),
        ("größer\n".encode() * 12, "m.onnx: is a text file; expected an ONNX ModelProto"),
        (b"<html>", "m.onnx: is a text file; expected an ONNX ModelProto"),
        (b'{"a": 1}', "m.onnx: is a text file; expected an ONNX ModelProto"),
        (b'\x40\1\0\0\0\0\0\0{"w":{"dtype":"F32"}}', "is a safetensors file"),
        (b"\x1c\0\0\0TFL3\0\0", "is a TensorFlow Lite model"),
        (b"\3\4\5" * 9, "m.onnx: is not an ONNX model, or only a part of one: field number 0 at byte 0"),
        (b"\x08\xff", "the file ends inside a field"),
    ],
)  # fmt: skip
def test_a_file_of_another_format_is_an_error_that_names_the_format(
    tmp_path: Path, content: bytes, problem: str
) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(content)
    with pytest.raises(CostError, match=problem):
        analyze(path)


def tensor(name: bytes, *fields: bytes) -> bytes:
    """A model with one float tensor."""
    return message(7, message(5, message(8, name) + varint(2 << 3) + b"\x01" + b"".join(fields)))


def dim(length: int) -> bytes:
    return varint(1 << 3) + varint(length % (1 << 64))


def nested(depth: int) -> bytes:
    """A model of loops, each in the body of another."""
    graph = b""
    for _ in range(depth):
        attribute = message(1, b"body") + message(6, graph) + varint(20 << 3) + varint(5)
        graph = message(1, message(4, b"Loop") + message(5, attribute))
    return message(7, graph)


IN_A_CYCLE = """<ir_version: 10, opset_import: ["": 21]>
    g (float[1] x) => (float[1] b) { [first] a = Add (x, b) [second] b = Relu (a) }"""


@pytest.mark.parametrize(
    ("model", "problem"),
    [
        (nested(2000), r"graphs nested more than 32 deep .*; expected at most 32"),
        (onnx.parser.parse_model(IN_A_CYCLE).SerializeToString(), "node first depends on its own result"),
        (tensor(b"w", dim(-1)), "tensor w has a dimension -1"),
        (tensor(b"w", dim(-(1 << 62)), dim(2)), f"tensor w has a dimension {-(1 << 62)}"),
        (tensor(b"w\n\x1b[31mred", dim(-1)), r"tensor w\\n\\x1b\[31mred has"),  # nothing controls a terminal
        (tensor(b"w", varint(14 << 3) + b"\x01", message(13, message(1, b"offset") + message(2, b"-5"))),
         "tensor w has external offset '-5'"),
    ],
    ids=["nested", "in a cycle", "negative", "very negative", "escaped", "external offset"],
)  # fmt: skip
def test_a_damaged_graph_is_an_error_that_names_the_place(model: bytes, problem: str) -> None:
    with pytest.raises(CostError, match=problem) as caught:
        analyze(model)
    assert str(caught.value).isprintable()


def test_a_weight_that_claims_to_be_huge_takes_no_memory() -> None:
    node = message(1, b"w") + message(2, b"y") + message(4, b"Relu")
    weight = message(8, b"w") + varint(2 << 3) + b"\x01" + dim(1 << 60) * 8
    data = message(7, message(5, weight) + message(1, node))
    tracemalloc.start()
    cost = analyze(data)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert cost.params == 1 << 480
    assert peak < 2_000_000


def test_a_file_that_is_not_regular_is_rejected_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.onnx")
    for path, problem in (
        (tmp_path / "pipe.onnx", "is not a regular file"),
        (tmp_path, "is not a regular file"),
        (tmp_path / "none.onnx", "No such file"),
        ("a\0b", "cannot be opened"),
    ):
        with pytest.raises(CostError, match=problem):
            analyze(path)


def test_a_time_limit_of_0_stops_the_smallest_model() -> None:
    with pytest.raises(CostError, match="the time limit passed"):
        analyze(small_model(), time_limit=0.0)


def test_a_time_limit_ends_the_reading_of_a_file_of_many_fields() -> None:
    with pytest.raises(CostError, match="the time limit passed while the file was read"):
        analyze(b"\x08\x01" * 10_000, time_limit=0.0)


def test_an_object_that_is_not_a_model_is_rejected() -> None:
    with pytest.raises(CostError, match=r"<int>: is not a model; expected a path, bytes"):
        analyze(3)


def test_fixed_width_fields_and_fields_of_later_versions_are_skipped() -> None:
    later = varint(900 << 3 | 5) + struct.pack("<f", 1.0) + varint(901 << 3 | 1) + bytes(8)
    assert analyze(small_model() + later + message(902, b"more")).macs == 24
