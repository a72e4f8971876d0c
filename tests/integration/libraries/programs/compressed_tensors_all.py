# /// script
# dependencies = ["compressed-tensors", "torch", "transformers"]
# ///
"""Applies a configuration of compressed-tensors to a small model, without LLM Compressor."""

from __future__ import annotations

import torch
from compressed_tensors.compressors import ModelCompressor
from compressed_tensors.quantization import (
    QuantizationArgs,
    QuantizationConfig,
    QuantizationScheme,
    apply_quantization_config,
)
from written import note_tensors

import otel_quant


def main() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 64))
    args = QuantizationArgs(num_bits=4, type="int", strategy="group", group_size=32, symmetric=True)
    scheme = QuantizationScheme(targets=["Linear"], weights=args)
    config = QuantizationConfig(config_groups={"group_0": scheme}, format="pack-quantized")
    with otel_quant.step("applied"):
        apply_quantization_config(model, config)
        for layer in model:
            layer.weight_scale.data = layer.weight.data.reshape(64, 2, 32).abs().amax(2) / 7
        ModelCompressor(quantization_config=config).compress_model(model)
    note_tensors(model.state_dict(), "applied")


if __name__ == "__main__":
    main()
