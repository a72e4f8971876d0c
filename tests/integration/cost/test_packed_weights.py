"""Weights of which a byte holds several count as the weights that they are."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import QuantFormat
from onnxruntime.quantization.matmul_nbits_quantizer import (
    DefaultWeightOnlyQuantConfig,
    MatMulNBitsQuantizer,
)

from otel_quant.cost import analyze
from tests.fixtures.onnx_builder import floats, model_of_text


def linear() -> onnx.ModelProto:
    """A product with 100 x 48 weights: blocks of 32 do not divide them."""
    text = """<ir_version: 10, opset_import: ["" : 21]>
        g (float[4, 100] x) => (float[4, 48] y) { y = MatMul (x, w) }"""
    return model_of_text(text, **floats(0, w=(100, 48)))


@pytest.mark.parametrize("symmetric", [True, False])
def test_both_forms_of_4_bit_weights_have_the_same_parameters(symmetric: bool) -> None:
    params: list[int] = []
    for form in (QuantFormat.QOperator, QuantFormat.QDQ):
        settings = DefaultWeightOnlyQuantConfig(
            block_size=32, is_symmetric=symmetric, quant_format=form, bits=4
        )
        quantizer = MatMulNBitsQuantizer(linear(), algo_config=settings)
        quantizer.process()
        cost = analyze(quantizer.model.model.SerializeToString())
        assert sum(node.params for node in cost.nodes) == cost.params
        params.append(cost.params)
    scales = 48 * 4
    assert params == [100 * 48 + scales * (1 if symmetric else 2)] * 2


@pytest.mark.parametrize(
    ("kind", "attributes", "operands", "params"),
    [
        (
            "MatMulNBits",
            {"N": 48, "K": 100, "bits": 8, "block_size": 32},
            {"x": (4, 100), "u8 w": (48, 4, 32), "s": (48, 4)},
            100 * 48 + 192,
        ),
        (
            "MatMulNBits",
            {"N": 48, "K": 100, "bits": 2, "block_size": 32},
            {"x": (4, 100), "u8 w": (48, 4, 8), "s": (48, 4), "z": (48, 4)},
            100 * 48 + 192 + 192,
        ),
        (
            "MatMulBnb4",
            {"N": 48, "K": 100, "block_size": 32, "quant_type": 1},
            {"x": (4, 100), "u8 w": (2400,), "s": (150,)},
            100 * 48 + 150,
        ),
        (
            "GatherBlockQuantized",
            {"bits": 4, "block_size": 16, "quantize_axis": 1},
            {"u8 w": (50, 16), "i64 at": (3,), "s": (50, 2), "u8 z": (50, 1)},
            50 * 32 + 3 + 100 + 100,
        ),
        (
            "QMoE",
            {"k": 1, "expert_weight_bits": 4},
            {
                "x": (4, 32), "r": (4, 2), "u8 w1": (2, 64, 16), "s1": (2, 64), "": (),
                "u8 w2": (2, 32, 32), "s2": (2, 32),
            },
            2 * 64 * 32 + 128 + 2 * 32 * 64 + 64,
        ),
    ],
)  # fmt: skip
def test_parameters_count_weights_and_not_packed_bytes(
    kind: str, attributes: dict[str, Any], operands: dict[str, tuple[int, ...]], params: int
) -> None:
    types = {"u8": np.uint8, "i64": np.int64}
    names = [name.split(" ")[-1] for name in operands]
    tensors = [
        numpy_helper.from_array(np.zeros(shape, types.get(name.split(" ")[0], np.float32)), short)
        for (name, shape), short in zip(operands.items(), names, strict=True)
        if short not in ("", "x", "r")
    ]
    graph = helper.make_graph(
        [helper.make_node(kind, names, ["y"], domain="com.microsoft", **attributes)],
        "g",
        [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, operands[name])
            for name in ("x", "r")
            if name in operands
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        tensors,
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    cost = analyze(helper.make_model(graph, opset_imports=opsets).SerializeToString())
    assert cost.params == sum(node.params for node in cost.nodes) == params
    assert cost.weight_bytes == sum(len(tensor.raw_data) for tensor in tensors)


def test_lengths_larger_than_the_stored_bytes_are_rejected() -> None:
    model = model_of_text(
        """<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]>
        g (float[4, 100] x) => (float[M, N] y) {
           y = com.microsoft.MatMulNBits <N = 1099511627776, K = 100, bits = 4, block_size = 32> (x, w, s)
        }""",
        w=np.zeros((48, 4, 16), np.uint8),
        s=np.zeros((48, 4), np.float32),
    )
    assert analyze(model.SerializeToString()).params == 48 * 4 * 16 + 48 * 4
