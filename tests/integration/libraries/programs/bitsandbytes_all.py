# /// script
# dependencies = ["bitsandbytes", "torch", "transformers", "accelerate"]
# ///
"""Quantizes small models with bitsandbytes: as they are moved, one weight alone, and through transformers."""

from __future__ import annotations

import sys
from collections.abc import Callable

import torch
import transformers
from bitsandbytes import functional, nn
from watched import in_every_way, write_tiny
from weights import note_weights
from written import note, of_4bit

SAMPLE = torch.randn(2, 64, generator=torch.Generator().manual_seed(1))


def moved(
    make: Callable[[], torch.nn.Module], place: Callable[[torch.nn.Module], object]
) -> torch.Tensor:
    torch.manual_seed(2)
    model = torch.nn.Sequential(make(), torch.nn.ReLU(), make())
    place(model)
    return note(model, sys._getframe(1).f_code.co_name)(SAMPLE)


def _nf4() -> torch.nn.Module:
    return nn.Linear4bit(64, 64, quant_type="nf4", compute_dtype=torch.float32)


def four_bits() -> torch.Tensor:
    return moved(_nf4, lambda model: model.to("cpu"))


def eight_bits() -> torch.Tensor:
    return moved(lambda: nn.Linear8bitLt(64, 64, has_fp16_weights=False), lambda model: model.cpu())


def several() -> torch.Tensor:
    kinds = iter((_nf4, lambda: nn.Linear8bitLt(64, 64, has_fp16_weights=False)))
    return moved(lambda: next(kinds)(), lambda model: model.to("cpu"))


def one_weight() -> torch.Tensor:
    codes, state = functional.quantize_4bit(SAMPLE, quant_type="fp4", blocksize=128)
    note_weights([of_4bit(codes, state)], "one_weight")
    return codes


def loaded(config: transformers.BitsAndBytesConfig) -> torch.Tensor:
    model = transformers.AutoModelForCausalLM.from_pretrained(
        "tiny", quantization_config=config, device_map="cpu"
    )
    return note(model, sys._getframe(1).f_code.co_name)(torch.arange(4).reshape(1, 4)).logits


def loaded_in_4_bits() -> torch.Tensor:
    return loaded(transformers.BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4"))


def loaded_in_8_bits() -> torch.Tensor:
    return loaded(transformers.BitsAndBytesConfig(load_in_8bit=True))


def nothing() -> torch.Tensor:
    return torch.nn.Linear(64, 1).to("cpu").weight * 0


def failing() -> torch.Tensor:
    try:
        moved(lambda: nn.Linear4bit(64, 64, quant_type="nf3"), lambda model: model.to("cpu"))
    except (ValueError, NotImplementedError) as error:
        return torch.tensor(len(str(error)))
    raise AssertionError("expected an exception")


WAYS = (
    four_bits,
    eight_bits,
    several,
    one_weight,
    loaded_in_4_bits,
    loaded_in_8_bits,
    nothing,
    failing,
)


def main() -> None:
    write_tiny()
    in_every_way(WAYS, torch.equal)


if __name__ == "__main__":
    main()
