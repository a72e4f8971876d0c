"""`otel-quant inference script.py:function`: what it prints and writes, also for scripts that fail."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fixtures.programs import run_script
from tests.fixtures.recorded import RecordedFolder
from tests.integration.inference.conftest import run

_MODELS = """
import os
import torch

print("the script says something")
os.system("echo a program of it does too")
print(f"{__name__} is imported")

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = torch.nn.Linear(8, 64), torch.nn.Linear(64, 8)

    def forward(self, x, scale):
        return {"y": self.down(torch.relu(self.up(x))) * scale, "x": x}

def narrow():
    model = Model().bfloat16()
    return model, {"x": torch.ones(4, 8).bfloat16(), "scale": 2.0}

def variants():
    return {"float": Model(), "bfloat16": narrow}, {"x": torch.ones(4, 8), "scale": 2.0}
"""


@pytest.fixture(autouse=True)
def _script(tmp_path: Path) -> None:
    (tmp_path / "models.py").write_text(_MODELS)


def test_models_of_a_script_are_printed_side_by_side_and_in_the_report(
    tmp_path: Path,
) -> None:
    RecordedFolder(tmp_path / "recording")
    out, err = run(
        tmp_path, "inference", "models.py:variants", "--runs", "2", "--threads", "1", "--format", "json",
        "--record", "recording", OMP_NUM_THREADS="1",
    )  # fmt: skip
    said = "the script says something\na program of it does too\nmodels is imported\n"
    assert err == said
    result = json.loads(out)
    assert (tmp_path / "recording" / "inference.json").read_text() == out
    before, narrow = result["models"]
    assert [each["path"] for each in result["models"]] == ["float", "bfloat16"]
    assert (result["runtime"], result["settings"]["threads"]) == ("torch", "1")
    assert before["inputs"] == {"x": "float32 4x8"}
    assert narrow["inputs"] == {"x": "bfloat16 4x8"}
    assert [each["name"] for each in narrow["accuracy"]["outputs"]] == ["output.y", "output.x"]
    assert narrow["accuracy"]["outputs"][1]["max_abs"] == 0

    subprocess.run(
        [sys.executable, "-m", "otel_quant", "report", "recording"], cwd=tmp_path, check=True
    )
    [page] = tmp_path.rglob("*.html")
    assert ">Inference<" in page.read_text()


_PROGRAM = """
import json
import torch
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
import otel_quant

spans = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(spans))
trace.set_tracer_provider(provider)
torch.set_num_threads(1)
with provider.get_tracer("program").start_as_current_span("outer"):
    otel_quant.measure_inference({"one": torch.nn.ReLU(), "bad": lambda: 1 / 0}, torch.ones(2), runs=1)
ended = spans.get_finished_spans()
names = {each.context.span_id: each.name for each in ended}
print(json.dumps([[each.name, names.get(each.parent and each.parent.span_id)] for each in ended]))
"""


def test_a_program_that_sends_telemetry_has_spans_for_its_measurements(tmp_path: Path) -> None:
    out, _ = run_script(tmp_path, _PROGRAM)
    assert json.loads(out) == [
        ["model inference", "inference"],
        ["model inference", "inference"],
        ["inference", "outer"],
        ["outer", None],
    ]


@pytest.mark.parametrize(
    ("reference", "code", "message"),
    [
        ("bad.py:raises", 1, "bad.py:raises raised ZeroDivisionError: division by zero (line 3)"),
        ("bad.py:three --layers", 2, "--layers is for ONNX files; expected none of it with bad.py"),
        ("bad.py:three a.onnx", 2, "bad.py:three with a.onnx; expected a script alone: its function"),
    ],
)  # fmt: skip
def test_a_script_without_models_fails_with_one_line(
    reference: str, code: int, message: str, tmp_path: Path
) -> None:
    (tmp_path / "bad.py").write_text(
        "def raises():\n    x = 1\n    x / 0\ndef three():\n    return 3\n"
    )
    out, err = run(tmp_path, "inference", *reference.split(), code=code)
    assert out == ""
    assert err.startswith(f"otel-quant: {message}")
    assert err.count("\n") == 1
