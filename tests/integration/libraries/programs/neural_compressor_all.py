# /// script
# dependencies = ["neural-compressor[pt]", "torch", "transformers", "accelerate"]
# ///
"""Quantizes small models with Neural Compressor, in the ways that run on a CPU."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
import transformers
from neural_compressor.torch.export import export
from neural_compressor.torch.quantization import (
    AWQConfig,
    DynamicQuantConfig,
    GPTQConfig,
    HQQConfig,
    MXQuantConfig,
    RTNConfig,
    StaticQuantConfig,
    TuningConfig,
    autotune,
    convert,
    prepare,
    quantize,
    save,
)
from watched import in_every_way, same_weights, write_tiny
from written import note, note_values

warnings.simplefilter("ignore")
SAMPLE = torch.randn(4, 64, generator=torch.Generator().manual_seed(1))
TOKENS = torch.arange(8).reshape(1, 8)


def model() -> torch.nn.Module:
    torch.manual_seed(2)
    layers = [torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 32)]
    return torch.nn.Sequential(*layers).eval()


def exported() -> torch.nn.Module:
    return export(model(), example_inputs=(SAMPLE,))


def language_model() -> torch.nn.Module:
    return transformers.AutoModelForCausalLM.from_pretrained("tiny").eval()


def calibrate(prepared: torch.nn.Module) -> None:
    for _ in range(3):
        prepared(SAMPLE)


def read(prepared: torch.nn.Module) -> None:
    for _ in range(3):
        prepared(TOKENS)


def nearest() -> torch.nn.Module:
    return convert(prepare(model(), RTNConfig(bits=4, group_size=32)))


def nearest_per_channel() -> torch.nn.Module:
    return quantize(model(), quant_config=RTNConfig(bits=8, group_size=-1))


def gptq() -> torch.nn.Module:
    return quantize(language_model(), GPTQConfig(group_size=32), read)


def awq() -> torch.nn.Module:
    config = AWQConfig(group_size=32)
    return quantize(language_model(), config, run_fn=read, example_inputs=TOKENS)


def hqq() -> torch.nn.Module:
    return quantize(model(), HQQConfig(group_size=32))


def microscaling() -> torch.nn.Module:
    made = model()
    for layer in (made[0], made[2]):
        layer.weight.data[:, 32:] /= 100  # so that both blocks of a row need a scale of their own
    return note_values(quantize(made, MXQuantConfig()))


def static() -> torch.nn.Module:
    return quantize(exported(), StaticQuantConfig(act_algo="minmax"), run_fn=calibrate)


def static_in_parts() -> torch.nn.Module:
    prepared = prepare(exported(), StaticQuantConfig(act_algo="minmax"))
    calibrate(prepared)
    return convert(prepared)


def dynamic() -> torch.nn.Module:
    return convert(prepare(exported(), DynamicQuantConfig()))


def composed() -> torch.nn.Module:
    return quantize(model(), {"rtn": {"bits": 4, "group_size": 32}})


def tuned() -> torch.nn.Module:
    scores: Iterator[float] = iter([1.0, 0.5, 0.999])
    config = TuningConfig([RTNConfig(bits=[4, 6], group_size=32)], tolerable_loss=0.01)
    return autotune(model(), config, eval_fn=lambda made: next(scores))


def saved() -> torch.nn.Module:
    made = quantize(model(), RTNConfig(group_size=32))
    save(made, "saved")
    made.save("saved")
    made = quantize(exported(), StaticQuantConfig(act_algo="minmax"), run_fn=calibrate)
    made.save(example_inputs=(SAMPLE,), output_dir="exported")
    return made


def failing() -> torch.nn.Module:
    def no_data(prepared: torch.nn.Module) -> None:
        raise KeyError("no such sample")

    try:
        quantize(exported(), StaticQuantConfig(act_algo="kl"), run_fn=no_data)
    except KeyError:
        return model()
    raise AssertionError("expected a KeyError")


WAYS: tuple[Callable[[], torch.nn.Module], ...] = (
    nearest, nearest_per_channel, gptq, awq, hqq, microscaling, static, static_in_parts, dynamic, composed, tuned,
    saved, failing,
)  # fmt: skip


def quantized(way: Callable[[], torch.nn.Module]) -> dict[str, torch.Tensor]:
    """Quantizes in one way and returns what the model answers, and what it holds."""
    made = way()
    if way not in (failing, microscaling):
        note(made, way.__name__)
    reads = way in (gptq, awq)
    answer = made(TOKENS).logits if reads else made(SAMPLE)
    held = made.state_dict().items()
    return {"": answer, **{name: each for name, each in held if isinstance(each, torch.Tensor)}}


def main() -> None:
    write_tiny()
    functions = [prepare, convert, quantize]
    in_every_way(WAYS, same_weights, quantized)
    module = sys.modules["neural_compressor.torch.quantization.quantize"]
    restored = [module.prepare, module.convert, module.quantize]
    assert [function.__wrapped__ for function in functions] == restored
    assert sorted(path.name for path in Path("saved").iterdir()) == [
        "qconfig.json", "quantized_weight.pt"
    ]  # fmt: skip


if __name__ == "__main__":
    main()
