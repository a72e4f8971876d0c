"""Time and memory of `otel-quant runs` on thousands of recordings and profiles.

One real run is recorded, of 20 steps and a quantization with onnxruntime, and copied under other
names of models and methods. Then the command is run as a user starts it. Memory is the sum over its
processes, read every 10 ms: pages that they share count for each.

    python benchmarks/many_runs.py [--runs 10000] [--rounds 3] [--folder DIR]
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil
from measuring import print_table

ROOT: Final = Path(__file__).resolve().parents[1]
COMMAND: Final = (sys.executable, "-m", "otel_quant")
METHODS: Final = (b"MinMax", b"Percentile", b"Entropy", b"Distribution")
MODELS: Final = 12

PROGRAM: Final = """
import numpy as np, onnx, otel_quant
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, quantize_static
weights = numpy_helper.from_array(np.ones((8, 3, 3, 3), dtype=np.float32), "w")
graph = helper.make_graph(
    [helper.make_node("Conv", ["x", "w"], ["y"], "conv")], "graph",
    [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 16, 16])],
    [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], [weights])
opsets = [helper.make_opsetid("", 17)]
onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), "network.onnx")
class Reader(CalibrationDataReader):
    feeds = iter([{"x": np.ones((1, 3, 16, 16), dtype=np.float32)}] * 4)
    def get_next(self):
        return next(self.feeds, None)
for number in range(20):
    with otel_quant.step(f"Part {number}"):
        pass
quantize_static("network.onnx", "out.onnx", Reader())
"""


@dataclass(frozen=True, slots=True)
class Taken:
    """What one command took: wall and CPU time in seconds, memory in MiB."""

    wall: float
    cpu: float
    memory: float


def make(folder: Path, runs: int) -> tuple[Path, Path]:
    """Makes a folder of recordings and one of profiles, unless they are there."""
    recordings, profiles = folder / f"recordings-{runs}", folder / f"profiles-{runs}"
    if profiles.exists():
        return recordings, profiles
    one = folder / "one"
    shutil.rmtree(one, ignore_errors=True)
    record(one, PROGRAM)
    texts = {path.name: path.read_bytes() for path in one.iterdir()}
    whole = sum(map(len, texts.values())) / 1000
    print(f"a recording: {whole:.0f} kB, its profile {len(texts['quark_profile.yaml']) / 1000:.0f}")
    for number in range(runs):
        changed = {
            name: text.replace(b"MinMax", METHODS[number % len(METHODS)]).replace(
                b"network.onnx", b"network-%02d.onnx" % (number // len(METHODS) % MODELS)
            )
            for name, text in texts.items()
        }
        into = recordings / f"{number // 100:03}" / f"run-{number:05}"
        into.mkdir(parents=True)
        for name, text in changed.items():
            (into / name).write_bytes(text)
        beside = profiles / f"{number // 100:03}" / f"run-{number:05}"
        beside.mkdir(parents=True)
        (beside / "quark_profile.yaml").write_bytes(changed["quark_profile.yaml"])
    return recordings, profiles


def record(into: Path, program: str, *arguments: str) -> None:
    """Records a Python program, which runs in the folder that its recording is put into."""
    command = (*COMMAND, "run", "--quiet", "--no-report", "--out", str(into), "--", sys.executable)
    subprocess.run(
        (*command, "-c", program, *arguments), cwd=into.parent, check=True, env=_environment()
    )


def measure(arguments: tuple[str, ...]) -> Taken:
    """Runs the command once."""
    began = time.perf_counter()
    child = subprocess.Popen((*COMMAND, *arguments), stdout=subprocess.DEVNULL, env=_environment())
    process, highest = psutil.Process(child.pid), 0
    while True:
        pid, status, usage = os.wait4(child.pid, os.WNOHANG)
        if pid:
            break
        try:
            tree = [process, *process.children(recursive=True)]
            highest = max(highest, sum(each.memory_info().rss for each in tree))
        except psutil.NoSuchProcess:
            pass
        time.sleep(0.01)
    wall = time.perf_counter() - began
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        sys.exit(f"otel-quant {' '.join(arguments)} failed")
    return Taken(wall, usage.ru_utime + usage.ru_stime, highest / 2**20)


def _environment() -> dict[str, str]:
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("OTEL_")}
    return {**inherited, "PYTHONPATH": str(ROOT)}


def main() -> None:
    """Makes the runs, measures, and prints a table."""
    parser = argparse.ArgumentParser(description="otel-quant runs: time and memory.")
    parser.add_argument("--runs", type=int, default=10_000, help="default: %(default)s")
    parser.add_argument("--rounds", type=int, default=3, help="default: %(default)s")
    parser.add_argument("--folder", type=Path, help="keeps the runs; made there if missing")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder: Path = options.folder or Path(temporary)
        folder.mkdir(exist_ok=True)
        recordings, profiles = make(folder, options.runs)
        rows = []
        for name, arguments in {
            "recordings, list": (str(recordings),),
            "recordings, table": (str(recordings), "--rows", "model"),
            "recordings, filter": (str(recordings), "--where", "calibration.method=MinMax"),
            "recordings, HTML": (str(recordings), "--format", "html"),
            "profiles, list": (str(profiles),),
            "profiles, JSON": (str(profiles), "--format", "json"),
        }.items():
            measure(("runs", *arguments))  # reads the files into the cache
            taken = [measure(("runs", *arguments)) for _ in range(options.rounds)]
            rows.append(
                (
                    name,
                    f"{min(each.wall for each in taken):.2f}",
                    f"{statistics.median(each.wall for each in taken):.2f}",
                    f"{min(each.cpu for each in taken):.2f}",
                    f"{max(each.memory for each in taken):.0f}",
                )
            )
    processors, load = os.cpu_count(), os.getloadavg()[0]
    print(f"{options.runs:,} runs, {processors} processors, load {load:.1f}")
    print_table(("what", "best s", "median s", "CPU s", "MiB"), rows)
    seconds = float(rows[0][1])
    print(f"ratio: {seconds / 2:.2f} (best time of the list / 2 s)")


if __name__ == "__main__":
    main()
