"""Quantizes small models with torchao, by itself and through transformers."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable

import torch
import transformers
from torchao.prototype.smoothquant import SmoothQuantConfig
from torchao.quantization import (
    FqnToConfig,
    Int8DynamicActivationInt8WeightConfig,
    Int8DynamicActivationIntxWeightConfig,
    Int8WeightOnlyConfig,
    IntxWeightOnlyConfig,
    MappingType,
    PerGroup,
    quantize_,
)
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
from torchao.quantization.pt2e.quantizer.x86_inductor_quantizer import (
    X86InductorQuantizer,
    get_default_x86_inductor_quantization_config,
)
from torchao.quantization.qat import QATConfig
from watched import in_every_way, write_tiny
from written import note

warnings.simplefilter("ignore")
SAMPLE = torch.randn(2, 8, generator=torch.Generator().manual_seed(1))
TOKENS = torch.arange(4).reshape(1, 4)


def model() -> torch.nn.Module:
    torch.manual_seed(2)
    return torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 4)).eval()


def in_place() -> torch.Tensor:
    made = model()
    quantize_(made, Int8WeightOnlyConfig(version=2))
    return note(made)(SAMPLE)


def _in_groups() -> IntxWeightOnlyConfig:
    return IntxWeightOnlyConfig(torch.int4, PerGroup(4), MappingType.ASYMMETRIC)


def by_name() -> torch.Tensor:
    """Two kinds of weights, by the names of layers."""
    made = model()
    quantize_(
        made, FqnToConfig({"0": Int8WeightOnlyConfig(version=2), "2": _in_groups()}), filter_fn=None
    )
    return note(made)(SAMPLE)


def in_turn() -> torch.Tensor:
    """One call for the first layer, another for the last."""
    made = model()
    quantize_(made, Int8WeightOnlyConfig(version=2), filter_fn=lambda _, name: name == "0")
    quantize_(made, _in_groups(), filter_fn=lambda _, name: name == "2")
    note(made[2])  # each call has what it quantizes
    return made(SAMPLE)


def pt2e() -> torch.Tensor:
    exported = torch.export.export(model(), (SAMPLE,)).module()
    quantizer = X86InductorQuantizer()
    quantizer.set_global(get_default_x86_inductor_quantization_config())
    prepared = prepare_pt2e(exported, quantizer)
    prepared(SAMPLE)
    return note(convert_pt2e(prepared))(SAMPLE)


def static_in_place() -> torch.Tensor:
    made = model()
    base = Int8DynamicActivationInt8WeightConfig()
    quantize_(made, SmoothQuantConfig(base_config=base, step="prepare"))
    for _ in range(3):
        made(SAMPLE)
    quantize_(made, SmoothQuantConfig(base_config=base, step="convert"))
    return note(made)(SAMPLE)


def in_groups() -> torch.Tensor:
    torch.manual_seed(2)
    made = torch.nn.Sequential(torch.nn.Linear(64, 8))
    base = Int8DynamicActivationIntxWeightConfig(torch.int4, PerGroup(32))
    quantize_(made, QATConfig(base, step="prepare"))
    made(torch.ones(2, 64))
    quantize_(made, QATConfig(base, step="convert"))
    return note(made)(torch.ones(2, 64))


def language_model() -> torch.Tensor:
    config = transformers.TorchAoConfig(Int8WeightOnlyConfig(version=2))
    made = transformers.AutoModelForCausalLM.from_pretrained("tiny", quantization_config=config)
    return note(made)(TOKENS).logits


def not_quantized() -> torch.Tensor:
    return transformers.AutoModelForCausalLM.from_pretrained("tiny")(TOKENS).logits


def failing() -> torch.Tensor:
    try:
        quantize_(model(), None)
    except AssertionError as error:
        return torch.tensor(len(str(error)))
    raise AssertionError("expected an exception")


WAYS: tuple[Callable[[], torch.Tensor], ...] = (
    in_place, by_name, in_turn, static_in_place, in_groups, pt2e, language_model, not_quantized, failing
)  # fmt: skip


def main() -> None:
    # A program that only imports these pays nothing for us.
    assert "otel_quant.capture.runtime" not in sys.modules
    write_tiny(16)
    load = transformers.PreTrainedModel.from_pretrained.__func__
    in_every_way(WAYS, torch.equal)
    assert load.__wrapped__ is transformers.PreTrainedModel.from_pretrained.__func__


if __name__ == "__main__":
    main()
