"""Time and memory of commands on a recording of many steps.

A real program is recorded that opens steps in two levels. Then each command is run as a user starts it. What it
takes is set against what Python's own decoder takes for the lines of the recording alone.

    python benchmarks/many_steps.py [--steps 100000] [--rounds 3] [--folder DIR]
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path

from many_runs import measure, record
from measuring import print_table

PROGRAM = """
import sys, otel_quant
otel_quant.QuantInstrumentor().instrument()
for _ in range(int(sys.argv[1]) // 100):
    with otel_quant.step("Block"):
        for number in range(99):
            with otel_quant.step(f"Layer {number}"):
                pass
"""


def make(folder: Path, steps: int) -> Path:
    """Records a program with so many steps, unless that is there."""
    recording = folder / f"steps-{steps}"
    if not recording.exists():
        record(recording, PROGRAM, str(steps))
    return recording


def decoding(recording: Path) -> float:
    """Returns the CPU time in which the lines are decoded."""
    (events,) = recording.glob("events.*.jsonl")
    began = time.process_time()
    with events.open("rb") as file:
        for line in file:
            json.loads(line)
    return time.process_time() - began


def main() -> None:
    """Makes the recording, measures, and prints a table."""
    parser = argparse.ArgumentParser(description="A recording of many steps: time and memory.")
    parser.add_argument("--steps", type=int, default=100_000, help="default: %(default)s")
    parser.add_argument("--rounds", type=int, default=3, help="default: %(default)s")
    parser.add_argument("--folder", type=Path, help="keeps the recording; made there if missing")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = (options.folder or Path(temporary)).resolve()
        recording = make(folder, options.steps)
        alone = min(decoding(recording) for _ in range(options.rounds))
        rows = []
        commands: dict[str, tuple[str, ...]] = {
            "show": ("show",),
            "show, CSV": ("show", "--format", "csv"),
            "show, JSON": ("show", "--format", "json"),
            "report": ("report", "-o", "-"),
            "watch --once": ("watch", "--once"),
        }
        for name, arguments in commands.items():
            taken = [measure((*arguments, str(recording))) for _ in range(options.rounds)]
            cpu = statistics.median(each.cpu for each in taken)
            memory = max(each.memory for each in taken)
            rows.append((name, f"{cpu:.1f}", f"{cpu / alone:.1f}", f"{memory:.0f}"))
    print(f"{options.steps:,} steps; their lines are decoded in {alone:.2f} s")
    print_table(("what", "CPU s", "of decoding", "MiB"), rows)
    print(f"ratio: {rows[0][2]} (show / decoding alone)")


if __name__ == "__main__":
    main()
