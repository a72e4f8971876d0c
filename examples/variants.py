"""A block of a vision transformer as five variants, for ``otel-quant bench``.

    otel-quant bench examples/variants.py:variants

It needs torch and torchao; nothing is downloaded. Each variant is made in a process of its own, by
its function. The two compiled ones need a C++ compiler on a CPU; without one their rows say so.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

WIDTH, HEADS, PATCHES = 384, 6, 196

torch.manual_seed(3)
image = torch.randn(1, PATCHES, WIDTH)


class Block(nn.Module):
    """Attention and a perceptron, each with its normalization."""

    def __init__(self) -> None:
        """Makes weights of random numbers."""
        super().__init__()
        self.before_attention = nn.LayerNorm(WIDTH)
        self.queries_keys_values = nn.Linear(WIDTH, 3 * WIDTH)
        self.projection = nn.Linear(WIDTH, WIDTH)
        self.before_perceptron = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 4 * WIDTH)
        self.down = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        """Returns the block's result for patches of images."""
        batch, patches, width = x.shape
        split = self.queries_keys_values(self.before_attention(x)).view(
            batch, patches, 3, HEADS, -1
        )
        queries, keys, values = split.permute(2, 0, 3, 1, 4)
        attended = nn.functional.scaled_dot_product_attention(queries, keys, values)
        x = x + self.projection(attended.transpose(1, 2).reshape(batch, patches, width))
        return x + self.down(nn.functional.gelu(self.up(self.before_perceptron(x))))


def fp32() -> nn.Module:
    """Returns the block as it is."""
    return nn.Sequential(*(Block() for _ in range(2))).eval()


def bf16() -> tuple[nn.Module, Tensor]:
    """Returns the block in bfloat16, with inputs of its own that are so too."""
    return fp32().to(torch.bfloat16), image.to(torch.bfloat16)


def compiled() -> nn.Module:
    """Returns the compiled block; it is compiled in its first call."""
    return _compiled(fp32())


def int8() -> nn.Module:
    """Returns the block with int8 weights and, in each call, int8 activations."""
    from torchao.quantization import Int8DynamicActivationInt8WeightConfig, quantize_

    model = fp32()
    quantize_(model, Int8DynamicActivationInt8WeightConfig())
    return model


def int8_compiled() -> nn.Module:
    """Returns the quantized block, compiled."""
    return _compiled(int8())


def _compiled(model: nn.Module) -> nn.Module:
    found = torch.compile(model)
    assert isinstance(found, nn.Module)
    return found


def variants() -> tuple[dict[str, object], Tensor]:
    """Returns the variants by name, and what each of them is called with."""
    return {
        "fp32": fp32,
        "bf16": bf16,
        "compiled": compiled,
        "int8": int8,
        "int8 compiled": int8_compiled,
    }, image
