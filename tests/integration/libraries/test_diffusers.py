"""diffusers is one step with the layers of the library that quantizes; calls for one layer after another are one step."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from otel_quant.schema import semconv
from tests.fixtures.otlp_receiver import OtlpReceiver
from tests.fixtures.steps import steps_below, steps_by
from tests.integration.libraries.conftest import Program

if not (find_spec("diffusers") and find_spec("optimum") and find_spec("torchao")):
    pytest.skip("diffusers, torchao or optimum-quanto is not installed", allow_module_level=True)


def test_a_model_is_one_step_with_its_layers(program: Program, otlp: OtlpReceiver) -> None:
    in_int8 = int(program("diffusers_all.py").splitlines()[-1])

    [root] = otlp.spans_named("quantization")
    program.check_written(root)
    loaded = ("Model Quantization", "diffusers.models.modeling_utils.ModelMixin.from_pretrained")
    int8 = {semconv.BITS: 8, semconv.WEIGHT_TYPE: "int8"}
    of_model = {**int8, semconv.INPUT_PATH: "tiny", semconv.LAYER_COUNT: in_int8}
    by_torchao = {
        semconv.CONFIG_NAME: "TorchAoConfig(Int8WeightOnlyConfig)",
        semconv.GRANULARITY: "row",
    }
    step = steps_by("diffusers")
    # Three calls, two of which quantize otherwise than the third.
    several = {
        semconv.CONFIG_NAME: "IntxWeightOnlyConfig, Int8WeightOnlyConfig", semconv.GRANULARITY: "group, row",
        semconv.WEIGHT_TYPE: "int4, int8", semconv.PARTS_BITS: (4, 8), semconv.PARTS_BLOCK_SIZE: (32,),
        semconv.LAYER_COUNT: 3,
    }  # fmt: skip
    in_turn = ("Model Quantization", "torchao.quantization.quant_api.quantize_")
    assert steps_below(otlp, root) == [
        ("torchao", {}, [step(loaded, {**of_model, **by_torchao})]),
        ("quanto", {}, [step(loaded, {**of_model, semconv.CONFIG_NAME: "QuantoConfig"})]),
        ("not quantized", {}, []),
        ("layers", {}, [steps_by("torchao")(in_turn, several)]),
    ]
