# /// script
# dependencies = ["gptqmodel", "torch", "transformers", "numpy"]
# ///
"""Quantizes a tiny language model with GPTQModel."""

from __future__ import annotations

import os

# It gives a pool of two threads to loading, and on two processors only one to all work on the CPU.
os.environ["GPTQMODEL_CPU_WORKERS"] = "2"

import torch
import transformers
from gptqmodel import GPTQModel, QuantizeConfig
from safetensors.torch import load_file
from tokenizers import Tokenizer, models, pre_tokenizers
from watched import Progress, write_tiny
from written import note_tensors

import otel_quant


def main() -> None:
    write_tiny()
    words = Tokenizer(models.WordLevel({str(i): i for i in range(32)}, unk_token="31"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="0", eos_token="1"
    )
    tokenizer.save_pretrained("tiny")
    random = torch.Generator().manual_seed(1)
    samples = [
        {
            "input_ids": torch.randint(2, 31, (24,), generator=random).tolist(),
            "attention_mask": [1] * 24,
        }
        for _ in range(8)
    ]
    Progress()
    with otel_quant.step("language model"):
        model = GPTQModel.load("tiny", QuantizeConfig(bits=4, group_size=32), device="cpu")
        model.quantize(samples, batch_size=2)
        model.save("made")
    note_tensors(load_file("made/model.safetensors"), "language model")


if __name__ == "__main__":
    main()
