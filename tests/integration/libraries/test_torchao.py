"""torchao reports its steps, and transformers one step for all the layers it quantizes."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import pytest

from otel_quant.schema import semconv
from tests.fixtures.otlp_receiver import OtlpReceiver
from tests.fixtures.steps import steps_below, steps_by
from tests.integration.libraries.conftest import Program, check_seen

if not (find_spec("torchao") and find_spec("transformers")):  # to import them takes seconds
    pytest.skip("torchao or transformers is not installed", allow_module_level=True)

step = steps_by("torchao", "torchao.quantization.")

IN_PLACE = ("Model Quantization", "quant_api.quantize_")
PREPARE = ("Model Preparation", "pt2e.quantize_pt2e.prepare_pt2e")
LOAD = ("Model Quantization", "transformers.modeling_utils.PreTrainedModel.from_pretrained")


def test_every_quantization_method_reports_its_steps(program: Program, otlp: OtlpReceiver) -> None:
    program("torchao_all.py")

    [root] = otlp.spans_named("quantization")
    program.check_written(root, uncompared={"failing"})
    int8 = {semconv.BITS: 8, semconv.GRANULARITY: "row", semconv.WEIGHT_TYPE: "int8"}
    language_model = {
        **int8,
        semconv.CONFIG_NAME: "TorchAoConfig(Int8WeightOnlyConfig)",
        semconv.INPUT_PATH: "tiny",
        semconv.LAYER_COUNT: 14,  # two layers of seven linear modules
    }
    int4 = {
        semconv.BITS: 4, semconv.GRANULARITY: "group", semconv.BLOCK_SIZE: 4,
        semconv.WEIGHT_TYPE: "int4", semconv.CONFIG_NAME: "IntxWeightOnlyConfig",
    }  # fmt: skip
    of_both = {
        semconv.WEIGHT_TYPE: "int4, int8", semconv.GRANULARITY: "group, row",
        semconv.PARTS_BITS: (4, 8), semconv.PARTS_BLOCK_SIZE: (4,),
    }  # fmt: skip
    activations = {semconv.ACTIVATION_BITS: 8, semconv.ACTIVATION_TYPE: "int8"}
    smooth = {
        **int8, **activations,
        semconv.CONFIG_NAME: "SmoothQuantConfig(Int8DynamicActivationInt8WeightConfig)",
    }  # fmt: skip
    in_groups = {
        **activations, semconv.BITS: 4, semconv.BLOCK_SIZE: 32,
        semconv.CONFIG_NAME: "QATConfig(Int8DynamicActivationIntxWeightConfig)",
        semconv.GRANULARITY: "group", semconv.SYMMETRIC: True, semconv.WEIGHT_TYPE: "int4",
    }  # fmt: skip
    x86 = {
        semconv.ACTIVATION_BITS: 8, semconv.ACTIVATION_TYPE: "uint8", semconv.BITS: 8,
        semconv.CALIBRATION_METHOD: "HistogramObserver",
        semconv.CONFIG_NAME: "X86InductorQuantizer", semconv.GRANULARITY: "channel",
        semconv.SYMMETRIC: True, semconv.WEIGHT_TYPE: "int8",
    }  # fmt: skip

    def passes(known: dict[str, Any], count: int) -> Any:
        counts = {
            semconv.CALIBRATION_ITEM_COUNT: 2 * count,
            semconv.CALIBRATION_SAMPLE_COUNT: count,
        }
        return step(("Calibration", ""), {**known, **counts})

    steps = {
        "in_place": [step(IN_PLACE, {**int8, semconv.CONFIG_NAME: "Int8WeightOnlyConfig"})],
        "by_name": [step(IN_PLACE, {**of_both, semconv.CONFIG_NAME: "FqnToConfig"})],
        "in_turn": [step(IN_PLACE, {**int8, semconv.CONFIG_NAME: "Int8WeightOnlyConfig"}), step(IN_PLACE, int4)],
        "static_in_place": [step(("Model Preparation", "quant_api.quantize_"), smooth), passes(smooth, 3), step(IN_PLACE, smooth)],
        "in_groups": [step(("Model Preparation", "quant_api.quantize_"), in_groups), step(IN_PLACE, in_groups)],
        "pt2e": [step(PREPARE, x86), passes(x86, 1), step(("Model Quantization", "pt2e.quantize_pt2e.convert_pt2e"), x86)],
        "language_model": [steps_by("transformers")(LOAD, language_model)],
        "not_quantized": [],
        "failing": [step(IN_PLACE, {"error.type": "AssertionError"})],
    }  # fmt: skip
    assert steps_below(otlp, root) == [(way, {}, within) for way, within in steps.items()]


def test_what_calibration_has_not_seen_is_found(program: Program) -> None:
    check_seen(program, "torchao_pt2e")
