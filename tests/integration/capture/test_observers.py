"""What calls of observers and of calibrators' sessions do is the same while what reaches them is noted."""

from __future__ import annotations

import json
from pathlib import Path

import onnx

from tests.fixtures.onnx_builder import model_of_text
from tests.fixtures.programs import run_script

PROGRAM = """
import json, sys
import onnxruntime as ort
import otel_quant
import torch
from otel_quant.capture.instruments import observers
from otel_quant.capture.runtime import RUNTIME
from torch.ao.quantization.observer import MinMaxObserver, ObserverBase

ObserverBase.__call__ = own = lambda self, x: (torch.nn.Module.__call__(self, x), "its own")
model = torch.nn.Sequential(MinMaxObserver(), torch.nn.Linear(2, 2))

class Calibrator:
    def __init__(self):
        self.infer_session = ort.InferenceSession(sys.argv[1])
        self.model = __import__("onnx").load(sys.argv[1])

with otel_quant.step("Calibration"):
    step = RUNTIME.current_step()
    observers.observe(step, model)
    noted = ObserverBase.__call__ is not own
    result = model[0](torch.ones(3, 2))[1]
    seen = [each.tokens for each in step.observed.seen()]
with otel_quant.step("Calibration"):
    step, calibrator = RUNTIME.current_step(), Calibrator()
    undo = observers.of_calibrator({"self": calibrator}, None)
    x = torch.ones(2, 3).numpy()
    outputs = calibrator.infer_session.run(output_names=None, input_feed={"x": x})
    seen += [each.layer for each in step.observed.seen()]
    undo()
print(json.dumps([noted, result, seen, len(outputs), ObserverBase.__call__ is own]))
"""


def test_calls_are_as_they_were_and_a_class_has_its_own_again(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]> agraph (float[2, 3] x) => (float[2, 3] y) { y = Relu (x) }"""
    onnx.save(model_of_text(text), tmp_path / "float.onnx")
    printed = json.loads(run_script(tmp_path, PROGRAM, str(tmp_path / "float.onnx"))[0])
    assert printed == [True, "its own", [3, "x", "y"], 1, True]
