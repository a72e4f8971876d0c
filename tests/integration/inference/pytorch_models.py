"""Small PyTorch models and their real quantizers.

torchao takes seven seconds to load, and each process of the tests loads this: so only what quantizes loads it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.ao import quantization as eager


class Convolutions(nn.Module):
    """A convolution, a depthwise one and one of a point, each with batch norm; then a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.quant, self.dequant = eager.QuantStub(), eager.DeQuantStub()
        self.stem = _convolution(3, 16, 3, stride=2, padding=1)
        self.depthwise = _convolution(16, 16, 3, padding=1, groups=16)
        self.point = _convolution(16, 32, 1)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(32, 10)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x = self.point(self.depthwise(self.stem(self.quant(image))))
        result: torch.Tensor = self.dequant(self.head(self.pool(x).flatten(1)))
        return result


def _convolution(channels: int, features: int, size: int, **options: Any) -> nn.Module:
    convolution = nn.Conv2d(channels, features, size, bias=False, **options)
    return nn.Sequential(convolution, nn.BatchNorm2d(features), nn.ReLU())


class Transformer(nn.Module):
    """One layer, as torch has it: where nothing hinders it, it runs as a single operator."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(100, 64)
        self.layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
        self.head = nn.Linear(64, 96)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.head(self.layer(self.embedding(ids)))
        return result


IMAGE = torch.linspace(-1, 1, 2 * 3 * 32 * 32).reshape(2, 3, 32, 32)
IDS = torch.arange(32).reshape(2, 16)


def convolutions() -> nn.Module:
    """Makes the same model each time."""
    torch.manual_seed(0)
    return Convolutions().eval()


def transformer() -> nn.Module:
    """Makes the same model each time."""
    torch.manual_seed(0)
    return Transformer().eval()


def prepared_eager(engine: str) -> nn.Module:
    """Returns the convolutions with the observers of torch.ao, and puts an engine in force."""
    torch.backends.quantized.engine = engine
    parts = ("stem", "depthwise", "point")
    fused = [[f"{part}.{i}" for i in range(3)] for part in parts]
    model = eager.fuse_modules(convolutions(), fused)
    model.qconfig = eager.get_default_qconfig(engine)
    prepared: nn.Module = eager.prepare(model)
    prepared(IMAGE)
    return prepared


def by_engine(engine: str) -> Callable[[], nn.Module]:
    """Returns what quantizes the convolutions by torch.ao for an engine."""
    return lambda: eager.convert(prepared_eager(engine))


def prepared_export() -> nn.Module:
    """Returns the convolutions with the observers of PT2E."""
    from torchao.quantization.pt2e.quantize_pt2e import prepare_pt2e
    from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86

    quantizer = x86.X86InductorQuantizer()
    quantizer.set_global(x86.get_default_x86_inductor_quantization_config())
    exported = torch.export.export(convolutions(), (IMAGE,)).module()
    prepared: nn.Module = prepare_pt2e(exported, quantizer)
    prepared(IMAGE)
    return prepared


def converted_export() -> nn.Module:
    """Returns the convolutions quantized by PT2E, as the reference that a backend is to lower."""
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e

    converted: nn.Module = convert_pt2e(prepared_export())
    return converted


def _by_torchao(config: str, **settings: Any) -> nn.Module:
    from torchao import quantization
    from torchao.prototype.quantization import int4

    model = transformer()
    made = getattr(quantization, config, None) or getattr(int4, config)
    quantization.quantize_(model, made(**settings))
    return model


_INT4 = {"group_size": 32, "set_inductor_config": False}
BY_TORCHAO = {
    "int8 weights": partial(_by_torchao, "Int8WeightOnlyConfig"),
    "int8 dynamic": partial(_by_torchao, "Int8DynamicActivationInt8WeightConfig"),
    "int4 weights": partial(_by_torchao, "PrototypeInt4WeightOnlyConfig", **_INT4),
}
