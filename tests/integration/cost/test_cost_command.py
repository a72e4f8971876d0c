"""``otel-quant cost`` as a process: its memory, and output that cannot be written."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from benchmarks.onnx_models import llama
from tests.fixtures.onnx_builder import floats, model_of_text

ROOT = Path(__file__).resolve().parents[3]
FORMATS = ("table", "json", "csv", "markdown")


def run(
    *arguments: object, memory: int | None = None, folder: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs the command with so many bytes of address space."""

    def limit() -> None:
        if memory is not None:
            resource.setrlimit(resource.RLIMIT_AS, (memory, memory))

    return subprocess.run(
        [sys.executable, "-m", "otel_quant", *map(str, arguments)],
        capture_output=True, text=True, timeout=120, check=False, preexec_fn=limit, cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip


FLOAT = """
<ir_version: 9, opset_import: ["" : 17]>
net (float[N, 3, 16, 16] image) => (float[N, 10] y) {
   [conv] c = Conv <pads = [1, 1, 1, 1]> (image, cw, cb)
   [relu] r = Relu (c)
   [flatten] f = Flatten (r)
   [head] y = MatMul (f, hw)
}
"""


def float_model() -> onnx.ModelProto:
    return model_of_text(FLOAT, **floats(0, cw=(8, 3, 3, 3), cb=8, hw=(8 * 16 * 16, 10)))


@pytest.mark.parametrize(
    ("redirected", "problem"),
    [
        *((f"--format {form} > /dev/full", "No space left on device") for form in FORMATS),
        (">&-", "closed; expected a place to write"),
    ],
)
def test_output_that_cannot_be_written_is_one_line_and_exit_code_1(
    tmp_path: Path, redirected: str, problem: str
) -> None:
    onnx.save(float_model(), tmp_path / "m.onnx")
    done = subprocess.run(
        ["sh", "-c", f'"$0" -m otel_quant cost m.onnx {redirected}', sys.executable],
        cwd=tmp_path, stderr=subprocess.PIPE, text=True, timeout=60, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip

    assert (done.returncode, done.stderr) == (1, f"otel-quant: standard output: {problem}\n")


def test_the_documentation_shows_the_output_for_the_demo_model(tmp_path: Path) -> None:
    write = "from pathlib import Path; from resnet50 import write_resnet50; "
    subprocess.run(
        [sys.executable, "-c", write + "write_resnet50(Path('resnet50.onnx'))"],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT / "examples")}, check=True,
    )  # fmt: skip
    page = (ROOT / "docs" / "cost.md").read_text()
    for options in ("", " --by op --top 5"):
        done = run("cost", "resnet50.onnx", *options.split(), folder=tmp_path)
        assert (done.returncode, done.stderr) == (0, "")
        shown = f"$ otel-quant cost resnet50.onnx{options}\n{done.stdout}"
        assert textwrap.indent(shown, "    ", lambda line: bool(line.strip())) in page


def test_sparsity_is_a_column_and_a_key_when_asked_for(tmp_path: Path) -> None:
    model = float_model()
    weight = np.ones((8 * 16 * 16, 10), np.float32)
    weight[::2] = 0
    model.graph.initializer[2].CopyFrom(numpy_helper.from_array(weight, "hw"))
    onnx.save(model, tmp_path / "m.onnx")

    table = run("cost", tmp_path / "m.onnx", "--sparsity", "--by", "node", "--top", "2")
    document = run("cost", tmp_path / "m.onnx", "--sparsity", "--format", "json")

    header, *_, conv, head, _ = table.stdout.splitlines()[3:]
    assert header.split()[-6:] == ["BLOCK", "ZERO", "BLOCKS", "2:4", "INPUT", "OUTPUT"]
    assert (conv.split()[0], head.split()[0]) == ("conv", "head")
    nodes = {node["name"]: node for node in json.loads(document.stdout)["models"][0]["nodes"]}
    assert nodes["relu"]["sparsity"] is None
    assert nodes["head"]["sparsity"]["ratio"] == 0.5
    assert nodes["head"]["sparsity"]["two_of_four"] is True


@pytest.mark.parametrize("inside", [False, True])
def test_gigabytes_of_weights_take_a_few_megabytes(tmp_path: Path, inside: bool) -> None:
    llama(tmp_path / "m.onnx", 22 if not inside else 13, inside=inside)
    whole = sum(path.stat().st_size for path in tmp_path.iterdir())
    assert whole > 2_700_000_000

    done = run("cost", tmp_path / "m.onnx", "--format", "json", memory=200 << 20)

    assert (done.returncode, done.stderr) == (0, "")
    (model,) = json.loads(done.stdout)["models"]
    assert model["uncosted_ops"] == {}
    layers, hidden, inner, tokens = (13 if inside else 22), 2048, 5632, 128
    projections = tokens * hidden * (2 * hidden + 2 * 256 + 3 * inner)
    attention = 2 * 32 * tokens * tokens * 64
    assert model["total"]["macs_contraction"] == (
        layers * (projections + attention) + tokens * hidden * 32_000
    )
