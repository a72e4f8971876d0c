"""How much of a short spike of memory is seen: by otel-quant, by its exact mode, by mprof.

A process holds 40 MiB for some milliseconds in a step of its own, twice: once as its
highest mark so far, and once after a higher spike of 80 MiB in an earlier step, where the
kernel's mark does not move. The same program runs under ``mprof run`` at its default
interval of 100 ms. Shown is what was seen of the spike, in percent: of
several runs the median and the least.

Run ``python benchmarks/peaks.py``; memory_profiler must be installed for mprof's columns.
"""

from __future__ import annotations

import argparse
import functools
import json
import mmap
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from measuring import print_table, take_turns

SPIKE: Final = 40 << 20  # more takes longer to touch than the shortest spike lasts
EARLIER: Final = 80 << 20
MPROF: Final = Path(sys.executable).with_name("mprof")
MPROF_INTERVAL: Final = 0.1  # seconds; its default
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")


def spike(size: int, milliseconds: float) -> None:
    """Holds memory, every page of it touched, and gives it back to the system."""
    with mmap.mmap(-1, size) as memory:
        memory[:: mmap.PAGESIZE] = b"x" * (size // mmap.PAGESIZE)
        time.sleep(milliseconds / 1e3)


def rss() -> int:
    """Returns this process's resident memory in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE


def program(milliseconds: float, below: bool, profile: Path | None) -> None:
    """Has its spike within a step, or without any step for mprof; prints when it was."""
    if profile is None:
        if below:
            spike(EARLIER, 300)
            time.sleep(0.3)
        before, began = rss(), time.time()
        spike(SPIKE, milliseconds)
        print(json.dumps({"before": before, "began": began, "ended": time.time()}))
        time.sleep(0.3)
        return
    import otel_quant

    with otel_quant.run(str(profile)) as run:
        if below:
            with otel_quant.step("Model Loading"):
                spike(EARLIER, 300)
                time.sleep(0.3)
        with otel_quant.step("Calibration"):
            before = rss()
            spike(SPIKE, milliseconds)
    step = run.steps[-1]
    print(
        json.dumps(
            {
                "before": before,
                "peak": step.memory_peak,
                "source": step.memory_peak_source or "sampled",
            }
        )
    )


def seen_by_us(milliseconds: float, below: bool, exact: bool) -> float:
    """Returns the part of the spike that the step's peak shows."""
    with tempfile.TemporaryDirectory() as temporary:
        finished = subprocess.run(
            [
                sys.executable,
                __file__,
                "--program",
                str(milliseconds),
                str(below),
                f"{temporary}/p",
            ],
            env={**os.environ, "OTEL_QUANT_EXACT_PEAKS": str(exact).lower()},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
    figures: dict[str, float] = json.loads(finished.stdout)
    return (figures["peak"] - figures["before"]) / SPIKE


def seen_by_mprof(milliseconds: float, below: bool, interval: float) -> float:
    """Returns the part of the spike that mprof's highest sample of that time shows."""
    with tempfile.TemporaryDirectory() as temporary:
        record = Path(temporary, "mprof.dat")
        finished = subprocess.run(
            [
                *(str(MPROF), "run", "--interval", str(interval), "--output", str(record)),
                *(sys.executable, __file__, "--program", str(milliseconds), str(below), "-"),
            ],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        samples = [
            (float(when), float(mebibytes) * (1 << 20))
            for kind, mebibytes, when in (
                line.split()[:3] for line in record.read_text().splitlines() if line
            )
            if kind == "MEM"
        ]
    figures: dict[str, float] = json.loads(finished.stdout.splitlines()[-1])
    within = [
        memory
        for when, memory in samples
        if figures["began"] - interval <= when <= figures["ended"] + interval
    ]
    return max(0.0, max(within, default=0.0) - figures["before"]) / SPIKE


def main() -> None:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=2, help="processes of each kind")
    parser.add_argument(
        "--milliseconds", type=float, nargs="+", default=[5.0, 50.0, 200.0], help="of the spikes"
    )
    parser.add_argument("--program", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.program:
        milliseconds, below, profile = arguments.program
        program(float(milliseconds), below == "True", None if profile == "-" else Path(profile))
        return

    rows, least = [], 1.0
    names: list[str] = []
    for below in (False, True):
        for milliseconds in arguments.milliseconds:
            observers = {
                "otel-quant": functools.partial(seen_by_us, milliseconds, below, False),
                "exact mode": functools.partial(seen_by_us, milliseconds, below, True),
            }
            if MPROF.exists():
                observers["mprof"] = functools.partial(
                    seen_by_mprof, milliseconds, below, MPROF_INTERVAL
                )
            taken = take_turns(arguments.rounds, observers)
            names = list(taken)
            least = min(least, *taken["exact mode"])
            where = "below an earlier mark" if below else "highest so far"
            rows.append(
                (
                    f"{milliseconds:g} ms, {where}",
                    *(
                        f"{statistics.median(seen):.0%} ({min(seen):.0%})"
                        for seen in taken.values()
                    ),
                )
            )
    print(f"seen of a spike of 40 MiB, median (least) of {arguments.rounds}")
    print_table(("", *names), rows)
    print(f"\nratio: {least:.3f} at least (seen by the exact mode / true)")


if __name__ == "__main__":
    main()
