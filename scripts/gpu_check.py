"""What otel-quant shows on a machine with an NVIDIA GPU: ten minutes, one page.

python3 scripts/gpu_check.py              makes an environment of its own (.venv-gpu) and checks there
python3 scripts/gpu_check.py --here       checks with this Python, which has otel-quant (torch, onnxruntime-gpu)
python3 scripts/gpu_check.py --out PAGE   where the page goes (default: out/gpu-check.md)

Needs no network but the package index. What this machine or environment lacks is not run, and the page lists it.
The exit code is 1 if something is not as expected.
"""

from __future__ import annotations

import argparse
import json
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

MIB: Final = 1 << 20
NEAR: Final = 64
"""MiB by which two readings may differ: other programs, and the driver's own memory."""

FAILURES: Final = OSError, ValueError, LookupError, RuntimeError, ImportError, TypeError
GOOD, BAD, NOT_RUN = "as expected", "NOT as expected", "not run"

CONTEXT: Final = """
import json, subprocess, sys, torch
from otel_quant import step
torch.zeros(1, device="cuda")  # the context's memory comes before the first step
def allocated(mib):
    return torch.empty(mib << 20, dtype=torch.uint8, device="cuda")
"""
PROGRAMS: Final = {
    "allocation": """
before = torch.cuda.memory_reserved()
with step("Quantization"):
    kept = allocated(1024)
print(json.dumps((torch.cuda.memory_reserved() - before) >> 20))
""",
    "spike": """
with step("Quantization"):
    gone = allocated(2048)
    torch.cuda.synchronize()
    del gone
    torch.cuda.empty_cache()
print(json.dumps(torch.cuda.max_memory_reserved() >> 20))
""",
    "two processes": """
child = (
    "import sys, torch; kept = torch.empty(512 << 20, dtype=torch.uint8, device='cuda');"
    "print(flush=True); sys.stdin.read()"
)
with step("Quantization"):
    kept = allocated(512)
    other = subprocess.Popen([sys.executable, "-c", child], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    other.stdout.readline()
    with step("Calibration"):
        pass
other.communicate()
print(json.dumps(torch.cuda.memory_reserved() >> 20))
""",
}
TORCH_MODEL: Final = """
import torch
def models():
    model = torch.nn.Sequential(torch.nn.Linear(512, 512), torch.nn.ReLU(), torch.nn.Linear(512, 512)).cuda()
    return {"float": model, "half": lambda x: model.half()(x.half())}, (torch.randn(64, 512, device="cuda"),)
"""


class Row(NamedTuple):
    """What was looked at, what was seen, and what that means."""

    what: str
    seen: str
    verdict: str


def main() -> int:
    """Checks, and writes the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--here", action="store_true", help="use this Python")
    parser.add_argument("--out", type=Path, default=Path("out", "gpu-check.md"))
    options = parser.parse_args()
    if not options.here:
        from scripts.workspace import environment

        # onnxruntime-gpu instead of onnxruntime: both together are one package, of the last that came.
        programs = environment(
            "otlp-files,onnx,nvidia,torch", name=".venv-gpu", pins=("onnxruntime-gpu",),
            constrained=False,
        )  # fmt: skip
        return subprocess.run([programs / "python", *sys.argv, "--here"]).returncode
    began = time.monotonic()
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        for check in (devices, *map(_with_torch, PROGRAMS), sampler, metrics, inference, mig):
            try:
                rows += check(Path(folder))
            except FAILURES as error:  # the others are to be seen
                rows.append(Row(check.__name__, f"{type(error).__name__}: {error}", BAD))
    page = document(rows, time.monotonic() - began)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(page, "utf-8")
    print(page)
    return int(any(row.verdict == BAD for row in rows))


def document(rows: list[Row], took: float) -> str:
    """Returns the page."""
    from otel_quant import __version__

    names = ", ".join(reading.name or "unnamed" for reading in read_gpus()) or "none"
    lines = [f"| {row.what} | {row.seen.replace('|', '/')} | {row.verdict} |" for row in rows]
    return "\n".join([
        "# otel-quant on a GPU", "",
        f"otel-quant {__version__}, Python {platform.python_version()}, {platform.system()} {platform.release()}; "
        f"GPUs: {names}; {time.strftime('%Y-%m-%d')}; {took:.0f} s", "",
        "| what | seen | verdict |", "|---|---|---|", *lines, "",
    ])  # fmt: skip


def read_gpus() -> Any:
    """Returns what the probe reads of each device."""
    from otel_quant.capture.probes.gpu import GpuProbe

    return GpuProbe()()


def devices(_: Path) -> Iterator[Row]:
    """The probe against nvidia-smi."""
    found = read_gpus()
    told = "; ".join(
        f"{each.index}: {each.name}, {each.used / MIB:,.0f} of {(each.limit or 0) / MIB:,.0f} MiB" for each in found
    )  # fmt: skip
    yield Row("devices that the probe reads", told or "none", GOOD if found else BAD)
    program = shutil.which("nvidia-smi")
    if program is None:
        yield Row("the probe and nvidia-smi", "nvidia-smi is not installed", NOT_RUN)
        return
    query = "--query-gpu=index,memory.used,memory.total"
    printed = output([program, query, "--format=csv,noheader,nounits"])
    by_index = {each.index: each for each in read_gpus()}
    for line in printed.splitlines():
        index, used, total = (int(float(part)) for part in line.split(","))
        if (ours := by_index.get(index)) is None:
            continue  # not visible here
        seen = f"used {ours.used / MIB:,.0f} and {used:,} MiB, of {(ours.limit or 0) / MIB:,.0f} and {total:,}"
        is_near = (
            abs(ours.used / MIB - used) <= NEAR and abs((ours.limit or 0) / MIB - total) <= NEAR
        )
        yield Row(f"the probe and nvidia-smi, GPU {index}", seen, GOOD if is_near else BAD)


def _with_torch(name: str) -> Callable[[Path], Iterator[Row]]:
    def check(folder: Path) -> Iterator[Row]:
        if why := no_cuda():
            yield Row(WANTED[name][0], why, NOT_RUN)
            return
        script, recording = folder / f"{name.replace(' ', '_')}.py", folder / name
        script.write_text(CONTEXT + PROGRAMS[name])
        printed = output(
            [*otel_quant("run", "--quiet", "--out", recording), "--", sys.executable, script]
        )
        [shown, *_] = json.loads(output(otel_quant("show", recording, "--format", "json")))
        yield WANTED[name][1](json.loads(printed), shown["steps"])

    check.__name__ = name
    return check


def _allocation(reserved: int, steps: list[Any]) -> Row:
    grown = steps[0]["gpu_memory_end_mb"] - steps[0]["gpu_memory_start_mb"]
    seen = f"torch reserved {reserved:,} MiB, the step's delta is {grown:,.0f} MiB"
    return Row(WANTED["allocation"][0], seen, GOOD if abs(grown - reserved) <= NEAR else BAD)


def _spike(highest: int, steps: list[Any]) -> Row:
    step = steps[0]
    risen = step["gpu_memory_peak_mb"] - step["gpu_memory_start_mb"]
    left = step["gpu_memory_end_mb"] - step["gpu_memory_start_mb"]
    seen = f"torch's highest {highest:,} MiB; the step rose by {risen:,.0f} MiB and ended at {left:+,.0f} MiB"
    return Row(WANTED["spike"][0], seen, GOOD if risen >= 2048 - NEAR and left <= NEAR else BAD)


def _two(_: int, steps: list[Any]) -> Row:
    outer = steps[0]
    grown = outer["gpu_memory_end_mb"] - outer["gpu_memory_start_mb"]
    seen = (
        f"two processes allocated 512 MiB each and a context; the device grew by {grown:,.0f} MiB"
    )
    return Row(WANTED["two processes"][0], seen, GOOD if grown >= 1024 - NEAR else BAD)


WANTED: Final = {
    "allocation": ("1 GiB kept in a step, and torch's allocator", _allocation),
    "spike": ("2 GiB allocated and freed within a step", _spike),
    "two processes": ("a child process on the same device", _two),
}


def sampler(_: Path) -> Iterator[Row]:
    """CPU time of a sample with and without NVML."""
    from otel_quant.capture.probes.readers import Probes

    def cost(probes: Probes) -> float:
        probes.read()
        began = time.thread_time()
        for _ in range(400):
            probes.sample()
        return (time.thread_time() - began) / 400 * 1e6

    with_gpu, without = Probes(), Probes(gpu=lambda _: ())
    turns = [(cost(with_gpu), cost(without)) for _ in range(5)]
    both, alone = (sorted(turn[at] for turn in turns)[2] for at in (0, 1))
    seen = f"{both:.0f} us with NVML, {alone:.0f} us without; {both * 20 / 1e4:.2f} % of a core at 50 ms"
    yield Row("CPU time of a sample", seen, GOOD if both <= 250 else BAD)


def metrics(folder: Path) -> Iterator[Row]:
    """The metrics that the dashboards show of GPUs."""
    script, recording = folder / "step.py", folder / "metrics"
    script.write_text(
        "import time\nfrom otel_quant import step\nwith step('Calibration'):\n    time.sleep(2)\n"
    )
    output(
        [
            *otel_quant("run", "--quiet", "--otlp-files", "--out", recording),
            "--",
            sys.executable,
            script,
        ]
    )
    pages = (ROOT / "grafana" / "dashboards").glob("*.json")
    asked = {
        name for page in pages for name in re.findall(r"\bhw_\w+(?=\{)", page.read_text("utf-8"))
    }
    found: dict[str, list[float]] = {}
    for path in recording.glob("metrics.*.jsonl"):
        for line in path.read_text("utf-8").splitlines():
            for metric, point in points(json.loads(line)):
                value = point.get("asDouble", point.get("asInt"))
                if metric.startswith("hw.") and value is not None:
                    found.setdefault(metric, []).append(float(value))
    names = [name.replace(".", "_") for name in found]
    missing = sorted(each for each in asked if not any(each.startswith(name) for name in names))
    seen = ", ".join(f"{name} {max(values):,.6g}" for name, values in sorted(found.items()))
    absent = f"; asked for by a dashboard and absent: {', '.join(missing)}" if missing else ""
    is_good = any(name == "hw.gpu.memory.usage" for name in found)
    yield Row("metrics of GPUs", f"{seen or 'none'}{absent}", GOOD if is_good else BAD)


def points(message: Any) -> Iterator[tuple[str, Any]]:
    """Yields name and point of each metric of an OTLP message."""
    for resource in message.get("resourceMetrics", ()):
        for scope in resource["scopeMetrics"]:
            for metric in scope["metrics"]:
                for kind in ("gauge", "sum"):
                    for point in metric.get(kind, {}).get("dataPoints", ()):
                        yield metric["name"], point


def inference(folder: Path) -> Iterator[Row]:
    """Models measured on CUDA, by torch and by onnxruntime."""
    if why := no_cuda():
        yield Row("`inference` of torch models", why, NOT_RUN)
    else:
        (folder / "models.py").write_text(TORCH_MODEL)
        yield _command("`inference` of torch models", "inference", f"{folder / 'models.py'}:models")
    try:
        import onnxruntime
        from onnx import TensorProto, helper, numpy_helper, save
    except ImportError as error:
        yield Row("`inference` and `bench` of ONNX models", str(error), NOT_RUN)
        return
    providers = onnxruntime.get_available_providers()
    why = "" if "CUDAExecutionProvider" in providers else "onnxruntime is not onnxruntime-gpu"
    if why or not read_gpus():
        yield Row("`inference` and `bench` of ONNX models", why or "no GPU", NOT_RUN)
        return
    import numpy as np

    weights = numpy_helper.from_array(np.ones((1024, 1024), np.float32), "w")
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [64, 1024]) for name in "xy"]
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])], "g", ends[:1], ends[1:], [weights]
    )
    opset = [helper.make_opsetid("", 17)]
    for name in ("a.onnx", "b.onnx"):
        save(helper.make_model(graph, opset_imports=opset, ir_version=8), folder / name)
    for command, models in (("inference", ["a.onnx"]), ("bench", ["a.onnx", "b.onnx"])):
        paths = [str(folder / name) for name in models]
        yield _command(
            f"`{command}` of an ONNX model on CUDA", command, *paths, "--provider", "CUDA"
        )


def _command(what: str, *arguments: str) -> Row:
    result = json.loads(output(otel_quant(*arguments, "--seconds", "1", "--format", "json")))
    told, is_good = [], True
    for model in result["models"]:
        providers = ", ".join(model["providers"])
        median = f"{model['latency']['median'] * 1000:.3g} ms on {providers}" if providers else ""
        told.append(f"{Path(model['path']).name}: {model['problem'] or median}")
        is_good &= "cuda" in providers.lower()
    return Row(what, "; ".join(told), GOOD if is_good else BAD)


def mig(_: Path) -> Iterator[Row]:
    """MIG devices, where there are any."""
    found = [each for each in read_gpus() if each.id.startswith("MIG-")]
    if not found:
        yield Row("MIG devices", "none here", NOT_RUN)
    for each in found:
        seen = f"{each.name}, {each.used / MIB:,.0f} of {(each.limit or 0) / MIB:,.0f} MiB"
        yield Row(f"MIG device {each.id}", seen, GOOD if each.limit else BAD)


def no_cuda() -> str:
    """Returns why torch cannot use a GPU here; empty if it can."""
    try:
        import torch
    except ImportError:
        return "torch is not installed"
    return "" if torch.cuda.is_available() else "torch sees no CUDA device"


def otel_quant(*arguments: str | Path) -> list[str | Path]:
    """Returns a command of otel-quant."""
    return [sys.executable, "-m", "otel_quant", *arguments]


def output(command: list[Any]) -> str:
    """Returns what a command prints; raises with its last line if it fails."""
    ended = subprocess.run(command, capture_output=True, text=True)
    if ended.returncode:
        last = (ended.stderr.strip() or ended.stdout.strip() or "nothing").splitlines()[-1]
        raise RuntimeError(f"{Path(command[0]).name} ended with {ended.returncode}: {last}")
    return ended.stdout


ROOT: Final = Path(__file__).resolve().parents[1]

if __name__ == "__main__":
    sys.exit(main())
