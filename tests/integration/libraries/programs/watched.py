"""What the programs of this folder share: a tiny language model, and to quantize watched and not."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import otel_quant


def write_tiny(size: int = 64) -> None:
    """Writes a language model of two layers to the folder ``tiny``."""
    import torch
    import transformers

    torch.manual_seed(3)
    tiny = transformers.LlamaConfig(
        hidden_size=size, intermediate_size=2 * size, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=2, vocab_size=32, max_position_embeddings=64,
    )  # fmt: skip
    transformers.LlamaForCausalLM(tiny).save_pretrained("tiny")


def in_every_way(
    ways: Iterable[Callable[[], Any]],
    is_same: Callable[[Any, Any], bool],
    quantized: Callable[[Callable[[], Any]], Any] = lambda way: way(),
) -> None:
    """Quantizes in every way, first watched and then not: the results have to be equal."""
    watched = []
    for way in ways:
        with otel_quant.step(way.__name__):
            watched.append((way, quantized(way)))
    otel_quant.QuantInstrumentor().uninstrument()
    for way, before in watched:
        assert is_same(quantized(way), before), way


def same_weights(after: dict[str, Any], before: dict[str, Any]) -> bool:
    """Whether two sets of named tensors are equal."""
    import torch

    def comparable(each: torch.Tensor) -> torch.Tensor:
        return (
            each.float() if each.is_floating_point() else each
        )  # FP8 has no comparison of its own

    pairs = zip(after.values(), before.values(), strict=True)
    return list(after) == list(before) and all(
        torch.equal(comparable(one), comparable(other)) for one, other in pairs
    )
