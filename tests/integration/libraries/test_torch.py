"""torch.ao.quantization reports its steps, whichever way it is used, and works as before."""

from __future__ import annotations

import importlib.metadata

import pytest

from tests.fixtures.otlp_receiver import OtlpReceiver
from tests.integration.libraries.conftest import Program

pytest.importorskip("torch.ao.quantization")

EAGER = "torch.ao.quantization.quantize."
FX = "torch.ao.quantization.quantize_fx."

PREPARE = ("Model Preparation", EAGER + "prepare", {})
CONVERT = ("Model Quantization", EAGER + "convert", {})
ALL_IN_ONE = [PREPARE, ("Calibration", "__main__.calibrate", {}), CONVERT]
DYNAMIC = ("Quantization (Dynamic)", EAGER + "quantize_dynamic")

STEPS = {
    "eager": [PREPARE, CONVERT],
    "all_in_one": ALL_IN_ONE,
    "all_in_one_by_name": ALL_IN_ONE,
    "dynamic": [(*DYNAMIC, {"quant.weight.type": "qint8"})],
    "dynamic_mapped": [(*DYNAMIC, {})],
    "fx": [
        ("Model Preparation", FX + "prepare_fx", {}),
        ("Model Quantization", FX + "convert_fx", {}),
    ],
    "failing": [(*PREPARE[:2], {"error.type": "TypeError"})],
}
"""What the program does, and the steps: name, function, what else is known."""


def test_every_way_to_quantize_reports_its_steps(program: Program, otlp: OtlpReceiver) -> None:
    program("torch_own.py")

    [root] = otlp.spans_named("quantization")
    version = importlib.metadata.version("torch")
    assert {
        way.name: [program.stable_attributes(step) for step in otlp.children(way)]
        for way in otlp.children(root)
    } == {
        way: [
            {
                "code.function.name": function,
                "quant.library.name": "torch",
                "quant.library.version": version,
                "quant.step.kind": name,
                "quant.step.name": name,
                **known,
            }
            for name, function, known in steps
        ]
        for way, steps in STEPS.items()
    }  # fmt: skip
    steps = [step for way in otlp.children(root) for step in otlp.children(way)]
    assert [otlp.children(step) for step in steps] == [[]] * len(steps)
