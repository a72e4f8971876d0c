"""Quantizes a tiny language model with experts in the way it is told; prints what was found where something is wrong."""

from __future__ import annotations

import os
import sys
import warnings
from typing import Any

os.environ["GPTQMODEL_CPU_WORKERS"] = "2"  # as in gptqmodel_all.py

import torch
import transformers
from watched import PLANTED, planted_in, same_weights

warnings.simplefilter("ignore")
SAMPLES, WIDTH = 40, 128
NAN, LARGE = 63, 62  # Tokens


def write_model(planted: str) -> None:
    """Writes it to a folder of that name."""
    torch.manual_seed(3)
    model = transformers.Qwen3MoeForCausalLM(
        transformers.Qwen3MoeConfig(
            hidden_size=WIDTH, intermediate_size=WIDTH, moe_intermediate_size=WIDTH,
            num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2, head_dim=64,
            vocab_size=64, max_position_embeddings=128, num_experts=4, num_experts_per_tok=1,
            tie_word_embeddings=False,
        )
    )  # fmt: skip
    words = model.model.embed_tokens.weight.data
    if planted == "nan":
        words[NAN] = float("nan")
    if planted == "dead":  # of two opposite values one is above zero
        router = model.model.layers[1].mlp.gate.weight.data
        router[1], router[2:] = -router[0], 0
    if planted == "late":
        words[LARGE] = 0
        words[LARGE, 0] = 1000
        for layer in model.model.layers:
            layer.input_layernorm.weight.data[0] = 30
            layer.post_attention_layernorm.weight.data[0] = 30
    model.save_pretrained(planted)


def samples(planted: str) -> list[dict[str, torch.Tensor]]:
    random = torch.Generator().manual_seed(1)
    made = [torch.randint(0, 60, (1, 48), generator=random) for _ in range(SAMPLES)]
    if planted == "nan":
        made[16][0, 5] = NAN
    if planted == "late":
        made[38][0, 5] = LARGE
    return [{"input_ids": each, "attention_mask": torch.ones_like(each)} for each in made]


def llmcompressor(planted: str, way: str) -> Any:
    from llmcompressor import oneshot
    from llmcompressor.modifiers.gptq import GPTQModifier
    from llmcompressor.modifiers.quantization import QuantizationModifier
    from llmcompressor.modifiers.transform.awq import AWQModifier
    from llmcompressor.pipelines.cache import IntermediatesCache
    from torch.utils.data import DataLoader

    IntermediatesCache.pin_memory = lambda *_: None  # AWQ does that, which needs a GPU
    rows = [{name: value[0] for name, value in each.items()} for each in samples(planted)]
    scheme, kind = {
        "fp8": ("FP8", QuantizationModifier),
        "gptq": ("W8A16", GPTQModifier),
        "awq": ("W4A16_ASYM", QuantizationModifier),
    }[way]
    recipe = kind(targets="Linear", scheme=scheme, ignore=["lm_head", "re:.*mlp.gate$"])
    made = oneshot(
        model=transformers.AutoModelForCausalLM.from_pretrained(planted, dtype=torch.float32),
        dataset=DataLoader(rows, batch_size=1), num_calibration_samples=SAMPLES,
        recipe=[AWQModifier(), recipe] if way == "awq" else recipe,
        pipeline="basic" if way == "fp8" else "sequential", moe_calibrate_all_experts=False,
    )  # fmt: skip
    return made.state_dict()


def gptqmodel(planted: str, way: str) -> Any:
    from gptqmodel import GPTQModel, QuantizeConfig
    from gptqmodel.quantization import FORMAT, METHOD
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = Tokenizer(models.WordLevel({str(i): i for i in range(64)}, unk_token="31"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="0", eos_token="1"
    )
    tokenizer.save_pretrained(planted)
    more = {"quant_method": METHOD.AWQ, "format": FORMAT.GEMM} if way == "awq" else {}
    config = QuantizeConfig(bits=4, group_size=32, offload_to_disk=False, **more)
    model = GPTQModel.load(planted, config, device="cpu")
    model.quantize(samples(planted), batch_size=1)
    return model.model.state_dict()


def is_same(one: Any, other: Any) -> bool:
    def finite(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {name: torch.nan_to_num(each.float()) for name, each in weights.items()}

    return "error" in one or same_weights(finite(one), finite(other))


if __name__ == "__main__":
    library, how = sys.argv[1:]
    quantize = {"llmcompressor": llmcompressor, "gptqmodel": gptqmodel}[library]
    for each in PLANTED:  # before a library changes how weights are made
        write_model(each)
    # The AWQ of GPTQModel ends the process where a loss is NaN.
    ends = (library, how) == ("gptqmodel", "awq")
    every = [each for each in PLANTED if not (ends and each == "nan")]
    planted_in(lambda planted: quantize(planted, how), is_same, every)
