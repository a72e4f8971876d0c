"""torch.ao.quantization reports its steps, whichever way it is used, and works as before."""

from __future__ import annotations

import pytest

from tests.fixtures.otlp_receiver import OtlpReceiver
from tests.fixtures.steps import steps_below, steps_by
from tests.integration.libraries.conftest import Program

pytest.importorskip("torch.ao.quantization")

step = steps_by("torch", "torch.ao.quantization.")

FBGEMM = {"quant.backend": "fbgemm"}
KNOWN = {
    **FBGEMM, "quant.activation.bits": 8, "quant.activation.type": "quint8", "quant.bits": 8,
    "quant.calibration.method": "HistogramObserver", "quant.granularity": "channel",
    "quant.symmetric": True, "quant.weight.type": "qint8",
}  # fmt: skip
TWO_PASSES = {**KNOWN, "quant.calibration.item_count": 4, "quant.calibration.sample_count": 2}
ONE_PASS = {"quant.calibration.item_count": 2, "quant.calibration.sample_count": 1}
PREPARE = ("Model Preparation", "quantize.prepare")
CONVERT = ("Model Quantization", "quantize.convert")
EAGER = [step(PREPARE, KNOWN), step(("Calibration", ""), TWO_PASSES), step(CONVERT, KNOWN)]
CALIBRATE = steps_by("torch")(("Calibration", "__main__.calibrate"), TWO_PASSES)
ALL_IN_ONE = [step(PREPARE, KNOWN), CALIBRATE, step(CONVERT, KNOWN)]
DYNAMIC = ("Quantization (Dynamic)", "quantize.quantize_dynamic")
QINT8 = {**FBGEMM, "quant.bits": 8, "quant.weight.type": "qint8"}
FLOAT16 = {
    **FBGEMM, "quant.activation.bits": 16, "quant.activation.type": "float16",
    "quant.bits": 16, "quant.weight.type": "float16",
}  # fmt: skip


def test_every_quantization_method_reports_its_steps(program: Program, otlp: OtlpReceiver) -> None:
    program("torch_own.py")

    [root] = otlp.spans_named("quantization")
    assert root.attributes["quant.model.name"] == "Sequential"
    steps = {
        "eager": EAGER,
        "copied": [
            step(PREPARE, KNOWN),
            step(("Calibration", ""), TWO_PASSES),
            step(CONVERT, {}),
        ],
        "in_steps": [
            ("User-Defined", {}, [step(PREPARE, KNOWN)]),
            ("User-Defined", {}, [step(("Calibration", ""), TWO_PASSES)]),
            step(("Calibration", ""), {**TWO_PASSES, **ONE_PASS}),
        ],
        "all_in_one": ALL_IN_ONE,
        "all_in_one_by_name": ALL_IN_ONE,
        "dynamic": [step(DYNAMIC, QINT8)],
        "dynamic_mapped": [step(DYNAMIC, FLOAT16)],
        "fx": [
            step(("Model Preparation", "quantize_fx.prepare_fx"), KNOWN),
            step(("Calibration", ""), TWO_PASSES),
            step(("Model Quantization", "quantize_fx.convert_fx"), KNOWN),
        ],
        "failing": [step(PREPARE, {**FBGEMM, "error.type": "TypeError"})],
        "failing_in_calibration": [
            step(PREPARE, KNOWN), step(("Calibration", ""), {**KNOWN, "quant.calibration.sample_count": 1}),
        ],
    }  # fmt: skip
    marked_by_the_program = 2 * [("User-Defined", {}, [])]  # once more, when nothing is watched
    assert steps_below(otlp, root) == [
        *((way, {}, within) for way, within in steps.items()),
        *marked_by_the_program,
    ]
