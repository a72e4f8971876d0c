"""What the weights of a quantized ONNX model are: its nodes and tensors are read, where arguments say only what was asked for.

A library may leave out what it cannot quantize, override one tensor, or mix widths by what it has found.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, Final

from otel_quant.capture.instruments.configuration import SHOWN, Part, agreed
from otel_quant.capture.instruments.steps import restate
from otel_quant.capture.runtime import RUNTIME
from otel_quant.schema import semconv
from otel_quant.schema.events import present

_TYPES: Final = {
    2: ("uint8", 8), 3: ("int8", 8), 4: ("uint16", 16), 5: ("int16", 16), 21: ("uint4", 4), 22: ("int4", 4),
    17: ("float8e4m3fn", 8), 19: ("float8e5m2", 8), 23: ("float4e2m1", 4), 25: ("uint2", 2), 26: ("int2", 2),
}  # fmt: skip
"""Names and widths of what weights are quantized to, by their number in ``TensorProto.DataType``."""

_INPUTS: Final[Mapping[str, tuple[int, int, int]]] = {
    "DequantizeLinear": (0, 1, 2), "DynamicQuantizeMatMul": (1, 2, 3), "MatMulInteger": (1, 3, 3), "ConvInteger": (1, 3, 3),
    "MatMulIntegerToFloat": (1, 3, 5), "QLinearMatMul": (3, 4, 5), "QLinearConv": (3, 4, 5), "QGemm": (3, 4, 5),
}  # fmt: skip
"""Which inputs of an operator are weights, what has their scales (or as many values as these) and their zero points."""


def note_weights(call: Mapping[str, Any], result: Any) -> None:
    """Notes what the weights of the model are that it has made."""
    model = result if hasattr(result, "graph") else getattr(call.get("self"), "model", None)
    graph: Any = getattr(getattr(model, "model", model), "graph", None)
    step = RUNTIME.current_step()
    if step is None or not hasattr(graph, "initializer"):
        return
    parts = list(_parts(graph, {}))
    if not parts and any(_is_matrix(it) and it.data_type in _TYPES for it in graph.initializer):
        return  # weights of operators that are not known here
    found: dict[str, Any] = {**agreed(parts), semconv.WEIGHT_COUNT: len(parts)}
    name = str(step.attributes.get(semconv.WEIGHT_TYPE, ""))
    if name.lower().lstrip("q").startswith(found.get(semconv.WEIGHT_TYPE, " ")):
        found[semconv.WEIGHT_TYPE] = name  # as the library calls it
    if semconv.GRANULARITY in found and semconv.PER_CHANNEL in step.attributes:
        found[semconv.PER_CHANNEL] = found.get(semconv.GRANULARITY) == "channel"
    restate(step, found, SHOWN)


def _parts(graph: Any, outer: Mapping[str, Any]) -> Iterator[Part]:
    """Yields what each quantized weight of a graph is, and of the graphs within."""
    tensors = {**outer, **{tensor.name: tensor for tensor in graph.initializer}}
    pairs = {node.output[0]: node for node in graph.node if node.op_type == "QuantizeLinear"}
    for node in graph.node:
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                yield from _parts(inner, tensors)
        numbers = {each.name: each.i for each in node.attribute}
        names = (*node.input, *[""] * 10)
        size = numbers.get("block_size", 0)
        if node.op_type in ("MatMulNBits", "GatherBlockQuantized"):
            bits, sign = numbers.get("bits", 4), "u" * bool(names[3])
            yield _part((f"{sign}int{bits}", bits), size, None, not sign)
        elif node.op_type == "MatMulBnb4":
            yield _part((("fp4", "nf4")[numbers["quant_type"]], 4), size, None, None)
        elif node.op_type in _INPUTS:
            source, scale, zero = (tensors.get(names[at]) for at in _INPUTS[node.op_type])
            kept = 0
            if source is None and (
                pair := pairs.get(names[0])
            ):  # the weight is float, with a pair behind it
                source = tensors.get(pair.input[0])
                kept = next((each.i for each in pair.attribute if each.name == "output_dtype"), 0)
            kind = _TYPES.get(kept or getattr(zero or source, "data_type", 0))
            if source is not None and _is_matrix(source) and kind is not None:
                yield _part(kind, size, *_shape_of(scale, zero))


def _is_matrix(tensor: Any) -> bool:
    sizes: list[int] = list(tensor.dims)
    return sum(size > 1 for size in sizes) > 1


def _shape_of(scale: Any, zero: Any) -> tuple[str | None, bool | None]:
    """Returns what has a scale of its own, and whether no zero point is another than 0."""
    if zero is not None and zero.data_location:  # in a file
        is_symmetric = None
    else:
        is_symmetric = zero is None or not (any(zero.raw_data) or any(zero.int32_data))
    several = None if scale is None else math.prod(scale.dims) > 1
    return {None: None, True: "channel", False: "tensor"}[several], is_symmetric


def _part(
    kind: tuple[str, int], size: int, granularity: str | None, is_symmetric: bool | None
) -> Part:
    return present({
        semconv.WEIGHT_TYPE: kind[0], semconv.BITS: kind[1], semconv.BLOCK_SIZE: size or None,
        semconv.GRANULARITY: "group" if size else granularity, semconv.SYMMETRIC: is_symmetric,
    })  # fmt: skip
