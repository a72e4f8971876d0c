# /// script
# dependencies = ["ctranslate2", "transformers", "torch"]
# ///
"""Converts a tiny language model with CTranslate2, quantized and not."""

from __future__ import annotations

from pathlib import Path

import ctranslate2
import transformers
from ctranslate2.converters import TransformersConverter

import otel_quant


def main() -> None:
    tiny = transformers.GPT2Config(n_embd=64, n_layer=1, n_head=2, vocab_size=32, n_positions=16)
    transformers.GPT2LMHeadModel(tiny).save_pretrained("tiny")
    vocabulary = {chr(65 + at): at for at in range(31)} | {"<|endoftext|>": 31}
    Path("vocab.json").write_text(str(vocabulary).replace("'", '"'))
    Path("merges.txt").write_text("#version: 0.2\n")
    transformers.GPT2Tokenizer("vocab.json", "merges.txt").save_pretrained("tiny")
    converter = TransformersConverter("tiny")
    with otel_quant.step("int8"):
        converter.convert("int8", quantization="int8")
    with otel_quant.step("not quantized"):
        converter.convert("float")
    print(
        ctranslate2.Generator("int8").compute_type,
        sum(each.stat().st_size for each in Path("int8").iterdir())
        < sum(each.stat().st_size for each in Path("float").iterdir()),
    )


if __name__ == "__main__":
    main()
