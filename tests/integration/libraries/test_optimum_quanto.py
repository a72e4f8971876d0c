"""optimum-quanto reports its steps; the block of a Calibration is one."""

from __future__ import annotations

import pytest

from tests.fixtures.otlp_receiver import OtlpReceiver
from tests.fixtures.steps import steps_below, steps_by
from tests.integration.libraries.conftest import Program, each

pytest.importorskip("optimum.quanto")


def test_quantize_calibrate_and_freeze_are_steps(program: Program, otlp: OtlpReceiver) -> None:
    program("optimum_quanto_all.py")

    [root] = otlp.spans_named("quantization")
    step = steps_by("optimum-quanto", "optimum.quanto.")
    calibrate = ("Calibration", "calibrate.Calibration.__enter__")
    types = {
        "quant.activation.bits": 8,
        "quant.activation.type": "qint8",
        "quant.bits": 8,
        "quant.weight.type": "qint8",
    }
    in_place = [
        step(("Model Quantization", "quantize.quantize"), types),
        step(calibrate, {"quant.calibration.item_count": 4, "quant.calibration.sample_count": 2}),
        step(("Freeze Model", "quantize.freeze"), {"quant.layer_count": 2, "quant.layer_total": 2}),
    ]
    assert steps_below(otlp, root) == [
        ("in place", {}, in_place),
        ("failing", {}, [step(calibrate, {"error.type": "KeyError"})]),
    ]
    samples = ["Calibration: sample 1", "Calibration: sample 2"]
    assert program.progress() == [*samples, *each("Freeze Model", "layer", 2)]
