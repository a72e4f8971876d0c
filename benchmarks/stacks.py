"""Whether the lines that ``otel-quant stacks`` names are those that py-spy and memray name.

Each program quantizes for real. In its first run py-spy samples the same process at the same time: what is
compared is the line with the most time of its own within calls that are steps, and the share of each. A second
run is under memray: the line that holds the most memory at its high-water mark is compared with the one at
which memory grew most.

Run ``python benchmarks/stacks.py``; it wants ``pip install py-spy memray``.
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

_WRAPPER: Final = re.compile(r"wrapper \((steps|scope)\.py:")
"""Our own frame around a call of a library, which has no folder."""

_OURS: Final = re.compile(rf"{_WRAPPER.pattern}|\(samples\.py:|otel_quant/")

Lines = Counter[str]


def place(file: str, line: int) -> str:
    """Returns a line as all three tools can name it."""
    return f"{Path(file).name}:{line}"


def ours_and_pyspy(command: list[str], folder: Path) -> tuple[Lines, Lines, Lines]:
    """Returns nanoseconds and bytes of growth by line as we have seen them, and py-spy's samples."""
    record, raw = folder / "recording", folder / "raw.txt"
    spy = f"{Path(sys.executable).with_name('py-spy')} record --idle -r 50 -f raw -o {raw} -- {sys.executable}"
    run = f"{sys.executable} -m otel_quant run --quiet --no-report --out {record} -- {spy}"
    _run([*run.split(), *command], folder)
    times, growths, samples = Lines(), Lines(), Lines()
    for line, seen in by_line(stacks_in(read(record))).items():
        times[place(line.file, line.line)] += seen.time
        growths[place(line.file, line.line)] += seen.grown
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
    """Returns the bytes that each line holds at the high-water mark."""
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
            _, file, line = stack[0]
            held[place(file, line)] += record.size
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
    parser.add_argument("--only", choices=PROGRAMS, help="one of the programs")
    options = parser.parse_args()
    rows, agreed = [], Counter[str]()
    names = [options.only] if options.only else list(PROGRAMS)
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            times, growths, samples = ours_and_pyspy(PROGRAMS[name], Path(folder))
            held = memray(PROGRAMS[name], Path(folder))
        for what, ours, theirs in (("time", times, samples), ("memory", growths, held)):
            first, other = ours.most_common(1)[0][0], theirs.most_common(1)[0][0]
            rank = (
                [line for line, _ in theirs.most_common()].index(first) + 1
                if first in theirs
                else None
            )
            agreed[what] += first == other
            rows.append([name, what, *top(ours), *top(theirs), rank or "-"])
    print_table(("program", "of", "otel-quant", "py-spy, memray", "rank there"), rows)
    print(
        f"ratio: same first line by time {agreed['time'] / len(names):.2f}, by memory {agreed['memory'] / len(names):.2f}"
    )


if __name__ == "__main__":
    main()
