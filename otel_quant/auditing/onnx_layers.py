"""The layers of an ONNX file: contractions with constant weights, and what quantizes those."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from math import prod
from pathlib import Path
from typing import Final

from otel_quant.auditing.asked import AskedModel
from otel_quant.auditing.checkpoint import AuditError, StoredTensor
from otel_quant.auditing.layers import Siblings
from otel_quant.auditing.results import AuditedLayer, Problems
from otel_quant.cost import CostError
from otel_quant.cost.graph import Graph, GraphNode, Tensor, dtypes, node_name, read_graph
from otel_quant.schema.units import counted, size

_CONTRACTIONS: Final = ("Conv", "Gemm", "MatMul", "ConvTranspose")
_MOST_THROUGH: Final = 32  # Nodes between a constant and what reads it
_ENDING: Final = re.compile(r"_(quant|Q\d)$")  # What onnxruntime's quantizers write behind a name
_QUANTIZED: Final[Mapping[str, tuple[int, int, int]]] = {
    **dict.fromkeys(("QLinearConv", "QLinearMatMul", "QGemm"), (3, 4, 5)),
    **dict.fromkeys(("ConvInteger", "MatMulInteger"), (1, -1, 3)),
    **dict.fromkeys(("DynamicQuantizeMatMul", "MatMulNBits", "MatMulBnb4"), (1, 2, 3)),
    "MatMulIntegerToFloat": (1, 3, 5),
    "DynamicQuantizeLSTM": (1, 8, 9),
    "QAttention": (1, 4, 7),
}
"""Of operators on integers the inputs that are weights, scales and zero points."""

_RESHAPES: Final = ("Transpose", "Identity", "Cast", "Reshape", "Squeeze", "Unsqueeze")
_ROUNDED: Final = {"BFPQuantizeDequantize": "block float", "MXQuantizeDequantize": "microscaling"}
"""Of operators of AMD Quark that round a float, what they round it to."""

_PAIRS: Final = ("DequantizeLinear", "ExtendedDequantizeLinear", *_ROUNDED)
_THROUGH: Final = (*_RESHAPES, "QuantizeLinear", "ExtendedQuantizeLinear", *_PAIRS)
_STORED: Final = {"float32": "F32", "float16": "F16", "bfloat16": "BF16", "float64": "F64"}
_PAYLOADS: Final = (4, 9)  # Fields of a TensorProto whose elements lie as they are in memory


class OnnxLayers:
    """The layers of an ONNX file, with the interface of those of a checkpoint."""

    def __init__(self, path: Path, asked: AskedModel, problems: Problems) -> None:
        try:
            graph = read_graph(str(path))
        except CostError as error:
            raise AuditError(str(error)) from error
        self._path, self._add, self.asked = path, problems.add, asked
        self._seen: dict[str, StoredTensor] = {}
        self.bytes = path.stat().st_size + self._outside(graph)
        quantized: list[AuditedLayer] = []
        floats: list[AuditedLayer] = []
        for inner in graph.within():
            for each in self._layers(inner):
                (floats if each.state == "left out" else quantized).append(each)
        siblings = Siblings(asked, problems.add, set())
        self.layers = [*quantized, *siblings.sort(quantized, floats)]
        self.excess, self.scales = siblings.excess, list(self._seen.values())

    def _outside(self, graph: Graph) -> int:
        """Returns the bytes of the files that weights lie in beside the model, and adds those that are not whole."""
        ends: dict[str, tuple[int, int]] = {}
        for tensor in (each for inner in graph.within() for each in inner.initializers):
            if tensor.external is not None:
                end, count = ends.get(tensor.external.location, (0, 0))
                end = max(end, tensor.external.offset + tensor.stored)
                ends[tensor.external.location] = end, count + 1
        whole = 0
        for location, (end, count) in ends.items():
            file = self._inside(location)
            has = file.stat().st_size if file is not None and file.is_file() else 0
            if file is None:
                self._add("file", location, "is outside of the model's folder")
            elif not file.is_file():
                what = f"is not there, with {counted(count, 'tensor')} in it"
                self._add("missing", location, what)
            elif has < end:
                what = f"is truncated: {size(end - has)} are missing at its end"
                self._add("file", location, what)
            whole += has
        return whole

    def _inside(self, location: str) -> Path | None:
        """Returns the path of a file of weights; None for one outside of the model's folder."""
        is_outside = Path(location).is_absolute() or ".." in Path(location).parts
        return None if is_outside else self._path.parent / location

    def _layers(self, graph: Graph) -> Iterator[AuditedLayer]:
        makers = {name: node for node in graph.nodes for name in node.outputs}
        tensors = {each.name: each for each in graph.initializers}
        values = {name: node.attributes.get("value") for name, node in makers.items()}
        tensors |= {name: it for name, it in values.items() if isinstance(it, Tensor)}
        for node in graph.nodes:
            name = _ENDING.sub("", node_name(node))
            if node.op_type in _QUANTIZED:
                weight, scale, zero = (_input(node, at, tensors) for at in _QUANTIZED[node.op_type])
                if weight is not None:
                    yield self._quantized(name, node, weight, scale, zero)
            elif node.op_type in _CONTRACTIONS and len(node.inputs) > 1:
                source, pair = _constant_behind(node.inputs[1], makers)
                own = tensors.get(source)
                if own is not None and pair is not None:
                    scale, zero = (_input(pair, at, tensors) for at in (1, 2))
                    yield self._quantized(name, pair, own, scale, zero)
                elif own is not None and len(own.dims) > 1:
                    kind = dtypes.name_of(own.dtype)
                    yield AuditedLayer(name, "left out", kind, own.dims, own.elements, own.stored)

    def _quantized(
        self, name: str, node: GraphNode, weight: Tensor, scale: Tensor | None, zero: Tensor | None
    ) -> AuditedLayer:
        """Returns a quantized layer, and adds scales of another shape than its weights want."""
        numbers = {key: each for key, each in node.attributes.items() if isinstance(each, int)}
        type_, wanted = dtypes.name_of(weight.dtype), _wanted(weight.dims, numbers, node.op_type)
        if node.op_type == "MatMulNBits":
            type_ = f"int{numbers.get('bits', 4)}"
        elif node.op_type == "MatMulBnb4":
            type_ = "nf4" if numbers.get("quant_type") else "fp4"
        elif type_ == "float32":  # with a pair behind it
            rounded = _ROUNDED.get(node.op_type, "int8")
            type_ = rounded if zero is None else dtypes.name_of(zero.dtype)
        zeros = zero if node.op_type != "MatMulNBits" else None  # where they are packed
        for what, each in (("scales", scale), ("zero points", zeros)):
            if each is not None and each.elements not in wanted:
                expected = " or ".join(f"{it:,}" for it in sorted(wanted))
                where = f"where {expected} are expected"
                self._add("shape", name, f"has {each.elements:,} {what} {where}")
        if scale is not None and (stored := self._stored(scale)) is not None:
            self._seen[scale.name] = stored
        own = sum(each.stored for each in (weight, scale, zero) if each is not None)
        dims = (numbers["K"], numbers["N"]) if {"K", "N"} <= numbers.keys() else weight.dims
        return AuditedLayer(name, "quantized", type_, dims, prod(dims), own)

    def _stored(self, tensor: Tensor) -> StoredTensor | None:
        """Returns where a scale lies, if that can be read."""
        dtype, outside = _STORED.get(dtypes.name_of(tensor.dtype)), tensor.external
        file, begin, length = self._path, 0, tensor.stored
        if outside is not None:
            own = self._inside(outside.location)
            if own is None or not own.is_file():
                return None
            file, begin = own, outside.offset
        elif len(tensor.spans) == 1 and tensor.spans[0].field in _PAYLOADS:
            _, begin, length = tensor.spans[0]
        else:
            return None
        known = StoredTensor(tensor.name, dtype or "", tensor.dims, str(file), begin, length)
        return known if dtype else None


def _constant_behind(source: str, makers: Mapping[str, GraphNode]) -> tuple[str, GraphNode | None]:
    """Returns what a tensor is made of without being computed, and what dequantizes it on the way."""
    pair = None
    for _ in range(_MOST_THROUGH):
        maker = makers.get(source)
        if maker is None or maker.op_type not in _THROUGH or not maker.inputs:
            break
        source = maker.inputs[0]
        pair = maker if pair is None and maker.op_type in _PAIRS else pair
    return source, pair


def _input(node: GraphNode, at: int, tensors: Mapping[str, Tensor]) -> Tensor | None:
    return tensors.get(node.inputs[at]) if 0 <= at < len(node.inputs) else None


def _wanted(dims: tuple[int, ...], numbers: Mapping[str, int], kind: str) -> set[int]:
    """Returns how many scales the weights of an operator may have."""
    block, axis = numbers.get("block_size", 0), numbers.get("axis", 1)
    if kind == "MatMulNBits":
        inputs, outputs = numbers.get("K", 0), numbers.get("N", 0)
        return {outputs * -(-inputs // max(block, 1))}
    if kind == "MatMulBnb4":
        return {-(-numbers.get("K", 0) * numbers.get("N", 0) // max(block, 1))}
    if kind != "DequantizeLinear":
        ends = *dims[:1], *dims[-1:]  # an LSTM has two directions
        return {1, *ends, prod(ends)}
    if not -len(dims) <= axis < len(dims) or not dims:
        return {1}
    return {prod(dims) // dims[axis] * -(-dims[axis] // block)} if block else {1, dims[axis]}
