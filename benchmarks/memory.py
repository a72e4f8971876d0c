"""What instrumentation adds to a process's memory, and what 10,000 steps add to that.

Each figure is the RSS of a process of its own that has imported the SDK with its
exporters and configured them (see :mod:`local_sdk`), the part that a program under
``opentelemetry-instrument`` has anyway: with nothing more; with the instrumentor; with
everything on after 10 steps; after 1,000; after 10,000. The local file is written, spans
and log records are encoded and dropped.

Run ``python benchmarks/memory.py``. No growth with the number of steps is wanted beyond
what the SDK's queues hold at a time.
"""

from __future__ import annotations

import argparse
import functools
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from measuring import print_table, quartiles, take_turns

_PAGE: Final = os.sysconf("SC_PAGE_SIZE")


def rss() -> int:
    """Returns this process's resident memory in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE


def report(steps: int | None, profile: Path) -> None:
    """Prints this process's RSS after a number of steps; None loads nothing of ours."""
    from local_sdk import configure

    configure(encode=True)
    if steps is not None:
        import otel_quant
        from otel_quant.export.otel.automatic_providers import note_automatic_providers

        note_automatic_providers()  # as under opentelemetry-instrument
        otel_quant.QuantInstrumentor().instrument()
        if steps:
            from opentelemetry import trace
            from opentelemetry._logs import get_logger_provider

            from otel_quant.capture.runtime import RUNTIME

            os.environ["OTEL_QUANT_PROFILE"] = str(profile)  # not `run`, which keeps each step
            for _ in range(steps):
                with otel_quant.step("Calibration"):
                    pass
            RUNTIME.end_run()

            providers: tuple[Any, Any] = (trace.get_tracer_provider(), get_logger_provider())
            for provider in providers:  # of the SDK: the API's own have nothing to flush
                provider.force_flush()
    print(rss())


def in_a_process(steps: int | None) -> float:
    """Returns the RSS of a process after a number of steps, in MiB."""
    with tempfile.TemporaryDirectory() as temporary:
        finished = subprocess.run(
            [sys.executable, __file__, "--report", str(steps), temporary],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
    return int(finished.stdout) / (1 << 20)


def main() -> None:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="processes of each kind")
    parser.add_argument(
        "--steps", type=int, nargs="+", default=[10, 1_000, 10_000], help="of a process"
    )
    parser.add_argument("--report", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.report:
        steps, folder = arguments.report
        report(None if steps == "None" else int(steps), Path(folder, "profile.yaml"))
        return
    if arguments.rounds < 1 or min(arguments.steps) < 1:
        parser.error("--rounds and --steps have to be 1 or more")

    kinds: dict[str, int | None] = {"SDK": None, "+ instrumentor": 0}
    kinds |= {f"+ {steps:,} steps": steps for steps in sorted(arguments.steps)}
    taken = take_turns(
        arguments.rounds,
        {name: functools.partial(in_a_process, steps) for name, steps in kinds.items()},
    )
    medians = {name: statistics.median(figures) for name, figures in taken.items()}
    rows = []
    for name, figures in taken.items():
        low, high = quartiles(figures)
        added = medians[name] - medians["SDK"]
        rows.append((name, f"{medians[name]:.1f}", f"{low:.1f}-{high:.1f}", f"{added:+.1f}"))
    print(f"RSS in MiB, median of {arguments.rounds} processes")
    print_table(("", "RSS", "quartiles", "added"), rows)
    fewest, most = min(arguments.steps), max(arguments.steps)
    few, many = medians[f"+ {fewest:,} steps"], medians[f"+ {most:,} steps"]
    print(
        f"\nratio: {many / medians['SDK']:.3f} (after {most:,} steps / SDK alone); "
        f"{most - fewest:,} more steps added {many - few:.1f} MiB"
    )


if __name__ == "__main__":
    main()
