"""Hugging Face transformers: models that are quantized while they are loaded."""

from __future__ import annotations

from typing import Final

from otel_quant.capture.instruments.shared.library import Hook, Library, Wrapper
from otel_quant.schema.step_names import ProfileStep

_CALLS: Final = "otel_quant.capture.instruments.transformers.calls:"
_FROM_PRETRAINED: Final = Wrapper(
    _CALLS + "from_pretrained", "step **{step}**, if called with `quantization_config`"
)

LIBRARY: Final = Library(
    name="transformers",
    distribution="transformers",
    versions_seen="5.23",
    built_on=frozenset({"torch", "torchao", "hqq", "optimum-quanto"}),
    hooks=(
        Hook(
            "transformers.modeling_utils",
            "PreTrainedModel.from_pretrained",
            _FROM_PRETRAINED,
            ProfileStep.MODEL_QUANTIZATION,
        ),
    ),
)
