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
    program.check_written(root, uncompared={"failing"})
    step = steps_by("optimum-quanto", "optimum.quanto.")
    calibrate = ("Calibration", "calibrate.Calibration.__enter__")
    types = {
        semconv.ACTIVATION_BITS: 8, semconv.ACTIVATION_TYPE: "qint8", semconv.BITS: 8,
        semconv.WEIGHT_TYPE: "qint8", semconv.GRANULARITY: "channel",
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
    # The groups are quanto's own choice.
    of_both = {
        semconv.WEIGHT_TYPE: "qint4, qint8", semconv.GRANULARITY: "channel, group",
        semconv.PARTS_BITS: (4, 8), semconv.PARTS_BLOCK_SIZE: (128,),
    }  # fmt: skip
    first = {
        semconv.BITS: 4, semconv.BLOCK_SIZE: 128, semconv.GRANULARITY: "group", semconv.WEIGHT_TYPE: "qint4",
    }  # fmt: skip
    two = {semconv.LAYER_COUNT: 2, semconv.LAYER_TOTAL: 2}
    in_turn = [
        *(step(("Model Quantization", "quantize.quantize"), known) for known in (first, of_both)),
        step(("Freeze Model", "quantize.freeze"), {**of_both, **two}),
    ]
    assert steps_below(otlp, root) == [
        ("in place", {}, in_place),
        ("in turn", {}, in_turn),
        ("failing", {}, [step(calibrate, {"error.type": "KeyError"})]),
    ]
    samples = ["Calibration: sample 1", "Calibration: sample 2"]
    assert program.progress() == [
        *samples,
        *each("Freeze Model", "layer", 2),
        *each("Freeze Model", "layer", 2),
    ]
