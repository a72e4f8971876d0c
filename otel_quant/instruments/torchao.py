"""torchao: ``quantize_`` in place, and the quantization of exported programs (PT2E)."""

from __future__ import annotations

from typing import Final

from otel_quant.instruments.library import Hook, Library
from otel_quant.steps import ProfileStep
from otel_quant.telemetry import semconv

_STEP: Final = "otel_quant.instruments.calls:step"
_STEP_OR_LAYER: Final = "otel_quant.instruments.torch_calls:step_or_layer"

_PT2E: Final = "torchao.quantization.pt2e.quantize_pt2e"

_CONFIG: Final = (
    ("config.__class__.__name__", semconv.CONFIG_NAME),
    ("config.weight_dtype", semconv.WEIGHT_TYPE),
    ("config.activation_dtype", semconv.ACTIVATION_TYPE),
    ("config.group_size", semconv.BLOCK_SIZE),
)
_QUANTIZER: Final = (("quantizer.__class__.__name__", semconv.CONFIG_NAME),)

TORCHAO: Final = Library(
    name="torchao",
    distribution="torchao",
    is_common=True,  # transformers imports it where it is installed
    covers=frozenset({"torch"}),
    hooks=(
        Hook("torchao.quantization.quant_api", "quantize_", _STEP_OR_LAYER, ProfileStep.MODEL_QUANTIZATION, reads=_CONFIG),
        Hook(_PT2E, "prepare_pt2e", _STEP, ProfileStep.MODEL_PREPARATION, reads=_QUANTIZER),
        Hook(_PT2E, "prepare_qat_pt2e", _STEP, ProfileStep.MODEL_PREPARATION, reads=_QUANTIZER),
        Hook(_PT2E, "convert_pt2e", _STEP, ProfileStep.MODEL_QUANTIZATION),
    ),
)  # fmt: skip
