"""Hugging Face transformers: models that are quantized while they are loaded."""

from __future__ import annotations

from typing import Final

from otel_quant.instruments.library import Hook, Library
from otel_quant.steps import ProfileStep

TRANSFORMERS: Final = Library(
    name="transformers",
    distribution="transformers",
    covers=frozenset({"torch", "torchao", "hqq", "optimum-quanto"}),
    hooks=(
        Hook(
            "transformers.modeling_utils",
            "PreTrainedModel.from_pretrained",
            "otel_quant.instruments.transformers_calls:from_pretrained",
            ProfileStep.MODEL_QUANTIZATION,
        ),
    ),
)
