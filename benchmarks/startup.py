"""What loading the instrumentor adds to the start of a Python program.

``opentelemetry-instrument python -c pass`` with the otel_quant instrumentor and with it
disabled (``OTEL_PYTHON_DISABLED_INSTRUMENTATIONS=otel_quant``) take turns; exporters are
``none``, so that neither waits for an endpoint. A plain ``python -c pass`` takes its turn
too, for scale.

Then the same for ``otel-quant run -- python -c ...``: the time until the program's first statement,
with and without it, in turns. Budget: 3 times a bare Python's.

Run ``python benchmarks/startup.py``, in an environment where otel-quant is installed;
``--imports`` shows the modules that only the instrumentor loads, and what each costs.
Budget: 50 ms.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from measuring import compiled_into, median_ratio, print_table, quartiles, take_turns

INSTRUMENT: Final = str(Path(sys.executable).with_name("opentelemetry-instrument"))
QUIET: Final = {f"OTEL_{signal}_EXPORTER": "none" for signal in ("TRACES", "METRICS", "LOGS")}
DISABLED: Final = {"OTEL_PYTHON_DISABLED_INSTRUMENTATIONS": "otel_quant"}
_IMPORT: Final = re.compile(r"import time:\s+(\d+) \|\s+\d+ \|\s+(\S+)")


def run(command: list[str], environment: Mapping[str, str]) -> tuple[float, float]:
    """Runs a command to its end; returns milliseconds of wall-clock time, and of CPU time."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    subprocess.run(command, env={**os.environ, **environment}, check=True)
    elapsed = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return elapsed * 1e3, spent * 1e3


def imports(environment: Mapping[str, str]) -> dict[str, int]:
    """Returns the microseconds that each module's own import takes at start-up."""
    finished = subprocess.run(
        [INSTRUMENT, sys.executable, "-X", "importtime", "-c", "pass"],
        env={**os.environ, **QUIET, **environment},
        check=True,
        stderr=subprocess.PIPE,
        text=True,
    )
    return {module: int(spent) for spent, module in _IMPORT.findall(finished.stderr)}


def show_imports(count: int) -> None:
    """Prints the modules that are loaded with the instrumentor only, the heaviest first."""
    without = (imports(DISABLED), imports(DISABLED))[1]  # the first compiles
    imports({})
    added = {name: spent for name, spent in imports({}).items() if name not in without}
    heaviest = sorted(added.items(), key=lambda item: -item[1])[:count]
    print(f"{len(added)} modules added, {sum(added.values()) / 1e3:.1f} ms together")
    print_table(("module", "own ms"), [(name, f"{spent / 1e3:.1f}") for name, spent in heaviest])


def until_first_statement(command: list[str]) -> float:
    """Returns the milliseconds from a start until the program runs its first statement."""
    began = time.monotonic_ns()
    told = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
    return (int(told) - began) / 1e6


def compare_launcher(rounds: int) -> None:
    """Measures starts with and without ``otel-quant run`` in turns and prints what was found."""
    python = [sys.executable, "-c", "import time; print(time.monotonic_ns())"]
    launcher = [str(Path(sys.executable).with_name("otel-quant")), "run", "--quiet", "--no-report"]
    with tempfile.TemporaryDirectory() as folder:
        number = itertools.count()
        kinds: dict[str, Callable[[], float]] = {
            "python": lambda: until_first_statement(python),
            "otel-quant run": lambda: until_first_statement(
                [*launcher, "--out", f"{folder}/{next(number)}", "--", *python]
            ),
        }
        for start in kinds.values():
            start()  # the first compiles and fills the page cache
        taken = take_turns(rounds, kinds)
    rows = [
        (
            name,
            f"{statistics.median(found):.0f}",
            "-".join(f"{each:.0f}" for each in quartiles(found)),
            f"{min(found):.1f}",
        )
        for name, found in taken.items()
    ]
    print(f"\nuntil a program's first statement, median of {rounds}, in milliseconds")
    print_table(("", "wall", "quartiles", "least"), rows)
    ours, bare = taken["otel-quant run"], taken["python"]
    least = min(ours) / min(bare)
    print(f"\nratio: {median_ratio(ours, bare):.1f}, of the least, which a load does not change, {least:.1f} "
          "(otel-quant run / python; budget: 3)")  # fmt: skip


def main() -> None:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20, help="starts of each kind")
    parser.add_argument("--imports", action="store_true", help="show what is imported instead")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        os.environ |= compiled_into(Path(temporary))
        if arguments.imports:
            show_imports(30)
        else:
            compare(arguments.rounds)
            compare_launcher(arguments.rounds)


def compare(rounds: int) -> None:
    """Measures the starts in turns and prints what was found."""
    python = [sys.executable, "-c", "pass"]
    kinds: dict[str, tuple[list[str], Mapping[str, str]]] = {
        "python": (python, {}),
        "opentelemetry-instrument": ([INSTRUMENT, *python], {**QUIET, **DISABLED}),
        "... and otel_quant": ([INSTRUMENT, *python], QUIET),
    }
    for command, environment in kinds.values():
        run(command, environment)  # the first start compiles and fills the page cache
    taken = take_turns(
        rounds, {name: functools.partial(run, *kind) for name, kind in kinds.items()}
    )
    rows = []
    medians = {}
    for name, figures in taken.items():
        walls, cpus = zip(*figures, strict=True)
        medians[name] = statistics.median(walls), statistics.median(cpus)
        low, high = quartiles(walls)
        rows.append(
            (name, f"{medians[name][0]:.0f}", f"{low:.0f}-{high:.0f}", f"{medians[name][1]:.0f}")
        )
    print(f"start and end of a Python program, median of {rounds}, in milliseconds")
    print_table(("", "wall", "quartiles", "CPU"), rows)
    bare, ours = taken["opentelemetry-instrument"], taken["... and otel_quant"]
    wall, cpu = (
        statistics.median(mine[part] - its[part] for mine, its in zip(ours, bare, strict=True))
        for part in (0, 1)
    )
    print(f"\nadded, median of the differences: {wall:.0f} ms wall, {cpu:.0f} ms CPU (budget: 50)")
    ratio = medians["... and otel_quant"][1] / medians["opentelemetry-instrument"][1]
    print(f"ratio: {ratio:.3f} (CPU time with otel_quant / without)")


if __name__ == "__main__":
    main()
