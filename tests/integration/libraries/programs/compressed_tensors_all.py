# /// script
# dependencies = ["compressed-tensors", "torch", "transformers"]
# ///
"""Applies a configuration of compressed-tensors to a small model, without LLM Compressor."""

from __future__ import annotations

import torch
from compressed_tensors.quantization import (
    QuantizationArgs,
    QuantizationConfig,
    QuantizationScheme,
    apply_quantization_config,
)

import otel_quant


def main() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 64))
    args = QuantizationArgs(num_bits=4, type="int", strategy="group", group_size=32, symmetric=True)
    scheme = QuantizationScheme(targets=["Linear"], weights=args)
    with otel_quant.step("applied"):
        apply_quantization_config(model, QuantizationConfig(config_groups={"group_0": scheme}))
    made = model[0].quantization_scheme.weights
    print(made.num_bits, made.group_size, made.symmetric, *model[0].weight_scale.shape)


if __name__ == "__main__":
    main()
