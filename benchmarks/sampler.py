"""What the sampler costs, alone and beside mprof's sampling.

The sampler of a run under way is left alone for some seconds, with 0, 1 and 16 idle
children; the kernel's clock of its thread is its CPU time. mprof's engine
(``memory_profiler.memory_usage`` of a process and its children) then watches the same
processes at the same interval. What is shown is the share of one core, and what one
sample takes: the sampler slows down to 0.5 % (0.6 % with stacks), to two samples a second at least.

Run ``python benchmarks/sampler.py``; the columns for mprof want memory_profiler
installed. Budget: 0.5 % of a core at 50 ms, which is 250 us for each of 20 samples a second; 0.6 %
with the stacks of 40 frames of a step.
"""

from __future__ import annotations

import argparse
import functools
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

from measuring import print_table, take_turns

from otel_quant.capture.probes.readers import Probes
from otel_quant.capture.recorder.recorder import Recorder
from otel_quant.capture.recorder.run_info import new_run_info
from otel_quant.capture.stack_sampler import StackSampler
from otel_quant.schema.readings import Reading

try:
    from memory_profiler import memory_usage
except ImportError:
    memory_usage = None

CHILDREN: Final = (0, 1, 16)

Engine = Callable[[int, float, float], tuple[float, int]]


class CountingProbes(Probes):
    """Probes that know how many samples they have taken."""

    def __init__(self) -> None:
        super().__init__()
        self.samples = 0

    def sample(self, *, totals: bool = False) -> Reading:
        """Takes and counts a sample."""
        self.samples += 1
        return super().sample(totals=totals)


@contextmanager
def idle_children(count: int) -> Iterator[None]:
    """Gives this process children that wait for input."""
    with ExitStack() as stack:
        for _ in range(count):
            child = stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE
                )
            )
            assert child.stdin is not None
            stack.callback(child.stdin.close)
        time.sleep(0.02 * count)  # until they wait
        yield


@contextmanager
def open_step(recorder: Recorder) -> Iterator[None]:
    """Opens a step below 40 frames of another thread, which wait."""
    began, over = threading.Event(), threading.Event()

    def call(depth: int) -> None:
        if depth:
            call(depth - 1)
            return
        step = recorder.open("Calibration")
        began.set()
        over.wait()
        recorder.close(step)

    thread = threading.Thread(target=call, args=(40,))
    thread.start()
    began.wait()
    yield
    over.set()
    thread.join()


def ours(
    children: int, interval: float, seconds: float, *, stacks: bool = True
) -> tuple[float, int]:
    """Returns our sampler's share of a core, and how many samples it took."""
    probes = CountingProbes()
    recorder = Recorder(
        new_run_info({}), probes, (), sample_interval=interval,
        stacks=StackSampler(names_paths=True) if stacks else None,
    )  # fmt: skip
    with idle_children(children), open_step(recorder):
        (thread,) = (t for t in threading.enumerate() if t.name == "otel-quant-sampler")
        assert thread.ident is not None
        clock = time.pthread_getcpuclockid(thread.ident)
        began, cpu, samples = time.perf_counter(), time.clock_gettime(clock), probes.samples
        time.sleep(seconds)
        spent, elapsed = time.clock_gettime(clock) - cpu, time.perf_counter() - began
        samples = probes.samples - samples
        recorder.end()
    return spent / elapsed, samples


def without_stacks(children: int, interval: float, seconds: float) -> tuple[float, int]:
    """Returns the same without stacks."""
    return ours(children, interval, seconds, stacks=False)


def mprof(children: int, interval: float, seconds: float) -> tuple[float, int]:
    """Returns the share of a core that mprof's sampling takes, and its samples."""
    with idle_children(children):
        began, cpu = time.perf_counter(), time.thread_time()
        taken = memory_usage(
            os.getpid(), interval=interval, timeout=seconds, include_children=True, max_iterations=1
        )
        return (time.thread_time() - cpu) / (time.perf_counter() - began), len(taken)


def main() -> None:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=2, help="stretches for each case")
    parser.add_argument("--seconds", type=float, default=5.0, help="length of a stretch")
    parser.add_argument("--interval", type=float, default=50.0, help="milliseconds")
    arguments = parser.parse_args()
    interval, seconds = arguments.interval / 1e3, arguments.seconds
    engines: dict[str, Engine] = {"otel-quant": ours, "without stacks": without_stacks}
    if memory_usage is not None:
        engines["mprof"] = mprof
    rows, shares = [], {}
    for children in CHILDREN:
        taken = take_turns(
            arguments.rounds,
            {
                name: functools.partial(engine, children, interval, seconds)
                for name, engine in engines.items()
            },
        )
        for name, figures in taken.items():
            share = statistics.median(figure[0] for figure in figures)
            per_second = statistics.median(figure[1] for figure in figures) / seconds
            shares[name, children] = share
            each = share / per_second * 1e6 if per_second else float("nan")
            rows.append(
                (f"{name}, {children} children", f"{share:.3%}", f"{per_second:.1f}", f"{each:.0f}")
            )
    print(f"asked for every {arguments.interval:g} ms, median of {arguments.rounds}")
    print_table(("", "of a core", "samples/s", "CPU us a sample"), rows)
    worst = max(shares["otel-quant", children] for children in CHILDREN)
    print(f"\nshare of a core: {worst:.3%} at most (budget: 0.6 %)")
    if memory_usage is not None:
        middle = statistics.median(
            shares["mprof", children] / shares["otel-quant", children] for children in CHILDREN
        )
        print(f"ratio: {middle:.1f} (mprof's share / ours, median over the numbers of children)")
    else:
        print("ratio: none without mprof; expected the package memory_profiler")


if __name__ == "__main__":
    main()
