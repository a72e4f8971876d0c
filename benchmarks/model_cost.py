"""Time and memory of costing a model: otel-quant, onnx_tool and onnx's shape inference.

Whole processes, as a user starts them, each with its own imports. They take turns, and the
best of several rounds counts: what a shared machine adds is never negative. Figures are wall
time, processor time of all threads, and the kernel's high-water mark of memory. This program itself imports nothing large, since
a child's mark begins with its parent's.

    python benchmarks/model_cost.py [--rounds 7] [--large] [--folder DIR]
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MODELS = (
    "one_node",
    "chain_of_100000",
    "mobilenet_v2",
    "resnet50",
    "bert_base",
    "llama_1.1b_external",
    "llama_2.7gb_one_file",
)
COSTLY = frozenset({("llama_1.1b_external", "onnx_tool"), ("chain_of_100000", "onnx_tool")})
"""Only with --large: 25 s and 8.5 GB each time, and a minute or more."""

SHAPE_INFERENCE = (
    "import onnx, sys; "
    "model = onnx.load(sys.argv[1], load_external_data=False); "
    "onnx.shape_inference.infer_shapes(model, data_prop=True)"
)
CANDIDATES: dict[str, tuple[str, ...]] = {
    "otel-quant": ("-m", "otel_quant", "cost"),
    "onnx_tool": ("-m", "onnx_tool", "-m", "profile", "-i"),
    "onnx.shape_inference": ("-c", SHAPE_INFERENCE),
}
LIMIT_SECONDS = 400.0


@dataclass(frozen=True, slots=True)
class Run:
    """One process: wall and processor time in seconds, peak RSS in MiB, and its success."""

    seconds: float
    cpu_seconds: float
    peak_mib: float
    succeeded: bool


def run(arguments: tuple[str, ...], model: Path) -> Run:
    """Runs a candidate on a model, its output thrown away."""
    command = [sys.executable, *arguments, str(model)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    begin = time.perf_counter()
    child = subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    deadline = begin + LIMIT_SECONDS
    while True:
        pid, status, usage = os.wait4(child.pid, os.WNOHANG)
        if pid:
            break
        if time.perf_counter() > deadline:
            child.kill()
            deadline = float("inf")
        time.sleep(0.001)
    seconds = time.perf_counter() - begin
    child.returncode = os.waitstatus_to_exitcode(status)
    cpu = usage.ru_utime + usage.ru_stime
    return Run(seconds, cpu, usage.ru_maxrss / 1024, child.returncode == 0)


def measure(models: dict[str, Path], rounds: int, *, large: bool) -> dict[tuple[str, str], Run]:
    """Returns the best time and the least memory of every pair of model and candidate."""
    best: dict[tuple[str, str], Run] = {}
    names = list(CANDIDATES)
    for turn in range(rounds + 1):
        for model, path in models.items():
            for name in names[turn % len(names) :] + names[: turn % len(names)]:
                key = (model, name)
                if key in COSTLY and (not large or turn > 2):
                    continue
                if key in best and not best[key].succeeded:
                    continue
                found = run(CANDIDATES[name], path)
                if turn == 0 and found.succeeded and key not in COSTLY:
                    continue  # reads files and byte code into the cache
                before = best.get(key, found)
                best[key] = Run(
                    min(before.seconds, found.seconds),
                    min(before.cpu_seconds, found.cpu_seconds),
                    min(before.peak_mib, found.peak_mib),
                    found.succeeded,
                )
    return best


def _text(found: Run | None) -> str:
    if found is None:
        return "not run"
    if not found.succeeded:
        return "fails"
    return f"{found.seconds:.2f} s, {found.cpu_seconds:.2f} s, {found.peak_mib:,.0f} MiB"


def _ratio(ours: Run, other: Run | None) -> str:
    """Of processor time, which other work on the machine changes least."""
    if other is None or not other.succeeded:
        return "-"
    return f"{other.cpu_seconds / ours.cpu_seconds:.1f}"


def main() -> None:
    """Makes the models, measures, and prints a table in Markdown."""
    parser = argparse.ArgumentParser(description="Costing a model: time and memory.")
    parser.add_argument("--rounds", type=int, default=7, help="default: %(default)s")
    parser.add_argument(
        "--large", action="store_true", help="onnx_tool on 1.1 B parameters too: 25 s, 8.5 GB"
    )
    parser.add_argument("--folder", type=Path, help="keeps the models; made there if missing")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=MODELS)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder: Path = options.folder or Path(temporary)
        maker = (sys.executable, str(ROOT / "benchmarks" / "onnx_models.py"), str(folder))
        subprocess.run((*maker, *options.models), check=True, stderr=subprocess.DEVNULL)
        paths = {name: folder / f"{name}.onnx" for name in options.models}
        best = measure(paths, options.rounds, large=options.large)
    names = list(CANDIDATES)
    print(f"| model | {' | '.join(names)} | onnx_tool / ours | shape inference / ours |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for model in options.models:
        ours, *others = (best.get((model, name)) for name in names)
        assert ours is not None
        cells = [_text(ours), *map(_text, others), *(_ratio(ours, other) for other in others)]
        print(f"| {model} | {' | '.join(cells)} |")
    floor = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"\nPeaks below {floor:.0f} MiB cannot be seen: that is this program's own.")


if __name__ == "__main__":
    main()
