"""Whether the lines that ``otel-quant stacks`` names are those that py-spy and memray name.

Three programs quantize for real. In their first run py-spy samples the same process at the same time: what is
compared is the line with the most time of its own within calls that are steps, and the share of each. A second
run is under memray: the function that holds the most memory at its high-water mark is compared with the one in
which memory grew most (its lines differ: what one reserves, the next one fills). Four more are compared by memory alone: what grows is in threads, in functions one after
another, or in a data reader.

Run ``python benchmarks/stacks.py``; it wants ``pip install onnxruntime amd-quark torch py-spy memray``, and otel-quant
installed or on PYTHONPATH.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Final

from measuring import print_table

from otel_quant.recordings.reader import by_line, read, stacks_in

HERE: Final = Path(__file__).parent
PROGRAMS: Final = {
    "onnxruntime, MinMax": [str(HERE.parent / "examples" / "onnxruntime_static.py")],
    "onnxruntime, Entropy": [str(HERE.parent / "examples" / "onnxruntime_static.py"), "--method", "Entropy"],
    "Quark, ONNX": [str(HERE.parent / "examples" / "quark_onnx.py")],
}  # fmt: skip

READER: Final = """
import time, numpy as np, onnx
from onnx import parser
from onnxruntime.quantization import CalibrationMethod, quantize_static

model = parser.parse_model('<ir_version: 8, opset_import: ["" : 17]> g (float[1, 3, 32, 32] x) => (float[1, 8, 32, 32] y) <float[8, 3, 3, 3] w> { y = Conv <pads = [1, 1, 1, 1]> (x, w) }')
model.graph.initializer.append(onnx.numpy_helper.from_array(np.ones((8, 3, 3, 3), np.float32), "w"))
onnx.save(model, "float.onnx")

class Reader:
    left, kept = 40, []

    def get_next(self):
        self.left -= 1
        if self.left < 0:
            return None
        self.kept.append(np.ones(3_000_000))
        time.sleep(0.1)
        return {"x": np.ones((1, 3, 32, 32), np.float32)}

quantize_static("float.onnx", "q.onnx", Reader(), calibrate_method=CalibrationMethod.METHOD)
"""
OF_MEMORY: Final = {
    "threads of a pool": """
from concurrent.futures import ThreadPoolExecutor
import numpy as np, otel_quant

def heavy(number):
    return np.sin(np.ones(10_000_000)).sum(), np.ones(10_000_000)

with otel_quant.step("Pool"), ThreadPoolExecutor(2) as threads:
    kept = list(threads.map(heavy, range(24)))
""",
    "functions one after another": """
import time, numpy as np, otel_quant

def first():
    return b"x" * 150_000_000

def second():
    return b"y" * 100_000_000

def third():
    return np.ones(6_000_000)

with otel_quant.step("Allocate"):
    time.sleep(0.5)
    kept = first(), second(), third()
    time.sleep(0.5)
""",
    "a reader that keeps its samples, MinMax": READER.replace("METHOD", "MinMax"),
    "a reader that keeps its samples, Entropy": READER.replace("METHOD", "Entropy"),
}
"""Programs of which memory alone is compared."""

OUTSIDE: Final = "outside of steps"

_FOLDER: Final = r"\((?:[^()]*/)?"
_WRAPPER: Final = re.compile(rf"wrapper {_FOLDER}(steps|scope)\.py:")
"""Our own frame around a call of a library. Its folder depends on where otel-quant is installed."""

_OURS: Final = re.compile(rf"{_WRAPPER.pattern}|{_FOLDER}samples\.py:|otel_quant/")

Lines = Counter[str]


def place(file: str, at: int | str) -> str:
    """Returns a line, or a function, as all three tools can name it."""
    return f"{Path(file).name}:{at}"


def ours(command: list[str], folder: Path) -> tuple[Lines, Lines]:
    """Returns nanoseconds by line, and bytes of growth by function, as we have seen them."""
    record, times, growths = folder / "recording", Lines(), Lines()
    run = f"{sys.executable} -m otel_quant run --quiet --no-report --out {record} --"
    _run([*run.split(), *command], folder)
    stacks = stacks_in(read(record))
    for line, seen in by_line(each for each in stacks if each.where != OUTSIDE).items():
        times[place(line.file, line.line)] += seen.time
    for line, seen in by_line(stacks).items():
        growths[place(line.file, line.function.rpartition(".")[2])] += seen.grown
    return times, growths


def ours_and_pyspy(command: list[str], folder: Path) -> tuple[Lines, Lines, Lines]:
    """Returns the same of a run that py-spy watches, and its samples."""
    raw, samples = folder / "raw.txt", Lines()
    spy = f"{Path(sys.executable).with_name('py-spy')} record --idle -r 50 -f raw -o {raw} --"
    times, growths = ours([*spy.split(), sys.executable, *command], folder)
    for text in raw.read_text().splitlines():
        stack, _, count = text.rpartition(" ")
        frames = [
            frame for frame in stack.split(";") if not frame.startswith(("process ", "thread "))
        ]
        # Within what wraps a call of a library.
        if any(_WRAPPER.search(frame) for frame in frames):
            theirs = [frame for frame in frames if not _OURS.search(frame)]
            file, _, number = theirs[-1].rpartition("(")[2].rstrip(")").rpartition(":")
            samples[place(file, int(number))] += int(count)
    return times, growths, samples


def memray(command: list[str], folder: Path) -> Lines:
    """Returns the bytes that each function holds at the high-water mark."""
    from memray import FileReader

    capture = folder / "capture.bin"
    run = f"{sys.executable} -m memray run -q -f -o {capture}"
    _run([*run.split(), *command], folder)
    held = Lines()
    for record in FileReader(str(capture)).get_high_watermark_allocation_records(
        merge_threads=True
    ):
        stack = record.stack_trace(max_stacks=1)
        if stack:
            function, file, _ = stack[0]
            held[place(file, function)] += record.size
    return held


def _run(command: list[str], folder: Path) -> None:
    silent = subprocess.DEVNULL
    subprocess.run(command, cwd=folder, check=True, stdout=silent, stderr=silent)


def top(lines: Lines, most: int = 1) -> list[str]:
    """Returns the first lines with their shares."""
    whole = sum(lines.values()) or 1
    return [f"{line} {100 * amount / whole:.0f} %" for line, amount in lines.most_common(most)]


def main() -> None:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=[*PROGRAMS, *OF_MEMORY], help="one of the programs")
    options = parser.parse_args()
    rows = []
    agreed: dict[str, list[bool]] = {"time": [], "memory": []}
    for name in [options.only] if options.only else [*PROGRAMS, *OF_MEMORY]:
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary)
            if name in PROGRAMS:
                command = PROGRAMS[name]
                times, growths, samples = ours_and_pyspy(command, folder)
            else:
                (folder / "program.py").write_text(OF_MEMORY[name])
                command = [str(folder / "program.py")]
                _, growths = ours([sys.executable, *command], folder)
            held = memray(command, folder)
        compared = {"time": (times, samples)} if name in PROGRAMS else {}
        for what, (mine, theirs) in {**compared, "memory": (growths, held)}.items():
            first, order = mine.most_common(1)[0][0], [line for line, _ in theirs.most_common()]
            rank = order.index(first) + 1 if first in theirs else None
            agreed[what].append(rank == 1)
            rows.append([name, what, *top(mine), *top(theirs), rank or "-"])
    print_table(("program", "of", "otel-quant", "py-spy, memray", "rank there"), rows)
    same = {what: f"{sum(found)} of {len(found)}" for what, found in agreed.items()}
    print(f"same first line by time {same['time']}, same first function by memory {same['memory']}")


if __name__ == "__main__":
    main()
