# /// script
# dependencies = ["diffusers", "torch", "torchao", "transformers", "accelerate", "optimum-quanto"]
# ///
"""Loads a tiny image model with diffusers, quantized by torchao and by optimum-quanto, and quantizes layers one by one."""

from __future__ import annotations

import diffusers
import torch
from torchao.quantization import Int8WeightOnlyConfig, IntxWeightOnlyConfig, PerGroup, quantize_
from written import note

import otel_quant


def main() -> None:
    made = diffusers.SD3Transformer2DModel
    made(
        sample_size=8, num_layers=1, attention_head_dim=32, num_attention_heads=2, joint_attention_dim=64, in_channels=4,
        out_channels=4, caption_projection_dim=64, pooled_projection_dim=64, pos_embed_max_size=16,
    ).save_pretrained("tiny")  # fmt: skip
    with otel_quant.step("torchao"):
        by_torchao = diffusers.TorchAoConfig(Int8WeightOnlyConfig())
        model = made.from_pretrained("tiny", quantization_config=by_torchao)
    note(model, "torchao")
    kinds = [
        type(each.weight).__name__ for each in model.modules() if type(each) is torch.nn.Linear
    ]
    with otel_quant.step("quanto"):
        by_quanto = diffusers.QuantoConfig(weights_dtype="int8")
        model = made.from_pretrained("tiny", quantization_config=by_quanto)
    note(model, "quanto")
    with otel_quant.step("not quantized"):
        made.from_pretrained("tiny")
    with otel_quant.step("layers"):
        layers = torch.nn.ModuleList(torch.nn.Linear(64, 64) for _ in range(3))
        for layer in layers[:2]:
            quantize_(layer, Int8WeightOnlyConfig())
        small = IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=PerGroup(32))
        quantize_(layers[2], small)
    note(layers, "layers")
    print(sum("Int8" in kind for kind in kinds))


if __name__ == "__main__":
    main()
