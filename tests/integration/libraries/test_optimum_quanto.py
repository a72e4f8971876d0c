"""optimum-quanto reports its steps; the block of a Calibration is one."""

from __future__ import annotations

import pytest

from otel_quant.schema import semconv
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
        semconv.ACTIVATION_BITS: 8, semconv.ACTIVATION_TYPE: "qint8", semconv.BITS: 8,
        semconv.WEIGHT_TYPE: "qint8",
    }  # fmt: skip
    in_place = [
        step(("Model Quantization", "quantize.quantize"), types),
        step(
            calibrate,
            {**types, semconv.CALIBRATION_ITEM_COUNT: 4, semconv.CALIBRATION_SAMPLE_COUNT: 2},
        ),
        step(
            ("Freeze Model", "quantize.freeze"),
            {**types, semconv.LAYER_COUNT: 2, semconv.LAYER_TOTAL: 2},
        ),
    ]
    assert steps_below(otlp, root) == [
        ("in place", {}, in_place),
        ("failing", {}, [step(calibrate, {"error.type": "KeyError"})]),
    ]
    samples = ["Calibration: sample 1", "Calibration: sample 2"]
    assert program.progress() == [*samples, *each("Freeze Model", "layer", 2)]
