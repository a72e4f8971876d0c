"""torch.ao.quantization reports its steps, whichever way it is used, and works as before."""

from __future__ import annotations

import pytest

from tests.fixtures.otlp_receiver import OtlpReceiver
from tests.fixtures.steps import steps_below, steps_by
from tests.integration.libraries.conftest import Program

pytest.importorskip("torch.ao.quantization")

step = steps_by("torch", "torch.ao.quantization.")

PREPARE = ("Model Preparation", "quantize.prepare")
CONVERT = step(("Model Quantization", "quantize.convert"), {})
CALIBRATE = steps_by("torch")(("Calibration", "__main__.calibrate"), {})
ALL_IN_ONE = [step(PREPARE, {}), CALIBRATE, CONVERT]
DYNAMIC = ("Quantization (Dynamic)", "quantize.quantize_dynamic")


def test_every_way_to_quantize_reports_its_steps(program: Program, otlp: OtlpReceiver) -> None:
    program("torch_own.py")

    [root] = otlp.spans_named("quantization")
    assert root.attributes["quant.model.name"] == "Sequential"
    steps = {
        "eager": [step(PREPARE, {}), CONVERT],
        "all_in_one": ALL_IN_ONE,
        "all_in_one_by_name": ALL_IN_ONE,
        "dynamic": [step(DYNAMIC, {"quant.weight.type": "qint8"})],
        "dynamic_mapped": [step(DYNAMIC, {})],
        "fx": [
            step(("Model Preparation", "quantize_fx.prepare_fx"), {}),
            step(("Model Quantization", "quantize_fx.convert_fx"), {}),
        ],
        "failing": [step(PREPARE, {"error.type": "TypeError"})],
    }
    assert steps_below(otlp, root) == [(way, {}, within) for way, within in steps.items()]
