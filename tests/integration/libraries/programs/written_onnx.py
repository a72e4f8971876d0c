"""What the weights of a quantized ONNX model are, read from its nodes and tensors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx
from onnx import TensorProto
from weights import Weights, groups, note_weights

_BITS = {
    TensorProto.UINT4: 4, TensorProto.INT4: 4, TensorProto.UINT8: 8, TensorProto.INT8: 8,
    TensorProto.UINT16: 16, TensorProto.INT16: 16, TensorProto.FLOAT8E4M3FN: 8,
}  # fmt: skip


def note(model: str | Path | Any, way: str) -> Any:
    """Writes down what the weights of a model, or of a file, are; returns it."""
    loaded = onnx.load(model, load_external_data=False) if isinstance(model, str | Path) else model
    note_weights(list(_weights_in(loaded.graph)), way)
    return model


def note_floats(path: str, way: str) -> None:
    """Writes down the same of a file whose matrices are all in a type of float."""
    weights = [each for each in onnx.load(path).graph.initializer if len(each.dims) > 1]
    types = [onnx.helper.tensor_dtype_to_np_dtype(each.data_type) for each in weights]
    note_weights([Weights(str(each), 8 * each.itemsize, "", None, None) for each in types], way)


def _weights_in(graph: Any) -> Iterator[Weights]:
    tensors = {each.name: each for each in graph.initializer}
    for node in graph.node:
        numbers = {each.name: each.i for each in node.attribute}
        inputs = [tensors.get(name) for name in node.input]
        if node.op_type == "MatMulNBits":
            _, _, bytes_of_block = inputs[1].dims
            bits, signed = 8 * bytes_of_block // numbers["block_size"], len(inputs) == 3
            kind = f"{'' if signed else 'u'}int{bits}"
            yield Weights(kind, bits, "group", numbers["block_size"], signed)
            continue
        if node.op_type == "MatMulBnb4":
            kind = "nf4" if numbers["quant_type"] else "fp4"
            yield Weights(kind, 4, "group", numbers["block_size"], None)
            continue
        is_pair = node.op_type == "QuantizeLinear"  # of a weight that is kept in float
        for at, weight in enumerate(inputs):
            if weight is None or sum(size > 1 for size in weight.dims) < 2:
                continue
            after = [each for each in inputs[at + 1 :] if each is not None]
            # Of ConvInteger and MatMulInteger the scale is at a later node, by its name.
            beside = tensors.get(weight.name.removesuffix("_quantized") + "_scale")
            scale = next((each for each in after if each.data_type == TensorProto.FLOAT), beside)
            zero = next((each for each in after if each.data_type in _BITS), None)
            stored = zero.data_type if is_pair and zero is not None else weight.data_type
            if stored in _BITS and scale is not None and (not is_pair or at == 0):
                count, scales = 1, 1
                for size in weight.dims:
                    count *= size
                for size in scale.dims:
                    scales *= size
                several = {size for size in weight.dims if size == scales}
                kind = TensorProto.DataType.Name(stored).lower()
                is_symmetric = zero is None or not onnx.numpy_helper.to_array(zero).any()
                how = groups(count, several.pop() if several else 0, scales)
                yield Weights(
                    kind,
                    _BITS[stored],
                    *how,
                    None if kind.startswith("float") else bool(is_symmetric),
                )
