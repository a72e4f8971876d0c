"""`otel-quant inference` of ONNX files and of scripts: what it prints and writes, also for models that fail."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from onnxruntime.quantization import quantize_static

from otel_quant.cost import analyze
from otel_quant.cost.graph import runtime_here
from tests.fixtures.onnx_builder import INT64, Builder
from tests.fixtures.programs import run_script
from tests.fixtures.recorded import RecordedFolder
from tests.integration.cost.exporting import samples
from tests.integration.inference.conftest import run as run_command
from tests.integration.inference.conftest import until
from tests.integration.inference.planted import (
    convolution_along_the_wrong_axis,
    convolution_with_activation,
    dynamic_shape,
    float_matmuls,
)


def run(folder: Path, *arguments: str, code: int = 0) -> tuple[str, str]:
    """Runs the command, with a few runs of each model."""
    return run_command(folder, "inference", "--runs", "4", *arguments, code=code)


def test_two_models_are_printed_side_by_side(files: tuple[str, str], tmp_path: Path) -> None:
    out, err = run(tmp_path, *files, "--format", "json", "--threads", "1")
    assert err == ""
    result = json.loads(out)
    assert result["settings"] == {
        "graph optimization": "all",
        "rules of fusing": runtime_here().title,
        "runs": "4",
    }
    before, after = result["models"]
    assert [each["path"] for each in result["models"]] == [*files]
    assert before["inputs"] == after["inputs"] == {"x": "float32 8x64"}
    assert before["providers"] == ["CPUExecutionProvider"]
    assert before["assigned"] == {"CPUExecutionProvider": 3}
    for model in (before, after):
        latency, memory = model["latency"], model["memory"]
        assert latency["runs"] == 4
        assert latency["p10"] <= latency["median"] <= latency["p90"]
        assert memory["peak"] > memory["grown"] > 0
        assert memory["load_peak"] > 0
        assert memory["arena_used"] > 0
        assert_sums_agree(model["ran"])
    assert "ratio" in after["latency"]
    assert "ratio" not in before["latency"]
    assert before["memory"]["weights_on_disk"] == (tmp_path / files[0]).stat().st_size
    assert before["memory"]["weights_in_memory"] == 64 * 64 * 4
    assert {each["node"]: each["macs"] for each in before["ran"]["kernels"]} == {
        "m1": 8 * 64 * 64,
        "m2": 8 * 64 * 64,
        "relu": 8 * 64,
    }
    kernels = {each["node"]: each for each in after["ran"]["kernels"]}
    first = kernels["m1"]
    assert after["facts"]["threads of onnxruntime"] == "1"
    assert (first["op_type"], first["nodes"], first["macs"]) == ("QLinearMatMul", 4, 8 * 64 * 64)
    assert first["inputs"][:2] == ["uint8 8x64", "float32 scalar"]
    assert first["outputs"] == ["uint8 8x64"]
    assert {each["calls"] for each in after["ran"]["kernels"]} == {1.0}
    [error] = after["accuracy"]["outputs"]
    assert error["name"] == "m2_DQ"
    assert -1 <= error["cosine"] <= 1
    assert "accuracy" not in before


def test_the_graph_is_written_in_the_shades_of_a_figure(
    files: tuple[str, str], tmp_path: Path
) -> None:
    run(tmp_path, *files, "--graph", "change=graph.svg", "--graph", "type=graph.json")
    boxes = ElementTree.parse(tmp_path / "graph.svg").iterfind(".//{*}g/{*}title")
    assert [str(each.text).partition(":")[0] for each in boxes] == ["m1", "relu", "m2"]
    types = json.loads((tmp_path / "graph.json").read_text())["results"]
    assert types["m1"] == {"value": "float32 -> uint8"}
    _, err = run(tmp_path, *files, "--graph", "speed=graph.svg", code=2)
    assert "--graph speed=graph.svg; expected one of time, change, weights" in err


def test_nodes_without_a_name_are_joined_by_the_tensor_that_they_make(tmp_path: Path) -> None:
    onnx.save(
        onnx.parser.parse_model(
            '<ir_version: 8, opset_import: ["": 17]> g (float[4,16] x) => (float[4,16] y) {'
            " a = MatMul (x, first) y = MatMul (a, second) }"
        ),
        tmp_path / "bare.onnx",
    )
    model = onnx.load(tmp_path / "bare.onnx")
    for name in ("first", "second"):
        weights = np.random.default_rng(0).normal(size=(16, 16)).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(weights, name))
    onnx.save(model, tmp_path / "float.onnx")
    reader = samples(*[{"x": np.ones((4, 16), np.float32)}] * 2)
    quantize_static(tmp_path / "float.onnx", tmp_path / "int8.onnx", reader)
    out, _ = run(tmp_path, "float.onnx", "int8.onnx", "--format", "json")
    of_float, of_int8 = (
        {each["node"]: each["op_type"] for each in model["ran"]["kernels"]}
        for model in json.loads(out)["models"]
    )
    costed = {node.name: node.op_type for node in analyze(tmp_path / "float.onnx").nodes}
    assert costed == of_float == {"a": "MatMul", "y": "MatMul"}
    assert {name: of_int8[name] for name in of_float} == dict.fromkeys("ay", "QLinearMatMul")
    assert {"a", "y"} < {node.name for node in analyze(tmp_path / "int8.onnx").nodes}


def assert_sums_agree(ran: dict[str, Any]) -> None:
    """Kernels, operators and what is between them make a run."""
    kernels = sum(each["micros"] for each in ran["kernels"])
    assert sum(each["micros"] for each in ran["operators"]) == pytest.approx(kernels, rel=0.01)
    assert ran["kernel_micros"] == pytest.approx(kernels, rel=0.01)
    assert ran["run_micros"] == pytest.approx(kernels + ran["between_micros"], rel=0.01)
    assert sum(each["share"] for each in ran["kernels"]) == pytest.approx(1, rel=0.01)
    for name in ("kernels", "operators"):
        micros = [each["micros"] for each in ran[name]]
        assert micros == sorted(micros, reverse=True)


def test_a_kernel_that_was_fused_has_the_macs_of_the_contraction(tmp_path: Path) -> None:
    convolution_with_activation().save(tmp_path / "conv.onnx")
    out, _ = run(tmp_path, "conv.onnx", "--format", "json")
    kernels = json.loads(out)["models"][0]["ran"]["kernels"]
    found = [(each["node"], each["nodes"], each["macs"]) for each in kernels if "node" in each]
    assert found == [("conv", 2, 16 * 16 * 9 * 32 * 32)]


def test_assumed_shapes_are_printed_and_given_ones_are_used(tmp_path: Path) -> None:
    dynamic_shape().save(tmp_path / "open.onnx")
    out, _ = run(tmp_path, "open.onnx", "--format", "json")
    [model] = json.loads(out)["models"]
    assert (model["inputs"], model["assumed"]) == ({"x": "float32 1x64"}, ["--dim batch=1"])
    for option in ("--dim=batch=3", "--input=x=3x64"):
        out, _ = run(tmp_path, "open.onnx", "--format", "json", option)
        [model] = json.loads(out)["models"]
        assert (model["inputs"], model["assumed"]) == ({"x": "float32 3x64"}, [])
    float_matmuls().save(tmp_path / "float.onnx")
    out, _ = run(tmp_path, "float.onnx", "open.onnx", "--format", "json")
    accuracy = json.loads(out)["models"][1]["accuracy"]
    assert accuracy["problem"] == "it has other inputs than float.onnx"
    assert accuracy["outputs"] == []


def test_models_are_fed_with_the_data_of_a_given_file(
    files: tuple[str, str], tmp_path: Path
) -> None:
    np.savez(tmp_path / "zeros.npz", x=np.zeros((8, 64), np.float32))
    out, _ = run(tmp_path, *files, "--format", "json", "--data", "zeros.npz")
    [error] = json.loads(out)["models"][1]["accuracy"]["outputs"]
    assert error == {"name": "m2_DQ", "max_abs": 0.0}
    np.savez(tmp_path / "other.npz", y=np.zeros(3), x=np.zeros((8, 64), np.float32))
    np.savez(tmp_path / "double.npz", x=np.zeros((8, 64)))
    (tmp_path / "text.npz").write_text("no arrays")
    for name, problem in {
        "other.npz": "other.npz has 'y', which is no input; expected x",
        "double.npz": "double.npz: 'x' is float64 [8, 64]; expected float32 [8, 64]",
        "text.npz": "text.npz: is not a file of numpy.savez; expected arrays by the "
        "names of inputs",
        "none.npz": "none.npz: No such file or directory; expected arrays by the names of inputs",
    }.items():
        _, err = run(tmp_path, "float.onnx", "--data", name, code=1)
        assert err == f"otel-quant: float.onnx: loading it failed: {problem}\n"


def test_an_error_of_one_model_is_one_line_and_the_others_continue(
    files: tuple[str, str], tmp_path: Path
) -> None:
    (tmp_path / "text.onnx").write_text("no model")
    unknown = Builder([8, 64])
    unknown.output(unknown.node("NoSuchOperator", ["x"], "y", domain="my.domain"))
    unknown.save(tmp_path / "unknown.onnx")
    convolution_along_the_wrong_axis().save(tmp_path / "image.onnx")
    for name, operands, axis in (("axis.onnx", ["x"], 2), ("operand.onnx", [], 0)):
        table = Builder([8, 64], dtype=INT64)
        rows = [table.weights("table", 4, 4), table.node("Identity", operands, "same")]
        table.output(table.node("Gather", rows, "y", axis=axis))
        table.save(tmp_path / name)
    out, err = run(
        tmp_path, files[0], "gone.onnx", "text.onnx", "unknown.onnx", "image.onnx", "axis.onnx",
        "operand.onnx", files[1],
        "--input", "x=8x64", "--format", "json", code=1,
    )  # fmt: skip
    measured = [each["path"] for each in json.loads(out)["models"] if not each["problem"]]
    assert measured == [*files]
    lines = err.splitlines()
    assert [line.split(": ")[1] for line in lines] == [
        "gone.onnx", "text.onnx", "unknown.onnx", "image.onnx", "axis.onnx", "operand.onnx",
    ]  # fmt: skip
    assert all(line.startswith("otel-quant: ") for line in lines)
    assert "No such file or directory" in lines[0]
    assert "my.domain" in lines[2]


def test_an_error_for_an_unknown_provider_lists_the_available_ones(
    files: tuple[str, str], tmp_path: Path
) -> None:
    _, err = run(tmp_path, files[0], "--provider", "CPU", "--provider", "Moon:a=1", code=1)
    assert err == (
        "otel-quant: float.onnx: loading it failed: provider 'MoonExecutionProvider' is not in this onnxruntime; "
        "expected one of AzureExecutionProvider, CPUExecutionProvider\n"
    )
    _, err = run(tmp_path, files[0], "--provider", "CPU:a", code=2)
    assert err == (
        "otel-quant: --provider: CPU:a has an option 'a'; expected NAME:KEY=VALUE,KEY=VALUE\n"
    )


def test_a_crash_of_the_runtime_is_one_line_and_leaves_no_files(
    files: tuple[str, str], tmp_path: Path
) -> None:
    (tmp_path / "crash.c").write_text(
        "#include <stdio.h>\n#include <stdlib.h>\n"
        'void *RegisterCustomOps() { fputs("out of luck\\n", stderr); abort(); }\n'
    )
    library = tmp_path / "crash.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, tmp_path / "crash.c"], check=True)
    _, err = run(tmp_path, *files, "--custom-ops", str(library), code=1)
    why = "loading it failed: the process that ran it was ended by SIGABRT; its last line: out of luck"
    assert err == f"otel-quant: float.onnx: {why}\notel-quant: int8.onnx: {why}\n"


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGKILL])
def test_a_stopped_command_leaves_no_processes_and_no_files(
    stop: signal.Signals, files: tuple[str, str], tmp_path: Path
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    parent = subprocess.Popen(
        [sys.executable, "-m", "otel_quant", "inference", *files, "--seconds", "600"],
        cwd=tmp_path, env=os.environ | {"TMPDIR": str(temporary)}, start_new_session=True,
    )  # fmt: skip
    started = Path(f"/proc/{parent.pid}/task/{parent.pid}/children")
    until(lambda: len(started.read_text().split()) == 2)
    children = started.read_text().split()
    os.kill(parent.pid, stop)
    assert parent.wait(60) == (130 if stop is signal.SIGINT else -signal.SIGKILL)
    until(lambda: not list(temporary.iterdir()))
    until(lambda: not any(Path("/proc", child).exists() for child in children))


def test_layers_are_compared_with_the_first_models(tmp_path: Path) -> None:
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, quantize_static

    class Once(CalibrationDataReader):
        def __init__(self) -> None:
            self._left = [{"x": np.random.default_rng(1).standard_normal((8, 64), np.float32)}]

        def get_next(self) -> Any:
            return self._left.pop() if self._left else None

    float_matmuls().save(tmp_path / "float.onnx")
    quantize_static(
        tmp_path / "float.onnx", tmp_path / "int8.onnx", Once(), quant_format=QuantFormat.QDQ
    )
    (tmp_path / "copy.onnx").write_bytes((tmp_path / "float.onnx").read_bytes())
    out, _ = run(tmp_path, "float.onnx", "int8.onnx", "copy.onnx", "--format", "json", "--layers")
    _, int8, copied = json.loads(out)["models"]
    assert copied["accuracy"]["problem"] == (
        "--layers: no tensor of the model is quantized and dequantized again"
    )
    assert copied["accuracy"]["outputs"][0]["max_abs"] == 0.0
    layers = int8["accuracy"]["layers"]
    assert {each["name"] for each in layers} >= {"x", "relu", "m2"}
    errors = [min(each.get("own", 99), each.get("weights", 99)) for each in layers]
    assert errors == sorted(errors)
    assert all(20 < each["all"] < 80 for each in layers), layers
    assert all("own" in each for each in layers)
    nodes = {each["name"]: each["node"] for each in layers}
    assert (nodes["relu"], nodes["m2"]) == ("m1", "m2")  # the Relu has become a part of the range


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


def test_models_of_a_script_are_printed_side_by_side_and_in_the_report(tmp_path: Path) -> None:
    (tmp_path / "models.py").write_text(_MODELS)
    RecordedFolder(tmp_path / "recording")
    out, err = run_command(
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

    run_command(tmp_path, "report", "recording")
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
        ("bad.py:three a.onnx", 2, "bad.py:three with other models; expected a script alone: its function"),
    ],
)  # fmt: skip
def test_a_script_without_models_fails_with_one_line(
    reference: str, code: int, message: str, tmp_path: Path
) -> None:
    (tmp_path / "bad.py").write_text(
        "def raises():\n    x = 1\n    x / 0\ndef three():\n    return 3\n"
    )
    out, err = run_command(tmp_path, "inference", *reference.split(), code=code)
    assert out == ""
    assert err.startswith(f"otel-quant: {message}")
    assert err.count("\n") == 1
