"""Operators of language models in onnxruntime's domain; the figures are written out."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from otel_quant.cost.operators.record import DIV, ERF, EXP, LOG, SQRT, TANH
from tests.unit.cost.operator_case import RNG, Case, floats, halves, ints, octets

SOFTMAX = EXP + DIV
SILU = EXP + 1
ROW = SQRT + DIV + 1
GELU = ERF + 4

# fmt: off
MICROSOFT = {
    "SparseAttention": Case(  # token 15 in the first row of blocks, 16 and 17 in the second
        "com.microsoft:SparseAttention",
        [
            floats(1, 3, 64), floats(1, 3, 32), floats(1, 3, 32), floats(1, 2, 32, 16),
            floats(1, 2, 32, 16), ints(0, 1, 3, 0, 1, 2, shape=(2, 3)),
            ints(0, 0, 1, 0, 1, -1, shape=(2, 3)), np.array(18, np.int32), ints(18),
        ],
        [(1, 3, 64), (1, 2, 32, 16), (1, 2, 32, 16)],
        2 * (16 + 2 * 2 * 16 + 16 + 2 * 16) * (2 * 16 + SOFTMAX + 1),
        {"num_heads": 4, "kv_num_heads": 2, "sparse_block_size": 16},
    ),
    "GatedRMSNorm": Case(
        "com.microsoft:GatedRMSNorm",
        [floats(2, 3, 8), floats(4), floats(2, 3, 8)],
        [(2, 3, 8)],
        48 * (3 + SILU + 1) + 12 * ROW,
    ),
    "GatedAdd": Case(
        "com.microsoft:GatedAdd",
        [floats(2, 3, 8), floats(2, 3, 8), floats(2, 3, 1)],
        [(2, 3, 8)],
        48 * 2,
    ),
    "LinearAttentionGate": Case(
        "com.microsoft:LinearAttentionGate",
        [floats(2, 3, 4), floats(4), floats(4), floats(2, 3, 4)],
        [(2, 3, 4), (2, 3, 4)],
        24 * (1 + EXP + 1 + LOG + 1) + 24 * EXP,
    ),
    "PackedAttention": Case(
        "com.microsoft:PackedAttention",
        [floats(5, 16), floats(16, 48), floats(48), ints(*range(6), shape=(2, 3)), ints(0, 2, 5)],
        [(5, 16)],
        5 * 16 * 48 + (4 + 9) * 32 + 5 * 48 + (4 + 9) * 2 * (SOFTMAX + 1),
        {"num_heads": 2},
    ),
    "PackedMultiHeadAttention": Case(
        "com.microsoft:PackedMultiHeadAttention",
        [
            floats(5, 16), floats(5, 16), floats(5, 24), None, ints(*range(6), shape=(2, 3)),
            ints(0, 2, 5),
        ],
        [(5, 24)],
        (4 + 9) * (16 + 24) + (4 + 9) * 2 * (SOFTMAX + 1),
        {"num_heads": 2},
    ),
    "PackedMultiHeadAttention in one operand": Case(
        "com.microsoft:PackedMultiHeadAttention",
        [floats(5, 2, 3, 8), None, None, None, ints(*range(6), shape=(2, 3)), ints(0, 2, 5)],
        [(5, 16)],
        (4 + 9) * 32 + (4 + 9) * 2 * (SOFTMAX + 1),
        {"num_heads": 2},
    ),
    "PagedAttention": Case(
        "com.microsoft:PagedAttention",
        [
            halves(5, 16), halves(5, 16), halves(5, 16), halves(4, 8, 2, 8), halves(4, 8, 2, 8),
            ints(0, 2, 5), ints(4, 0), ints(0, 1, shape=(2, 1)), halves(16, 4), halves(16, 4),
        ],
        [(5, 16), (4, 8, 2, 8), (4, 8, 2, 8)],
        (2 * 6 + 3 * 3) * 32 + (2 * 6 + 3 * 3) * 2 * (SOFTMAX + 1) + 3 * 2 * 80,
        {"num_heads": 2, "kv_num_heads": 2, "do_rotary": 1},
    ),
    "PagedAttention normalized, with a cap": Case(
        "com.microsoft:PagedAttention",
        [
            halves(5, 16), halves(5, 16), halves(5, 16), halves(4, 8, 2, 8), halves(4, 8, 2, 8),
            ints(0, 2, 5), ints(4, 0), ints(0, 1, shape=(2, 1)), None, None, None, None, halves(8),
            halves(8),
        ],
        [(5, 16), (4, 8, 2, 8), (4, 8, 2, 8)],
        (2 * 6 + 3 * 3) * (32 + 2 * (SOFTMAX + 1 + TANH + 2)) + 3 * 2 * 80 + 20 * ROW,
        {"num_heads": 2, "kv_num_heads": 2, "softcap": 30.0},
    ),
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
    "PagedAttention packed, of one head for keys": Case(
        "com.microsoft:PagedAttention",
        [
            halves(5, 32), None, None, halves(4, 8, 1, 8), halves(4, 8, 1, 8), ints(0, 2, 5),
            ints(4, 0), ints(0, 1, shape=(2, 1)),
        ],
        [(5, 16), (4, 8, 1, 8), (4, 8, 1, 8)],
        (2 * 6 + 3 * 3) * 32 + (2 * 6 + 3 * 3) * 2 * (SOFTMAX + 1),
        {"num_heads": 2, "kv_num_heads": 1},
    ),
    "DecoderMaskedSelfAttention in a shared buffer": Case(
        "com.microsoft:DecoderMaskedSelfAttention",
        [floats(2, 1, 16), floats(16, 48), floats(48), None, floats(2, 2, 2, 10, 8), None, ints(4)],
        [(2, 1, 16), (2, 2, 2, 10, 8)],
        2 * 16 * 48 + 2 * 2 * 5 * 16 + 2 * 48 + 2 * 2 * 5 * (SOFTMAX + 1),
        {"num_heads": 2, "past_present_share_buffer": 1},
    ),
    "LinearAttention": Case(
        "com.microsoft:LinearAttention",
        [
            floats(1, 3, 16), floats(1, 3, 16), floats(1, 3, 24), floats(1, 2, 8, 12),
            floats(1, 3, 2), floats(1, 3, 2),
        ],
        [(1, 3, 24), (1, 2, 8, 12)],
        3 * 2 * 96 * 3 + 72 + 2 * 72 + 3 * 2 * 96 + 6 * EXP,
        {"q_num_heads": 2, "kv_num_heads": 2},
    ),
    "LinearAttention of more state heads, in a window": Case(
        "com.microsoft:LinearAttention",
        [floats(1, 3, 16), floats(1, 3, 32), floats(1, 3, 48), None, floats(1, 3, 4)],
        [(1, 3, 48), (2, 1, 4, 8, 12)],
        3 * 4 * 96 * 2 + 144 + 3 * 4 * 96 + 12 * EXP,
        {"q_num_heads": 2, "kv_num_heads": 4, "state_window": 2, "update_rule": "gated"},
    ),
    "CausalConvWithState": Case(
        "com.microsoft:CausalConvWithState",
        [floats(2, 6, 5), floats(6, 1, 4), floats(6)],
        [(2, 6, 5), (2, 6, 3)],
        60 * 4 + 60 * (1 + SILU),
        {"activation": "silu"},
    ),
    "CausalConvWithState of channels last": Case(
        "com.microsoft:CausalConvWithState",
        [floats(2, 5, 6), floats(6, 1, 4)],
        [(2, 5, 6), (2, 3, 6)],
        60 * 4,
        {"channels_last": 1},
    ),
    "CausalConvWithState dilated, in a window": Case(
        "com.microsoft:CausalConvWithState",
        [floats(2, 6, 5), floats(6, 1, 4)],
        [(2, 6, 5), (2, 2, 6, 6)],
        60 * 4,
        {"dilation": 2, "state_window": 2},
    ),
    "MatMulBnb4": Case(
        "com.microsoft:MatMulBnb4",
        [floats(2, 5, 32), octets(96), floats(12)],
        [(2, 5, 6)],
        60 * 32,
        {"K": 32, "N": 6, "block_size": 16, "quant_type": 1},
    ),
    "MatMulBlockQuantizedFp4Weight": Case(
        "com.microsoft:MatMulBlockQuantizedFp4Weight",
        [halves(2, 5, 32), octets(6, 16), octets(6, 2), np.array(1, np.float32)],
        [(2, 5, 6)],
        60 * 32,
    ),
    "MatMulBlockQuantizedFp8Weight": Case(
        "com.microsoft:MatMulBlockQuantizedFp8Weight",
        [
            halves(2, 5, 32), floats(6, 32).astype(ml_dtypes.float8_e4m3fn), floats(6, 1),
            np.array(1, np.float32), halves(6),
        ],
        [(2, 5, 6)],
        60 * 32 + 4 * 320 + 60,
    ),
    "QMoE": Case(
        "com.microsoft:QMoE",
        [
            floats(5, 32), floats(5, 3), octets(3, 64, 16), floats(3, 64), None, octets(3, 32, 32),
            floats(3, 32),
        ],
        [(5, 32)],
        5 * 2 * (64 * 32 + 32 * 64),
        {"k": 2, "activation_type": "silu", "expert_weight_bits": 4},
    ),
    "QMoE with 8 bits in one layer": Case(
        "com.microsoft:QMoE",
        [
            floats(5, 32), floats(5, 3), octets(3, 64, 32), floats(3, 64), None, octets(3, 32, 32),
            floats(3, 32),
        ],
        [(5, 32)],
        5 * 2 * (64 * 32 + 32 * 64),
        {"k": 2, "expert_weight_bits": 4, "fc1_expert_weight_bits": 8},
    ),
    "QEmbedLayerNormalization": Case(
        "com.microsoft:QEmbedLayerNormalization",
        [
            RNG.integers(0, 9, (2, 5), np.int32), np.zeros((2, 5), np.int32), octets(10, 8),
            octets(6, 8), octets(2, 8), octets(8), octets(8), np.ones((2, 5), np.int32),
            *[floats()] * 5, *[np.array(3, np.uint8)] * 5,
        ],
        [(2, 5, 8), (2,)],
        80 * (3 * 2 + 2 + 7) + 10 * ROW,
    ),
    "RelativePositionBias": Case(
        "com.microsoft:RelativePositionBias",
        [floats(32, 2), np.array([5]), np.array([5])],
        [(1, 2, 5, 5)],
        25 * (LOG + DIV + 4),
        {"max_distance": 16},
    ),
    "RemovePadding": Case(
        "com.microsoft:RemovePadding",
        [floats(2, 3, 4), ints(3, 2)],
        [(5, 4), (2, 3), (3,), (1,)],
        0,
    ),
    "RestorePadding": Case(
        "com.microsoft:RestorePadding",
        [floats(5, 4), ints(*range(6), shape=(2, 3))],
        [(2, 3, 4)],
        0,
    ),
    "Inverse": Case("com.microsoft:Inverse", [floats(2, 3, 3)], [(2, 3, 3)], 2 * 27),
}
# fmt: on
