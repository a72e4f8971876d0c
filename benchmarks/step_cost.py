"""What one step costs, beside the same telemetry made by hand, and a scope of Quark's profiler.

A step is entered and left with everything on: a span through the batch processor, the
metrics, two log records, two records in the local file, memory, disk and CPU of the
process tree, the sampler running. Quark's profiler is switched on and writes a file of
its own; its scopes and our steps take turns, ten at a time.

What is compared is the CPU time of the thread that enters and leaves: what a step takes
away from the program. "Cold" is one step at a time after work that has emptied the
processor's caches, which is how a step of a real run finds them.

Run ``python benchmarks/step_cost.py``. Budgets: at most 2.2 times the telemetry by hand (4
times with 8 children), which measures nothing; and, with more than 60 processes on the machine, at
most a tenth of Quark's scope. A recording makes a step at most 15 % dearer.
"""

from __future__ import annotations

import argparse
import cProfile
import functools
import os
import pstats
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import psutil
from local_sdk import configure
from measuring import median_ratio, print_table, take_turns
from telemetry_by_hand import CALIBRATION, by_hand, sent_by_one_step

os.environ["QUARK_PROFILING"] = "1"  # before Quark's profiler is made

from quark.common.profiler import GlobalProfiler

import otel_quant
from otel_quant.capture.probes.readers import Probes
from otel_quant.capture.recorder.recorder import Recorder
from otel_quant.capture.recorder.run_info import new_run_info
from otel_quant.export.otel.automatic_providers import note_automatic_providers
from otel_quant.export.otel.delivery import Delivery
from otel_quant.export.otel.logs import LogsSink
from otel_quant.export.otel.metrics import MetricsSink
from otel_quant.export.otel.spans import SpansSink
from otel_quant.export.quark_yaml.columns import ProgramMetrics
from otel_quant.export.quark_yaml.sink import QuarkYamlSink
from otel_quant.export.recording_sink import RecordingSink
from otel_quant.schema.events import Sink
from otel_quant.schema.figures import RESOURCES

IN_A_ROW: Final = 10

_WORK = np.zeros(64 << 20, dtype=np.uint8)  # larger than the caches of most processors

ALL: Final = "all of these"
RECORDED: Final = "all, and a recording"

VARIANTS: Final = (
    # name, children, threads, exact peaks
    ("no children", 0, 0, False),
    ("1 child", 1, 0, False),
    ("8 children", 8, 0, False),
    ("64 threads", 0, 64, False),
    ("64 threads, 1 child", 1, 64, False),
    ("exact peaks", 0, 0, True),
    ("exact peaks, 8 children", 8, 0, True),
)


@contextmanager
def surroundings(children: int, threads: int) -> Iterator[None]:
    """Gives this process idle children and idle threads."""
    with ExitStack() as stack:
        for _ in range(children):
            child = stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE
                )
            )
            assert child.stdin is not None
            stack.callback(child.stdin.close)
        over = threading.Event()
        stack.callback(over.set)
        for _ in range(threads):
            threading.Thread(target=over.wait, daemon=True).start()
        time.sleep(0.1 * bool(children))  # until they wait for input
        yield


def our_step() -> None:
    """Enters and leaves a step of ours."""
    with otel_quant.step("Calibration", attributes=CALIBRATION):
        pass


def in_a_row(act: Callable[[], None]) -> float:
    """Returns the microseconds of CPU that one of several in a row takes."""
    began = time.thread_time_ns()
    for _ in range(IN_A_ROW):
        act()
    return (time.thread_time_ns() - began) / IN_A_ROW / 1e3


def cold(act: Callable[[], None]) -> float:
    """Returns the microseconds of CPU that one takes when the caches hold other things."""
    _WORK[:] += 1
    began = time.thread_time_ns()
    act()
    return (time.thread_time_ns() - began) / 1e3


@dataclass(frozen=True)
class Ratios:
    """What was found in one variant.

    Attributes:
        to_hand: Cost of our step divided by the cost of its telemetry by hand.
        to_quark: Cost of Quark's scope divided by the cost of our step.
    """

    to_hand: float
    to_quark: float


def compare(
    rounds: int, folder: Path, profiler: Any, send_by_hand: Callable[[], None]
) -> tuple[list[tuple[object, ...]], dict[str, Ratios], dict[str, Ratios]]:
    """Returns the rows of the table, and the ratios by variant: in a row, and cold."""

    def quark_scope() -> None:
        with profiler.scope("Calibration"):
            pass

    rows: list[tuple[object, ...]] = []
    warm_ratios: dict[str, Ratios] = {}
    cold_ratios: dict[str, Ratios] = {}
    for name, children, threads, exact in VARIANTS:
        os.environ["OTEL_QUANT_EXACT_PEAKS"] = str(exact).lower()
        with surroundings(children, threads), otel_quant.run(str(folder / "ours.yaml")):
            row: list[object] = [name]
            for measure, ratios, count in (
                (in_a_row, warm_ratios, rounds),
                (cold, cold_ratios, rounds * 3),
            ):
                taken = take_turns(
                    count,
                    {
                        "ours": functools.partial(measure, our_step),
                        "hand": functools.partial(measure, send_by_hand),
                        "quark": functools.partial(measure, quark_scope),
                    },
                )
                found = ratios[name] = Ratios(
                    to_hand=median_ratio(taken["ours"], taken["hand"]),
                    to_quark=median_ratio(taken["quark"], taken["ours"]),
                )
                row += [f"{statistics.median(figures):.0f}" for figures in taken.values()]
                row += [f"{found.to_hand:.1f}", f"{found.to_quark:.1f}"]
            rows.append(tuple(row))
    return rows, warm_ratios, cold_ratios


def parts(rounds: int, folder: Path) -> list[tuple[object, ...]]:
    """Measures a recorder with one sink at a time, and with all: where the time goes."""
    metrics = ProgramMetrics(RESOURCES)
    spans = SpansSink()

    def all_sinks(name: str) -> list[Sink]:
        """Returns the sinks of a run, of a run with a recording if the name is ``recorded``."""
        its_spans = SpansSink()
        recording: list[Sink] = []
        if name == "recorded":
            (folder / name).mkdir(exist_ok=True)
            recording.append(
                RecordingSink(folder / name, its_spans.ids_of, is_launched=False, interval=0.05)
            )
        return [
            QuarkYamlSink(folder / f"{name}.yaml", metrics),
            its_spans,
            MetricsSink(RESOURCES, lambda: None, its_spans.context_of),
            LogsSink(Delivery().soon, its_spans.context_of),
            *recording,
        ]

    sinks: dict[str, list[Sink]] = {
        "recorder and probes": [],
        "+ local file": [QuarkYamlSink(folder / "part.yaml", metrics)],
        "+ spans": [spans],
        "+ metrics": [MetricsSink(RESOURCES, lambda: None, spans.context_of)],
        "+ logs": [LogsSink(Delivery().soon, spans.context_of)],
        ALL: all_sinks("not recorded"),
        RECORDED: all_sinks("recorded"),
    }
    recorders = {
        name: Recorder(new_run_info({}), Probes(), its_sinks, metrics, sample_interval=0)
        for name, its_sinks in sinks.items()
    }

    def one_step(recorder: Recorder) -> None:
        step = recorder.open("Calibration")
        assert step is not None
        step.leave(step.enter())
        recorder.close(step)

    def two_readings() -> None:
        probes.read()
        probes.read()

    probes = Probes()
    acts: dict[str, Callable[[], None]] = {"two readings alone": two_readings} | {
        name: functools.partial(one_step, recorder) for name, recorder in recorders.items()
    }
    shown: dict[str, list[float]] = {name: [] for name in acts}
    for measure, count in ((in_a_row, rounds), (cold, rounds * 3)):
        taken = take_turns(
            count, {name: functools.partial(measure, act) for name, act in acts.items()}
        )
        bare = statistics.median(taken["recorder and probes"])
        dearer = median_ratio(taken[RECORDED], taken[ALL])
        print(f"ratio: a step with a recording costs {dearer:.2f} times one without (budget 1.15)")
        for name, figures in taken.items():
            middle = statistics.median(figures)
            shown[name].append(middle - bare if name.startswith("+") else middle)
    for recorder in recorders.values():
        recorder.end()
    return [(name, *(f"{figure:.0f}" for figure in figures)) for name, figures in shown.items()]


def main() -> None:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=30, help="turns in each variant")
    parser.add_argument("--encode", action="store_true", help="encode to OTLP before discarding")
    parser.add_argument("--parts", action="store_true", help="only show where the time goes")
    parser.add_argument("--profile", action="store_true", help="show where our steps' time goes")
    arguments = parser.parse_args()

    discard = configure(encode=arguments.encode)
    note_automatic_providers()  # as under opentelemetry-instrument
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        profiler = GlobalProfiler(output_path=str(folder / "quark.yaml"))
        if arguments.profile:
            with otel_quant.run(str(folder / "ours.yaml")), cProfile.Profile() as profile:
                for _ in range(arguments.rounds):
                    our_step()
            pstats.Stats(profile).sort_stats("tottime").print_stats(40)
            return
        if arguments.parts:
            print_table(("part", "in a row", "cold"), parts(arguments.rounds, folder))
            return
        sent = sent_by_one_step(discard)
        rows, warm, chilled = compare(arguments.rounds, folder, profiler, by_hand(sent))
        print(f"by hand: {sent}")
        print(f"CPU time of one step in microseconds, {len(psutil.pids())} processes around")
        columns = ("ours", "by hand", "Quark", "ours / hand", "Quark / ours")
        print_table(("", *columns, *(f"{column}, cold" for column in columns)), rows)
        print("\nwhere ours goes, in microseconds")
        print_table(("part", "in a row", "cold"), parts(arguments.rounds, folder))
        profiler.stop()
    print(f"\nexported: {discard.items} spans and log records, {discard.octets} bytes")
    for state, found in (("in a row", warm), ("cold", chilled)):
        print(
            f"ratio: {found['no children'].to_hand:.1f} times the telemetry by hand, {state} "
            f"(budget 2.2), {found['8 children'].to_hand:.1f} with 8 children (budget 4); "
            f"Quark's scope is {found['no children'].to_quark:.1f} times ours (budget 10 with "
            "more than 60 processes)"
        )


if __name__ == "__main__":
    main()
