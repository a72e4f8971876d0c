"""optimum-quanto reports its steps; the block of a Calibration is one."""

from __future__ import annotations

import importlib.metadata

import pytest

from tests.fixtures.otlp_receiver import OtlpReceiver
from tests.integration.libraries.conftest import Program, steps_below

pytest.importorskip("optimum.quanto")


def test_quantize_calibrate_and_freeze_are_steps(program: Program, otlp: OtlpReceiver) -> None:
    program("optimum_quanto_all.py")

    [root] = otlp.spans_named("quantization")
    common = {
        "quant.library.name": "optimum-quanto",
        "quant.library.version": importlib.metadata.version("optimum-quanto"),
    }
    quantize = {
        **common,
        "code.function.name": "optimum.quanto.quantize.quantize",
        "quant.activation.type": "qint8",
        "quant.weight.type": "qint8",
    }
    calibrate = {
        **common,
        "code.function.name": "optimum.quanto.calibrate.Calibration.__enter__",
    }
    freeze = {**common, "code.function.name": "optimum.quanto.quantize.freeze"}
    assert steps_below(program, root) == [
        (
            "in place",
            {},
            [
                ("Model Quantization", quantize, []),
                ("Calibration", calibrate, []),
                ("Freeze Model", freeze, []),
            ],
        ),
        ("failing", {}, [("Calibration", {**calibrate, "error.type": "KeyError"}, [])]),
    ]
