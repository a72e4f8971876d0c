"""torch.ao.quantization reports its steps, whichever way it is used, and works as before."""

from __future__ import annotations

from pathlib import Path

import pytest

from otel_quant.recordings.reader import read
from otel_quant.schema import semconv
from tests.fixtures.otlp_receiver import OtlpReceiver
from tests.fixtures.programs import run_script
from tests.fixtures.steps import steps_below, steps_by
from tests.integration.libraries.conftest import Program, check_seen

pytest.importorskip("torch.ao.quantization")

step = steps_by("torch", "torch.ao.quantization.")

FBGEMM = {semconv.BACKEND: "fbgemm"}
KNOWN = {
    **FBGEMM, semconv.ACTIVATION_BITS: 8, semconv.ACTIVATION_TYPE: "quint8", semconv.BITS: 8,
    semconv.CALIBRATION_METHOD: "HistogramObserver", semconv.GRANULARITY: "channel",
    semconv.SYMMETRIC: True, semconv.WEIGHT_TYPE: "qint8",
}  # fmt: skip
TRAINED = {**KNOWN, semconv.CALIBRATION_METHOD: "MovingAverageMinMaxObserver"}
TWO_PASSES = {**KNOWN, semconv.CALIBRATION_ITEM_COUNT: 4, semconv.CALIBRATION_SAMPLE_COUNT: 2}
ONE_PASS = {semconv.CALIBRATION_ITEM_COUNT: 2, semconv.CALIBRATION_SAMPLE_COUNT: 1}
PREPARE = ("Model Preparation", "quantize.prepare")
CONVERT = ("Model Quantization", "quantize.convert")
EAGER = [step(PREPARE, KNOWN), step(("Calibration", ""), TWO_PASSES), step(CONVERT, KNOWN)]
CALIBRATE = steps_by("torch")(("Calibration", "__main__.calibrate"), TWO_PASSES)
ALL_IN_ONE = [step(PREPARE, KNOWN), CALIBRATE, step(CONVERT, KNOWN)]
DYNAMIC = ("Quantization (Dynamic)", "quantize.quantize_dynamic")
QINT8 = {**FBGEMM, semconv.BITS: 8, semconv.WEIGHT_TYPE: "qint8"}
FLOAT16 = {
    **FBGEMM, semconv.ACTIVATION_BITS: 16, semconv.ACTIVATION_TYPE: "float16",
    semconv.BITS: 16, semconv.WEIGHT_TYPE: "float16",
}  # fmt: skip


def test_every_quantization_method_reports_its_steps(program: Program, otlp: OtlpReceiver) -> None:
    program("torch_own.py")

    [root] = otlp.spans_named("quantization")
    program.check_written(root, uncompared={"in_steps", "failing", "failing_in_calibration"})
    assert root.attributes[semconv.MODEL_NAME] == "Sequential"
    steps = {
        "eager": EAGER,
        "copied": [step(PREPARE, KNOWN), step(("Calibration", ""), TWO_PASSES), step(CONVERT, KNOWN)],
        "fx_copied": [
            step(("Model Preparation", "quantize_fx.prepare_fx"), KNOWN),
            step(("Model Quantization", "quantize_fx.convert_fx"), KNOWN),
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
        "fx_forward": [
            step(("Model Preparation", "quantize_fx.prepare_fx"), KNOWN),
            step(("Calibration", ""), TWO_PASSES),
            step(("Model Quantization", "quantize_fx.convert_fx"), KNOWN),
        ],
        "fx_trained": [
            step(("Model Preparation", "quantize_fx.prepare_qat_fx"), TRAINED),
            step(("Model Quantization", "quantize_fx.convert_fx"), TRAINED),
        ],
        "failing": [step(PREPARE, {**FBGEMM, "error.type": "TypeError"})],
        "failing_in_calibration": [step(PREPARE, KNOWN), step(("Calibration", ""), {**KNOWN, semconv.CALIBRATION_SAMPLE_COUNT: 1})],
    }  # fmt: skip
    marked_by_the_program = 2 * [("User-Defined", {}, [])]  # once more, when nothing is watched
    assert steps_below(otlp, root) == [
        *((way, {}, within) for way, within in steps.items()),
        *marked_by_the_program,
    ]


@pytest.mark.parametrize(
    "way", ["torch_ao", pytest.param("torch_ao_histogram", marks=pytest.mark.slow)]
)
def test_what_calibration_has_not_seen_is_found(program: Program, way: str) -> None:
    check_seen(program, way)


BROKEN_OFF = """
import sys
import torch
import otel_quant
otel_quant.QuantInstrumentor().instrument()
from torch.ao import quantization as tq

class Halves(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
    def forward(self, x):
        return self.second(self.first(x))

model = Halves().eval()
model.qconfig = tq.get_default_qconfig("fbgemm")
prepared = tq.prepare(model)
def calibrate():
    prepared(torch.ones(2, 4))
    prepared(torch.ones(2, 4) / (sys.argv[1] == "after"))
if sys.argv[1] == "step":
    with otel_quant.step("quantize"):
        calibrate()
calibrate()
raise AssertionError
"""


@pytest.mark.parametrize(("way", "fails"), [("run", True), ("step", True), ("after", False)])
def test_a_calibration_fails_by_what_a_forward_pass_of_its_model_raises_alone(
    tmp_path: Path, way: str, fails: bool
) -> None:
    run_script(tmp_path, BROKEN_OFF, way, code=1, OTEL_QUANT_RECORD="made")
    [run] = read(tmp_path / "made").runs
    [calibration] = [step for step in run.steps if step.name == "Calibration"]
    assert calibration.error == ("RuntimeError" if fails else None)
    found = str(calibration.attributes.get(semconv.CALIBRATION_FINDINGS))
    assert "saw" not in found


LOADING = """
from torch.utils.data import DataLoader, Dataset
import otel_quant

class Data(Dataset):
    def __len__(self):
        return 1
    def __getitem__(self, at):
        return [][at]

if __name__ == "__main__":
    with otel_quant.step("calibrate"):
        list(DataLoader(Data(), num_workers=1, multiprocessing_context="fork"))
"""


def test_an_exception_of_a_data_loaders_process_has_its_line_there(tmp_path: Path) -> None:
    run_script(tmp_path, LOADING, code=1, OTEL_QUANT_RECORD="made")
    [failed] = [step for run in read(tmp_path / "made").runs for step in run.steps]
    assert failed.attributes[semconv.ERROR_LINE] == "__getitem__ (script.py:9)"
