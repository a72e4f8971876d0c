"""`otel-quant bench`: variants of real torch and onnxruntime side by side, and those that fail."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from otel_quant.schema import semconv
from tests.fixtures.otlp_receiver import OtlpReceiver
from tests.fixtures.recorded import RecordedFolder
from tests.integration.inference.conftest import run as run_command
from tests.integration.inference.conftest import until
from tests.integration.inference.planted import dynamic_shape, float_matmuls

SCRIPT = Path(__file__).with_name("bench_script.py")

needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")


def run(folder: Path, *arguments: str, code: int = 0, **environment: str) -> tuple[str, str]:
    """Runs the command, with one process of each variant unless the arguments have others."""
    short = ("--seconds", "0.2", "--processes", "1")
    return run_command(folder, "bench", *short, *arguments, code=code, **environment)


def variants_of(folder: Path, *arguments: str, **keywords: Any) -> dict[str, dict[str, Any]]:
    float_matmuls().save(folder / "float.onnx")
    out, _ = run(folder, *arguments, "--format", "json", **keywords)
    return {each["path"]: each for each in json.loads(out)["models"]}


@needs_torch
def test_torch_and_onnx_variants_are_compared_and_a_failed_one_has_a_row(tmp_path: Path) -> None:
    found = variants_of(tmp_path, f"{SCRIPT}:variants", "--threads", "1", code=1)
    assert list(found) == ["fp32", "ready", "bf16", "crashing", "file"]
    assert {name: each["problem"] for name, each in found.items()} == {
        "fp32": "",
        "ready": "its first call failed: ValueError: no weights",
        "bf16": "",
        "crashing": "making it failed: the process that ran it was ended by SIGKILL (probably "
        "out of memory)",
        "file": "",
    }
    fp32, bf16, file = found["fp32"], found["bf16"], found["file"]
    for each in (fp32, bf16, file):
        latency = each["latency"]
        assert 0 < latency["p10"] <= latency["median"] <= latency["p90"]
        assert each["memory"]["peak"] > 10_000_000
        assert each["memory"]["load_peak"] > 10_000_000
        assert "gpu" not in each["memory"]
        assert each["compile"] >= 0
    assert fp32["quantize"] > 0
    assert "quantize" not in file
    assert "ratio" not in fp32["latency"]
    assert "accuracy" not in fp32
    assert file["memory"]["weights_on_disk"] == (tmp_path / "float.onnx").stat().st_size
    weights = 2 * 64 * 64 * 4
    assert weights < fp32["memory"]["weights_on_disk"] < weights + 4096
    assert weights / 2 < bf16["memory"]["weights_on_disk"] < weights / 2 + 4096
    assert 30 < bf16["accuracy"]["outputs"][0]["sqnr"] < 80
    assert file["accuracy"]["outputs"][0].get("sqnr", 999) > 100
    assert file["accuracy"]["outputs"][0]["max_abs"] < 1e-3
    for each in (bf16, file):
        assert each["latency"]["ratio"] > 0
        assert isinstance(each["latency"]["is_apart"], bool)


@needs_torch
def test_a_compiled_variant_without_a_compiler_has_a_row_with_the_reason(tmp_path: Path) -> None:
    found = variants_of(
        tmp_path, f"{SCRIPT}:without_a_compiler", code=1, CXX=str(tmp_path / "no-compiler")
    )
    assert found["compiled"]["problem"].startswith(
        "its first call failed: InductorError: InvalidCxxCompiler: No working C++ compiler found"
    )
    assert "latency" not in found["compiled"]
    fp32 = found["fp32"]
    assert fp32["latency"]["median"] > 0
    assert "quantize" not in fp32  # the script has the module, and no function that makes it
    assert "ratio" not in fp32["latency"]  # the baseline has failed
    assert fp32["accuracy"]["problem"] == "compiled was not measured"


def test_onnx_files_are_variants_and_the_last_line_repeats_the_command(
    files: tuple[str, str], tmp_path: Path
) -> None:
    out, err = run(tmp_path, *files, "--baseline", "int8.onnx", "--threads", "1")
    lines = out.splitlines()
    assert [re.sub(r"[0-9.]+ ms", "_", line) for line in err.splitlines()] == [
        "float.onnx: making it and calling it for the first times",
        "int8.onnx: making it and calling it for the first times",
        "float.onnx: median _ (process 1 of 1)",
        "int8.onnx: median _ (process 1 of 1)",
    ]
    assert lines[-1] == (
        "to repeat: otel-quant bench --seconds 0.2 --processes 1 float.onnx int8.onnx --baseline "
        "int8.onnx --threads 1"
    )
    of_settings = lines[lines.index("measured") + 1 : -2]
    settings = dict(re.split(r"\s{2,}", line, maxsplit=1) for line in of_settings)
    assert settings["baseline"] == "int8.onnx"
    assert settings["inputs"] == "x float32 8x64"
    assert settings["threads of onnxruntime"] == "1"


ODD_VARIANTS = """
import os, pathlib, tempfile, torch

class Sparse(torch.nn.Linear):
    def forward(self, x):
        return super().forward(x).to_sparse()

def once():
    pathlib.Path("made").touch(exist_ok=False)
    return torch.nn.Linear(4, 4)

def always():
    pathlib.Path("ids").open("a").write(f"{os.getpid()} ")
    pathlib.Path("folders").open("a").write(f"{tempfile.gettempdir()}\\n")
    return torch.nn.Linear(4, 4)

def where():
    from torch._inductor.runtime.cache_dir_utils import cache_dir
    raise OSError(cache_dir())

def variants():
    with pathlib.Path("loads").open("ab") as loads:
        loads.write(b".")
    # What is compared is of the first processes; the inputs of later ones are others here.
    x = torch.full((1, 4), max(7, pathlib.Path("loads").stat().st_size))
    own = {"once": once, "where": where}
    return {"dense": always, "sparse": Sparse(4, 4), **own, "file": "float.onnx"}, x.float()
"""


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, dict[str, Any]]]:
    """Variants with two processes each, where they get that far, and the folder that they ran in."""
    pytest.importorskip("torch")
    folder = tmp_path_factory.mktemp("odd")
    (folder / "script.py").write_text(ODD_VARIANTS)
    kept = {"TORCHINDUCTOR_CACHE_DIR": str(folder / "kept")}
    return folder, variants_of(folder, "script.py:variants", "--processes", "2", code=1, **kept)


Odd = tuple[Path, dict[str, dict[str, Any]]]


def test_a_variant_that_fails_in_a_later_process_has_a_row_and_others_continue(odd: Odd) -> None:
    folder, found = odd
    assert found["once"]["problem"] == (
        "making it in process 2 failed: FileExistsError: [Errno 17] File exists: 'made'"
    )
    assert "latency" not in found["once"]
    assert len(found["dense"]["latency"]["processes"]) == 2
    assert len(set((folder / "ids").read_text().split())) == 2
    # One folder for all: what the first process has compiled is there for the others.
    assert len(set((folder / "folders").read_text().split())) == 1


def test_variants_with_incomparable_outputs_are_still_measured(odd: Odd) -> None:
    dense, sparse = odd[1]["dense"], odd[1]["sparse"]
    assert (sparse["memory"]["weights_on_disk"], sparse["is_quantized"]) == (
        dense["memory"]["weights_on_disk"],
        False,
    )
    assert len(sparse["latency"]["processes"]) == 2
    assert sparse["accuracy"]["outputs"] == []
    assert sparse["accuracy"]["problem"].startswith(
        "there are no outputs of sparse: TypeError: can't convert Sparse layout tensor to numpy"
    )


def test_compiled_code_is_not_reused_between_runs(odd: Odd) -> None:
    folder, found = odd
    temporary = str(folder / "temporary")
    assert found["where"]["problem"].startswith(f"making it failed: OSError: {temporary}/")


def test_a_file_that_rejects_the_scripts_inputs_has_a_row_with_the_reason(odd: Odd) -> None:
    assert odd[1]["file"]["problem"] == (
        "loading it failed: the script's inputs: 'x' is float32 [1, 4]; expected float32 [8, 64]"
    )


def test_unmeasurable_files_have_rows_and_the_others_are_recorded(
    files: tuple[str, str], tmp_path: Path
) -> None:
    (tmp_path / "damaged.onnx").write_bytes(b"\x00" * 64)
    dynamic_shape().save(tmp_path / "other.onnx")
    RecordedFolder(tmp_path / "recording")
    found = variants_of(
        tmp_path, "damaged.onnx", "float.onnx", "other.onnx", "missing.onnx",
        "--baseline", "float.onnx", "--one-by-one", "--record", "recording", code=1,
    )  # fmt: skip
    recorded = json.loads((tmp_path / "recording" / "bench.json").read_text())
    assert recorded["models"] == [*found.values()]
    assert found["damaged.onnx"]["problem"].startswith("loading it failed: ")
    assert found["missing.onnx"]["problem"].startswith("loading it failed: ")
    assert found["float.onnx"]["latency"]["median"] > 0
    assert found["other.onnx"]["latency"]["median"] > 0
    assert found["other.onnx"]["accuracy"]["problem"] == "it has other inputs than float.onnx"


@pytest.mark.parametrize(
    ("arguments", "problem", "code"),
    [
        (("script.py:variants",), "script.py:variants raised ValueError: no weights (line 3)", 1),
        (("script.py:dies",), "script.py:dies: the process that ran it was ended by SIGKILL (probably out of memory)", 1),
        (("script.py:a", "script.py:b"), "script.py:b is a second script; expected one", 1),
        (("float.onnx", "float.onnx"), "'float.onnx' stands for two variants; expected each name once", 1),
        (("float.onnx", "--baseline", "int8"), "--baseline 'int8' is none of the variants; expected one of float.onnx", 1),
        (
            ("script.py:variants", "--data", "inputs.npz"),
            "--data is for ONNX files; expected none of it with script.py:variants, whose function returns models and inputs",
            2,
        ),
        (("float.onnx", "--record", "."), "--record: . is no recording; expected a folder that `otel-quant run` made", 2),
    ],
)  # fmt: skip
def test_invalid_input_is_reported_in_one_line(
    files: tuple[str, str], arguments: tuple[str, ...], problem: str, code: int, tmp_path: Path
) -> None:
    (tmp_path / "script.py").write_text(
        "import os\n"
        "def variants():\n    raise ValueError('no weights')\n"
        "def dies():\n    os.kill(os.getpid(), 9)\n"
    )
    out, err = run(tmp_path, *arguments, code=code)
    assert (out, err.splitlines()[-1]) == ("", f"otel-quant: {problem}")


@needs_torch
def test_a_variant_that_hangs_or_dies_has_a_row_and_its_children_are_ended(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(
        "import os, pathlib, time, numpy as np\n"
        "x = np.ones((8, 64), np.float32)\n"
        "def start(name):\n"
        "    pid = os.fork()\n"
        "    if pid == 0:\n        time.sleep(600)\n"
        "    pathlib.Path(name).write_text(str(pid))\n"
        "def hangs():\n    start('hanging')\n    time.sleep(600)\n"
        "def dies():\n    start('dead')\n    os.kill(os.getpid(), 9)\n"
        "def variants():\n"
        "    return {'hangs': hangs, 'dies': dies, 'file': 'float.onnx'}, x\n"
    )
    found = variants_of(tmp_path, "script.py:variants", "--timeout", "20", code=1)
    assert (found["hangs"]["problem"], found["dies"]["problem"]) == (
        "making it failed: no answer within 20 s (--timeout)",
        "making it failed: the process that ran it was ended by SIGKILL (probably out of memory)",
    )
    assert found["file"]["latency"]["median"] > 0
    started = [Path("/proc", (tmp_path / name).read_text()) for name in ("hanging", "dead")]
    until(lambda: not any(each.exists() for each in started))


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_command_shows_the_finished_results(
    stop: signal.Signals, files: tuple[str, str], tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "otel_quant", "bench", *files, "--one-by-one", "--format=json"]
    parent = subprocess.Popen(
        [*command, "--seconds", "2"], cwd=tmp_path, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert parent.stderr is not None
    next(line for line in parent.stderr if line.startswith("int8.onnx: making it"))
    os.kill(parent.pid, stop)
    out, _ = parent.communicate(timeout=60)
    assert parent.returncode == 130
    result = json.loads(out)
    done, left = result["models"]
    assert (done["problem"], len(done["latency"]["processes"])) == ("", 5)
    assert left["problem"] == "stopped before it was measured"
    assert result["settings"]["stopped"] == "before all was measured"


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGKILL])
@pytest.mark.parametrize("process", [1, pytest.param(2, marks=needs_torch)])
def test_a_stopped_command_leaves_no_processes_and_no_files(
    process: int, stop: signal.Signals, tmp_path: Path
) -> None:
    (tmp_path / "script.py").write_text(
        "import subprocess, tempfile, pathlib\n"
        "def variants():\n"
        "    loaded = pathlib.Path('loaded').open('ab')\n"
        f"    if loaded.write(b'.') and loaded.tell() < {process}:\n"
        "        return {'sum': lambda: lambda x: x + x}, 1\n"
        "    child = subprocess.Popen(['sleep', '600'])\n"
        "    pathlib.Path('child').write_text(str(child.pid))\n"
        "    tempfile.mkdtemp()\n"
        "    child.wait()\n"
    )
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    parent = subprocess.Popen(
        [sys.executable, "-m", "otel_quant", "bench", "script.py:variants", "--seconds=0.2"],
        cwd=tmp_path,
        env=os.environ | {"TMPDIR": str(temporary)},
        start_new_session=True,
    )
    mark = tmp_path / "child"
    until(lambda: mark.exists() and mark.read_text() != "")
    os.kill(parent.pid, stop)
    assert parent.wait(60) == (130 if stop is signal.SIGINT else -signal.SIGKILL)
    until(lambda: not Path(f"/proc/{mark.read_text()}").exists())
    until(lambda: not list(temporary.iterdir()))


def test_results_are_sent_if_an_endpoint_is_configured(
    files: tuple[str, str], otlp: OtlpReceiver, tmp_path: Path
) -> None:
    arguments = (*files, "missing.onnx", "--baseline", "int8.onnx", "--format", "json")
    environment = otlp.environment() | {"OTEL_QUANT_RUN_NAME": "nightly 17"}
    out, _ = run(tmp_path, *arguments, code=1, **environment)
    known = {each["path"]: each for each in json.loads(out)["models"]}
    span = otlp.span("benchmark")
    baseline, other, failed = otlp.children(span)
    figures = known["int8.onnx"]
    assert baseline.attributes == {
        semconv.RUN_NAME: "nightly 17",
        semconv.LIBRARY_NAME: "onnxruntime",
        semconv.LIBRARY_VERSION: json.loads(out)["version"],
        semconv.MODEL_NAME: "int8",
        semconv.MODEL_ROLE: "quantized",
        semconv.MODEL_PATH: "int8.onnx",
        semconv.INFERENCE_PROVIDER: "CPUExecutionProvider",
        **{
            f"quant.inference.duration.{name}": pytest.approx(figures["latency"][name], rel=1e-4)
            for name in ("median", "p10", "p90")
        },
        semconv.INFERENCE_RUNS: figures["latency"]["runs"],
        semconv.INFERENCE_MEMORY_PEAK: figures["memory"]["peak"],
        semconv.INFERENCE_WEIGHTS: figures["memory"]["weights_on_disk"],
    }
    assert other.attributes[semconv.MODEL_ROLE] == "float"
    assert (failed.status, failed.status_message) == ("ERROR", known["missing.onnx"]["problem"])


@pytest.mark.slow
@needs_torch
def test_the_example_runs(tmp_path: Path) -> None:
    example = Path(__file__).parents[3] / "examples" / "variants.py"
    found = variants_of(tmp_path, f"{example}:variants")
    assert list(found) == ["fp32", "bf16", "compiled", "int8", "int8 compiled"]
    assert {each["problem"] for each in found.values()} == {""}


@needs_torch
def test_gpu_memory_is_the_peak_of_the_allocator(tmp_path: Path) -> None:
    import torch

    if not torch.cuda.is_available():
        pytest.skip("there is no GPU")
    found = variants_of(tmp_path, f"{SCRIPT}:on_a_gpu")
    assert 2 * 64 * 64 * 4 < found["fp32"]["memory"]["gpu"] < 100_000_000
