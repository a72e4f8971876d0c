"""HQQ: half-quadratic quantization of the linear layers of a PyTorch model."""

from __future__ import annotations

from typing import Final

from otel_quant.capture.instruments.shared.hooks import LAYER, STEP, Hook, Library
from otel_quant.schema import semconv
from otel_quant.schema.step_names import ProfileStep

_CONFIG: Final = (
    ("quant_config.weight_quant_params.nbits", semconv.BITS),
    ("quant_config.weight_quant_params.group_size", semconv.BLOCK_SIZE),
)

LIBRARY: Final = Library(
    name="hqq",
    distribution="hqq",
    versions_seen="0.2.8",
    built_on=frozenset({"torch"}),
    hooks=(
        Hook("hqq.models.base", "BaseHQQModel.quantize_model", STEP, ProfileStep.MODEL_QUANTIZATION, sources=_CONFIG),
        Hook("hqq.core.quantize", "HQQLinear.quantize", LAYER),
    ),
)  # fmt: skip
