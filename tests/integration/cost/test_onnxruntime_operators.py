"""Shapes of onnxruntime's own operators are those that it makes itself."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from otel_quant.cost import analyze
from tests.integration.cost.reference import real_results
from tests.integration.cost.test_shapes import same
from tests.integration.cost.walking import walk

RNG = np.random.default_rng(3)


def floats(*shape: int) -> np.ndarray:
    return RNG.random(shape, np.float32)


def bytes_of(*shape: int) -> np.ndarray:
    return RNG.integers(0, 255, shape, np.uint8)


SCALE = np.array(0.1, np.float32)
POINT = np.array(3, np.uint8)

CASES: dict[str, tuple[str, list[np.ndarray | None], int, dict[str, object]]] = {
    # name: operator, operands, results, attributes
    "Gelu": ("Gelu", [floats(2, 3)], 1, {}),
    "FastGelu": ("FastGelu", [floats(2, 3), floats(3)], 1, {}),
    "BiasGelu": ("BiasGelu", [floats(2, 3), floats(3)], 1, {}),
    "QuickGelu": ("QuickGelu", [floats(2, 3)], 1, {}),
    "SkipLayerNormalization": (
        "SkipLayerNormalization",
        [floats(2, 5, 8), floats(2, 5, 8), floats(8), floats(8), floats(8)],
        4,
        {},
    ),
    "SkipSimplifiedLayerNormalization": (
        "SkipSimplifiedLayerNormalization",
        [floats(2, 5, 8), floats(2, 5, 8), floats(8)],
        1,
        {},
    ),
    "EmbedLayerNormalization": (
        "EmbedLayerNormalization",
        [
            RNG.integers(0, 9, (2, 5), np.int32),
            np.zeros((2, 5), np.int32),
            floats(10, 8),
            floats(6, 8),
            floats(2, 8),
            floats(8),
            floats(8),
            np.ones((2, 5), np.int32),
        ],
        2,
        {},
    ),
    "Attention": ("Attention", [floats(2, 5, 8), floats(8, 24), floats(24)], 1, {"num_heads": 2}),
    "Attention with a past": (
        "Attention",
        [floats(2, 5, 8), floats(8, 24), floats(24), None, floats(2, 2, 2, 3, 4)],
        2,
        {"num_heads": 2, "unidirectional": 1},
    ),
    "QAttention": (
        "QAttention",
        [
            bytes_of(2, 5, 8),
            bytes_of(8, 24),
            floats(24),
            SCALE,
            SCALE,
            None,
            POINT,
            POINT,
        ],
        1,
        {"num_heads": 2},
    ),
    "MultiHeadAttention": (
        "MultiHeadAttention",
        [floats(2, 5, 8), floats(2, 7, 8), floats(2, 7, 8)],
        3,
        {"num_heads": 2},
    ),
    "MultiHeadAttention with a past": (
        "MultiHeadAttention",
        [
            floats(2, 5, 8), floats(2, 5, 8), floats(2, 5, 8), None, None, None,
            floats(2, 2, 3, 4), floats(2, 2, 3, 4),
        ],
        3,
        {"num_heads": 2},
    ),
    "MultiHeadAttention across": (
        "MultiHeadAttention",
        [floats(2, 5, 8), floats(2, 2, 7, 4), floats(2, 2, 7, 4)],
        1,
        {"num_heads": 2},
    ),
    "GroupQueryAttention": (
        "GroupQueryAttention",
        [
            floats(1, 1, 32), floats(1, 1, 16), floats(1, 1, 16),
            floats(1, 2, 6, 8), floats(1, 2, 6, 8),
            np.array([6], np.int32), np.array(7, np.int32),
        ],
        3,
        {"num_heads": 4, "kv_num_heads": 2},
    ),
    "GroupQueryAttention packed": (
        "GroupQueryAttention",
        [
            floats(1, 4, 64), None, None, None, None,
            np.array([3], np.int32), np.array(4, np.int32),
        ],
        3,
        {"num_heads": 4, "kv_num_heads": 2},
    ),
    "RotaryEmbedding": (
        "RotaryEmbedding",
        [floats(1, 4, 16), np.array([0], np.int64), floats(8, 4), floats(8, 4)],
        1,
        {"num_heads": 2},
    ),
    "FusedConv": (
        "FusedConv",
        [floats(1, 3, 9, 9), floats(4, 3, 3, 3), floats(4)],
        1,
        {"kernel_shape": [3, 3], "strides": [2, 2], "activation": "Relu"},
    ),
    "FusedGemm": (
        "FusedGemm",
        [floats(4, 8), floats(6, 8), floats(6)],
        1,
        {"transB": 1, "activation": "Relu"},
    ),
    "FusedMatMul": ("FusedMatMul", [floats(2, 8, 4), floats(2, 6, 8)], 1, {"transA": 1, "transB": 1}),
    "FusedMatMul with batches moved": (
        "FusedMatMul",
        [floats(5, 2, 8), floats(2, 8, 6)],
        1,
        {"transBatchA": 1},
    ),
    "MatMulNBits": (
        "MatMulNBits",
        [floats(2, 5, 32), bytes_of(6, 2, 8), floats(12)],
        1,
        {"K": 32, "N": 6, "bits": 4, "block_size": 16},
    ),
    "MatMulIntegerToFloat": (
        "MatMulIntegerToFloat",
        [bytes_of(3, 4, 8), bytes_of(8, 6), SCALE, SCALE],
        1,
        {},
    ),
    "DynamicQuantizeMatMul": (
        "DynamicQuantizeMatMul",
        [floats(3, 4, 8), bytes_of(8, 6), SCALE],
        1,
        {},
    ),
    "QGemm": (
        "QGemm",
        [bytes_of(4, 8), SCALE, POINT, bytes_of(6, 8), SCALE, POINT, None, SCALE, POINT],
        1,
        {"transB": 1},
    ),
    "QGemm to float": (
        "QGemm",
        [bytes_of(4, 8), SCALE, POINT, bytes_of(6, 8), SCALE, POINT],
        1,
        {"transB": 1},
    ),
    "QLinearAdd": (
        "QLinearAdd",
        [bytes_of(4, 1), SCALE, POINT, bytes_of(1, 5), SCALE, POINT, SCALE, POINT],
        1,
        {},
    ),
    "QLinearMul": (
        "QLinearMul",
        [bytes_of(4, 5), SCALE, POINT, bytes_of(5), SCALE, POINT, SCALE, POINT],
        1,
        {},
    ),
    "QLinearSigmoid": ("QLinearSigmoid", [bytes_of(4, 5), SCALE, POINT, SCALE, POINT], 1, {}),
    "QLinearLeakyRelu": ("QLinearLeakyRelu", [bytes_of(4, 5), SCALE, POINT, SCALE, POINT], 1, {}),
    "QLinearSoftmax": (
        "QLinearSoftmax",
        [bytes_of(4, 5), SCALE, POINT, np.array(1 / 256, np.float32), np.array(0, np.uint8)],
        1,
        {"opset": 13, "axis": -1},
    ),
    "QLinearConcat": (
        "QLinearConcat",
        [SCALE, POINT, bytes_of(2, 3), SCALE, POINT, bytes_of(2, 4), SCALE, POINT],
        1,
        {"axis": 1},
    ),
    "QLinearWhere": (
        "QLinearWhere",
        [
            np.ones((4, 1), np.bool_), bytes_of(1, 5), SCALE, POINT, bytes_of(4, 5), SCALE, POINT,
            SCALE, POINT,
        ],
        1,
        {},
    ),
    "QLinearGlobalAveragePool": (
        "QLinearGlobalAveragePool",
        [bytes_of(1, 3, 4, 4), SCALE, POINT, SCALE, POINT],
        1,
        {},
    ),
    "QLinearGlobalAveragePool channels last": (
        "QLinearGlobalAveragePool",
        [bytes_of(1, 4, 4, 3), SCALE, POINT, SCALE, POINT],
        1,
        {"channels_last": 1},
    ),
    "QLinearAveragePool": (
        "QLinearAveragePool",
        [bytes_of(1, 3, 7, 7), SCALE, POINT, SCALE, POINT],
        1,
        {"kernel_shape": [3, 3], "strides": [2, 2]},
    ),
    "QLinearAveragePool channels last": (
        "QLinearAveragePool",
        [bytes_of(1, 7, 7, 3), SCALE, POINT, SCALE, POINT],
        1,
        {"kernel_shape": [3, 3], "strides": [2, 2], "channels_last": 1},
    ),
    "QLinearConv channels last": (
        "QLinearConv",
        [
            bytes_of(1, 9, 7, 3), SCALE, POINT, bytes_of(4, 3, 3, 3), SCALE, POINT, SCALE, POINT,
        ],
        1,
        {"kernel_shape": [3, 3], "strides": [2, 1], "channels_last": 1},
    ),
    "NhwcMaxPool": (
        "NhwcMaxPool",
        [bytes_of(1, 7, 7, 3)],
        1,
        {"kernel_shape": [3, 3], "strides": [2, 2]},
    ),
    "QuantizeLinear": ("QuantizeLinear", [floats(2, 3), SCALE, POINT], 1, {}),
    "DequantizeLinear": ("DequantizeLinear", [bytes_of(2, 3), SCALE, POINT], 1, {}),
    "GatherBlockQuantized": (
        "GatherBlockQuantized",
        [bytes_of(10, 16), RNG.integers(0, 9, (2, 5), np.int64), floats(10, 2)],
        1,
        {"bits": 4, "block_size": 16, "gather_axis": 0, "quantize_axis": 1},
    ),
    "MoE": (
        "MoE",
        [floats(5, 8), floats(5, 3), floats(3, 16, 8), floats(3, 16), floats(3, 8, 16), floats(3, 8)],
        1,
        {"k": 2, "activation_type": "gelu"},
    ),
    "DecoderMaskedMultiHeadAttention in a shared buffer": (
        "DecoderMaskedMultiHeadAttention",
        [
            floats(2, 1, 16), floats(2, 1, 16), floats(2, 1, 16), None, None,
            floats(2, 2, 10, 8), floats(2, 2, 10, 8), np.array([4], np.int32),
        ],
        3,
        {"num_heads": 2, "past_present_share_buffer": 1},
    ),
    "DecoderMaskedMultiHeadAttention across": (
        "DecoderMaskedMultiHeadAttention",
        [floats(2, 1, 16), floats(2, 2, 6, 8), floats(2, 2, 6, 8)],
        1,
        {"num_heads": 2},
    ),
    "Trilu": ("Trilu", [floats(4, 8)], 1, {}),
    "DynamicQuantizeLSTM": (
        "DynamicQuantizeLSTM",
        [
            floats(5, 2, 6), bytes_of(1, 6, 16), bytes_of(1, 4, 16), floats(1, 32), None, None, None,
            None, floats(1), bytes_of(1), floats(1), bytes_of(1),
        ],
        3,
        {"hidden_size": 4},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_result_is_as_onnxruntime_makes_it(name: str, tmp_path: Path) -> None:
    op, operands, results, settings = CASES[name]
    tensors = [
        numpy_helper.from_array(array, f"i{i}")
        for i, array in enumerate(operands)
        if array is not None
    ]
    names = ["" if array is None else f"i{i}" for i, array in enumerate(operands)]
    node = helper.make_node(
        op, names, [f"o{i}" for i in range(results)], domain="com.microsoft", **settings
    )
    small = [t for t in tensors if t.dims in ([], [1])]
    graph = helper.make_graph(
        [node],
        "g",
        [
            helper.make_tensor_value_info(t.name, t.data_type, list(t.dims))
            for t in tensors
            if t not in small
        ],
        [onnx.ValueInfoProto(name="o0")],
        small,
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    weights = {"QLinearConv", "MatMulNBits", "DynamicQuantizeLSTM", "QAttention"}
    if op in weights:  # kernels that want these as constants
        for tensor in tensors[1:]:
            if tensor not in small:
                graph.initializer.append(tensor)
        kept = [info for info in graph.input if info.name == tensors[0].name]
        del graph.input[:]
        graph.input.extend(kept)
        model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    wanted = {info.name for info in graph.input}
    feeds = {
        f"i{i}": array
        for i, array in enumerate(operands)
        if array is not None and f"i{i}" in wanted
    }
    real = real_results(model, feeds)
    path = tmp_path / "m.onnx"
    onnx.save(model, path)
    values, _ = walk(path, {})
    compared = [key for key in real if key in values and real[key].size]
    assert "o0" in compared
    assert [fault for key in compared for fault in same(values[key], real[key])] == []
    assert [key for key in compared if values[key].size is None] == []
    assert analyze(path).uncosted_ops == {}
