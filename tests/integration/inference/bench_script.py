"""Variants of the model in ``float.onnx``, in the folder in which the command runs."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable

import onnx
import torch
from torch import nn

x = torch.randn(8, 64)


def fp32() -> nn.Module:
    weights = onnx.numpy_helper.to_array(onnx.load("float.onnx").graph.initializer[0])
    first, second = nn.Linear(64, 64, bias=False), nn.Linear(64, 64, bias=False)
    for layer in (first, second):
        layer.weight = nn.Parameter(torch.tensor(weights).T.contiguous())
    return nn.Sequential(first, nn.ReLU(), second).eval()


def bf16() -> tuple[nn.Module, torch.Tensor]:
    return fp32().to(torch.bfloat16), x.to(torch.bfloat16)


def compiled() -> Callable[..., object]:
    return torch.compile(fp32())


def crashing() -> nn.Module:
    os.kill(os.getpid(), 9)
    raise AssertionError


class Failing(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        raise ValueError("no weights\nat all")


def variants() -> tuple[dict[str, object], torch.Tensor]:
    return {
        "fp32": fp32,
        "ready": Failing(),
        "bf16": bf16,
        "crashing": crashing,
        "file": "float.onnx",
    }, x


def without_a_compiler() -> tuple[dict[str, object], torch.Tensor]:
    return {"compiled": compiled, "fp32": fp32()}, x


def torchao(config: str, **options: object) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        from torchao import quantization

        model = fp32()
        quantization.quantize_(model, getattr(quantization, config)(**options))
        return model

    return make


def engine(name: str) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        from torch.ao import quantization

        torch.backends.quantized.engine = name
        model = copy.deepcopy(
            nn.Sequential(quantization.QuantStub(), fp32(), quantization.DeQuantStub())
        )
        model.qconfig = quantization.get_default_qconfig(name)
        prepared = quantization.prepare(model.eval())
        prepared(x)
        return quantization.convert(prepared)

    return make


def exported() -> Callable[..., object]:
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
    from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86

    quantizer = x86.X86InductorQuantizer()
    quantizer.set_global(x86.get_default_x86_inductor_quantization_config())
    prepared = prepare_pt2e(torch.export.export(fp32(), (x,)).module(), quantizer)
    prepared(x)
    return torch.compile(convert_pt2e(prepared))


def of_every_kind() -> tuple[dict[str, object], torch.Tensor]:
    return {
        "fp32": fp32,
        **{name: engine(name) for name in torch.backends.quantized.supported_engines},
        "int8": torchao("Int8WeightOnlyConfig"),
        "int8 dynamic": torchao("Int8DynamicActivationInt8WeightConfig"),
        "int4": torchao("IntxWeightOnlyConfig", weight_dtype=torch.int4),
        "pt2e": exported,
        "compiled": compiled,
    }, x


def on_a_gpu() -> tuple[dict[str, object], torch.Tensor]:
    return {"fp32": lambda: fp32().cuda()}, x.cuda()
