"""Operators in onnxruntime's domain, each with its results and what it costs."""

from __future__ import annotations

import numpy as np

from otel_quant.cost.operators.rule import DIV, ERF, EXP, SQRT, TANH
from tests.unit.cost.operator_case import RNG, Case, floats, ints, octets

SOFTMAX = EXP + DIV
ROW = SQRT + DIV + 1
GELU = ERF + 4
SCALE = np.array(0.1, np.float32)
POINT = np.array(3, np.uint8)

# fmt: off
MICROSOFT = {
    "MatMulBnb4": Case(
        "com.microsoft:MatMulBnb4", [floats(2, 5, 32), octets(96), floats(12)], [(2, 5, 6)],
        60 * 32, {"K": 32, "N": 6, "block_size": 16, "quant_type": 1},
    ),
    "QMoE": Case(
        "com.microsoft:QMoE",
        [
            floats(5, 32), floats(5, 3), octets(3, 64, 16), floats(3, 64), None, octets(3, 32, 32),
            floats(3, 32),
        ],
        [(5, 32)], 5 * 2 * (64 * 32 + 32 * 64),
        {"k": 2, "activation_type": "silu", "expert_weight_bits": 4},
    ),
    "QEmbedLayerNormalization": Case(
        "com.microsoft:QEmbedLayerNormalization",
        [
            RNG.integers(0, 9, (2, 5), np.int32), np.zeros((2, 5), np.int32), octets(10, 8),
            octets(6, 8), octets(2, 8), octets(8), octets(8), np.ones((2, 5), np.int32),
            *[floats()] * 5, *[np.array(3, np.uint8)] * 5,
        ],
        [(2, 5, 8), (2,)], 80 * (3 * 2 + 2 + 7) + 10 * ROW,
    ),
    "Gelu": Case("com.microsoft:Gelu", [floats(2, 3)], [(2, 3)], 6 * GELU),
    "FastGelu": Case("com.microsoft:FastGelu", [floats(2, 3), floats(3)], [(2, 3)], 6 * (TANH + 8 + 1)),
    "BiasGelu": Case("com.microsoft:BiasGelu", [floats(2, 3), floats(3)], [(2, 3)], 6 * (1 + GELU)),
    "QuickGelu": Case("com.microsoft:QuickGelu", [floats(2, 3)], [(2, 3)], 6 * (EXP + 2)),
    "SkipLayerNormalization": Case(
        "com.microsoft:SkipLayerNormalization", [floats(2, 5, 8), floats(2, 5, 8), floats(8),
        floats(8), floats(8)], [(2, 5, 8), (2, 5, 1), (2, 5, 1), (2, 5, 8)],
        80 * (7 + 2) + 10 * ROW),
    "SkipSimplifiedLayerNormalization": Case(
        "com.microsoft:SkipSimplifiedLayerNormalization", [floats(2, 5, 8), floats(2, 5, 8),
        floats(8)], [(2, 5, 8)], 80 * (3 + 1) + 10 * ROW),
    "EmbedLayerNormalization": Case(
        "com.microsoft:EmbedLayerNormalization", [RNG.integers(0, 9, (2, 5), np.int32),
        np.zeros((2, 5), np.int32), floats(10, 8), floats(6, 8), floats(2, 8), floats(8),
        floats(8), np.ones((2, 5), np.int32)], [(2, 5, 8), (2,)], 80 * (7 + 2) + 10 * ROW),
    "Attention": Case(
        "com.microsoft:Attention", [floats(2, 5, 8), floats(8, 24), floats(24)], [(2, 5, 8)],
        2 * 5 * (8 * 24 + 24) + 2 * 2 * 25 * (8 + SOFTMAX + 1), {"num_heads": 2}),
    "Attention with a past": Case(
        "com.microsoft:Attention", [floats(2, 5, 8), floats(8, 24), floats(24), None,
        floats(2, 2, 2, 3, 4)], [(2, 5, 8), (2, 2, 2, 8, 4)],
        2 * 5 * (8 * 24 + 24) + 2 * 2 * 40 * (8 + SOFTMAX + 1), {"num_heads": 2,
        "unidirectional": 1}),
    "QAttention": Case(
        "com.microsoft:QAttention", [octets(2, 5, 8), octets(8, 24), floats(24), SCALE, SCALE,
        None, POINT, POINT], [(2, 5, 8)],
        2 * 5 * (8 * 24 + 24) + 2 * 2 * 25 * (8 + SOFTMAX + 1), {"num_heads": 2}),
    "MultiHeadAttention": Case(
        "com.microsoft:MultiHeadAttention", [floats(2, 5, 8), floats(2, 7, 8), floats(2, 7, 8)],
        [(2, 5, 8), (2, 2, 7, 4), (2, 2, 7, 4)],
        2 * 2 * 35 * (8 + SOFTMAX + 1), {"num_heads": 2}),
    "MultiHeadAttention with a past": Case(
        "com.microsoft:MultiHeadAttention", [floats(2, 5, 8), floats(2, 5, 8), floats(2, 5, 8),
        None, None, None, floats(2, 2, 3, 4), floats(2, 2, 3, 4)], [(2, 5, 8), (2, 2, 8, 4),
        (2, 2, 8, 4)], 2 * 2 * 40 * (8 + SOFTMAX + 1), {"num_heads": 2}),
    "MultiHeadAttention across": Case(
        "com.microsoft:MultiHeadAttention", [floats(2, 5, 8), floats(2, 2, 7, 4),
        floats(2, 2, 7, 4)], [(2, 5, 8)], 2 * 2 * 35 * (8 + SOFTMAX + 1), {"num_heads": 2}),
    "GroupQueryAttention of the keys in use": Case(
        "com.microsoft:GroupQueryAttention", [floats(1, 3, 64), floats(1, 3, 16), floats(1, 3, 16),
        floats(1, 2, 10, 8), floats(1, 2, 10, 8), ints(12), np.array(13, np.int32)],
        [(1, 3, 64), (1, 2, 13, 8), (1, 2, 13, 8)], 8 * 3 * 13 * (16 + SOFTMAX + 1),
        {"num_heads": 8, "kv_num_heads": 2}),
    "GroupQueryAttention": Case(
        "com.microsoft:GroupQueryAttention", [floats(1, 1, 32), floats(1, 1, 16),
        floats(1, 1, 16), floats(1, 2, 6, 8), floats(1, 2, 6, 8), np.array([6], np.int32),
        np.array(7, np.int32)], [(1, 1, 32), (1, 2, 7, 8), (1, 2, 7, 8)],
        4 * 7 * (16 + SOFTMAX + 1), {"num_heads": 4,
        "kv_num_heads": 2}),
    "GroupQueryAttention packed": Case(
        "com.microsoft:GroupQueryAttention", [floats(1, 4, 64), None, None, None, None,
        np.array([3], np.int32), np.array(4, np.int32)], [(1, 4, 32), (1, 2, 4, 8),
        (1, 2, 4, 8)], 3392, {"num_heads": 4, "kv_num_heads": 2}),
    "GroupQueryAttention packed, rotated": Case(
        "com.microsoft:GroupQueryAttention",
        [
            floats(1, 4, 128), None, None, None, None, ints(3), np.array(4, np.int32),
            floats(8, 8), floats(8, 8),
        ],
        [(1, 4, 64), (1, 2, 4, 16), (1, 2, 4, 16)],
        4 * 16 * (2 * 16 + SOFTMAX + 1) + 3 * 4 * (4 + 2) * 16,
        {"num_heads": 4, "kv_num_heads": 2, "do_rotary": 1},
    ),
    "GroupQueryAttention rotated": Case(
        "com.microsoft:GroupQueryAttention",
        [
            floats(1, 4, 64), floats(1, 4, 32), floats(1, 4, 32), None, None, ints(3),
            np.array(4, np.int32), floats(8, 8), floats(8, 8),
        ],
        [(1, 4, 64), (1, 2, 4, 16), (1, 2, 4, 16)],
        4 * 16 * (2 * 16 + SOFTMAX + 1) + 3 * 4 * (4 + 2) * 16,
        {"num_heads": 4, "kv_num_heads": 2, "do_rotary": 1},
    ),
    "RotaryEmbedding": Case(
        "com.microsoft:RotaryEmbedding", [floats(1, 4, 16), np.array([0], np.int64),
        floats(8, 4), floats(8, 4)], [(1, 4, 16)], 3 * 64, {"num_heads": 2}),
    "FusedConv": Case(
        "com.microsoft:FusedConv", [floats(1, 3, 9, 9), floats(4, 3, 3, 3), floats(4)],
        [(1, 4, 4, 4)],
        64 * (27 + 1 + 1), {"kernel_shape": [3, 3], "strides": [2, 2], "activation":
        "Relu"}),
    "FusedGemm": Case(
        "com.microsoft:FusedGemm", [floats(4, 8), floats(6, 8), floats(6)], [(4, 6)],
        24 * (8 + 1 + 1),
        {"transB": 1, "activation": "Relu"}),
    "FusedMatMul": Case(
        "com.microsoft:FusedMatMul", [floats(2, 8, 4), floats(2, 6, 8)], [(2, 4, 6)],
        2 * 4 * 6 * 8,
        {"transA": 1, "transB": 1}),
    "FusedMatMul with batches moved": Case(
        "com.microsoft:FusedMatMul", [floats(5, 2, 8), floats(2, 8, 6)], [(2, 5, 6)], 480,
        {"transBatchA": 1}),
    "MatMulNBits": Case(
        "com.microsoft:MatMulNBits", [floats(2, 5, 32), octets(6, 2, 8), floats(12)],
        [(2, 5, 6)], 10 * 32 * 6, {"K": 32, "N": 6, "bits": 4, "block_size": 16}),
    "MatMulIntegerToFloat": Case(
        "com.microsoft:MatMulIntegerToFloat", [octets(3, 4, 8), octets(8, 6), SCALE, SCALE],
        [(3, 4, 6)], 72 * (8 + 1)),
    "DynamicQuantizeMatMul": Case(
        "com.microsoft:DynamicQuantizeMatMul", [floats(3, 4, 8), octets(8, 6), SCALE],
        [(3, 4, 6)], 72 * (8 + 1) + 4 * 96),
    "QGemm": Case(
        "com.microsoft:QGemm", [octets(4, 8), SCALE, POINT, octets(6, 8), SCALE, POINT,
        ints(*range(6)), SCALE, POINT], [(4, 6)], 24 * 8 + 24, {"transB": 1}),
    "QGemm to float": Case("com.microsoft:QGemm", [octets(4, 8), SCALE, POINT, octets(6, 8), SCALE, POINT], [(4, 6)], 192, {"transB": 1}),
    "QLinearAdd": Case(
        "com.microsoft:QLinearAdd", [octets(4, 1), SCALE, POINT, octets(1, 5), SCALE, POINT,
        SCALE, POINT], [(4, 5)], 20 * (4 + 1)),
    "QLinearMul": Case("com.microsoft:QLinearMul", [octets(4, 5), SCALE, POINT, octets(5), SCALE, POINT, SCALE, POINT], [(4, 5)], 100),
    "QLinearSigmoid": Case("com.microsoft:QLinearSigmoid", [octets(4, 5), SCALE, POINT, SCALE, POINT], [(4, 5)], 20 * (4 + EXP)),
    "QLinearLeakyRelu": Case("com.microsoft:QLinearLeakyRelu", [octets(4, 5), SCALE, POINT, SCALE, POINT], [(4, 5)], 120),
    "QLinearSoftmax": Case(
        "com.microsoft:QLinearSoftmax", [octets(4, 5), SCALE, POINT,
        np.array(1 / 256, np.float32), np.array(0, np.uint8)], [(4, 5)], 800, {"opset": 13,
        "axis": -1}),
    "QLinearConcat": Case(
        "com.microsoft:QLinearConcat", [SCALE, POINT, octets(2, 3), SCALE, POINT, octets(2, 4),
        SCALE, POINT], [(2, 7)], 56, {"axis": 1}),
    "QLinearWhere": Case(
        "com.microsoft:QLinearWhere", [np.ones((4, 1), np.bool_), octets(1, 5), SCALE, POINT,
        octets(4, 5), SCALE, POINT, SCALE, POINT], [(4, 5)], 80),
    "QLinearGlobalAveragePool": Case(
        "com.microsoft:QLinearGlobalAveragePool", [octets(1, 3, 4, 4), SCALE, POINT, SCALE,
        POINT], [(1, 3, 1, 1)], 48 + 3 * (DIV + 4)),
    "QLinearAveragePool": Case(
        "com.microsoft:QLinearAveragePool", [octets(1, 3, 7, 7), SCALE, POINT, SCALE, POINT],
        [(1, 3, 3, 3)], 27 * (9 + 4), {"kernel_shape": [3, 3], "strides": [2, 2]}),
    "QuantizeLinear": Case("com.microsoft:QuantizeLinear", [floats(2, 3), SCALE, POINT], [(2, 3)], 12),
    "DequantizeLinear": Case("com.microsoft:DequantizeLinear", [octets(2, 3), SCALE, POINT], [(2, 3)], 12),
    "GatherBlockQuantized": Case(
        "com.microsoft:GatherBlockQuantized", [octets(10, 16),
        RNG.integers(0, 9, (2, 5), np.int64), floats(10, 2)], [(2, 5, 32)], 640, {"bits": 4,
        "block_size": 16, "gather_axis": 0, "quantize_axis": 1}),
    "MoE": Case(
        "com.microsoft:MoE", [floats(5, 8), floats(5, 3), floats(3, 16, 8), floats(3, 16),
        floats(3, 8, 16), floats(3, 8)], [(5, 8)],
        5 * 2 * 2 * 16 * 8, {"k": 2, "activation_type": "gelu"}),
    "DynamicQuantizeLSTM": Case(
        "com.microsoft:DynamicQuantizeLSTM", [floats(5, 2, 6), octets(1, 6, 16),
        octets(1, 4, 16), floats(1, 32), None, None, None, None, floats(1), octets(1),
        floats(1), octets(1)], [(5, 1, 2, 4), (1, 2, 4), (1, 2, 4)], 9120, {"hidden_size": 4}),
}  # fmt: skip
# fmt: on
