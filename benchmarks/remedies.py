"""Whether the remedies that ``otel-quant`` prints help: planted programs before and after, in turns.

Each program has what a verdict of ``otel_quant/diagnosis/bounds.py`` names; the second of a pair applies its remedy
and nothing else. Of "half" it is half of the program, and of "not" it looks like the cause and is not (of "lock_file" another build runs). Each round runs
all pairs, one program after the other.

Run ``python benchmarks/remedies.py``; it wants ``pip install onnxruntime torch`` and a C++ compiler, for the pairs
"lock_file" PyTorch up to 2.13.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from measuring import print_table

HANGS: Final = ("lock_file", "lock_file, half")
LONGEST: Final = 60.0
"""Seconds after which a program counts as one that does not end."""

CALIBRATION: Final = """
import functools, multiprocessing, pathlib, queue, sys, threading, time
import numpy as np, onnx
from onnx import parser
from onnxruntime.quantization import CalibrationDataReader, CalibrationMethod, quantize_static

model = parser.parse_model(
    '<ir_version: 8, opset_import: ["" : 17]> g (float[1, 3, 256, 256] x) => (float[1, 64, 256, 256] y)'
    ' <float[64, 3, 3, 3] w, float[64, 64, 3, 3] v> {'
    ' h = Conv <pads = [1, 1, 1, 1]> (x, w) r = Relu (h) y = Conv <pads = [1, 1, 1, 1]> (r, v) }'
)
for name, shape in (("w", (64, 3, 3, 3)), ("v", (64, 64, 3, 3))):
    weight = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weight, name))
onnx.save(model, "float.onnx")

class Reader(CalibrationDataReader):
    def __init__(self, samples, seconds):
        self.left, self.seconds, self.generator = samples, seconds, np.random.default_rng(1)

    def get_next(self):
        self.left -= 1
        if self.left < 0:
            return None
        time.sleep(self.seconds)  # a slow disk or network
        return {"x": self.generator.random((1, 3, 256, 256), np.float32)}

class InAnotherThread(CalibrationDataReader):
    def __init__(self, reader):
        self.loaded = queue.Queue(4)
        threading.Thread(target=self.load, args=(reader,), daemon=True).start()

    def load(self, reader):
        while True:
            self.loaded.put(sample := reader.get_next())
            if sample is None:
                return

    def get_next(self):
        return self.loaded.get()

def sample_of(number, seconds):
    return Reader(number + 1, seconds).get_next()

class Keeping(Reader):
    kept = []

    def get_next(self):
        self.kept.append(np.ones(3_000_000))
        return super().get_next()

class InProcesses(CalibrationDataReader):
    def __init__(self, samples, seconds):
        pool = multiprocessing.get_context("fork").Pool(4)
        self.loaded = pool.imap(functools.partial(sample_of, seconds=seconds), range(samples))

    def get_next(self):
        return next(self.loaded, None)

class OnDisk(CalibrationDataReader):
    def __init__(self):
        self.files = iter(sorted(pathlib.Path().glob("sample-*.npy")))

    def get_next(self):
        file = next(self.files, None)
        return None if file is None else {"x": np.load(file)}
"""

KEEP: Final = """
for number in range(20):
    np.save(f"sample-{number:02}.npy", np.random.default_rng(number).random((1, 3, 256, 256), np.float32))
"""

EXTENSION: Final = """
from torch.utils.cpp_extension import load_inline
source = "#include <torch/extension.h>\\nint two() { return 2; }"
assert load_inline("two", source, functions=["two"]).two() == 2
"""

WORK: Final = """
import time
end = time.process_time() + 15
while time.process_time() < end:
    pass
"""

CHANGES: Final = EXTENSION.replace(
    "return 2;", 'return 2 + 0 * " + str(time.time_ns() % 1000) + ";'
).replace("source", "import time\nsource", 1)

GARBAGE: Final = """
import gc
there = [{"a": [number]} for number in range(OLD)]
own = []
for _ in range(60):
    sum(range(WORK))
    own += ({"a": [number]} for number in range(MADE))
    gc.collect()
"""

COMPILED: Final = """
import torch
layers = [layer for _ in range(8) for layer in (torch.nn.Linear(64, 64), torch.nn.GELU(), torch.nn.LayerNorm(64))]
torch.compile(torch.nn.Sequential(*layers))(torch.ones(4, 64))
"""


def static(reader: str, method: str = "MinMax") -> str:
    """Returns a program that calibrates with a reader and a method."""
    return f"{CALIBRATION}\nquantize_static('float.onnx', 'q.onnx', {reader}, calibrate_method=CalibrationMethod.{method})"


def collecting(old: int, work: int, made: int = 0) -> tuple[str, str]:
    """Returns a program that collects after each layer, and the same with what was there before left out."""
    program = GARBAGE.replace("OLD", str(old)).replace("WORK", str(work))
    program = program.replace("MADE", str(made))
    return program, program.replace("own = []", "own = []\ngc.freeze()")


def small(program: str) -> str:
    """Returns the same with one channel in place of 64."""
    return program.replace("64", "1")


IN_A_LOOP: Final = "Reader(20, 0.3)"
MOSTLY: Final = "Reader(20, 1.5)"
PAIRS: Final = {
    "calibration_data": (static(IN_A_LOOP), static(f"InAnotherThread({IN_A_LOOP})")),
    "calibration_data, most of the time": (static(MOSTLY), static("InProcesses(20, 1.5)")),
    "calibration_data, kept on disk": (static(MOSTLY), static("OnDisk()")),
    "calibration_data, not": (
        static(f"InAnotherThread({MOSTLY})"),
        static(f"InAnotherThread(InAnotherThread({MOSTLY}))"),
    ),
    "memory_growth": (static("Reader(30, 0)", "Entropy"), static("Reader(30, 0)")),
    "memory_growth, Percentile": (static("Reader(30, 0)", "Percentile"), static("Reader(30, 0)")),
    "memory_growth, half": (static("Keeping(30, 0)", "Entropy"), static("Keeping(30, 0)")),
    "memory_growth, not": (
        small(static("Keeping(30, 0)", "Entropy")),
        small(static("Keeping(30, 0)")),
    ),
    "garbage_collector": collecting(400_000, 200_000),
    "garbage_collector, half": collecting(400_000, 2_500_000),
    "garbage_collector, not": collecting(0, 200_000, 10_000),
    "compiling, half": (EXTENSION + WORK, EXTENSION + WORK),
    "compiling, not": (CHANGES, CHANGES),
    "compiling": (EXTENSION, EXTENSION),
    "compiling, torch.compile": (COMPILED, COMPILED),
    "lock_file": (EXTENSION, EXTENSION),
    "lock_file, half": (WORK + EXTENSION, WORK + EXTENSION),
    "lock_file, not": (EXTENSION, EXTENSION),
}
"""Programs of a verdict before and after its remedy."""


def prepare(name: str, is_after: bool, folder: Path) -> subprocess.Popen[bytes] | None:
    """Makes the folder that compiled extensions are kept in as the program before, or the remedy, leaves it.

    Returns a build that runs meanwhile and has the lock, if there is one.
    """
    kept = folder / "extensions"
    lock, other = kept / "two" / "lock", None
    if name.startswith("compiling") and not is_after:
        subprocess.run(["rm", "-rf", str(kept)], check=True)
    if name.endswith("on disk") and is_after:
        run(CALIBRATION + KEEP, folder)
    if name == "lock_file, not":
        subprocess.run(["rm", "-rf", str(kept)], check=True)
        other = start(EXTENSION, folder)
        while not lock.exists():
            time.sleep(0.01)
        if is_after:
            lock.unlink()
    elif name.startswith("lock_file"):
        if not (kept / "two").exists():
            run(EXTENSION, folder, longest=600)
        lock.unlink(missing_ok=True)
        if not is_after:
            lock.touch()  # as a build that is killed leaves it
    return other


def start(program: str, folder: Path) -> subprocess.Popen[bytes]:
    """Starts a program in a folder."""
    kept = dict.fromkeys(
        ("TORCH_EXTENSIONS_DIR", "TORCHINDUCTOR_CACHE_DIR"), str(folder / "extensions")
    )
    # A cache of the compiler's would be a remedy already.
    variables = {**os.environ, **kept, "CCACHE_DISABLE": "1"}
    silent = subprocess.DEVNULL
    return subprocess.Popen(
        [sys.executable, "-c", program], cwd=folder, env=variables, stdout=silent, stderr=silent
    )


def run(program: str, folder: Path, longest: float = 600) -> tuple[float, float]:
    """Returns the seconds that a program takes and its peak of memory, in bytes; inf if it does not end, NaN if it fails."""
    began = time.monotonic()
    process = start(program, folder)
    while True:
        pid, status, used = os.wait4(process.pid, os.WNOHANG)
        seconds = time.monotonic() - began
        if pid:
            process.returncode = os.waitstatus_to_exitcode(status)
            return seconds if process.returncode == 0 else math.nan, used.ru_maxrss * 1024
        if seconds > longest:
            process.kill()
            process.wait()
            return float("inf"), 0
        time.sleep(0.01)


def main() -> None:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=PAIRS, action="append", help="one of the pairs")
    parser.add_argument("--rounds", type=int, default=3, help="default: %(default)s")
    options = parser.parse_args()
    names = options.only or list(PAIRS)
    found: dict[str, tuple[list[tuple[float, float]], list[tuple[float, float]]]] = {
        name: ([], []) for name in names
    }
    with tempfile.TemporaryDirectory() as temporary:
        for _ in range(options.rounds):
            for name in names:
                for is_after in (False, True):
                    other = prepare(name, is_after, Path(temporary))
                    longest = LONGEST if name in HANGS else 600
                    figures = run(PAIRS[name][is_after], Path(temporary), longest)
                    found[name][is_after].append(figures)
                    if other is not None:
                        other.wait()
    rows = []
    for name, sides in found.items():
        (before, memory), (after, less) = (
            [statistics.median(each) for each in zip(*side, strict=True)] for side in sides
        )
        rows.append(
            [name, f"{before:.1f}", f"{after:.1f}", f"{memory / 1e6:.0f}", f"{less / 1e6:.0f}"]
        )
    print_table(("verdict", "s before", "s after", "MB before", "MB after"), rows)


if __name__ == "__main__":
    main()
