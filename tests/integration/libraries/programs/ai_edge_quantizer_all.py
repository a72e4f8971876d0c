# /// script
# dependencies = ["ai-edge-quantizer"]
# ///
"""Quantizes a LiteRT model of two layers with the AI Edge Quantizer: with samples, and weights alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.tools import flatbuffer_utils
from ai_edge_quantizer import quantizer, recipe
from watched import Progress
from weights import Weights, groups, note_weights

import otel_quant

SIZE = 64


def tensor(name: str, buffer: int, shape: list[int]) -> Any:
    return schema.TensorT(shape=shape, type=0, buffer=buffer, name=name)


def layer(inputs: list[int], output: int) -> Any:
    return schema.OperatorT(
        opcodeIndex=0, inputs=inputs, outputs=[output],
        builtinOptionsType=schema.BuiltinOptions.FullyConnectedOptions,
        builtinOptions=schema.FullyConnectedOptionsT(),
    )  # fmt: skip


def write_float(path: str) -> None:
    random, square = np.random.default_rng(0), [SIZE, SIZE]
    weights = [random.standard_normal(square).astype(np.float32) for _ in range(2)]
    data = [None, *(np.frombuffer(each.tobytes(), np.uint8) for each in weights)]
    tensors = [
        tensor("x", 0, [1, SIZE]), tensor("a", 1, square), tensor("h", 0, [1, SIZE]),
        tensor("b", 2, square), tensor("y", 0, [1, SIZE]),
    ]  # fmt: skip
    signature = schema.SignatureDefT(
        inputs=[schema.TensorMapT(name="x", tensorIndex=0)],
        outputs=[schema.TensorMapT(name="y", tensorIndex=4)],
        signatureKey="serving_default",
    )
    fully_connected = schema.BuiltinOperator.FULLY_CONNECTED
    model = schema.ModelT(
        version=3, description="two layers", buffers=[schema.BufferT(data=each) for each in data],
        operatorCodes=[
            schema.OperatorCodeT(deprecatedBuiltinCode=fully_connected, builtinCode=fully_connected)
        ],
        subgraphs=[
            schema.SubGraphT(
                tensors=tensors, inputs=[0], outputs=[4], name="main",
                operators=[layer([0, 1, -1], 2), layer([2, 3, -1], 4)],
            )
        ],
        signatureDefs=[signature],
    )  # fmt: skip
    flatbuffer_utils.write_model(model, path)


def note(path: str, way: str) -> None:
    """Writes down what the constants with two dimensions are in a written model."""
    model, found = flatbuffer_utils.read_model(path), []
    [graph] = model.subgraphs
    for each in graph.tensors:
        kind = flatbuffer_utils.type_to_name(each.type).lower()
        is_constant = len(each.shape) == 2 and model.buffers[each.buffer].data is not None
        if not (is_constant and kind.startswith("int")):
            continue
        bits, scales = int(kind.removeprefix("int")), each.quantization.scale
        if scales is None:  # in blocks, whose scales are another tensor
            blocks = each.quantization.details
            zero = graph.tensors[blocks.zeroPoints] if blocks.zeroPoints > 0 else None
            is_symmetric = zero is None or not any(model.buffers[zero.buffer].data)
            found.append(Weights(kind, bits, "group", blocks.blockSize, is_symmetric))
        else:
            how = groups(each.shape[0] * each.shape[1], each.shape[0], len(scales))
            found.append(Weights(kind, bits, *how, not any(each.quantization.zeroPoint)))
    note_weights(found, way)


def main() -> None:
    write_float("float.tflite")
    Progress()
    random = np.random.default_rng(1)
    with otel_quant.step("static"):
        static = quantizer.Quantizer(Path("float.tflite"), recipe.static_wi8_ai8())
        data = [{"x": random.standard_normal((1, SIZE), np.float32)} for _ in range(3)]
        found = static.calibrate({"serving_default": data})
        static.quantize(found, serialize_to_path="static.tflite")
        static.validate()
    with otel_quant.step("weights alone"):
        alone = quantizer.Quantizer("float.tflite", recipe.dynamic_wi4b32_afp32())
        assert alone.calibrate({}) == {}
        alone.quantize(serialize_to_path="alone.tflite", enable_progress_report=False)
    note("static.tflite", "static")
    note("alone.tflite", "weights alone")


if __name__ == "__main__":
    main()
