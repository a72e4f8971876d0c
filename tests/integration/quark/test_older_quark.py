"""The release of Quark before: the same programs report the same steps.

It is laid over the packages that these tests run with, in an environment of its own: one
small wheel instead of a second torch. That stays, with the operators that it has compiled.
"""

from __future__ import annotations

import os
import re
import shutil
import site
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from otel_quant.schema import semconv
from tests.fixtures.programs import steps_in
from tests.fixtures.steps import steps_below, steps_by
from tests.integration.export.test_quark_file import read
from tests.integration.quark.conftest import FloatModels, Run
from tests.integration.quark.expected import checkpoints_of, onnx_steps, torch_steps

VERSION = "0.12.post1"

pytestmark = pytest.mark.quark

FOLDER = Path(sys.prefix) / f"quark-{VERSION}"

# Releases compile their operators under the same names: in one place each would compile anew
# after the other has run.
ENVIRONMENT = {"TORCH_EXTENSIONS_DIR": str(FOLDER / "torch_extensions")}


@pytest.fixture(scope="module")
def older() -> Path:
    """The interpreter that OTEL_QUANT_TEST_OLDER_QUARK names, or one made here, once."""
    named = os.environ.get("OTEL_QUANT_TEST_OLDER_QUARK")
    if named:
        return Path(named)
    folder, complete = FOLDER, FOLDER / "complete"
    python = folder / "bin" / "python"
    if complete.exists():
        return python
    venv.create(folder, clear=True, symlinks=True, with_pip=False)
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(folder)}))
    uv = shutil.which("uv")
    installer = [uv, "pip"] if uv else [sys.executable, "-m", "pip"]
    done = subprocess.run(
        [*installer, "install", "--no-deps", f"--target={packages}", f"amd-quark=={VERSION}"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    if done.returncode != 0:
        pytest.skip(f"amd-quark {VERSION} cannot be installed: {done.stderr.strip()[-300:]}")
    lines = [f"import site; site.addsitedir({path!r})" for path in site.getsitepackages()]
    (packages / "beneath.pth").write_text("\n".join(lines) + "\n")
    complete.touch()
    return python


@pytest.mark.parametrize("program", ["onnx_all.py", "torch_all.py"])
def test_the_previous_quark_release_reports_the_same_steps_also_in_the_file(
    run: Run, float_models: FloatModels, older: Path, program: str
) -> None:
    of_onnx = program == "onnx_all.py"
    source = float_models.onnx if of_onnx else float_models.checkpoint
    environment = {**ENVIRONMENT, "OTEL_QUANT_PROFILE": "ours.yaml"}
    done = run(program, source, python=older, environment=environment)
    step = steps_by("amd-quark", "quark.", VERSION)
    steps = (onnx_steps if of_onnx else torch_steps)(step, str(source), str(done.out))

    otlp = done.otlp
    assert steps_below(otlp, otlp.span("quantization")) == steps

    path = done.cwd / "ours.yaml"
    assert steps_in(path) == [name for name, _ in checkpoints_of(steps)]
    costed = read(path).get("onnx_model_cost", [])
    assert len(costed) == sum(name == "model cost" for name, *_ in steps)
    assert [cost["role"] for cost in costed] == ["float", "quantized"] * (len(costed) // 2)
    # One peak for each step, as the span has it.
    peaks = re.findall("^  # peak_memory_mb: ([0-9.]+)$", path.read_text(), re.MULTILINE)
    spans = [span for span in otlp.spans if semconv.STEP_INDEX in span.attributes]
    spans.sort(key=lambda span: span.end_ns)
    assert [float(peak) for peak in peaks] == [
        pytest.approx(span.attributes[semconv.MEMORY_PEAK] / 1024**2, abs=0.01) for span in spans
    ]
