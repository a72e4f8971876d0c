"""The layers of an ONNX file: contractions with constant weights, and what quantizes those."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod
from pathlib import Path
from typing import Final

from otel_quant.auditing.asked import AskedModel
from otel_quant.auditing.checkpoint import AuditError, StoredTensor
from otel_quant.auditing.layers import Siblings
from otel_quant.auditing.results import AuditedLayer, LayerState, Problems
from otel_quant.cost import CostError
from otel_quant.cost.graph import Graph, GraphNode, Tensor, dtypes, node_name, read_graph
from otel_quant.schema.units import counted, size

_CONTRACTIONS: Final = {"Conv": 1, "Gemm": 1, "MatMul": 1, "ConvTranspose": 1}
_QUANTIZED: Final[Mapping[str, tuple[int, int, int]]] = {
    "QLinearConv": (3, 4, 5),
    "QLinearMatMul": (3, 4, 5),
    "QGemm": (3, 4, 5),
    "ConvInteger": (1, -1, 3),
    "MatMulInteger": (1, -1, 3),
    "DynamicQuantizeMatMul": (1, 2, 3),
    "MatMulIntegerToFloat": (1, 3, 5),
    "MatMulNBits": (1, 2, 3),
    "MatMulBnb4": (1, 2, -1),
}
"""Of operators on integers the inputs that are weights, scales and zero points."""

_THROUGH: Final = ("Transpose", "Identity", "Cast", "Reshape", "Squeeze", "Unsqueeze")
_STORED: Final = {"float32": "F32", "float16": "F16", "bfloat16": "BF16", "float64": "F64"}
_PAYLOADS: Final = (4, 9)  # Fields of a TensorProto whose elements lie as they are in memory


class OnnxLayers:
    """The layers of an ONNX file, with the interface of those of a checkpoint."""

    def __init__(self, path: Path, asked: AskedModel, problems: Problems) -> None:
        try:
            graph = read_graph(str(path))
        except CostError as error:
            raise AuditError(str(error)) from error
        self._path, self._problems, self.asked = path, problems, asked
        self._seen: dict[str, StoredTensor] = {}
        self.bytes = path.stat().st_size + self._outside(graph)
        quantized: list[AuditedLayer] = []
        floats: list[AuditedLayer] = []
        for inner in graph.within():
            for each in self._layers(inner, {it.name: it for it in inner.initializers}):
                (floats if each.state == "left out" else quantized).append(each)
        siblings = Siblings(asked, problems.add)
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
            file = self._path.parent / location
            if Path(location).is_absolute() or ".." in Path(location).parts:
                self._problems.add("file", location, "is outside of the model's folder")
            elif not file.is_file():
                self._problems.add(
                    "missing", location, f"is not there, with {counted(count, 'tensor')} in it"
                )
            elif (has := file.stat().st_size) < end:
                self._problems.add(
                    "file", location, f"is truncated: {size(end - has)} are missing at its end"
                )
            whole += file.stat().st_size if file.is_file() else 0
        return whole

    def _layers(self, graph: Graph, tensors: Mapping[str, Tensor]) -> Iterator[AuditedLayer]:
        makers = {name: node for node in graph.nodes for name in node.outputs}
        for node in graph.nodes:
            name = node_name(node)
            if node.op_type in _QUANTIZED:
                weight, scale, zero = (_input(node, at, tensors) for at in _QUANTIZED[node.op_type])
                if weight is not None:
                    yield self._quantized(name, node, weight, scale, zero)
            elif node.op_type in _CONTRACTIONS and len(node.inputs) > 1:
                source = node.inputs[1]
                while (maker := makers.get(source)) is not None and maker.op_type in _THROUGH:
                    source = maker.inputs[0]
                if maker is not None and maker.op_type == "DequantizeLinear":
                    weight, scale, zero = (_input(maker, at, tensors) for at in range(3))
                    pair = makers.get(maker.inputs[0])
                    if weight is None and pair is not None and pair.op_type == "QuantizeLinear":
                        weight = _input(pair, 0, tensors)
                    if weight is not None:
                        yield self._quantized(name, maker, weight, scale, zero)
                elif (own := tensors.get(source)) is not None and len(own.dims) > 1:
                    yield _layer(name, "left out", dtypes.name_of(own.dtype), own, own.stored)

    def _quantized(
        self, name: str, node: GraphNode, weight: Tensor, scale: Tensor | None, zero: Tensor | None
    ) -> AuditedLayer:
        """Returns a quantized layer, and adds scales of another shape than its weights want."""
        numbers = {key: each for key, each in node.attributes.items() if isinstance(each, int)}
        type_ = dtypes.name_of(weight.dtype)
        wanted = _wanted(weight.dims, numbers, node.op_type)
        if node.op_type == "MatMulNBits":
            type_ = f"int{numbers.get('bits', 4)}"
        elif node.op_type == "MatMulBnb4":
            type_ = "nf4" if numbers.get("quant_type") else "fp4"
        elif type_ == "float32":  # with a pair behind it
            type_ = dtypes.name_of(zero.dtype) if zero is not None else "int8"
        for what, each in (("scales", scale), ("zero points", zero)):
            is_packed = what == "zero points" and node.op_type == "MatMulNBits"
            if each is not None and not is_packed and each.elements not in wanted:
                expected = " or ".join(f"{it:,}" for it in sorted(wanted))
                self._problems.add(
                    "shape", name, f"has {each.elements:,} {what} where {expected} are expected"
                )
        if scale is not None and (stored := self._stored(scale)) is not None:
            self._seen[scale.name] = stored
        own = sum(each.stored for each in (weight, scale, zero) if each is not None)
        return _layer(name, "quantized", type_, weight, own)

    def _stored(self, tensor: Tensor) -> StoredTensor | None:
        """Returns where a scale lies, if that can be read."""
        dtype, outside = _STORED.get(dtypes.name_of(tensor.dtype)), tensor.external
        if dtype is None:
            return None
        if outside is not None:
            is_inside = (
                not Path(outside.location).is_absolute()
                and ".." not in Path(outside.location).parts
            )
            file = self._path.parent / outside.location
            found = (str(file), outside.offset, tensor.stored)
            return (
                StoredTensor(tensor.name, dtype, tensor.dims, *found)
                if is_inside and file.is_file()
                else None
            )
        if len(tensor.spans) != 1 or tensor.spans[0].field not in _PAYLOADS:
            return None
        return StoredTensor(tensor.name, dtype, tensor.dims, str(self._path), *tensor.spans[0][1:])


def _input(node: GraphNode, at: int, tensors: Mapping[str, Tensor]) -> Tensor | None:
    return tensors.get(node.inputs[at]) if 0 <= at < len(node.inputs) else None


def _layer(name: str, state: LayerState, type_: str, weight: Tensor, stored: int) -> AuditedLayer:
    return AuditedLayer(name, state, type_, weight.dims, weight.elements, stored)


def _wanted(dims: tuple[int, ...], numbers: Mapping[str, int], kind: str) -> set[int]:
    """Returns how many scales the weights of an operator may have."""
    block, axis = numbers.get("block_size", 0), numbers.get("axis", 1)
    if kind == "MatMulNBits":
        inputs, outputs = numbers.get("K", 0), numbers.get("N", 0)
        return {outputs * -(-inputs // max(block, 1))}
    if kind == "MatMulBnb4":
        return {-(-numbers.get("K", 0) * numbers.get("N", 0) // max(block, 1))}
    if kind != "DequantizeLinear":
        return {1, dims[0], dims[-1]}
    if not -len(dims) <= axis < len(dims):
        return {1}
    return {prod(dims) // dims[axis] * -(-dims[axis] // block)} if block else {1, dims[axis]}
