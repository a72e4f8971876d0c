"""What the launcher's observation costs, and how near its peaks are, beside mprof's.

A program with 0, 1 and 16 idle children is watched for some seconds: by the launcher's observer,
and by mprof's engine (``memory_profiler.memory_usage`` of a process and its children) at the same
interval; the kernel's clock of the thread is the CPU time. Then a program whose memory rises and
falls is watched by both at once, and by a reader that looks every 2 ms.

Run ``python benchmarks/observer.py``; it wants memory_profiler installed.
"""

from __future__ import annotations

import argparse
import functools
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Final

from measuring import print_table, take_turns
from memory_profiler import memory_usage

from otel_quant.export.recording.curve import read_curve
from otel_quant.launcher.observer import Observer
from otel_quant.launcher.program import Ending

CHILDREN: Final = (0, 1, 16)

IDLE: Final = """
import subprocess, sys, time
children = [subprocess.Popen(["sleep", "1000"]) for _ in range({})]
time.sleep(1000)
"""
RISES_AND_FALLS: Final = """
import time
for size in (200, 500, 800, 300, 700):
    held = bytearray(size * 1_000_000)
    time.sleep(0.3)
    del held
    time.sleep(0.1)
time.sleep(2)
"""
LASTS: Final = 3.0
"""Seconds after which memory no longer changes; the program lives longer."""

FINE: Final = 0.002
"""Seconds between two looks of the reader that stands for the truth."""


def started(code: str) -> int:
    """Starts a Python program in a process group of its own, and returns its process id."""
    # Not by `Program`, which leaves this process no output.
    return subprocess.Popen([sys.executable, "-c", code], start_new_session=True).pid


def idle_program(children: int) -> int:
    """Starts a program that waits with its children, and returns its process id."""
    pid = started(IDLE.format(children))
    time.sleep(0.5 + 0.02 * children)
    return pid


def waited_for(pid: int) -> Ending:
    """Waits for a program, and returns how it has ended."""
    _, status, usage = os.wait4(pid, 0)
    return Ending(code=status, max_rss=usage.ru_maxrss)


def stopped(pid: int) -> Ending:
    """Stops a program with its children, and returns how it has ended."""
    os.killpg(pid, signal.SIGKILL)
    return waited_for(pid)


def ours(children: int, interval: float, seconds: float) -> float:
    """Returns the share of a core that the launcher's observer takes."""
    pid = idle_program(children)
    with tempfile.TemporaryDirectory() as folder:
        observer = Observer(Path(folder), pid, interval)
        observer.start()
        (thread,) = (t for t in threading.enumerate() if t.name == "otel-quant-sampler")
        assert thread.ident is not None
        clock = time.pthread_getcpuclockid(thread.ident)
        began, cpu = time.perf_counter(), time.clock_gettime(clock)
        time.sleep(seconds)
        spent, elapsed = time.clock_gettime(clock) - cpu, time.perf_counter() - began
        observer.observe(stopped(pid))
    return spent / elapsed


def mprof(children: int, interval: float, seconds: float) -> float:
    """Returns the share of a core that mprof's sampling takes."""
    pid = idle_program(children)
    began, cpu = time.perf_counter(), time.thread_time()
    memory_usage(pid, interval=interval, timeout=seconds, include_children=True, max_iterations=1)
    share = (time.thread_time() - cpu) / (time.perf_counter() - began)
    stopped(pid)
    return share


def peaks(interval: float) -> dict[str, float]:
    """Returns the peak of one program in MB, as each of the three has seen it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        pid = started(RISES_AND_FALLS)
        observer = Observer(folder, pid, interval)
        observer.start()
        seen: dict[str, float] = {"every 2 ms": 0.0}

        def look_often() -> None:
            page = os.sysconf("SC_PAGE_SIZE")
            statm = Path(f"/proc/{pid}/statm")
            until = time.monotonic() + LASTS
            while time.monotonic() < until:
                resident = int(statm.read_text().split()[1])
                seen["every 2 ms"] = max(seen["every 2 ms"], resident * page / 1e6)
                time.sleep(FINE)

        def as_mprof() -> None:
            seen["mprof"] = 1.048576 * memory_usage(
                pid, interval=interval, timeout=LASTS, include_children=True, max_usage=True
            )

        threads = [threading.Thread(target=each, daemon=True) for each in (look_often, as_mprof)]
        for thread in threads:
            thread.start()
        observer.observe(waited_for(pid))
        for thread in threads:
            thread.join(5)
        curve = read_curve(folder / "curve.launcher.jsonl").curve
    levels = (bucket.levels.get("memory") for bucket in curve.buckets.values())
    seen["otel-quant run"] = max(level.highest for level in levels if level is not None) / 1e6
    return seen


def main() -> None:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3, help="stretches for each case")
    parser.add_argument("--seconds", type=float, default=4.0, help="length of a stretch")
    parser.add_argument("--interval", type=float, default=50.0, help="milliseconds")
    arguments = parser.parse_args()
    interval, seconds = arguments.interval / 1e3, arguments.seconds
    rows, ratios = [], []
    for children in CHILDREN:
        taken = take_turns(
            arguments.rounds,
            {
                "otel-quant run": functools.partial(ours, children, interval, seconds),
                "mprof": functools.partial(mprof, children, interval, seconds),
            },
        )
        share = {name: statistics.median(figures) for name, figures in taken.items()}
        ratios.append(share["mprof"] / share["otel-quant run"])
        rows += [(f"{name}, {children} children", f"{of:.2%}") for name, of in share.items()]
    print(f"asked for every {arguments.interval:g} ms, median of {arguments.rounds}")
    print_table(("", "of a core"), rows)
    print(f"ratio: {min(ratios):.1f} to {max(ratios):.1f} (mprof's share / ours)\n")
    found = [peaks(interval) for _ in range(arguments.rounds)]
    print_table(
        ("peak of one program, MB", *found[0]),
        [
            (str(turn), *(f"{peak:.1f}" for peak in seen.values()))
            for turn, seen in enumerate(found)
        ],
    )


if __name__ == "__main__":
    main()
