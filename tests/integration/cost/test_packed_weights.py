"""Weights of which a byte holds several count as the weights that they are."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from onnxruntime.quantization import QuantFormat
from onnxruntime.quantization.matmul_nbits_quantizer import (
    DefaultWeightOnlyQuantConfig,
    MatMulNBitsQuantizer,
)

from otel_quant.cost import analyze
from tests.fixtures import onnx_builder
from tests.unit.cost.operator_case import Case, floats, model_of, octets


def linear() -> onnx.ModelProto:
    """A product with 100 x 48 weights: blocks of 32 do not divide them."""
    text = """<ir_version: 10, opset_import: ["" : 21]>
        g (float[4, 100] x) => (float[4, 48] y) { y = MatMul (x, w) }"""
    return onnx_builder.model_of_text(text, w=floats(100, 48))


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


_BITS = {"N": 48, "K": 100, "block_size": 32}
PACKED: dict[str, tuple[str, list[np.ndarray | None], dict[str, object], int]] = {
    "8 bits": ("MatMulNBits", [floats(4, 100), octets(48, 4, 32), floats(48, 4)], {**_BITS, "bits": 8}, 100 * 48 + 192),
    "2 bits": ("MatMulNBits", [floats(4, 100), octets(48, 4, 8), floats(48, 4), floats(48, 4)], {**_BITS, "bits": 2}, 100 * 48 + 192 + 192),
    "4 bits of bitsandbytes": ("MatMulBnb4", [floats(4, 100), octets(2400), floats(150)], {**_BITS, "quant_type": 1}, 100 * 48 + 150),
    "rows of a table": (
        "GatherBlockQuantized", [octets(50, 16), np.zeros(3, np.int64), floats(50, 2), octets(50, 1)],
        {"bits": 4, "block_size": 16, "quantize_axis": 1}, 50 * 32 + 3 + 100 + 100,
    ),
    "experts": (
        "QMoE",
        [floats(4, 32), floats(4, 2), octets(2, 64, 16), floats(2, 64), None, octets(2, 32, 32), floats(2, 32)],
        {"k": 2, "expert_weight_bits": 4}, 4 * 2 + 2 * 64 * 32 + 128 + 2 * 32 * 64 + 64,
    ),
}  # fmt: skip
"""Operator, operands, attributes and what the constants among the operands are."""


@pytest.mark.parametrize(("kind", "operands", "attributes", "params"), PACKED.values(), ids=PACKED)
def test_parameters_count_weights_and_not_packed_bytes(
    kind: str, operands: list[np.ndarray | None], attributes: dict[str, object], params: int
) -> None:
    model = model_of(Case(f"com.microsoft:{kind}", operands, [()], None, attributes))
    if kind == "GatherBlockQuantized":  # its first operand is the weights
        assert operands[0] is not None
        model.graph.initializer.append(numpy_helper.from_array(operands[0], "i0"))
        del model.graph.input[0]
    cost = analyze(model.SerializeToString())
    assert cost.params == sum(node.params for node in cost.nodes) == params
    assert cost.weight_bytes == sum(len(tensor.raw_data) for tensor in model.graph.initializer)


def test_lengths_larger_than_the_stored_bytes_are_rejected() -> None:
    model = onnx_builder.model_of_text(
        """<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]>
        g (float[4, 100] x) => (float[M, N] y) {
           y = com.microsoft.MatMulNBits <N = 1099511627776, K = 100, bits = 4, block_size = 32> (x, w, s)
        }""",
        w=np.zeros((48, 4, 16), np.uint8),
        s=np.zeros((48, 4), np.float32),
    )
    assert analyze(model.SerializeToString()).params == 48 * 4 * 16 + 48 * 4
