# /// script
# dependencies = ["llmcompressor"]
# ///
"""Quantizes a tiny language model with LLM Compressor, in the ways that run on a CPU."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import datasets
import tokenizers
import torch
import transformers
from llmcompressor import model_free_ptq, oneshot
from llmcompressor.entrypoints import Oneshot
from llmcompressor.modifiers.gptq import GPTQModifier
from llmcompressor.modifiers.quantization import QuantizationModifier
from llmcompressor.modifiers.transform import SmoothQuantModifier
from llmcompressor.modifiers.transform.awq import AWQModifier
from llmcompressor.pipelines.cache import IntermediatesCache
from llmcompressor.utils.metric_logging import CompressionLogger
from safetensors.torch import load_file
from torch.utils.data import DataLoader
from watched import Progress, in_every_way, same_weights, write_tiny
from written import note_tensors

warnings.simplefilter("ignore")
TOKENS = torch.arange(8).reshape(1, 8)
Weights = dict[str, torch.Tensor]

_WORDS = tokenizers.models.WordLevel({str(word): word for word in range(32)}, unk_token="0")
TOKENIZER = transformers.PreTrainedTokenizerFast(
    tokenizer_object=tokenizers.Tokenizer(_WORDS), pad_token="0"
)


def model() -> transformers.PreTrainedModel:
    return transformers.AutoModelForCausalLM.from_pretrained("tiny")


def samples() -> DataLoader[Weights]:
    mask = torch.ones(8, dtype=torch.long)
    return DataLoader(
        [{"input_ids": torch.full((8,), n), "attention_mask": mask} for n in range(5)]
    )


def texts() -> datasets.Dataset:
    return datasets.Dataset.from_dict({"text": ["1 2 3 4 5 6 7 8"] * 5})


def without_data() -> Weights:
    recipe = QuantizationModifier(targets="Linear", scheme="W8A16", ignore=["lm_head"])
    return oneshot("tiny", tokenizer=TOKENIZER, recipe=recipe).state_dict()


def gptq() -> Weights:
    recipe = GPTQModifier(targets="Linear", scheme="W4A16", ignore=["lm_head"])
    return oneshot(
        model=model(), tokenizer=TOKENIZER, recipe=recipe, dataset=texts(),
        num_calibration_samples=3, max_seq_length=8, shuffle_calibration_samples=False,
    ).state_dict()  # fmt: skip


def awq() -> Weights:
    recipe = [
        AWQModifier(),
        QuantizationModifier(targets="Linear", scheme="W4A16", ignore=["lm_head"]),
    ]
    return oneshot(
        model=model(), tokenizer=TOKENIZER, recipe=recipe, dataset=samples()
    ).state_dict()


def in_turn() -> Weights:
    recipe = [
        SmoothQuantModifier(),
        QuantizationModifier(targets="Linear", scheme="W8A8", ignore=["lm_head"]),
    ]
    oneshot(model=model(), tokenizer=TOKENIZER, recipe=recipe, dataset=samples(), output_dir="out")
    return load_file("out/model.safetensors")


def all_at_once() -> Weights:
    recipe = QuantizationModifier(targets="Linear", scheme="FP8", ignore=["lm_head"])
    made = oneshot(
        model=model(), tokenizer=TOKENIZER, recipe=recipe, dataset=samples(), pipeline="basic"
    )
    made.save_pretrained("out")
    made.save_pretrained(save_directory="out", save_compressed=False)
    return load_file("out/model.safetensors")


def by_its_class() -> Weights:
    recipe = """
      quant_stage:
        quant_modifiers:
          QuantizationModifier:
            ignore: [lm_head]
            config_groups:
              group_0:
                weights: {num_bits: 8, type: int, symmetric: true, strategy: tensor}
                targets: [Linear]
    """
    Oneshot(model=model(), tokenizer=TOKENIZER, recipe=recipe, output_dir="out")()
    return load_file("out/model.safetensors")


def file_to_file() -> Weights:
    model_free_ptq("tiny", "out", scheme="FP8_DYNAMIC", ignore=["lm_head"], device="cpu")
    return load_file("out/model.safetensors")


def failing() -> Weights:
    def none_left(items: list[Weights]) -> Weights:
        raise KeyError("no such sample")

    recipe = QuantizationModifier(targets="Linear", scheme="W8A8", ignore=["lm_head"])
    bad = DataLoader(samples().dataset, collate_fn=none_left)
    try:
        oneshot(model=model(), tokenizer=TOKENIZER, recipe=recipe, dataset=bad, pipeline="basic")
    except KeyError as error:
        return {str(error): TOKENS}
    raise AssertionError("expected a KeyError")


WAYS: tuple[Callable[[], Weights], ...] = (
    without_data, gptq, awq, in_turn, all_at_once, by_its_class, file_to_file, failing
)  # fmt: skip


def quantized(way: Callable[[], Weights]) -> Weights:
    """Quantizes in one way, and notes what came of it."""
    return way() if way is failing else note_tensors(way(), way.__name__)


ERRORS: list[float | None] = []


def keep_errors() -> None:
    """Keeps the errors of GPTQ: its log has two digits of them."""
    leave = CompressionLogger.__exit__

    def leave_and_keep(self: CompressionLogger, *error: object) -> None:
        ERRORS.append(self._loss)
        leave(self, *error)

    CompressionLogger.__exit__ = leave_and_keep


def main() -> None:
    write_tiny(256)  # two groups of 128
    keep_errors()
    IntermediatesCache.pin_memory = lambda *_: None  # AWQ does that, which needs a GPU
    function = oneshot
    Progress()
    in_every_way(WAYS, same_weights, quantized)
    assert function.__wrapped__ is sys.modules["llmcompressor.entrypoints.oneshot"].oneshot
    assert Path("out/recipe.yaml").exists()
    Path("errors.json").write_text(json.dumps(ERRORS))


if __name__ == "__main__":
    main()
