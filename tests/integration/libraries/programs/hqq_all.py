# /// script
# dependencies = ["hqq", "transformers"]
# ///
"""Quantizes a tiny language model with HQQ."""

from __future__ import annotations

import torch
import transformers
from hqq.core.quantize import BaseQuantizeConfig
from hqq.models.hf.base import AutoHQQHFModel

import otel_quant


def main() -> None:
    torch.manual_seed(3)
    tiny = transformers.LlamaConfig(
        hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=2, vocab_size=32,
    )  # fmt: skip
    model = transformers.LlamaForCausalLM(tiny)
    with otel_quant.step("language model"):
        AutoHQQHFModel.quantize_model(
            model,
            quant_config=BaseQuantizeConfig(nbits=4, group_size=64),
            compute_dtype=torch.float32,
            device="cpu",
        )
    assert model(torch.arange(4).reshape(1, 4)).logits.shape == (1, 4, 32)


if __name__ == "__main__":
    main()
