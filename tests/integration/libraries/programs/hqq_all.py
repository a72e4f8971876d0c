# /// script
# dependencies = ["hqq", "transformers"]
# ///
"""Quantizes a tiny language model with HQQ."""

from __future__ import annotations

import torch
import transformers
from hqq.core.quantize import BaseQuantizeConfig, HQQLinear
from hqq.models.hf.base import AutoHQQHFModel
from watched import write_tiny
from written import note

import otel_quant


def main() -> None:
    write_tiny()
    model = transformers.LlamaForCausalLM.from_pretrained("tiny")
    with otel_quant.step("language model"):
        AutoHQQHFModel.quantize_model(
            model,
            quant_config=BaseQuantizeConfig(nbits=4, group_size=64),
            compute_dtype=torch.float32,
            device="cpu",
        )
    note(model, "language model")
    assert model(torch.arange(4).reshape(1, 4)).logits.shape == (1, 4, 32)
    some = transformers.LlamaForCausalLM.from_pretrained("tiny")
    with otel_quant.step("one kind of layer"):
        AutoHQQHFModel.quantize_model(
            some,
            quant_config={"self_attn.q_proj": BaseQuantizeConfig(nbits=8, group_size=32)},
            compute_dtype=torch.float32,
            device="cpu",
        )
    note(some, "one kind of layer")
    layers = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 64))
    with otel_quant.step("by hand"):
        for index, (bits, size) in enumerate(((4, 32), (2, 16))):
            config = BaseQuantizeConfig(nbits=bits, group_size=size)
            layers[index] = HQQLinear(
                layers[index], config, compute_dtype=torch.float32, device="cpu"
            )
    note(layers, "by hand")


if __name__ == "__main__":
    main()
