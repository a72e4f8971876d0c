# /// script
# dependencies = ["auto-round", "gguf", "sentencepiece"]
# ///
"""Quantizes a tiny language model with AutoRound, in the ways that run on a CPU."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import tokenizers
import torch
import transformers
from auto_round import AutoRound
from auto_round.compressors.base import BaseOrchestrator
from safetensors.torch import load_file
from torch.utils.data import DataLoader
from watched import Progress, in_every_way, same_weights, write_tiny
from written import note_floats, note_tensors, note_values

Weights = dict[str, torch.Tensor]

_WORDS = tokenizers.models.WordLevel({str(word): word for word in range(32)}, unk_token="0")
_SPLIT = tokenizers.Tokenizer(_WORDS)
_SPLIT.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
TOKENIZER = transformers.PreTrainedTokenizerFast(tokenizer_object=_SPLIT, pad_token="0")

FEW = {"nsamples": 8, "seqlen": 8, "batch_size": 1, "iters": 2}


def model() -> transformers.PreTrainedModel:
    return transformers.AutoModelForCausalLM.from_pretrained("tiny")


def samples() -> DataLoader[torch.Tensor]:
    return DataLoader([torch.arange(first, first + 8) for first in range(8)])


def tuned() -> Weights:
    rounding = AutoRound(
        model(), TOKENIZER, scheme="W4A16", group_size=32, dataset=samples(), **FEW
    )
    made, _ = rounding.quantize()
    return note_values(made).state_dict()


def saved() -> Weights:
    rounding = AutoRound("tiny", scheme="W4A16", group_size=32, dataset="texts.json", **FEW)
    rounding.quantize_and_save("out", format="auto_round")
    return note_tensors(load_file("out/tiny-w4g32/model.safetensors"))


def nearest() -> Weights:
    rounding = AutoRound(model(), TOKENIZER, scheme="INT8_W8A8", iters=0, disable_opt_rtn=True)
    made, _ = rounding.quantize()
    note_values(made, "nearest: Model Quantization")
    rounding.save_quantized("out8", format="auto_round")
    written = load_file("out8/model.safetensors")
    return note_floats(written, "nearest: Export HF Safetensors")


def file_to_file() -> Weights:
    rounding = AutoRound("tiny", scheme="W4A16", group_size=32, model_free=True)
    _, folder = rounding.quantize_and_save("out4", format="auto_round")
    return note_tensors(load_file(f"{folder}/model.safetensors"))


def file_to_floats() -> Weights:
    rounding = AutoRound("tiny", scheme="W4A16", group_size=32, model_free=True)
    rounding.quantize_and_save("outf", format="fake")
    return note_floats(load_file("outf/model.safetensors"), "file_to_floats")


def failing() -> Weights:
    rounding = AutoRound("tiny", scheme="GGUF:Q4_0", iters=0, disable_opt_rtn=True)
    try:
        rounding.quantize_and_save("outg", format="gguf:q4_0")
    except NotImplementedError as error:  # it knows the usual tokenizers only
        return {str(error): torch.zeros(1)}
    raise AssertionError("expected a NotImplementedError")


WAYS: tuple[Callable[[], Weights], ...] = (
    tuned,
    saved,
    nearest,
    file_to_file,
    file_to_floats,
    failing,
)


def main() -> None:
    write_tiny()
    TOKENIZER.save_pretrained("tiny")
    text = " ".join(str(word) for word in range(32))
    Path("texts.json").write_text(json.dumps([{"text": text}] * 8))
    Progress()
    save = BaseOrchestrator.save_quantized
    in_every_way(WAYS, same_weights)
    assert save.__wrapped__ is BaseOrchestrator.save_quantized


if __name__ == "__main__":
    main()
